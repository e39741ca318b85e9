"""Orders for this agent from every source: the tombstone file, a signal, the server, and the removal of the home."""

from __future__ import annotations

import os
import time

from trainmaster.agent.files.fast_json import read_json
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.launch.attempt_directory import AttemptDirectory
    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.transport.sync import Answers

_LOOK_S = 0.5


class Orders:
    """The main loop asks it at each turn."""

    def __init__(self, start: Startup, answers: Answers) -> None:
        self._start = start
        self._tombstone = _Tombstone(start.directory.file(names.STOP))
        self._checkpoints = _CheckpointRequests(start.directory, start.launch["checkpoint_interval_s"])
        self._grace_s = start.launch["grace_s"]
        self._answers = answers
        self.commands: list[dict[str, Any]] = []  # orders to run a command beside the ranks
        self.stopped = False
        self.removed = False  # the attempt's directory was removed
        self.due_s = time.monotonic()

    def take(self, now_s: float) -> Optional[float]:
        """The grace period with which to stop the ranks now; None if there is no new order to stop."""
        graces: list[float] = []
        self._checkpoints.step(now_s)
        signalled = self._start.wake.terminated
        self._start.wake.terminated = False
        if signalled or now_s >= self.due_s:
            self.due_s = now_s + _LOOK_S
            if self._tombstone.is_new():
                graces.append(self._tombstone.grace_s(self._grace_s))
            elif signalled and not self._tombstone.seen:
                graces.append(self._grace_s)  # a plain SIGTERM, without a tombstone
                if not self.stopped:
                    self._start.contact.note_signal()
            if not self.removed and self._start.directory.removed:
                self.removed = True
                graces.append(self._grace_s)
        while self._answers.orders:
            order = self._answers.orders.popleft()
            if order.get("order") == "stop":
                graces.append(float(order.get("grace_s", self._grace_s)))
            elif order.get("order") == "checkpoint":
                self._checkpoints.take(order)
            elif order.get("order") == "exec":
                self.commands.append(order)
        if not graces:
            return None
        self.stopped = True
        return min(graces)

    def tell_sdk(self) -> None:
        """Have `should_stop` of the SDK say so."""
        self._start.directory.set_flag(names.FLAG_STOP, b"1")


class _Tombstone:
    """The file with which an engine stops an attempt. It may be replaced, with another grace period."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._signature: Optional[tuple[int, int]] = None  # inode and time of the one that was seen last

    @property
    def seen(self) -> bool:
        """Whether there was one so far."""
        return self._signature is not None

    def is_new(self) -> bool:
        """Whether there is one that is new or was replaced."""
        try:
            status = os.stat(self._path)
        except OSError:
            return False
        before, self._signature = self._signature, (status.st_ino, status.st_mtime_ns)
        return self._signature != before

    def grace_s(self, default_s: float) -> float:
        """The grace period in it."""
        try:
            return float(read_json(self._path)["grace_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return default_s


class _CheckpointRequests:
    """Requests to the program to save a checkpoint: those that the server orders, and one per interval."""

    def __init__(self, directory: AttemptDirectory, interval_s: Optional[float]) -> None:
        self._directory = directory
        self._ordered = 0  # the highest number of an order so far
        self._interval_s = interval_s
        self._intervals = 0  # that have passed
        self._due_s = time.monotonic() + (interval_s or 0.0)

    def step(self, now_s: float) -> None:
        """Ask for a checkpoint if an interval has passed."""
        if self._interval_s is not None and now_s >= self._due_s:
            self._intervals += 1
            self._due_s = now_s + self._interval_s
            self._ask()

    def take(self, order: dict[str, Any]) -> None:
        """Ask for a checkpoint, unless this order has arrived before."""
        number = int(order.get("n", self._ordered + 1))
        if number > self._ordered:
            self._ordered = number
            self._ask()

    def _ask(self) -> None:
        self._directory.set_flag(names.FLAG_CHECKPOINT, bytes([(self._ordered + self._intervals) % 256]))
