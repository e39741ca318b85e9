"""Orders for this agent from every source: the tombstone file, a signal, the server, and the removal of the home."""

from __future__ import annotations

import os
import time

from trainmaster.agent.files.fast_json import read_json
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.transport.sync import Sync

_LOOK_S = 0.5


class Orders:
    """The main loop asks it at each turn."""

    def __init__(self, start: Startup, sync: Sync) -> None:
        self._start = start
        self._path = os.path.join(start.directory, names.STOP)
        self._place = start.place
        self._flags_path = start.flags_path
        self._grace_s = start.launch["grace_s"]
        self._wake = start.wake
        self._sync = sync
        self._seen: Optional[tuple[int, int]] = None  # inode and time of the tombstone that was read last
        self._checkpoints = 0  # the highest checkpoint request so far
        self._interval_s = start.launch["checkpoint_interval_s"]
        self._intervals = 0  # checkpoint intervals that have passed; each asks for a checkpoint
        self._interval_due_s = time.monotonic() + (self._interval_s or 0.0)
        self.commands: list[dict[str, Any]] = []  # orders to run a command beside the ranks
        self.stopped = False
        self.removed = False  # the attempt's directory was removed: a new one of that name is not this attempt's
        self.due_s = time.monotonic()

    def take(self, now_s: float) -> Optional[float]:
        """The grace period with which to stop the ranks now; None if there is no new order to stop."""
        graces: list[float] = []
        if self._interval_s is not None and now_s >= self._interval_due_s:
            self._intervals += 1
            self._interval_due_s = now_s + self._interval_s
            self._flag_checkpoint()
        signalled = self._wake.terminated
        self._wake.terminated = False
        if signalled or now_s >= self.due_s:
            self.due_s = now_s + _LOOK_S
            grace_s = self._tombstone()
            if grace_s is not None:
                graces.append(grace_s)
            elif signalled and self._seen is None:
                graces.append(self._grace_s)  # a plain SIGTERM, without a tombstone
                if not self.stopped:
                    self._start.note_signal()
            if not self.removed and self._is_removed():
                self.removed = True
                graces.append(self._grace_s)
        while self._sync.orders:
            order = self._sync.orders.popleft()
            if order.get("order") == "stop":
                graces.append(float(order.get("grace_s", self._grace_s)))
            elif order.get("order") == "checkpoint":
                self._ask_for_checkpoint(int(order.get("n", self._checkpoints + 1)))
            elif order.get("order") == "exec":
                self.commands.append(order)
        if not graces:
            return None
        if not self.stopped:
            self.stopped = True
            self._flag(names.FLAG_STOP, b"1")
        return min(graces)

    def _is_removed(self) -> bool:
        """Whether the directory was removed. One that was moved, or cannot be examined, was not removed."""
        try:
            return os.fstat(self._place).st_nlink == 0
        except OSError:
            return False

    def _tombstone(self) -> Optional[float]:
        """The grace period in a tombstone that is new or was replaced."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        signature = (status.st_ino, status.st_mtime_ns)
        if signature == self._seen:
            return None
        self._seen = signature
        try:
            return float(read_json(self._path)["grace_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return self._grace_s

    def _ask_for_checkpoint(self, number: int) -> None:
        if number > self._checkpoints:
            self._checkpoints = number
            self._flag_checkpoint()

    def _flag_checkpoint(self) -> None:
        self._flag(names.FLAG_CHECKPOINT, bytes([(self._checkpoints + self._intervals) % 256]))

    def _flag(self, offset: int, value: bytes) -> None:
        try:  # non-blocking: the program may have put a pipe in its place
            descriptor = os.open(self._flags_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # the file was removed; SIGTERM still stops the program
        try:
            os.pwrite(descriptor, value, offset)
        except OSError:
            return  # the path is not a regular file any more
        finally:
            os.close(descriptor)
