"""Delivers one notification: posts it to a webhook, sends it by e-mail, or runs a command. Blocking, with a time limit."""

import json
import os
import signal
import smtplib
import subprocess
from collections.abc import Mapping
from email.message import EmailMessage
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from trainmaster.configuration import NotifySettings
from trainmaster.model.options.notify_targets import MAILTO, RUN, kind_of

SEND_S, COMMAND_S = 10.0, 60.0
_SAID_MAX = 300  # characters of a command's last output
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
    try:
        with urlopen(request, timeout=SEND_S) as answer:
            return None if 200 <= answer.status < 300 else f"it answered {answer.status}"
    except HTTPError as error:
        return f"it answered {error.code} {error.reason}"
    except URLError as error:
        return f"it cannot be reached: {error.reason}"


def _mail(address: str, message: Mapping[str, Any], settings: NotifySettings) -> str | None:
    if settings.smtp is None:
        return "the server has no mail server: [notify] smtp in server.toml"
    mail = EmailMessage()
    mail["From"], mail["To"] = settings.sender or f"trainmaster@{os.uname().nodename}", address
    mail["Subject"] = " ".join(str(message["text"]).split())[:200]
    mail.set_content(f"{message['text']}\n\ntm show {message['job']}\n")
    host, _, port = settings.smtp.partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=SEND_S) as server:
        server.send_message(mail)
    return None


def _run(line: str, message: Mapping[str, Any]) -> str | None:
    """Run a line of bash on the server's machine: the message as JSON on its input, and the main fields as variables."""
    known = {f"TRAINMASTER_{name.upper()}": str(message[name]) for name in _NAMES}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "USER") if name in os.environ}
    process = subprocess.Popen(
        ["bash", "-c", line], cwd="/", env={**kept, **known}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(json.dumps(message).encode(), timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"the command took longer than {COMMAND_S:g} s"
    if process.returncode == 0:
        return None
    last = said.decode(errors="replace").strip().splitlines()[-1:]
    return f"the command exited with code {process.returncode}" + (f": {last[0][:_SAID_MAX]}" if last else "")
