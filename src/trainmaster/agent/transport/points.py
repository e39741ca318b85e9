"""Metric points that the server has not acknowledged: a window in memory, and all of them in one file on this node's disk.

Points are numbered from 1 and sent in that order. The server stores each number once, so a batch whose answer was lost is
sent again safely. A point may be sent once it is in the file (`point_file`). There it survives a killed agent, and a job
that ends while the server is unreachable. If the disk is full, points are sent from memory. The file is written without
fsync, because the program does not sync its own file either. It is synced while the server is unreachable.
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

MEMORY_MAX = 100_000  # points in memory; more points stay in the file only, until there is space in memory
_FRESH_MAX = 10_000  # points in memory before they are written to the file, even if a program writes many at once
BATCH_MAX = 2000  # points of one request, and
BATCH_BYTES = 512 * 1024  # their approximate size as JSON: far below the server's limit
_POINT_BYTES, _VALUE_BYTES = 120, 30  # JSON size of a point without its values, of a value without its name


class Points:
    """Thread-safe. One batch at a time is being sent."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._file = PointFile(path, time.time() - time.monotonic())  # computed once: setting the clock moves no point
        self._number = 0
        self._fresh: list[Point] = []  # not in the file yet, so not to be sent yet
        self._waiting: deque[Point] = deque()
        self._taken: list[Point] = []  # in the current request
        self._beyond: Optional[int] = None  # file offset from which points are in the file only
        self._read: dict[str, int] = {}
        self.dropped = 0
        self.measured = False  # whether the program has given a value

    def put(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Add a point. It may be sent after the next `persist`. Too many values for one request make several points."""
        at_s = time.monotonic()
        self.measured = self.measured or not all(name.startswith("system/") for name in values)
        with self._lock:
            for part in _parts(values):
                self._number += 1
                self._fresh.append((self._number, at_s, rank, step, part))

    def persist(self, read: dict[str, int], now: bool = True) -> None:
        """Write the new points to the file. `read`: how far the programs' own files were read, as name -> bytes.

        Only the thread that reads these files calls it, after it has put every point that it read. If not `now`, the points
        are written only if there are many.
        """
        with self._lock:
            if not now and len(self._fresh) <= _FRESH_MAX:
                return
            self._read.update(read)
            if self._fresh or not self._file.opened:
                self._write()

    def take(self, most: int = BATCH_MAX) -> list[Point]:
        """The oldest points, which `sent` or `put_back` settles."""
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
        """The request failed: queue the taken points again."""
        with self._lock:
            self._waiting.extendleft(reversed(self._taken))
            self._taken = []

    def sent(self) -> None:
        """The request succeeded: forget the taken points."""
        with self._lock:
            taken, self._taken = self._taken, []
            if taken and self._file.opened and self.empty:
                with contextlib.suppress(OSError):  # harmless if they are read again: the server knows their numbers
                    self._file.clear(self._read, taken[-1][0])

    def sync(self) -> None:
        """Wait until the file is on the disk."""
        with self._lock, contextlib.suppress(OSError):  # full disk: the points are still in memory
            self._file.sync()

    def finish(self) -> None:
        """End of this agent: keep the file only if points still wait."""
        if self.dropped:
            sys.stderr.write(f"{self.dropped} metric points were dropped: the server was away and the disk full\n")
        if not self.empty:
            self.sync()
            return
        with contextlib.suppress(OSError):
            self._file.remove()

    @property
    def empty(self) -> bool:
        """Whether no point waits that may be sent."""
        return not self._waiting and self._beyond is None

    @property
    def many(self) -> bool:
        """Whether so many wait that one request with reports might not carry them."""
        return len(self._waiting) > BATCH_MAX // 20 or self._beyond is not None

    def _write(self) -> None:
        """Write new points to the file. On a full disk they stay in memory only, or are dropped if the memory is full too."""
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
        """Load the next points that are in the file only."""
        assert self._beyond is not None
        try:
            points, self._beyond = self._file.next_points(self._beyond)
        except OSError:
            return  # retried next time
        self._waiting.extend(points)
        if not points:
            self._beyond = None


def _parts(values: dict[str, float]) -> Iterator[dict[str, float]]:
    """`values`, split so that each part fits into one request."""
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
    """An upper estimate of a point's size as JSON."""
    return _POINT_BYTES + sum(_VALUE_BYTES + _written(name) for name in values)


def _written(name: str) -> int:
    return len(name) if name.isascii() else 12 * len(name)  # at most two escapes of six characters
