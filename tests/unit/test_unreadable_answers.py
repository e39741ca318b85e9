"""A response of an unexpected shape: the message names the server and its version; a traceback is for developers only."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contract_server import Asked, serving

from trainmaster import __version__
from trainmaster.cli.app import run
from trainmaster.client.connection import Call, Connection
from trainmaster.errors import UsageError

STRANGERS = {
    "another version": ({"version": "9.9"}, f"; it has version 9.9, tm has {__version__}\n  use a tm of the server's version   "),
    "our version": ({"version": __version__}, f"; it has the same version as tm, {__version__}\n  check the URL; if it is yours, "),
    "no version": ({"version": [9]}, "; it is not a Trainmaster server, or has another version\n  check the URL and its port   "),
    "no health": (b"<html>", "; it is not a Trainmaster server, or has another version\n  check the URL and its port   "),
}


@pytest.fixture(autouse=True)
def a_person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRAINMASTER_DEBUG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("stranger", STRANGERS)
def test_the_server_is_named_and_its_version(stranger: str, capsys: pytest.CaptureFixture[str]) -> None:
    health, words = STRANGERS[stranger]
    with serving(lambda asked: (200, health if asked.line == "GET /healthz" else {"jobs": {"a": 1}})) as server:
        code = run(["ps", "--server", server.url])
    said = capsys.readouterr().err
    assert code == 1
    assert said.startswith(f"error: the answer of the server at {server.url} has an unexpected shape (")
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize("answer", [{}, {"jobs": 3}, {"jobs": [None]}, {"jobs": [{"id": "a-1"}]}, {"nodes": [[]]}, {"id": []}, {"state": {}}])
@pytest.mark.parametrize("line", ["ps", "show a", "why a", "logs a", "nodes", "queue", "usage", "compare a b", "top --once", "hold a"])
def test_no_command_ends_with_a_traceback(line: str, answer: dict[str, Any]) -> None:
    with serving(lambda _: (200, answer)) as server:
        assert run([*line.split(), "--server", server.url]) in (0, 1, 2, 3)


def test_a_developer_gets_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def route(_: Asked) -> tuple[int, Any]:
        return 200, {}

    monkeypatch.setenv("TRAINMASTER_DEBUG", "1")
    with serving(route) as server, pytest.raises(KeyError):
        run(["ps", "--server", server.url])


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """Something at a port that says the next of `answers` to each connection, the last one to all further ones."""
    said = [*answers]

    def answer() -> None:
        while True:
            try:
                opened, _ = listening.accept()
            except OSError:
                return  # closed
            with opened:
                opened.recv(65536)
                opened.sendall(said.pop(0) if len(said) > 1 else said[0])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_an_answer_that_is_cut_short_is_asked_for_again() -> None:
    """A server that is killed while it answers: what came is no answer, and a submit goes out again under its key."""
    short, whole = b"HTTP/1.1 201 X\r\nContent-Length: 14\r\n\r\n", b"HTTP/1.1 201 X\r\nContent-Length: 14\r\n\r\n"
    with answering(short + b"{}", short, whole + b'{"id": "a-1"} ') as url:
        assert Connection(url, "").json(Call("POST", "/jobs", body=b"{}", key="k")) == {"id": "a-1"}


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 99999 OK\r\n\r\n", b"HTTP/1.1 200 " + b"y" * 70_000, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}"],
)  # fmt: skip
def test_what_speaks_no_http_is_told_at_once(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(answer) as url:
        assert run(["ps", "--server", url]) == 1
    assert capsys.readouterr().err == f"error: {url} is not a Trainmaster server: its answer is not HTTP\n  check the URL and its port\n"


def test_a_server_without_the_version_of_the_interface_is_older(capsys: pytest.CaptureFixture[str]) -> None:
    """As one of before there was `/api/v1` answers: the person hears which of the two is older, and what to do."""

    def route(asked: Asked) -> tuple[int, Any]:
        if asked.path == "/healthz":
            return 200, {"status": "ok", "version": "0.0.9"}
        error = {"code": "not_found", "message": f"there is no {asked.path.partition('?')[0]}", "hint": "see /openapi.json for the paths"}
        return 404, {"error": error}

    with serving(route) as server:
        assert run(["ps", "--server", server.url]) == 1
        assert [asked.path.partition("?")[0] for asked in server.asked] == ["/api/v1/jobs", "/healthz"]
        older = f"error: the server at {server.url} is older than this tm: there is no /api/v1/jobs; it has version 0.0.9, tm {__version__}\n"
        assert capsys.readouterr().err.startswith(older)


@pytest.mark.parametrize("path", ["", "/", "/api/v1", "/below/", "/below/api/v1/"])
def test_the_version_of_the_interface_is_added_once(path: str) -> None:
    with serving(lambda _: (200, {})) as server:
        Connection(server.url + path, "").json(Call("GET", "/jobs"))
        Connection(server.url + path, "").json(Call("GET", "/healthz"))
        below = "/below" if "below" in path else ""
        assert [asked.path for asked in server.asked] == [below + "/api/v1/jobs", below + "/healthz"]


def test_a_refusal_without_end_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda _: (400, {"error": {"code": "usage", "message": "b" * 10**6, "hint": "h" * 10**6}})) as server:
        assert run(["ps", "--server", server.url]) == 2
    assert len(capsys.readouterr().err) < 50_000


@pytest.mark.parametrize(("token", "code"), [("\u20ac", 4), ("a\nb", 4), ("a\x00", 4), ("plain", 0)])
def test_a_token_that_cannot_be_sent(token: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _: (200, {"jobs": [], "troubles": []})) as server:
        monkeypatch.setattr(os, "environ", {**os.environ, "TRAINMASTER_TOKEN": token})  # a real one holds no NUL
        assert run(["ps", "--server", server.url]) == code
    said = capsys.readouterr().err
    assert ("the token holds characters that no token has" in said) is (code == 4)
    assert token not in said


def test_who_has_no_token_is_told_where_to_put_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"code": "authentication", "message": "this needs a token", "hint": "send 'Authorization: Bearer <token>'"}
    with serving(lambda _: (401, {"error": error})) as server:
        monkeypatch.delenv("TRAINMASTER_TOKEN", raising=False)
        assert run(["ps", "--server", server.url]) == 4
        assert capsys.readouterr().err == (
            "error: this needs a token\n  log in (tm login URL), or set TRAINMASTER_TOKEN; "
            "an administrator makes a token: tm token create NAME\n"
        )
        monkeypatch.setenv("TRAINMASTER_TOKEN", "one")
        assert run(["ps", "--server", server.url]) == 4
        assert "send 'Authorization" in capsys.readouterr().err, "the server's own words"


def test_a_key_or_a_path_that_cannot_be_sent() -> None:
    with serving(lambda _: (200, {})) as server:
        for key in ("\u20ac", "a\nb"):
            with pytest.raises(UsageError, match=r"the key '.*' cannot be sent"):
                Connection(server.url, "").json(Call("POST", "/jobs", body=b"{}", key=key))
        for path in ("/\xe9", "/a b"):
            with pytest.raises(UsageError, match="is no URL of a server: its path holds characters"):
                Connection(server.url + path, "")
        assert server.asked == []
