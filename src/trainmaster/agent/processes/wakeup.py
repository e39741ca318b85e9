"""Wakes the main loop: a pipe into which signal handlers and threads write. Nothing else may wake it."""

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
    import _signal as signal  # `signal` itself creates enums at import, which costs a tenth of an interpreter's start


class Stopped(Exception):
    """This agent was told to stop before its ranks were started."""


class Wake:
    """One pipe; `install` directs this process's signals into it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self._interruptible = False
        self.terminated = False  # SIGTERM or SIGINT was received

    def install(self) -> None:
        """Install handlers for the signals that an agent needs. Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._noted)
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, a SIGTERM raises `Stopped` at once, even during a long copy."""
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
        """Wake the main loop; callable from any thread."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            return  # the pipe is full, so the loop will wake anyway

    def wait(self, timeout_s: float) -> None:
        """Sleep until woken, at most `timeout_s`."""
        if self._poll.poll(max(0, int(timeout_s * 1000 + 0.999))):
            try:
                os.read(self._read, 65536)
            except BlockingIOError:
                return

    def _noted(self, number: int, frame: Optional[FrameType]) -> None:
        """Does nothing: the wakeup descriptor is written, but only if a handler exists."""

    def _terminate(self, number: int, frame: Optional[FrameType]) -> None:
        self.terminated = True
        if self._interruptible:
            raise Stopped
