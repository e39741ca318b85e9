"""What the loop sleeps on: a pipe into which signals and threads write. Nothing else may wake it."""

from __future__ import annotations

import os
import select
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
    from typing import Iterator, Optional
else:
    import _signal as signal  # `signal` itself makes enums of it all, which costs a tenth of an interpreter's start


class Stopped(Exception):
    """Somebody wants this agent to stop before its ranks were started."""


class Wake:
    """One pipe; `install` sends this process's signals into it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self._interruptible = False
        self.terminated = False  # somebody sent us SIGTERM or SIGINT

    def install(self) -> None:
        """Take over the signals that matter to an agent. Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._noted)
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, a SIGTERM raises `Stopped` at once, whatever long copy it finds us at."""
        self._interruptible = True
        try:
            yield
        finally:
            self._interruptible = False

    def raise_if_stopped(self) -> None:
        """Raises: Stopped."""
        if self.terminated:
            raise Stopped

    def set(self) -> None:
        """Wake the loop; from any thread."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # full: it is awake

    def wait(self, timeout_s: float) -> None:
        """Sleep until woken, `timeout_s` at most."""
        if self._poll.poll(max(0, int(timeout_s * 1000 + 0.999))):
            try:
                os.read(self._read, 65536)
            except BlockingIOError:
                return

    def _noted(self, number: int, frame: Optional[FrameType]) -> None:
        """The wakeup descriptor has done it; a handler must exist for it to be written."""

    def _terminate(self, number: int, frame: Optional[FrameType]) -> None:
        self.terminated = True
        if self._interruptible:
            raise Stopped
