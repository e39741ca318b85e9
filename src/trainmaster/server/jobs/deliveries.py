"""Delivers one notification: posts it to a webhook, sends it by e-mail, or runs a command. Blocking, with a time limit."""

import json
import os
import select
import signal
import smtplib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from trainmaster.configuration import NotifySettings
from trainmaster.model.options.notify_targets import MAILTO, RUN, kind_of

NO_MAIL = "the server has no mail server: [notify] smtp in server.toml"
SEND_S, COMMAND_S = 10.0, 60.0
_SAID_MAX = 300  # characters of a command's last output
_KEPT_BYTES, _BLOCK_BYTES, _LOOK_MS = 4096, 65536, 20
_NAMES = ("job", "state", "reason", "text", "name", "project", "experiment")  # passed to a command as variables


def deliver(target: str, message: Mapping[str, Any], settings: NotifySettings) -> str | None:
    """Deliver `message` to `target`. Returns why that failed; None if it arrived."""
    try:
        match kind_of(target):
            case "webhook":
                return _post(target, message)
            case "mail":
                return _mail(target.removeprefix(MAILTO), message, settings)
            case _:
                return _run(target[len(RUN) :], message)
    except (OSError, ValueError, HTTPException, smtplib.SMTPException) as error:
        return f"{type(error).__name__}: {error}"


def _post(url: str, message: Mapping[str, Any]) -> str | None:
    """The body has a field `text`, which chat programs show."""
    request = Request(url, json.dumps(message).encode(), {"Content-Type": "application/json"})
    connections: list[HTTPConnection] = []
    opener = build_opener(_Web(connections), _NoRedirects())
    try:
        with _cut_after(SEND_S, connections) as cut, opener.open(request, timeout=SEND_S) as answer:
            return None if 200 <= answer.status < 300 else f"it answered {answer.status}"
    except HTTPError as error:
        return f"it answered {error.code} {error.reason}"
    except (URLError, HTTPException, OSError) as error:
        if cut.is_set():
            return f"it did not answer within {SEND_S:g} s"
        return f"it cannot be reached: {getattr(error, 'reason', error)}"


class _Web(HTTPHandler, HTTPSHandler):
    """Notes the connections, so that they can be cut: a timeout of urllib is for each read, and an answer has many."""

    def __init__(self, connections: list[HTTPConnection]) -> None:
        HTTPSHandler.__init__(self)
        self._connections = connections

    def http_open(self, req: Request) -> Any:
        """Open a connection."""
        return self._open(HTTPConnection, req)

    def https_open(self, req: Request) -> Any:
        """Open a connection with TLS."""
        return self._open(HTTPSConnection, req)

    def _open(self, kind: type[HTTPConnection], request: Request) -> Any:
        def connection(host: str, **given: Any) -> HTTPConnection:
            self._connections.append(kind(host, **given))
            return self._connections[-1]

        return self.do_open(connection, request)  # a function instead of a class


class _NoRedirects(HTTPRedirectHandler):
    """A redirect is a failure: urllib would follow it without the message, and call the page that it finds an arrival."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


@contextmanager
def _cut_after(seconds: float, connections: list[HTTPConnection]) -> Iterator[threading.Event]:
    """Shut down the connections after a while. Yields whether that has happened."""
    cut = threading.Event()

    def end() -> None:
        cut.set()
        for one in connections:
            with suppress(OSError, AttributeError):  # closed already
                one.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield cut
    finally:
        timer.cancel()


def _mail(address: str, message: Mapping[str, Any], settings: NotifySettings) -> str | None:
    if settings.smtp is None:
        return NO_MAIL
    mail = EmailMessage()
    mail["From"], mail["To"] = settings.sender or f"trainmaster@{os.uname().nodename}", address
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain=os.uname().nodename)  # some servers refuse mail without
    mail["Subject"] = " ".join(str(message["text"]).split())[:200]
    mail.set_content(f"{message['text']}\n\ntm show {message['job']}\n")
    host, _, port = settings.smtp.partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=SEND_S) as server:
        server.send_message(mail)
    return None


def _run(line: str, message: Mapping[str, Any]) -> str | None:
    """Run a line of bash on the server's machine: the message as JSON on its input, and the main fields as variables."""
    known = {f"TRAINMASTER_{name.upper()}": str(message[name]).replace("\0", "") for name in _NAMES}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "USER") if name in os.environ}
    with os.fdopen(os.memfd_create("notification"), "w+b") as given:
        given.write(json.dumps(message).encode())
        given.seek(0)
        process = subprocess.Popen(
            ["bash", "-c", line], cwd="/", env={**kept, **known}, stdin=given, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    said = _watched(process, time.monotonic() + COMMAND_S)
    if said is None:
        return f"the command took longer than {COMMAND_S:g} s"
    if process.returncode == 0:
        return None
    last = said.decode(errors="replace").strip().splitlines()[-1:]
    return f"the command exited with code {process.returncode}" + (f": {last[0][:_SAID_MAX]}" if last else "")


def _watched(process: "subprocess.Popen[bytes]", until_s: float) -> bytes | None:
    """Wait for a command; returns the end of what it printed as errors, None if it was killed at `until_s`.

    What it leaves running in the background is not waited for, although it may hold the pipe open.
    """
    assert process.stderr is not None
    with process.stderr as stream:
        poll, said = select.poll(), b""
        poll.register(stream, select.POLLIN)
        while time.monotonic() < until_s:
            ended = process.poll() is not None
            if poll.poll(0 if ended else _LOOK_MS):
                block = os.read(stream.fileno(), _BLOCK_BYTES)
                said = (said + block)[-_KEPT_BYTES:]
                if not block:
                    poll.unregister(stream)  # it closed the pipe
            if ended:
                return said
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return None
