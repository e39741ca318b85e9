"""What people ask every day: lists by owner, tag, name and time; the spec of a job; changes of a job, and whose it must be."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from api_server import Api, Http, serving

from trainmaster.home import account_name
from trainmaster.model import events as ev
from trainmaster.model.commands import HoldJob, UpdateJob
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.server.streams import rank_logs

ALLOCATION = Allocation((NodeShare("node0", "127.0.0.1", 1.0),))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("everyday") / "home") as served:
        yield served


@pytest.fixture(scope="module")
def ben(api: Api) -> Http:
    """Another member."""
    token = api.http.post("/tokens", json={"name": "ben", "role": "member"}).json()["token"]
    return Http(base_url=api.http.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=20.0)


def refused(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["message"], error["hint"]


def ids(api: Api, **query: Any) -> list[str]:
    return [job["id"] for job in api.get("/jobs", **query)["jobs"]]


def test_lists_hold_waiting_and_recorded_jobs_alike(api: Api, ben: Http) -> None:
    first = api.submit(name="lists", tags={"owner": "team-a", "n": "1"})
    api.take_up()
    second = api.submit(name="lists-2", tags={"owner": "team-a"})  # only in the inbox yet
    other = ben.post("/jobs", json={"spec": {"command": "true", "name": "lists", "tags": {"owner": "team-b"}}}).json()["id"]
    assert ids(api, tag="owner=team-a") == [second, first]
    assert ids(api, tag=["owner=team-a", "n"]) == [first]
    assert ids(api, name="lists") == [other, first]
    assert ids(api, name="lists*", member="ben") == [other]
    assert ids(api, name="lists*", mine=True) == [second, first]
    assert [job["id"] for job in ben.get("/jobs", params={"name": "lists*", "mine": True}).json()["jobs"]] == [other]
    assert ids(api, name="lists*", mine=True, all=True) == [second, first]
    created_s = {job["id"]: job["created_s"] for job in api.get("/jobs", name="lists*")["jobs"]}
    assert ids(api, name="lists*", since_s=created_s[second]) == [other, second]
    assert ids(api, name="lists*", until_s=created_s[second]) == [first]
    api.take_up()
    assert ids(api, name="lists*", since_s=created_s[second]) == [other, second]
    assert {job["member"] for job in api.get("/jobs", name="lists*")["jobs"]} == {account_name(), "ben"}
    for bad in ({"tag": ["x"] * 21}, {"since_s": "soon"}, {"name": "x" * 201}, {"until_s": "1e30"}):
        assert api.http.get("/jobs", params=bad).status_code in (400, 422)


def test_one_answer_of_mine_is_not_anothers(api: Api, ben: Http) -> None:
    """The same path and query, and nothing written in between: the cached answer and its ETag are those of the caller."""
    mine = api.http.get("/jobs?mine=1&name=lists*")
    his = ben.get("/jobs?mine=1&name=lists*", headers={"If-None-Match": mine.headers["etag"]})
    assert (his.status_code, [job["member"] for job in his.json()["jobs"]]) == (200, ["ben"])
    again = api.http.get("/jobs?mine=1&name=lists*", headers={"If-None-Match": mine.headers["etag"]})
    assert again.status_code == 304


def test_the_spec_of_a_job(api: Api, ben: Http) -> None:
    variables = {"MODE": "fast", "HF_TOKEN": "abc"}
    job = api.submit(name="spec", environment={"variables": variables}, time_limit="90m", params={"lr": 0.1, "api_key": "s3cret"})
    told = api.get(f"/jobs/{job}/spec")
    assert (told["spec"]["time_limit"], told["spec"]["params"]) == ("1h30m", {"lr": 0.1, "api_key": "(hidden)"})
    assert told["spec"]["environment"]["variables"] == {"MODE": "fast", "HF_TOKEN": "(hidden)"}
    assert told["hidden"] == ["environment.variables.HF_TOKEN", "params.api_key"]
    his = ben.get(f"/jobs/{job}/spec").json()
    assert his["spec"]["environment"]["variables"] == {"MODE": "(hidden)", "HF_TOKEN": "(hidden)"}
    assert his["hidden"] == ["environment.variables.MODE", "environment.variables.HF_TOKEN", "params.api_key"]
    again = api.http.post("/jobs", json={"spec": {**told["spec"], "params": {"lr": 0.1}}}).json()["id"]
    assert api.get(f"/jobs/{again}/spec")["spec"] == {**told["spec"], "params": {"lr": 0.1}}


def test_a_job_is_changed_by_its_owner(api: Api, ben: Http) -> None:
    job = api.submit(name="change", tags={"owner": "team-a", "kind": "x"})
    changes = {"priority": 7, "time_limit": "2h", "class": "interactive", "tags": {"owner": "team-b", "kind": None}, "hold": "later"}
    answer = api.http.patch(f"/jobs/{job}", json=changes, headers={"Idempotency-Key": "one"})
    assert (answer.status_code, answer.json()) == (
        202,
        {"id": job, "state": "queued", "priority": 7, "time_limit_s": 7200.0, "class": "interactive", "tags": {"owner": "team-b"}},
    )
    assert api.http.patch(f"/jobs/{job}", json=changes, headers={"Idempotency-Key": "one"}).status_code == 202
    rows = [row.command for row in api.services.inbox.pending(0, job)][1:]
    user = account_name()
    assert rows == [
        UpdateJob(job, user, 7, 7200.0, False, "interactive", {"owner": "team-b", "kind": None}), HoldJob(job, user, "later"),
    ]  # fmt: skip
    assert refused(ben.patch(f"/jobs/{job}", json={"priority": 1}))[0] == 403
    assert ben.patch(f"/jobs/{ben.post('/jobs', json={'spec': {'command': 'true'}}).json()['id']}", json={"priority": 1}).status_code == 202


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({}, 400, "the request changes nothing"),
        ({"nodes": 2}, 400, "the request has unknown keys: nodes"),
        ({"priority": 1000}, 422, "priority: expected a whole number from -100 to 100"),
        ({"priority": None}, 422, "priority: expected a whole number from -100 to 100"),
        ({"time_limit": "soon"}, 422, "time_limit: expected a duration"),
        ({"tags": ["a"]}, 400, "tags must be an object"),
        ({"tags": {"a": 1}}, 422, "tags.a: expected a text"),
        ({"tags": {"none": None}}, 404, "{job} has no tag 'none'"),
        ({"class": "nothing"}, 400, "there is no class 'nothing' here"),
        ({"hold": 3}, 400, "hold must be text"),
    ],
)
def test_changes_that_cannot_be_made(api: Api, changes: dict[str, Any], status: int, message: str) -> None:
    job = api.submit(name="refused")
    before = len(api.services.inbox.pending(0, job))
    found = refused(api.http.patch(f"/jobs/{job}", json=changes))
    assert (found[0], found[1].startswith(message.format(job=job))) == (status, True), found
    assert len(api.services.inbox.pending(0, job)) == before


def test_what_the_state_of_a_job_does_not_allow(api: Api) -> None:
    job = api.submit(name="states")
    api.take_up()
    api.control.record(job, ev.Placed(1, ALLOCATION), ev.NodeStarted(1, 0))
    assert refused(api.http.patch(f"/jobs/{job}", json={"class": "interactive"}))[:2] == (
        409, f"{job} is running; only the class of a waiting job can be changed",
    )  # fmt: skip
    assert refused(api.http.patch(f"/jobs/{job}", json={"hold": ""}))[:2] == (409, f"{job} is running; only a waiting job can be held")
    status, message, hint = refused(api.http.patch(f"/jobs/{job}", json={"time_limit": 1}))
    assert (status, message.endswith("a limit of 1 s would end it at once"), hint) == (409, True, f"to end it: tm cancel {job}")
    assert api.http.patch(f"/jobs/{job}", json={"time_limit": None, "priority": 3}).json()["time_limit_s"] is None
    api.control.record(job, ev.CancelRequested("ann"))
    assert api.http.patch(f"/jobs/{job}", json={"priority": 3}).status_code == 202
    ended = api.submit(name="states")
    api.take_up()
    api.control.record(ended, ev.CancelRequested("ann"))
    assert refused(api.http.patch(f"/jobs/{ended}", json={"priority": 1, "tags": {"a": "b"}}))[:2] == (
        409, f"{ended} was cancelled; only its tags can still be changed",
    )  # fmt: skip
    assert api.http.patch(f"/jobs/{ended}", json={"tags": {"best": "yes"}}).json()["tags"] == {"best": "yes"}


def test_the_logs_of_some_ranks(api: Api) -> None:
    job = api.submit(name="ranks")
    directory = api.home.attempt(job, 1, 0)
    directory.mkdir(parents=True)
    for rank in range(4):
        (directory / f"rank{rank}.log").write_text(f"of {rank}\n")
    assert rank_logs._FILE.match("rank0.log")
    chunks = api.get(f"/jobs/{job}/logs", rank=[0, 2])["chunks"]
    assert [(chunk["rank"], chunk["text"]) for chunk in chunks] == [(0, "of 0\n"), (2, "of 2\n")]
    assert [chunk["rank"] for chunk in api.get(f"/jobs/{job}/logs")["chunks"]] == [0, 1, 2, 3]
    assert api.http.get(f"/jobs/{job}/logs", params={"rank": -1}).status_code in (400, 422)


def test_an_environment_record_that_cannot_be_read_does_not_hide_the_rest_of_the_provenance(api: Api) -> None:
    """An I/O error of one file in the home was the whole answer."""
    lost, unread = "a" * 64, "b" * 64
    (api.services.home.environments / f"{unread}.json").mkdir(parents=True)  # reading it is an I/O error
    job = api.submit()
    api.take_up()
    shares = tuple(NodeShare(name, "127.0.0.1", 1.0) for name in ("node0", "node1"))
    begun = (ev.NodeStarted(1, n, environment=name) for n, name in enumerate((lost, unread)))
    api.control.record(job, ev.Placed(1, Allocation(shares)), *begun)
    found = api.get(f"/jobs/{job}/provenance")
    assert (found["id"], found["environments"]) == (job, {lost: None, unread: None})
    assert found["unshown"] == {lost: "the record is lost", unread: "the record cannot be read now (Is a directory)"}
