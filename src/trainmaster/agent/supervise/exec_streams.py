"""Streams of one `tm exec`, between the command and the server: a thread for output, and one for input if there is input.

The server accepts output only as fast as the client reads it. So a command that prints much blocks in `write`, as in a
shell pipeline. A command is ended if the server does not know it any more (after a restart) or is unreachable for long.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import http.client
import os
import select
import struct
import termios
import threading
import time

from trainmaster.agent.transport.sync import Client, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Optional, Tuple

    from trainmaster.agent.processes.wakeup import Wake
    from trainmaster.wire.launch import Launch
    from trainmaster.wire.messages import Terminal

    Theirs = Tuple[int, int, int]  # the command's standard input, output and error
    Ours = Tuple[Optional[int], int, Optional[int]]  # our ends: input, output, error

_OUTPUT_PATH = "/agent/exec/output"
_INPUT_PATH = "/agent/exec/input"
_CHUNK = 131072
_LOOK_MS = 100
_LINGER_S = 1.0  # for output of its background processes
_BEAT_S = 5.0  # between two heartbeats of a silent command
_HOLD_S = 20.0
_AWAY_S = 20.0  # a command is ended when the server is unreachable for so long
_PAUSE_S = 0.2


def open_pipes(with_input: bool) -> Tuple[Theirs, Ours]:
    """Three pipes; without input, the command reads from /dev/null. Raises: OSError."""
    opened: list[int] = []
    try:
        opened += os.pipe()
        opened += os.pipe()
        opened += os.pipe() if with_input else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC),)
    except OSError:
        close(opened)
        raise
    output, out, error, err, given = opened[:5]
    return (given, out, err), (opened[5] if with_input else None, output, error)


def open_terminal(terminal: Terminal) -> Tuple[Theirs, Ours]:
    """A terminal of its own for the command, with the size of the person's. Raises: OSError."""
    ours, theirs = os.openpty()
    try:
        resize(ours, terminal)
        return (theirs, theirs, theirs), (os.dup(ours), ours, None)
    except OSError:
        close((ours, theirs))
        raise


def resize(descriptor: int, terminal: Terminal) -> None:
    """Set the size of a terminal; its foreground processes get SIGWINCH. Raises: OSError."""
    size = struct.pack("HHHH", int(terminal["rows"]), int(terminal["columns"]), 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)


def close(descriptors: Iterable[Optional[int]]) -> None:
    """Close each of them once."""
    for descriptor in set(descriptors):
        if descriptor is not None:
            os.close(descriptor)


class Channel:
    """The streams of one command. `abandoned`: no client listens any more, so the command is to be ended."""

    def __init__(self, launch: Launch, id: str, wake: Wake) -> None:
        self._launch = launch
        self._id = id
        self._wake = wake
        self._outputs: dict[int, int] = {}  # descriptor -> 1 standard output, 2 standard error
        self._input: Optional[int] = None
        self._over: Optional[dict[str, Any]] = None
        self._threads: list[threading.Thread] = []
        self._sent = 0
        self.abandoned = False

    def attach(self, ours: Ours) -> None:
        """Set our ends of the command's streams."""
        self._input, output, error = ours
        self._outputs = {output: 1} if error is None else {output: 1, error: 2}

    def start(self) -> None:
        """Start the threads that move bytes."""
        self._spawn("exec-output", self._send)
        if self._input is not None:
            self._spawn("exec-input", self._receive)

    def over(self, exit_code: Optional[int], signal_number: Optional[int], with_attempt: bool) -> None:
        """The command has ended; `with_attempt`: because the attempt ended."""
        if self._over is None:
            self._over = {"exit_code": exit_code, "signal": signal_number, "error": None, "with_attempt": with_attempt}

    def failed(self, why: str) -> None:
        """The command could not be started."""
        self._over = {"exit_code": None, "signal": None, "error": why, "with_attempt": False}
        self._spawn("exec-output", self._send)

    def join(self, timeout_s: float) -> None:
        """Wait until everything was sent, for at most `timeout_s`."""
        if self._threads:
            self._threads[0].join(max(0.0, timeout_s))

    def _spawn(self, name: str, target: Any) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send(self) -> None:
        client = Client(self._launch, _OUTPUT_PATH)
        poll = select.poll()
        for descriptor in self._outputs:
            poll.register(descriptor, select.POLLIN)
        told_s, over_s = time.monotonic(), None
        try:
            while not self.abandoned:
                ready = poll.poll(_LOOK_MS) if self._outputs else []
                chunks = self._read(poll, [descriptor for descriptor, _ in ready])
                now_s = time.monotonic()
                if self._over is not None:
                    over_s = now_s if over_s is None or chunks else over_s
                    if not self._outputs or now_s - over_s >= _LINGER_S:
                        self._tell(client, chunks, self._over)
                        return
                if chunks or now_s - told_s >= _BEAT_S:
                    self._tell(client, chunks, None)
                    told_s = now_s
                if not self._outputs and self._over is None:
                    time.sleep(_LOOK_MS / 1000)
        finally:
            for descriptor in self._outputs:
                os.close(descriptor)
            self._wake.set()

    def _read(self, poll: select.poll, ready: list[int]) -> list[list[Any]]:
        chunks: list[list[Any]] = []
        for descriptor in ready:
            try:
                data = os.read(descriptor, _CHUNK)
            except OSError as failure:
                if failure.errno != errno.EIO:
                    raise
                data = b""  # a terminal that no process has open any more
            if data:
                chunks.append([self._outputs[descriptor], base64.b64encode(data).decode()])
            else:
                poll.unregister(descriptor)
                os.close(descriptor)
                del self._outputs[descriptor]
        return chunks

    def _tell(self, client: Client, chunks: list[list[Any]], over: Optional[dict[str, Any]]) -> None:
        """Send until the server accepts it, or until the command is abandoned."""
        body = {"key": self._launch["key"], "id": self._id, "n": self._sent + 1, "chunks": chunks, "over": over}
        answer = self._ask(client, body)
        while answer is not None and not answer.get("taken"):
            answer = self._ask(client, body)
        self._sent += 1

    def _receive(self) -> None:
        client, offset, descriptor = Client(self._launch, _INPUT_PATH), 0, self._input
        assert descriptor is not None
        try:
            while self._over is None and not self.abandoned:
                answer = self._ask(client, {"key": self._launch["key"], "id": self._id, "offset": offset, "wait_s": _HOLD_S})
                data = base64.b64decode(answer["data"]) if answer is not None else b""
                offset += len(data)
                while data:
                    data = data[os.write(descriptor, data) :]
                if answer is None or answer["ended"]:
                    return
        except OSError:
            return  # the command has closed its input
        finally:
            os.close(descriptor)

    def _ask(self, client: Client, body: dict[str, Any]) -> Optional[dict[str, Any]]:
        """Send one request, and retry while the server is unreachable for a short time. None if the command is abandoned."""
        until_s = time.monotonic() + _AWAY_S
        while not self.abandoned:
            try:
                answer = client.post(body, _HOLD_S + 10.0)
                if answer.get("stale"):
                    break
                return answer
            except Refused:
                break
            except (OSError, http.client.HTTPException, ValueError):
                if time.monotonic() >= until_s:
                    break
                time.sleep(_PAUSE_S)
        self.abandoned = True
        self._wake.set()
        return None
