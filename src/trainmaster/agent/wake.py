"""What the loop sleeps on: a pipe into which signals and threads write. Nothing else may wake it."""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


class Wake:
    """One pipe; `install` sends this process's signals into it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self.terminated = False  # somebody sent us SIGTERM or SIGINT

    def install(self) -> None:
        """Take over the signals that matter to an agent. Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._noted)
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def set(self) -> None:
        """Wake the loop; from any thread."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # full: it is awake

    def wait(self, timeout_s: float) -> None:
        """Sleep until woken, `timeout_s` at most."""
        if self._poll.poll(max(0, int(timeout_s * 1000 + 0.999))):
            try:
                os.read(self._read, 65536)
            except BlockingIOError:
                pass

    def _noted(self, number: int, frame: FrameType | None) -> None:
        """The wakeup descriptor has done it; a handler must exist for it to be written."""

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
