"""Law 5 at the entrance: a key makes one job, for ever, of one operation on one object, and of one request."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_server import Api, serving

from trainmaster.errors import ConflictError
from trainmaster.model import events as ev
from trainmaster.store.inbox import SqlInbox
from trainmaster.testing.store_contract import submission

WEEKS_S = 100 * 24 * 3600.0


def test_a_key_of_a_person_never_makes_a_second_job(tmp_path: Path) -> None:
    """R17: law 5 has no end, though rows of the inbox do; the same key with something else is refused."""
    inbox = SqlInbox(tmp_path / "inbox.db")
    asked, other = (replace(submission("nightly"), asked=digest) for digest in (b"a", b"b"))
    assert inbox.answered({"nightly": b"a"}) == {}
    assert inbox.accept([asked]) == ["digits-1"]
    inbox.trim(inbox.drain(0, 10)[-1].seq, WEEKS_S)
    inbox.close()
    inbox = SqlInbox(tmp_path / "inbox.db")
    assert inbox.drain(0, 10) == []
    assert inbox.accept([asked, submission("k2"), asked]) == ["digits-1", "digits-2", "digits-1"]
    assert inbox.answered({"nightly": b"a", "k2": b"a", "none": b"a"}) == {"nightly": "digits-1"}
    for wrong in ([other], [replace(other, key="new"), replace(asked, key="new")]):
        with pytest.raises(ConflictError, match="Idempotency-Key was used for another request"):
            inbox.accept(wrong)
    with pytest.raises(ConflictError, match="which made digits-1"):
        inbox.answered({"nightly": b"b"})
    assert inbox.accept([submission("k3")]) == ["digits-3"]
    inbox.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path / "home") as served:
        yield served


def post(api: Api, path: str, body: Any, key: str = "K") -> tuple[int, Any]:
    answer = api.http.post(path, json=body, headers={"Idempotency-Key": key})
    return answer.status_code, answer.json()


def submit(command: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"command": command, "name": "train", **more}}


def ended(api: Api, *ids: str) -> None:
    api.take_up()
    for id in ids:
        api.control.record(id, ev.CancelRequested("", ""))
        assert api.get(f"/jobs/{id}")["state"] == "cancelled"


def test_a_key_stands_for_one_request(api: Api) -> None:
    """R17: another body under the same key is refused, and from where it comes is no part of it."""
    made = post(api, "/jobs", submit("true"))
    assert made == (201, {"id": "train-1", "notes": []})
    assert post(api, "/jobs", {**submit("true"), "origin": {"host": "another"}}) == made
    status, answer = post(api, "/jobs", submit("false"))
    assert (status, answer["error"]["code"]) == (409, "conflict")
    assert "train-1" in answer["error"]["message"]
    batch = {"jobs": [submit("true"), submit("false")]}
    ids = post(api, "/jobs/batch", batch)
    assert ids == (201, {"ids": ["train-2", "train-3"]})
    assert post(api, "/jobs/batch", batch) == ids
    more = {"jobs": [submit("true"), submit("false"), {**submit("true"), "key": "K"}]}
    assert post(api, "/jobs/batch", more)[1] == {"ids": ["train-2", "train-3", "train-1"]}
    assert post(api, "/jobs/batch", {"jobs": [submit("other")]})[0] == 409


def test_a_key_belongs_to_one_operation_on_one_job(api: Api) -> None:
    """R17: requeue of one job and of another under one key are two requests; each answers with its own lineage."""
    for key in "ab":
        post(api, "/jobs", submit("true"), key)
    ended(api, "train-1", "train-2")
    first, second = (post(api, f"/jobs/{id}/requeue", {})[1] for id in ("train-1", "train-2"))
    assert [(one["id"], one["lineage"]["job"]) for one in (first, second)] == [("train-3", "train-1"), ("train-4", "train-2")]
    assert post(api, "/jobs/train-1/requeue", {}) == (201, first)
    assert post(api, "/jobs/train-1/requeue", {"changes": {"priority": 1}})[0] == 409
    made = post(api, "/jobs/train-1/reproduce", {})
    assert made[1]["id"] == "train-5"
    assert post(api, "/jobs/train-1/reproduce", {}) == made


def test_what_was_accepted_is_answered_before_it_is_checked(api: Api) -> None:
    """R17: a repeated submit answers with its job, though the cluster could not take it any more."""
    body = submit("true", resources={"cpus": 4})
    assert post(api, "/jobs", body)[0] == 201
    api.runtime.recorded.nodes = lambda: [replace(one, cpus=1.0) for one in api.services.events.nodes()]  # type: ignore[method-assign]
    assert post(api, "/jobs", body) == (201, {"id": "train-1", "notes": []})
    assert post(api, "/jobs/batch", {"jobs": [{**body, "key": "K"}]}) == (201, {"ids": ["train-1"]})
    assert post(api, "/jobs", body, "L")[1]["error"]["code"] == "impossible"


def test_a_requeue_that_was_accepted_is_answered_before_it_is_checked(api: Api) -> None:
    """R17: likewise."""
    post(api, "/jobs", submit("true", resources={"cpus": 4}), "first")
    ended(api, "train-1")
    made = post(api, "/jobs/train-1/requeue", {})
    assert (made[0], made[1]["id"]) == (201, "train-2")
    api.runtime.recorded.nodes = lambda: [replace(one, cpus=1.0) for one in api.services.events.nodes()]  # type: ignore[method-assign]
    assert post(api, "/jobs/train-1/requeue", {}) == made
    assert post(api, "/jobs/train-1/requeue", {}, "L")[1]["error"]["code"] == "impossible"


def test_two_at_once_under_one_key(api: Api) -> None:
    """R17: of two different requests that come together one is refused, and takes nobody else with it."""
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(post(api, "/jobs", submit(f"echo {n}"), f"k{n % 6}")[0]))  # type: ignore[misc]
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201] * 6 + [409] * 6
    assert len(api.get("/jobs", all=1)["jobs"]) == 6
