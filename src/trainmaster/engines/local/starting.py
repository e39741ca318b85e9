"""Starts agents: with the warm spawner, else by exec of the agent's single file. Agents are always detached (double fork)."""

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from trainmaster.agent.pack import build
from trainmaster.engines.local.attempts import Identity
from trainmaster.engines.local.code_version import version
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.wire import names, processes

_CONNECT_S = 2.0
_SILENT_S = 30.0  # an unresponsive spawner is not asked again for so long
_RETRY_S = 3.0  # between two tries to start a new spawner
_log = logging.getLogger(__name__)

# Run with -I -S, which takes milliseconds: forking a server with threads is unsafe, exec of this is safe. argv: log, command.
_DETACH = """
import os, sys
log, command = sys.argv[1], sys.argv[2:]
pid = os.fork()
if pid:
    os.write(1, str(pid).encode())
    os._exit(0)
os.setsid()
os.chdir("/")
words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.dup2(words, 1)
os.dup2(words, 2)
os.execv(command[0], command)
"""


class Starter:
    """Starts agents of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._asked_s = -_RETRY_S
        self._zipapp_built = False
        self._silent_until_s = 0.0

    def start(self, directory: Path) -> Identity | None:
        """Start the agent of `directory`; None if it ended before its identity could be read.

        Raises: OperationError if no process can be started.
        """
        answer = self._fork(directory)
        if answer is not None and "pid" in answer:
            return _identity(int(answer["pid"]), answer.get("start_ticks"))
        self._revive()
        return self._execute(directory)

    def _fork(self, directory: Path) -> dict[str, Any] | None:
        """Ask the spawner, unless it was unresponsive a moment ago: launches are sequential, so each would wait."""
        began_s = time.monotonic()
        if began_s < self._silent_until_s:
            return None
        answer = ask(self._home, {"directory": str(directory), "version": version()})
        if answer is None and time.monotonic() - began_s >= _CONNECT_S:
            self._silent_until_s = time.monotonic() + _SILENT_S
            _log.warning("the spawner does not answer; for %.0f s agents start by exec", _SILENT_S)
        return answer

    def _execute(self, directory: Path) -> Identity | None:
        with self._lock:
            if not self._zipapp_built:
                try:
                    build(str(self._home.agent_zipapp))
                except OSError as error:
                    where = f"check {self._home.root}"
                    raise OperationError(f"the agent's file could not be written: {error}", where) from error
                self._zipapp_built = True
        command = [sys.executable, "-I", "-S", str(self._home.agent_zipapp), str(directory)]  # needs no site-packages
        pid = detach(command, directory / names.AGENT_LOG)
        return _identity(pid, processes.start_ticks(pid))

    def _revive(self) -> None:
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._asked_s < _RETRY_S:
                return
            self._asked_s = now_s
        _log.info("no spawner answers; starting one")
        try:
            start_spawner(self._home)
        except (OSError, OperationError) as error:
            _log.warning("no spawner could be started, agents start by exec: %s", error)


def start_spawner(home: Home) -> int:
    """Start a spawner in the background; returns its pid. If one runs already, the second exits at once.

    Raises: OSError, OperationError.
    """
    home.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.lock("spawner").touch(mode=0o600)
    module = "trainmaster.engines.local.spawner"
    return detach([sys.executable, "-P", "-m", module, str(home.root)], home.logs / "spawner.log")


def stop_spawner(home: Home) -> None:
    """Ask the spawner to exit and wait for it (seconds at most); agents continue. Does nothing if there is none."""
    home.lock("spawner").unlink(missing_ok=True)  # a spawner that is still starting exits by itself
    answer = ask(home, {"exit": True})
    if answer is None or "pid" not in answer:
        return
    try:
        descriptor = os.pidfd_open(int(answer["pid"]))
    except OSError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(_CONNECT_S * 1000)
    finally:
        os.close(descriptor)


def spawner_answers(home: Home) -> bool:
    """Whether a spawner listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(str(home.socket("spawner")))
        except OSError:
            return False
    return True


def ask(home: Home, request: dict[str, Any]) -> dict[str, Any] | None:
    """Send one request to the spawner; None if none answers. A lost answer after the fork is harmless: agents use a lock."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(str(home.socket("spawner")))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline())
        except (OSError, ValueError):
            return None
    return answer if isinstance(answer, dict) else None


def detach(command: list[str], log: Path) -> int:
    """Start a program in its own session with output to `log` and init as parent; returns its pid.

    Raises: OperationError.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _DETACH, str(log), *command],
            stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=30,
        )  # fmt: skip
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or b""
        raise OperationError(
            f"could not start a process: {error} {said.decode(errors='replace').strip()}".strip(),
            "check that the machine has free memory and processes (ulimit -u), then try again",
        ) from error


def _identity(pid: int, ticks: object) -> Identity | None:
    return Identity(pid, ticks, processes.boot_id()) if isinstance(ticks, int) else None
