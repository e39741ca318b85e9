"""Notifications about ended jobs: real webhooks, mails and commands; retries; what is said in the job."""

import asyncio
import json
import resource
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_server import Server

from trainmaster.configuration import Configuration, NotifySettings
from trainmaster.home import Home
from trainmaster.model.commands import CancelJob
from trainmaster.model.options.notify_targets import kind_of, shown
from trainmaster.model.spec import NotifySpec
from trainmaster.server.jobs import deliveries, notifications
from trainmaster.server.jobs.deliveries import deliver
from trainmaster.server.jobs.notifications import NotificationLoop

MESSAGE = {
    "text": "x-1 has failed: exit 3", "job": "x-1", "state": "failed", "reason": "", "name": "x", "project": "p", "experiment": "x",
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "kind", "told"),
    [
        ("https://user:pw@chat.example.com/hook/secret", "webhook", "https://chat.example.com/…"),
        ("http://localhost:80", "webhook", "http://localhost:80/…"),
        ("ada@example.com", "mail", "ada@example.com"),
        ("mailto:ada@example.com", "mail", "mailto:ada@example.com"),
        ("run:echo hello", "command", "run:echo hello"),
        *((text, None, text) for text in ("", "run: ", "https://", "ftp://a/b", "failed", "a@b c", "@", "echo hi")),
    ],
)
def test_targets(target: str, kind: str | None, told: str) -> None:
    assert (kind_of(target), shown(target)) == (kind, told)


@contextmanager
def webhook(*answers: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers with these codes, and what it received."""
    left, got = list(answers), list[dict[str, Any]]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(left.pop(0))
            self.send_header("Location", "/login")  # counts with 302 only
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", got
        server.shutdown()


def test_a_webhook() -> None:
    with webhook(200, 500, 302) as (url, got):
        assert deliver(url, MESSAGE, NotifySettings()) is None
        assert deliver(url, MESSAGE, NotifySettings()) == "it answered 500 Internal Server Error"
        assert deliver(url, MESSAGE, NotifySettings()) == "it answered 302 Found"
        assert got == [MESSAGE, MESSAGE, MESSAGE]
    assert "refused" in (deliver(url, MESSAGE, NotifySettings()) or "")


def test_a_mail() -> None:
    lines: list[str] = []

    class Mail(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 hello\r\n")
            data = False
            for raw in self.rfile:
                line = raw.decode().strip()
                lines.append(line)
                word = line.split(" ")[0].upper()
                if data and line != ".":
                    continue
                data = word == "DATA"
                self.wfile.write(b"354 go\r\n" if data else b"221 bye\r\n" if word == "QUIT" else b"250 ok\r\n")
                if word == "QUIT":
                    return

    with socketserver.TCPServer(("127.0.0.1", 0), Mail) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = NotifySettings(f"127.0.0.1:{server.server_address[1]}", "tm@example.com")
        assert deliver("ada@example.com", MESSAGE, settings) is None
        server.shutdown()
    assert {"To: ada@example.com", "From: tm@example.com", "Subject: x-1 has failed: exit 3", "tm show x-1"} <= set(lines)
    assert {"Date", "Message-ID"} <= {line.partition(":")[0] for line in lines}
    assert deliver("ada@example.com", MESSAGE, NotifySettings()) == (
        "the server has no mail server: [notify] smtp in server.toml"
    )


def test_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    assert deliver(f'run:echo "$TRAINMASTER_JOB $TRAINMASTER_STATE" > {out}; cat >> {out}', MESSAGE, NotifySettings()) is None
    assert out.read_text() == "x-1 failed\n" + json.dumps(MESSAGE)
    assert deliver("run:echo first >&2; echo last >&2; exit 4", MESSAGE, NotifySettings()) == "the command exited with code 4: last"
    monkeypatch.setattr(deliveries, "COMMAND_S", 0.2)
    assert deliver("run:sleep 60 & wait", MESSAGE, NotifySettings()) == "the command took longer than 0.2 s"


def test_a_command_that_prints_without_end_or_leaves_a_program_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, quiet = NotifySettings(), dict(MESSAGE, text="a\0b")
    assert deliver("run:yes | head -c 20000000 >&2; echo last >&2; exit 4", MESSAGE, settings) == (
        "the command exited with code 4: last"
    )
    began_s = time.monotonic()
    assert deliver("run:sleep 20 & [ $TRAINMASTER_TEXT = ab ]", quiet, settings) is None  # not waited for, and not killed
    assert time.monotonic() - began_s < 15.0
    monkeypatch.setattr(deliveries, "COMMAND_S", 1.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert deliver("run:yes >&2", MESSAGE, settings) == "the command took longer than 1 s"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_webhook_that_never_finishes_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    class Slow(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                while not over.wait(0.05):
                    self.request.sendall(b"H")

    monkeypatch.setattr(deliveries, "SEND_S", 0.5)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        began_s = time.monotonic()
        ending = threading.Timer(20.0, over.set)
        ending.start()
        told = deliver(f"http://127.0.0.1:{server.server_address[1]}", MESSAGE, NotifySettings())
        assert (told, time.monotonic() - began_s < 15.0) == ("it did not answer within 0.5 s", True)
        over.set()
        ending.cancel()
        server.shutdown()


class Api:
    """What the loop needs of the api, on the stores of a control that a test drives."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.services = SimpleNamespace(events=server.events, home=server.home, configuration=Configuration())
        self.commands = SimpleNamespace(accept=self._accept)

    async def _accept(self, rows: list[Any]) -> None:
        self.server.inbox.accept(rows)


def test_retries_and_what_is_said_in_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, sent, answers = Server(Home(tmp_path)), list[tuple[str, str]](), dict[str, str | None]()
    api: Any = Api(server)

    def send(target: str, message: dict[str, Any]) -> str | None:
        sent.append((target, str(message["text"])))
        return answers.get(target)

    now_s = 0.0
    monkeypatch.setattr(notifications.time, "time", lambda: now_s)

    def step() -> None:
        asyncio.run(loop.step())
        server.tick()

    server.submit(notify=NotifySpec(("before@example.com",)))
    server.tick()
    server.ask(CancelJob("train-1", "ann"))
    for _ in range(20):
        server.tick(5.0)
    loop = NotificationLoop(api, send)
    step()  # the first start: earlier ends are not notified
    server.submit(notify=NotifySpec(("good@example.com", "bad@example.com")))
    server.submit(notify=NotifySpec(("good@example.com",), "failure"))
    for _ in range(40):
        server.tick(5.0)
    assert server.job("train-2").state.ended
    assert server.job("train-3").state.ended
    answers["bad@example.com"] = "no such host"
    step()
    text = "train-2 has succeeded"
    assert sorted(sent) == [("bad@example.com", text), ("good@example.com", text)]  # they are delivered at once
    told = "the notification to bad@example.com was not delivered: no such host; "
    assert [one.text for one in server.job("train-2").troubles] == [told + "it is tried again"]
    step()
    assert len(sent) == 2  # not yet
    loop = NotificationLoop(api, send)  # a restart of the server forgets nothing, and repeats nothing
    for pause_s in notifications.RETRIES_S[:-1]:
        now_s += pause_s
        step()
    assert len(sent) == 5
    now_s += notifications.RETRIES_S[-1]
    step()
    assert [one.text for one in server.job("train-2").troubles] == [told + "given up after 5 tries"]
    now_s += 1e6
    step()
    assert len(sent) == 6

    server.submit(notify=NotifySpec(("bad@example.com",)))
    for _ in range(40):
        server.tick(5.0)
    step()
    answers.clear()
    now_s += notifications.RETRIES_S[0]
    step()
    assert (len(sent), server.job("train-4").troubles) == (8, ())


def test_an_end_before_the_first_look_is_told(tmp_path: Path) -> None:
    """On a new home the first job may end before the loop looks for the first time."""
    server, sent = Server(Home(tmp_path)), list[str]()
    api: Any = Api(server)
    loop = NotificationLoop(api, lambda target, message: sent.append(str(message["text"])))
    server.submit(notify=NotifySpec(("ada@example.com",)))
    for _ in range(40):
        server.tick(5.0)
    assert server.job().state.ended
    asyncio.run(loop.step())
    assert sent == ["train-1 has succeeded"]


def test_many_at_once_are_all_told_and_first_tries_go_before_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "_OWED_MAX", 4)
    monkeypatch.setattr(notifications, "_AT_ONCE", 2)
    monkeypatch.setattr(notifications, "RETRIES_S", (0.0, 0.0))
    server, sent = Server(Home(tmp_path)), list[str]()
    api: Any = Api(server)
    targets = tuple(f"{name}@example.com" for name in "abcd")

    def send(target: str, message: dict[str, Any]) -> str | None:
        sent.append(f"{message['job']} {target[0]}")
        return "no" if target[0] in "ab" else None

    loop = NotificationLoop(api, send)
    for number in (1, 2):
        server.submit(notify=NotifySpec(targets))
        server.tick()
        server.ask(CancelJob(f"train-{number}", "ann"))
        for _ in range(20):
            server.tick(5.0)
    for _ in range(8):
        asyncio.run(loop.step())
    expected = [f"train-{number} {name}" for number in (1, 2) for name in "abcd"]
    assert (sorted(sent), sorted(sent[:4])) == (sorted(one for one in expected for _ in range(3 if one[-1] in "ab" else 1)), expected[:4])
