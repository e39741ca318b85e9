"""Metric points that the server has not acknowledged: a window in memory, and all of them in one file on this node's disk.

Points are numbered from 1 and sent in that order; the server stores each number once, so a batch whose answer was lost is
sent again without harm. A point may be sent once it is in the file (`point_file`): it is still there when the agent is killed,
and when the job ends while the server is away. Without room on the disk points are sent from memory alone. The file is
written without waiting for the disk, since neither does the program; while the server is away it is synced.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque

from trainmaster.agent.transport.point_file import PointFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

    from trainmaster.agent.transport.point_file import Point

MEMORY_MAX = 100_000  # points in memory; more lie in the file alone until there is room
_FRESH_MAX = 10_000  # points put before they are written, however much a program wrote at once
BATCH_MAX = 2000  # points of one request, and
BATCH_BYTES = 512 * 1024  # their size as JSON, about: far below what a server takes
_POINT_BYTES, _VALUE_BYTES = 120, 30  # of a point without its values, of a value without its name


class Points:
    """Thread-safe. One batch at a time is on its way."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._file = PointFile(path, time.time() - time.monotonic())  # mapped once: a clock that is set moves no point
        self._number = 0
        self._fresh: list[Point] = []  # not in the file yet, and not to be sent yet
        self._waiting: deque[Point] = deque()
        self._taken: list[Point] = []  # on their way
        self._beyond: Optional[int] = None  # from here on the file holds what has no room in memory
        self._read: dict[str, int] = {}
        self.dropped = 0

    def put(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """One more, which may be sent after the next `keep`; values too many for one request make several points."""
        at_s = time.monotonic()
        with self._lock:
            for part in _parts(values):
                self._number += 1
                self._fresh.append((self._number, at_s, rank, step, part))

    def keep(self, read: dict[str, int], now: bool = True) -> None:
        """Bring into the file what was put since; `read`: how far the programs' own files were read, in bytes by name.

        Called by the thread that reads them alone, when all that is read was put. Not `now`: only if it is much.
        """
        with self._lock:
            if not now and len(self._fresh) <= _FRESH_MAX:
                return
            self._read.update(read)
            if self._fresh or not self._file.opened:
                self._write()

    def take(self, most: int = BATCH_MAX) -> list[Point]:
        """The oldest of them, to be `sent` or `put_back`."""
        with self._lock:
            if not self._waiting and self._beyond is not None:
                self._refill()
            size = 0
            while self._waiting and len(self._taken) < min(most, BATCH_MAX):
                size += _size(self._waiting[0][4])
                if self._taken and size > BATCH_BYTES:
                    break
                self._taken.append(self._waiting.popleft())
            return list(self._taken)

    def put_back(self) -> None:
        """What was taken did not arrive."""
        with self._lock:
            self._waiting.extendleft(reversed(self._taken))
            self._taken = []

    def sent(self) -> None:
        """What was taken need not be sent again."""
        with self._lock:
            taken, self._taken = self._taken, []
            if taken and self._file.opened and self.empty:
                with contextlib.suppress(OSError):  # read again it does no harm: the server knows the numbers
                    self._file.clear(self._read, taken[-1][0])

    def sync(self) -> None:
        """Wait until the disk has what is in the file."""
        with self._lock, contextlib.suppress(OSError):  # a full disk: they are still in memory
            self._file.sync()

    def finish(self) -> None:
        """The end of this agent: the file stays only if something still waits."""
        if self.dropped:
            sys.stderr.write(f"{self.dropped} metric points were dropped: the server was away and the disk full\n")
        if not self.empty:
            self.sync()
            return
        with contextlib.suppress(OSError):
            self._file.remove()

    @property
    def empty(self) -> bool:
        """Whether none waits that may be sent."""
        return not self._waiting and self._beyond is None

    def _write(self) -> None:
        """What is not in the file yet. Without room on the disk it is in memory alone, or dropped where that is full."""
        room = max(0, MEMORY_MAX - len(self._waiting)) if self._beyond is None else 0
        near, far = self._fresh[:room], self._fresh[room:]
        number = self._fresh[-1][0] if self._fresh else self._number
        self._fresh = []
        first, second = self._file.lines(near), self._file.lines(far)
        begin = self._file.bytes
        try:
            if self._beyond is None and self._file.long:
                first, begin = self._file.lines([*self._taken, *self._waiting]) + first, 0
                self._file.replace(first + second, self._read, number)
            else:
                self._file.append(first + second, self._read, number)
            if far and self._beyond is None:
                self._beyond = begin + len(first)
        except OSError:
            self.dropped += len(far)
        self._waiting.extend(near)

    def _refill(self) -> None:
        """The next of those that lie in the file alone."""
        assert self._beyond is not None
        try:
            points, self._beyond = self._file.next_points(self._beyond)
        except OSError:
            return  # the next time
        self._waiting.extend(points)
        if not points:
            self._beyond = None


def _parts(values: dict[str, float]) -> Iterator[dict[str, float]]:
    """`values`, in pieces that fit into one request."""
    part: dict[str, float] = {}
    size = 0
    for name, value in values.items():
        size += _VALUE_BYTES + _written(name)
        if part and size > BATCH_BYTES:
            yield part
            part, size = {}, 0
        part[name] = value
    yield part


def _size(values: dict[str, float]) -> int:
    """About how long a point is as JSON, and not longer."""
    return _POINT_BYTES + sum(_VALUE_BYTES + _written(name) for name in values)


def _written(name: str) -> int:
    return len(name) if name.isascii() else 12 * len(name)  # two escapes of six letters at most
