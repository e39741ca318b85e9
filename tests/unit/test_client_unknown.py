"""A client whose response does not arrive: it retries with the same key, and says what it does not know."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from contract_server import Asked, serving

from trainmaster.cli.app import tm
from trainmaster.cli.session import Session
from trainmaster.client import connection
from trainmaster.client.api import Client
from trainmaster.client.connection import Call, Connection
from trainmaster.errors import NotKnownError, OperationError, UnreachableError

SUBMISSION = {"spec": {"command": "true"}}
BUSY = {"error": {"code": "busy", "message": "busy"}}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TIMEOUT_S", "AGAIN_S", "RESTART_S"):
        monkeypatch.setattr(connection, name, 0.3)
    for name in ("TRAINMASTER_SERVER", "TRAINMASTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Until it is set, a server does not answer."""
    event = threading.Event()
    yield event
    event.set()


def test_a_submit_that_times_out_is_asked_again_and_then_is_not_known(held: threading.Event) -> None:
    """R17: a stopped server accepts and does not answer; a submit that says it failed would be submitted twice."""

    def route(_: Asked) -> None:
        held.wait(20)

    with serving(route) as server:
        with Client(server.url) as client, pytest.raises(NotKnownError) as told:
            client.submit(SUBMISSION, "nightly run")
        assert "whether it was accepted is not known" in told.value.message
        assert "tm ps" in told.value.hint
        assert "--key 'nightly run'" in told.value.hint
        assert [one.key for one in server.asked] == ["nightly run"] * 2
        with pytest.raises(UnreachableError, match="does not answer in time") as read:
            Connection(server.url, "").json(Call("GET", "/jobs"))  # which changes nothing
        assert not isinstance(read.value, NotKnownError)
        with pytest.raises(UnreachableError, match="does not answer in time"):
            Connection(server.url, "").json(Call("POST", "/nodes/n0/drain", body=b"{}"))
        assert len(server.asked) == 4


def test_the_second_answer_counts(held: threading.Event) -> None:
    """R17: the same key again, and the job that it made."""
    with (
        serving(lambda _: (201, {"id": "a-1"}) if len(server.asked) > 1 else held.wait(20) and None) as server,
        Client(server.url) as client,
    ):
        assert client.submit(SUBMISSION) == "a-1"
        assert server.asked[0].key == server.asked[1].key is not None


def test_a_connection_that_breaks_again_and_again() -> None:
    """R17: what broke off under a submit may have been accepted."""
    with serving(lambda _: None) as server, Client(server.url) as client, pytest.raises(NotKnownError):
        client.submit(SUBMISSION)


def test_the_command_line_says_so_with_an_exit_code_of_its_own() -> None:
    """R17: `--key` asks again for the same job."""
    with serving(lambda one: (200, {}) if one.line == "GET /healthz" else None) as server:
        words = ["--server", server.url, "submit", "--key", "nightly", "--in-place", "--", "true"]
        result = CliRunner().invoke(tm, words, obj=Session())
        assert isinstance(result.exception, NotKnownError)
        assert (result.exception.exit_code, result.exception.hint.endswith("--key nightly")) == (9, True)
        assert {one.key for one in server.asked if one.line == "POST /jobs"} == {"nightly"}


def test_a_busy_server_is_asked_again() -> None:
    """S2: a server that has too many large requests at hand is tried again for a while."""
    with (
        serving(lambda _: (503, BUSY) if len(server.asked) == 1 else (201, {"id": "a-1"})) as server,
        Client(server.url) as client,
    ):
        assert client.submit(SUBMISSION) == "a-1"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_said_in_words(status: int) -> None:
    """S9: a redirect is no answer of a server; the client says so instead of a traceback."""
    with serving(lambda _: (status, b"")) as server, pytest.raises(OperationError, match="sends to another address"):
        Client(server.url).jobs()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_the_word_of_a_proxy_is_no_refusal_of_the_server(status: int) -> None:
    """A proxy that lost the server answers for it, perhaps after the server had accepted: the same key is sent again."""
    page = (status, b"<html><h1>Bad Gateway</h1></html>")
    with serving(lambda _: (201, {"id": "a-1"}) if len(server.asked) > 1 else page) as server, Client(server.url) as client:
        assert client.submit(SUBMISSION) == "a-1"
        assert server.asked[0].key == server.asked[1].key is not None
    with serving(lambda _: page) as server:
        with Client(server.url) as client, pytest.raises(NotKnownError, match=f"answered {status}.*whether it was accepted"):
            client.submit(SUBMISSION)
        with pytest.raises(UnreachableError, match=f"answered {status}") as read:
            Connection(server.url, "").json(Call("GET", "/jobs"))  # a client that follows a job keeps asking
        assert not isinstance(read.value, NotKnownError)
        asked = len(server.asked)
        with pytest.raises(UnreachableError, match=f"answered {status}"):
            Connection(server.url, "").json(Call("POST", "/tokens", body=b"{}"))
        assert len(server.asked) == asked + 1  # nothing is sent twice without a key


ENDLESS = {  # what is said first, and then again and again
    "going on": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "a head": (b"HTTP/1.1 200 OK\r\n", b"x"),
    "an answer": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "an answer without a length": (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b" "),
}


@contextmanager
def trickling(first: bytes, then: bytes) -> Iterator[str]:
    """The URL of a server whose response never ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listener.accept()
                    with caller, suppress(OSError):
                        caller.recv(65536)
                        caller.sendall(first)
                        while True:
                            caller.sendall(then)
                            time.sleep(0.01)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_that_never_ends_is_given_up(kind: str) -> None:
    """A server that trickles, or says "go on" for ever, held `tm` for ever: each byte was taken for progress."""
    with trickling(*ENDLESS[kind]) as url:
        with pytest.raises(UnreachableError, match="does not answer in time"):
            Connection(url, "").json(Call("GET", "/jobs"))
        with pytest.raises((OperationError, UnreachableError), match=r"broke off|in time"):
            Connection(url, "").copy(Call("GET", "/history"), io.BytesIO())


def test_an_answer_that_comes_slowly_but_comes_on_is_taken() -> None:
    """Only what brings less than a kibibyte a second is given up."""
    with trickling(b"HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n{}", b" " * 500) as url:  # 0.6 s
        assert Connection(url, "").json(Call("GET", "/jobs")) == {}
