"""Who somebody is: tokens with roles, what each role may do, and who is charged."""

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_server import Api, Http, serving
from starlette.routing import Route
from waiting import deadline

from trainmaster.control.charging import _payer
from trainmaster.home import account_name
from trainmaster.model import events as ev
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.scheduling.model.convert import kind
from trainmaster.server.http import permissions
from trainmaster.server.http.permissions import REQUIRED, Need
from trainmaster.server.process.app import create_app
from trainmaster.wire import rest


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("tokens") / "home") as served:
        yield served


def given(api: Api, name: str, role: str = "member", **more: Any) -> str:
    answer = api.http.post("/tokens", json={"name": name, "role": role, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def acting(api: Api, token: str) -> Http:
    return Http(base_url=api.http.base_url, headers={"Authorization": f"Bearer {token}"}, timeout=20.0)


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_who_has_an_unknown_token_is_told_what_to_do(api: Api) -> None:
    answer = acting(api, "tm_nobodys").get("/jobs")
    error = answer.json()["error"]
    assert (refused(answer), error["message"]) == ((401, "authentication"), "the server does not know this token")
    assert error["hint"] == "it was revoked, or is another server's; an administrator makes another one: tm token create NAME"


def flat(routes: Iterable[Any]) -> Iterator[Route]:
    for route in routes:
        if isinstance(route, Route):
            yield route
        else:
            yield from flat(route.original_router.routes)


def test_every_route_says_what_it_needs(api: Api) -> None:
    """S6: the table covers every route of the application, those of the OpenAPI document included; others are refused."""
    app = create_app(api.services, lambda: True)
    served = {
        f"{method} {rest.within(route.path)}" for route in flat(app.router.routes) for method in route.methods or () if method != "HEAD"
    }
    described = {f"{method.upper()} {rest.within(path)}" for path, operations in app.openapi()["paths"].items() for method in operations}
    assert served == set(REQUIRED)
    assert described <= {route.replace("{path:anyname}", "{path}") for route in REQUIRED}


@pytest.mark.parametrize("route", sorted(route for route, need in REQUIRED.items() if need is Need.ADMIN))
def test_a_member_administers_nothing(api: Api, route: str, member: httpx.Client) -> None:
    """S6: rules, nodes, storage and tokens are an administrator's; who lacks the role is told so before any body is read."""
    method, path = route.split()
    answer = member.request(method, path.replace("{name}", "node0"), content=b"{")
    assert (refused(answer), "needs an administrator" in answer.text) == ((403, "permission"), True)


@pytest.fixture(scope="module")
def member(api: Api) -> Iterator[httpx.Client]:
    with acting(api, given(api, "mallory")) as client:
        yield client


@pytest.fixture(scope="module")
def running(api: Api) -> str:
    """A job of the administrator's that runs."""
    job = api.submit()
    api.take_up()
    api.control.record(job, ev.Placed(1, Allocation((NodeShare("node0", "127.0.0.1", 1.0),))), ev.NodeStarted(1, 0))
    return job


BODIES: dict[str, dict[str, Any]] = {"/exec": {"command": ["true"]}, "/notes": {"text": "mine now"}, "/input": {"data": ""}}


NAMED = ("/jobs/cancel", "/jobs/remove")  # which answer for each job of a list
OWN = "POST /storage/prune"  # takes the caller's own jobs alone: tests/contract/test_api_removing.py


@pytest.mark.parametrize("route", sorted(route for route, need in REQUIRED.items() if need is Need.OWNER and route != OWN))
def test_a_member_changes_its_own_jobs_alone(api: Api, route: str, member: httpx.Client, running: str) -> None:
    """S6: another's job can be seen, and neither cancelled, held, released, requeued, run in nor written about."""
    method, path = route.split()
    body = next((dict(body) for end, body in BODIES.items() if path.endswith(end)), dict[str, Any]())
    if "{ref}" not in path:
        body |= {"jobs": [running]} if path in NAMED else {"job": running}
    answer = member.request(method, path.replace("{ref}", running).replace("{id}", "x"), json=None if method == "GET" else body)
    if path in NAMED:
        (told,) = answer.json()["jobs"]
        assert (told["ref"], told["error"]["code"]) == (running, "permission")
    else:
        assert refused(answer) == (403, "permission")
    assert f"{running} belongs to {account_name()}; mallory may change its own jobs only" in answer.text
    assert member.get(f"/jobs/{running}").json()["state"] == "running"


def test_a_member_is_charged_and_limited_as_its_token_says(api: Api, running: str) -> None:
    """S6: `origin.user` is the client's word and only a note; the member comes from the token."""
    origin = {"user": "somebody-else", "host": "laptop"}
    with acting(api, given(api, "ada")) as ada:
        body = {"spec": {"command": "true", "name": "hers"}, "origin": origin}
        job = ada.post("/jobs", json=body).json()["id"]
        again = [ada.post(f"/jobs/{running}/{how}", json={}).status_code for how in ("reproduce", "fork")]
        assert again == [201, 409]  # anybody's job can be run once more, at one's own expense; this one has no checkpoint
        batch = ada.post("/jobs/batch", json={"jobs": [body]}).json()["ids"]
        waiting = {id: ada.get(f"/jobs/{id}").json() for id in (job, *batch)}
        assert {(view["member"], view["origin"]["user"]) for view in waiting.values()} == {("ada", "somebody-else")}
        api.take_up()
        taken = api.control.jobs[job]
        assert (taken.owner, _payer(taken).member, kind(taken).member) == ("ada", "ada", "ada")
        assert ada.get(f"/jobs/{job}").json()["member"] == "ada"
        assert "submitted by ada" in ada.get(f"/jobs/{job}/events").text
        # Its own it may change; of all it cancels its own.
        assert ada.post(f"/jobs/{job}/hold", json={"reason": "later"}).status_code == 202
        cancelled = ada.post("/jobs/cancel", json={"all": True}).json()["jobs"]
        assert {one["id"] for one in cancelled} >= {job, *batch}
        assert running not in {one.get("id") for one in cancelled}
    assert api.http.post(f"/jobs/{job}/cancel", json={}).status_code == 202  # an administrator: any


def test_a_token_is_told_once_and_stored_as_its_digest(api: Api) -> None:
    """S6: neither a file of the home nor a list tells it; only an administrator gives one out."""
    token = given(api, "bob", "admin")
    (row,) = [row for row in api.get("/tokens")["tokens"] if row["name"] == "bob"]
    assert (row["role"], row["made_by"], row["expires_s"], row["expired"]) == ("admin", account_name(), None, False)
    stored = b"".join(path.read_bytes() for path in api.home.root.iterdir() if path.is_file())
    assert token.encode() not in stored
    with sqlite3.connect(api.home.inbox_db) as raw:
        (digest,) = raw.execute("SELECT digest FROM token WHERE name = 'bob'").fetchone()
    raw.close()
    assert digest == hashlib.sha256(token.encode()).hexdigest()
    with acting(api, token) as bob:
        assert bob.post("/nodes/node0/drain", json={"reason": "fan"}).status_code == 202
        assert bob.get("/tokens", headers={"Authorization": f"Bearer {digest}"}).status_code == 401
    assert refused(api.http.post("/tokens", json={"name": "bob"})) == (409, "conflict")


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""}, {"name": "-x"}, {"name": "a b"}, {"name": "x" * 65}, {"name": "a\n"}, {"name": 1}, {"role": "root", "name": "c"},
        {"name": "c", "expires_s": 0}, {"name": "c", "expires_s": 1e300}, {"name": "c", "expires_s": 10**400},
        {"name": "c", "expires_s": True}, {"name": "c", "expires_s": "30d"}, {"name": "c", "more": 1},
    ],
)  # fmt: skip
def test_what_a_token_cannot_be(api: Api, body: dict[str, Any]) -> None:
    """S6: names and times are bounded."""
    assert refused(api.http.post("/tokens", json=body)) == (400, "usage")


def test_a_token_expires_and_is_revoked_at_once(api: Api, running: str) -> None:
    """S6: from the next request on, for tickets and for streams that are open, too."""
    with acting(api, given(api, "carol")) as carol:
        ticket = carol.post("/tickets").json()["ticket"]
        with carol.stream("GET", "/events/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": connected"
            assert api.http.request("DELETE", "/tokens/carol").json() == {"name": "carol"}
            assert carol.get("/jobs").status_code == 401
            assert api.http.get(f"/events/stream?ticket={ticket}", headers={"Authorization": ""}).status_code == 401
            began_s = time.monotonic()
            last = [line for line in lines if line not in ("", ": still here")]
            assert last == ["event: closed", 'data: {"reason": "the token was revoked or has expired"}']
            assert time.monotonic() - began_s < 10.0  # not at the next word to keep the line
    assert refused(api.http.request("DELETE", "/tokens/carol")) == (404, "not_found")
    with acting(api, given(api, "carol", expires_s=1)) as carol:
        deadline(lambda: carol.get("/jobs").status_code == 401, "the token to expire")
        assert "the token of carol has expired" in carol.get("/jobs").text
    (row,) = [row for row in api.get("/tokens")["tokens"] if row["name"] == "carol"]
    assert row["expired"] is True


def test_tokens_outlive_the_server_and_the_homes_own_is_an_administrators(tmp_path: Path) -> None:
    """S6: they are durable; the home's token changes with its file."""
    with serving(tmp_path / "home") as api:
        token, first = given(api, "ada"), api.home.token_file.read_text().strip()
    (tmp_path / "home" / "tokens.json").write_text('{"tokens": []}')
    with serving(tmp_path / "home") as api:
        assert not (tmp_path / "home" / "tokens.json").exists()
        with acting(api, token) as ada, acting(api, first) as own:
            assert ada.get("/jobs").status_code == 200
            assert own.get("/tokens").status_code == 200
            api.home.token_file.unlink()
            api.home.token_file.write_text("another\n")
            assert (own.get("/tokens").status_code, ada.get("/jobs").status_code) == (401, 200)


def test_a_route_that_the_table_forgot_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """S6: refused by default, to an administrator too."""
    monkeypatch.setattr(permissions, "REQUIRED", {route: need for route, need in REQUIRED.items() if route != "GET /usage"})
    assert refused(api.http.get("/usage")) == (403, "permission")


def test_a_token_learns_who_it_is_and_a_server_for_this_machine_only_has_no_authority(api: Api) -> None:
    assert api.get("/me") == {"name": account_name(), "role": "admin"}
    assert acting(api, given(api, "grace")).get("/me").json() == {"name": "grace", "role": "member"}
    assert acting(api, "tm_nobodys").get("/me").status_code == 401
    made = api.http.post("/tokens", json={"name": "alan"}).json()
    assert (made["url"], made["fingerprint"]) == (None, None)
    answer = httpx.get(f"{api.http.base_url.copy_with(path='/authority')}")
    assert refused(answer) == (404, "not_found")
