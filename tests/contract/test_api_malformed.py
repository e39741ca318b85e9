"""What must not get in: every malformed request is answered in words, in the one shape, and changes nothing."""

import contextlib
import json
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import Api, agent_headers, serving

from trainmaster.model import events as ev
from trainmaster.model.nodes import Allocation, NodeShare

KEY = "train-1.1/n0"
DEEP = b"[" * 100_000
SPEC = {"command": "true"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api") / "home") as served:
        yield served


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """With a job whose first attempt runs."""
    with serving(tmp_path_factory.mktemp("api") / "home") as served:
        served.submit()
        served.take_up()
        served.control.record("train-1", ev.Placed(1, Allocation((NodeShare("node0", "127.0.0.1", 1.0),))), ev.NodeStarted(1, 0))
        yield served


def test_numbers_of_thousands_of_digits_are_refused_in_our_words(api: Api) -> None:
    """They were refused in Python's: `use sys.set_int_max_str_digits() to increase the limit`."""
    digits = "9" * 5000
    answers = [api.http.post("/jobs", content=f'{{"spec": {{"command": "true", "params": {{"seed": {digits}}}}}}}')]
    for key in (f"train-1.{digits}/n0", f"train-1.1/n{digits}"):
        answers.append(api.http.post("/agent/sync", json={"key": key}, headers=agent_headers(key)))
    told = [answer.json()["error"]["message"] for answer in answers]
    assert told[0] == "the job is not JSON: it holds a number of thousands of digits"
    assert [text[-46:] for text in told[1:]] == ["is not an agent's key such as 'digits-14.2/n0'"] * 2
    assert max(map(len, told)) < 150


def refusal(answer: Any) -> tuple[int, str]:
    error = answer.json()["error"]
    assert sorted(error) == ["code", "details", "hint", "message", "request_id"]
    assert error["message"]
    return answer.status_code, error["code"]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"", (400, "usage")),
        (b"{", (400, "usage")),
        (b"null", (400, "usage")),
        (b"[]", (400, "usage")),
        (b'"text"', (400, "usage")),
        (b"\xff\xfe{}", (400, "usage")),
        (b'{"spec": {"command": "\\ud800"}}', (400, "usage")),
        (b'{"spec": {"command": "true", "params": {"lr": NaN}}}', (400, "usage")),
        (DEEP, (400, "usage")),
        (b'{"spec": ' + b"9" * 10_000 + b"}", (400, "usage")),
        (b'{"spec": "true"}', (400, "usage")),
        (b'{"spec": {}}', (422, "spec")),
        (b'{"spec": {"command": ""}}', (422, "spec")),
        (b'{"spec": {"comand": "true"}}', (422, "spec")),
        (b'{"spec": {"command": "true", "resources": {"cpus": -1}}}', (422, "spec")),
        (b'{"spec": {"command": "true", "name": "../../x"}}', (422, "spec")),
        (b'{"spec": {"command": "true"}, "specs": 1}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "origin": []}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "origin": {"user": 1}}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "origin": {"variables": {"A": 1}}}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "code": {"digest": "../../secret"}}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "code": {"files": true}}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "code": {"files": 99999999999999999999}}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "code": {"in_place": true}}', (400, "usage")),
        (b'{"spec": {"command": "true"}, "hold": 1}', (400, "usage")),
    ],
)
def test_a_submit_that_is_none(api: Api, body: bytes, wanted: tuple[int, str]) -> None:
    assert refusal(api.http.post("/jobs", content=body)) == wanted


@pytest.mark.parametrize("key", ["", "x" * 201, "tab\there"])
def test_an_idempotency_key_that_is_none(api: Api, key: str) -> None:
    answer = api.http.post("/jobs", json={"spec": SPEC}, headers={"Idempotency-Key": key})
    assert refusal(answer) == (400, "usage")


@pytest.mark.parametrize("body", [{}, {"jobs": []}, {"jobs": {}}, {"jobs": [1]}, {"jobs": [{"spec": SPEC}] * 10_001}])
def test_a_batch_that_is_none(api: Api, body: Any) -> None:
    assert refusal(api.http.post("/jobs/batch", json=body)) == (400, "usage")


def test_a_batch_has_a_bounded_number_of_patterns(api: Api) -> None:
    """S4: each is compiled; 10,000 different ones were."""
    jobs = [{"spec": {"command": "true", "metrics": {"pattern": f"loss{n} (?P<loss>.)"}}} for n in range(101)]
    assert refusal(api.http.post("/jobs/batch", json={"jobs": jobs})) == (400, "usage")


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?limit=0", "/jobs?limit=many", "/jobs?state=lost", "/jobs?before=x", "/jobs/x/watch?wait_s=-1",
        "/jobs/x/events?after=-1", "/jobs/x/logs?wait_s=31", "/jobs/x/logs?rank=-1", "/jobs/x/logs?after=nonsense", "/jobs/@first",
    ],
)  # fmt: skip
def test_a_query_that_is_none(api: Api, path: str) -> None:
    assert refusal(api.http.get(path)) == (400, "usage")


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/", (404, "not_found")),
        ("GET", "/job", (404, "not_found")),
        ("GET", "/jobs/", (404, "not_found")),
        ("DELETE", "/jobs", (405, "usage")),
        ("PUT", "/jobs/x", (405, "usage")),
        ("GET", "/agent/sync", (401, "authentication")),
        ("POST", "/healthz", (405, "usage")),
        ("GET", "/jobs/nothing-1", (404, "not_found")),
        ("POST", "/jobs/nothing-1/cancel", (404, "not_found")),
        ("GET", "/jobs/%00", (404, "not_found")),
    ],
)
def test_a_place_that_is_none(api: Api, method: str, path: str, wanted: tuple[int, str]) -> None:
    assert refusal(api.http.request(method, path)) == wanted


def sync(api: Api, body: bytes) -> Any:
    return api.http.post("/agent/sync", content=body, headers=agent_headers(KEY))


def test_a_sync_of_nobody(api: Api) -> None:
    body = {"key": "train-1.1/n1", "reports": [], "points": [], "heartbeat": None, "wait_s": 0, "orders_seen": 0}
    assert refusal(sync(api, json.dumps(body).encode())) == (401, "authentication")
    nobody = {**agent_headers(KEY), "X-Trainmaster-Key": "nonsense"}
    assert refusal(api.http.post("/agent/sync", json={}, headers=nobody)) == (400, "usage")


@pytest.mark.parametrize(
    "change",
    [
        {"reports": {}},
        {"reports": [1]},
        {"reports": [{"kind": "unheard", "n": 1}]},
        {"reports": [{"kind": "started"}]},
        {"reports": [{"kind": "started", "n": "1"}]},
        {"reports": [{"kind": "started", "n": 10**30}]},
        {"points": [{"rank": 0, "step": 2**70, "values": {}, "age_s": 0}]},
        {"points": [{"rank": 0, "step": 1, "values": {"loss": "low"}, "age_s": 0}]},
        {"points": [{"rank": 0, "step": 1, "values": {"loss": 10**400}, "age_s": 0}]},
        {"points": [{"rank": 0, "step": 1, "values": [], "age_s": 0}]},
        {"points": [{"rank": 0, "step": 1, "values": {}, "age_s": float("inf")}]},
        {"heartbeat": 1},
        {"wait_s": -1},
        {"wait_s": "long"},
        {"orders": []},
    ],
)
def test_what_a_sync_holds_and_nobody_understands_is_passed_over(api: Api, change: dict[str, Any]) -> None:
    """R12: refused as a whole it would be sent again for ever, and keep everything behind it."""
    body = {"key": KEY, "reports": [], "points": [], "heartbeat": None, "wait_s": 0, "orders_seen": 0, **change}
    assert sync(api, json.dumps(body).encode()).status_code == 200


def test_what_a_program_wrote_is_taken_whatever_it_is(api: Api) -> None:
    report = b'{"kind": "ended", "n": 1, "ranks": [{"rank": 0, "last_lines": ["\\ud800 \\u0000 \xff"]}]}'
    point = b'{"rank": 0, "step": 1, "values": {"loss": NaN, "\\udfff": Infinity}, "age_s": 0}'
    body = b'{"key": "%s", "reports": [%s], "points": [%s], "wait_s": 0, "orders_seen": 0}' % (KEY.encode(), report, point)
    assert sync(api, body).json() == {"ack": 1, "orders": [], "version": 0, "stale": False, "gang_step": None}


OUT = "checkpoints/train-1/0001-00001/n0"
UPLOADS = [[], {f"{OUT}/a": 1}, {f"{OUT}/a": {"etags": [1]}}, {f"{OUT}/a": {"etags": {"x": "y"}}}, {f"{OUT}/a": {"crc32": "x"}}]
ONE_FILE = json.dumps({"files": [{"path": "a", "bytes": 1}]})
STRANGE = [
    {"do": None}, {"do": ["get"]}, {"do": "get"}, {"do": "get", "names": [1]}, {"do": "get", "names": ["../../secret"]},
    {"do": "begin", "files": [1]}, {"do": "begin", "files": [{"name": f"{OUT}/a", "bytes": 1e400}]},
    {"do": "begin", "files": [{"name": f"{OUT}/a", "bytes": True}]}, {"do": "begin", "files": [{"name": f"{OUT}/a", "bytes": -1}]},
    {"do": "sign", "name": f"{OUT}/a"}, {"do": "sign", "name": f"{OUT}/a", "numbers": 5},
    {"do": "sign", "name": f"{OUT}/a", "numbers": [1e400]}, {"do": "sign", "name": f"{OUT}/a", "numbers": [0]},
    {"do": "sign", "name": f"{OUT}/a", "numbers": [1], "crc32": {"1": 7}}, {"do": "sign", "name": 7, "numbers": [1]},
    {"do": "commit", "part": OUT, "manifest": "{"}, {"do": "commit", "part": OUT, "manifest": '{"files": [{"path": "a", "bytes": 1e400}]}'},
    *({"do": "commit", "part": OUT, "manifest": ONE_FILE, "uploads": one} for one in UPLOADS),
    {"do": "keep", "name": f"{OUT}/a", "bytes": "1"}, {"do": "abort", "name": 1},
]  # fmt: skip


@pytest.mark.parametrize("question", STRANGE)
def test_a_question_of_an_agent_that_is_none(running: Api, question: dict[str, Any]) -> None:
    body = json.dumps({"key": KEY, **question}).replace("Infinity", "1e400").encode()
    status, _ = refusal(running.http.post("/agent/store", content=body, headers=agent_headers(KEY)))
    assert 400 <= status < 500


@pytest.mark.parametrize("chunks", [1, [1], [[1]], [[1, 2]], [[1, "a", "b"]], [{"1": "a"}], ["ab"]])
def test_output_that_is_none(running: Api, chunks: object) -> None:
    begun = running.http.post("/jobs/train-1/exec", json={"command": ["true"]})
    assert begun.status_code == 201, begun.text
    body = {"key": KEY, "id": begun.json()["id"], "n": 1, "chunks": chunks}
    assert refusal(running.http.post("/agent/exec/output", json=body, headers=agent_headers(KEY))) == (400, "usage")


@pytest.mark.parametrize(
    ("path", "size"), [("/jobs", 1), ("/jobs/x/cancel", 1), ("/agent/sync", 8), ("/code/missing", 32), ("/jobs/batch", 64)]
)
def test_a_body_over_its_limit(api: Api, path: str, size: int) -> None:
    answer = api.http.post(path, content=b" " * (size * 1024 * 1024 + 1), headers=agent_headers(KEY) if "agent" in path else {})
    assert refusal(answer) == (413, "too_large")
    assert f"{size} MiB" in answer.json()["error"]["message"]


def test_a_body_over_its_limit_that_does_not_say_so(api: Api) -> None:
    pieces = (b" " * 65536 for _ in range(40))
    assert refusal(api.http.post("/jobs", content=pieces)) == (413, "too_large")


@pytest.mark.parametrize("body", [b"", b"no zip", zlib.compress(b"no zip")])
def test_an_upload_that_is_none(api: Api, body: bytes) -> None:
    assert refusal(api.http.post("/code", content=body)) == (400, "usage")


@pytest.mark.parametrize("tree", [None, [], {}, {"entries": {}}, {"entries": [{"path": "../x", "type": "link"}]}])
def test_a_tree_that_is_none(api: Api, tree: Any) -> None:
    assert refusal(api.http.post("/code/missing", json={"tree": tree})) == (400, "usage")


def test_one_that_hangs_up_in_the_middle_harms_nobody(api: Api) -> None:
    port = api.http.base_url.port
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{"
    with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.sendall(head % api.home.token_file.read_bytes().strip())
    with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as connection:
        connection.sendall(b"\x16\x03\x01 not HTTP at all\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert api.get("/healthz")["api"] is True


def test_nothing_of_all_this_was_accepted(api: Api) -> None:
    assert api.get("/jobs", all=1)["jobs"] == []


def test_a_store_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Somebody put a file where the store's directory was: no request is to blame, and no fault of the server's code."""
    with serving(tmp_path / "home") as api:
        api.home.blobs.write_text("in the way")
        tree = {"entries": [{"path": "a", "type": "symlink", "target": "b"}]}
        answer = api.http.post("/code/missing", json={"tree": tree})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        503, f"the server could not do it: [Errno 20] Not a directory: '{api.home.blobs}/code'",
    )  # fmt: skip
