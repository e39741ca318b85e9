"""The entrance of the api against somebody hostile: identity before body, body before work, and a bound to everything."""

import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from api_server import Api, agent_headers, located, serving
from hypothesis import given
from hypothesis import strategies as st
from waiting import deadline

from trainmaster.server.http import json_pieces
from trainmaster.server.http.body_memory import MemoryBudget
from trainmaster.server.runtime import limits

KEY = "train-1.1/n0"
AGENTS = [("POST", "/agent/sync"), ("POST", "/agent/store"), ("PUT", "/agent/blob"), ("POST", "/agent/exec/output")]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api") / "home") as served:
        yield served


@contextlib.contextmanager
def connection(api: Api, sent: bytes = b"") -> Iterator[socket.socket]:
    """A bare connection over which `sent` went."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", api.http.base_url.port or 0), timeout=10)) as opened:
        opened.sendall(sent)
        yield opened


def head(method: str, path: str, length: int, **more: str) -> bytes:
    lines = [f"{method} {located(path)} HTTP/1.1", "Host: x", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *(f"{name.replace('_', '-')}: {value}" for name, value in more.items()), "", ""]).encode()


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1.1 (\d+)", answer)
    return int(found[1]) if found else 0


def closes(opened: socket.socket) -> bool:
    """Whether the server ends the connection, whatever it says before."""
    try:
        while opened.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def token(api: Api) -> str:
    return f"Bearer {api.home.token_file.read_text().strip()}"


def routes(api: Api) -> list[tuple[str, str]]:
    """Every route that takes a body, the agents' too."""
    document = api.get("/openapi.json")
    described = [(method.upper(), path) for path, found in document["paths"].items() for method in found if method != "get"]
    return [*described, *AGENTS]


def test_a_stranger_is_refused_before_a_byte_of_the_body(api: Api) -> None:
    """S2: the credential is in the headers, and nothing of a body is awaited before it is known."""
    for method, path in routes(api):
        with connection(api, head(method, re.sub(r"\{\w+\}", "x", path), 64 * limits.MIB)) as opened:
            assert status(opened.recv(4096)) == 401, f"{method} {path}"


def test_what_a_stranger_goes_on_sending_is_not_taken(api: Api) -> None:
    """S2: after the refusal the connection ends, as soon as more comes than a usual request holds."""
    with connection(api, head("POST", "/agent/store", 64 * limits.MIB)) as opened:
        assert status(opened.recv(4096)) == 401
        with pytest.raises(ConnectionError):
            opened.sendall(b"x" * 64 * limits.MIB)
    with connection(api, head("POST", "/agent/store", 2)) as opened:  # a usual one goes on
        assert status(opened.recv(4096)) == 401
        opened.sendall(b"{}" + head("GET", "/healthz", 0))
        answer = b""
        while b"HTTP/1.1 200" not in answer:
            answer += opened.recv(4096)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come(api: Api, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: a connection that never sends its request is ended."""
    monkeypatch.setattr(limits, "HEAD_S", 0.2)
    with connection(api, sent) as opened:
        assert closes(opened)
    with connection(api, head("GET", "/healthz", 0)) as opened:
        opened.recv(4096)
        opened.sendall(sent or b"G")  # and so is a kept one, in the middle of its second
        assert closes(opened)


def test_a_body_that_stops_coming(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: an idle body, and one that trickles, ends in words."""
    monkeypatch.setattr(limits, "BODY_IDLE_S", 0.2)
    for more in (b"", b"{" + b" " * 3000):
        with connection(api, head("POST", "/jobs", 5000, Authorization=token(api)) + more) as opened:
            assert status(opened.recv(4096)) == 408
    monkeypatch.setattr(limits, "BODY_SLOWEST", 10**9)
    with connection(api, head("POST", "/jobs", 5000, Authorization=token(api))) as opened:

        def trickled() -> int | None:
            opened.send(b" ")
            with contextlib.suppress(BlockingIOError):
                return status(opened.recv(4096, socket.MSG_DONTWAIT))
            return None

        assert deadline(trickled, "the refusal of a body that trickles", every_s=0.05) == 408


def test_a_body_of_very_many_values(api: Api) -> None:
    """S2: what a body takes once it is decoded is bounded, not its bytes alone: `{},` makes 25 times as much."""
    for path in ("/jobs/batch", "/code/missing", "/agent/store", "/agent/sync"):
        limit_bytes = limits.body_max_bytes("POST", path)
        body = b'{"jobs": [%s{}]}' % (b"{}," * (limit_bytes // 3 - 20))
        answer = api.http.post(path, content=body, headers=agent_headers(KEY) if "agent" in path else {})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert "values" in answer.json()["error"]["message"]


def test_large_bodies_have_a_common_bound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: so many bytes of bodies are in memory at a time; the next waits, then is told that the server is busy."""
    monkeypatch.setattr(api.app.state, "body_memory", MemoryBudget(3 * limits.MIB, 0.2))
    kind = {"Authorization": token(api)}
    with connection(api, head("POST", "/code/missing", 2 * limits.MIB, **kind) + b"{"):
        deadline(lambda: api.app.state.body_memory.held_bytes > 0, "the first body")
        answer = api.http.post("/code/missing", content=b" " * (2 * limits.MIB))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        assert api.http.post("/jobs/none-1/cancel", json={}).status_code == 404  # small ones wait for nobody
    deadline(lambda: api.app.state.body_memory.held_bytes == 0, "the room of a body that broke off")
    assert api.http.post("/code/missing", content=b" " * (2 * limits.MIB)).status_code == 400


def test_connections_are_bounded_and_the_idle_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: whoever opens connection after connection keeps nobody out; one with a request at work stays."""
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 8)
    with serving(tmp_path / "home") as api, contextlib.ExitStack() as many:
        follow = head("GET", "/events/stream", 0, Authorization=token(api))
        stream = many.enter_context(connection(api, follow))
        assert status(stream.recv(4096)) == 200
        opened = [many.enter_context(connection(api)) for _ in range(20)]
        assert closes(opened[0])
        assert api.get("/healthz")["api"] is True
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):  # until nothing more is there of what is still open
            closes(stream)


def test_a_member_who_takes_all_connections_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's streams, or a stranger's answers that nobody reads, keep no other person out: its oldest one ends."""
    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 8)
    with serving(tmp_path / "home") as api, contextlib.ExitStack() as many:
        member = api.http.post("/tokens", json={"name": "mallory"}).json()["token"]
        api.http.close()
        streams = []
        for whose in (token(api), *[f"Bearer {member}"] * 10):
            streams.append(many.enter_context(connection(api, head("GET", "/events/stream", 0, Authorization=whose))))
            assert status(streams[-1].recv(4096)) == 200
        with connection(api, head("GET", "/jobs", 0, Authorization=token(api))) as opened:
            assert status(opened.recv(4096)) == 200
        assert closes(streams[1])
        streams[0].setblocking(False)
        with pytest.raises(BlockingIOError):
            closes(streams[0])


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


WINDOWS = st.sampled_from([(2, 48), (16, 64), (64, 1024)])


def in_pieces(text: str, size: int) -> Any:
    """The value of a text that comes `size` bytes at a time."""
    data = text.encode()
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return json_pieces.decode(parts, "strict", json.JSONDecoder(), lambda part: part)


@given(VALUES, st.booleans(), WINDOWS, st.integers(1, 70))
def test_decoding_in_pieces_is_decoding(value: Any, ascii_only: bool, window: tuple[int, int], size: int) -> None:
    """S2: taken apart or not, the same text is the same value, surrogate pairs included, wherever its parts are cut."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    with patch.multiple(json_pieces, _WINDOW_MIN=window[0], _WINDOW_MAX=window[1], _READ_MIN=1, _DEPTH_MAX=1000):
        assert in_pieces(text, size) == value


@given(st.text(alphabet='{}[]",:\\u0d8 e-1tnN\n', max_size=40), st.integers(1, 9))
def test_no_text_is_json_in_pieces_alone(text: str, size: int) -> None:
    """S2: what the standard library refuses is refused in pieces, at the same place."""

    def tried(decode: Callable[[], Any]) -> str:
        try:
            return repr(decode())
        except ValueError as error:
            return str(error).partition(": ")[2]

    with patch.multiple(json_pieces, _WINDOW_MIN=2, _WINDOW_MAX=48, _READ_MIN=1):
        found = tried(lambda: in_pieces(text, size))
    assert found == tried(lambda: json.loads(text))
