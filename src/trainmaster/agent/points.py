"""Metric points that the server has not acknowledged: a window in memory, and all of them in one file on this node's disk.

What a program reported is in the file as soon as it was read from the program, and leaves it when the server has it. So
it is still there when the agent is killed, and when the job ends while the server is away: the server reads the file
then (`left`). Written without waiting for the disk, since neither does the program; while the server is away it is synced.

A line is an object: `points`, each of them `[seconds since the epoch, monotonic seconds, rank, step, values]`, and `read`, how
far the programs' own files were read when they were written, `{"rank0.sdk": bytes}`: what lies beyond no agent has read.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Optional

    Point = tuple[float, int, Optional[int], dict[str, float]]  # monotonic seconds, rank, step, values

MEMORY_MAX = 100_000  # points in memory; more lie in the file alone until there is room
FILE_MAX_BYTES = 256 * 1024 * 1024  # what comes beyond is dropped, and counted
_REWRITTEN_BYTES = 8 * 1024 * 1024  # a file this long is written anew with what still waits
_CHUNK = 1024 * 1024
_LINE_POINTS = 500
BATCH_MAX = 2000  # points of one request, and
BATCH_VALUES_MAX = 20_000  # their values, whichever is fewer


class Points:
    """Thread-safe. One batch at a time is on its way."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._waiting: deque[Point] = deque()
        self._fresh: list[Point] = []  # not in the file yet
        self._taken: list[Point] = []  # on their way
        self._beyond: Optional[int] = None  # from here on the file holds what has no room in memory
        self._file = -1
        self._bytes = 0
        self._rewrite_bytes = _REWRITTEN_BYTES
        self._read: dict[str, int] = {}
        self._unsynced = False
        self.dropped = 0

    def put(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """One more; in the file with the next `keep`."""
        point = (time.monotonic(), rank, step, values)
        with self._lock:
            if self._beyond is None and len(self._waiting) >= MEMORY_MAX:
                self._write()
                self._beyond = self._bytes
            if self._beyond is None:
                self._waiting.append(point)
            self._fresh.append(point)

    def keep(self, read: dict[str, int]) -> None:
        """Bring into the file what was put since; `read`: how far the programs' own files were read, in bytes by name."""
        with self._lock:
            self._read.update(read)
            if self._fresh or self._file < 0:
                self._write()

    def take(self) -> list[Point]:
        """The oldest of them, to be `sent` or `put_back`."""
        with self._lock:
            if not self._waiting and self._beyond is not None:
                self._refill()
            values = 0
            while self._waiting and len(self._taken) < BATCH_MAX and values < BATCH_VALUES_MAX:
                self._taken.append(self._waiting.popleft())
                values += len(self._taken[-1][3])
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
            if not taken or self._file < 0 or not self.empty:
                return
            self._fresh = []
            with contextlib.suppress(OSError):  # read again it does no harm
                os.ftruncate(self._file, 0)
                self._bytes = 0
                self._append([])

    def sync(self) -> None:
        """Wait until the disk has what is in the file."""
        with self._lock:
            if self._fresh:
                self._write()
            if self._unsynced and self._file >= 0:
                with contextlib.suppress(OSError):
                    os.fsync(self._file)
                self._unsynced = False

    def finish(self) -> None:
        """The end of this agent: the file stays only if something still waits."""
        with self._lock:
            left = not self.empty
        if self.dropped:
            sys.stderr.write(f"{self.dropped} metric points were dropped: the server was away and the disk full\n")
        if left:
            self.sync()
        elif self._file >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    @property
    def empty(self) -> bool:
        """Whether none waits."""
        return not self._waiting and self._beyond is None

    def _write(self) -> None:
        """What is not in the file yet. Without room on the disk it is in memory alone, or dropped where that is full."""
        try:
            if self._beyond is None and self._bytes > self._rewrite_bytes:
                self._rewrite()
            else:
                self._append(self._fresh)
        except OSError:
            if self._beyond is not None:
                self.dropped += len(self._fresh)
        self._fresh = []

    def _append(self, points: list[Point]) -> None:
        """All of it or nothing: a torn line would spoil the one behind it. Raises: OSError."""
        if self._file < 0:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        data = _lines(points, self._read)
        if self._bytes + len(data) > FILE_MAX_BYTES:
            raise OSError("the file has its full length")
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self._bytes)
            raise
        self._bytes += len(data)
        self._unsynced = True

    def _rewrite(self) -> None:
        """The same file without what has been acknowledged. Raises: OSError."""
        data = _lines([*self._taken, *self._waiting], self._read)
        part = f"{self._path}.part"
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, data)
            os.rename(part, self._path)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self._bytes, self._unsynced = file, len(data), True
        self._rewrite_bytes = max(_REWRITTEN_BYTES, 2 * len(data))

    def _refill(self) -> None:
        """The next of those that lie in the file alone."""
        if self._fresh:
            self._write()
        data, size = b"", _CHUNK
        assert self._beyond is not None
        while self._file >= 0 and b"\n" not in data and len(data) < self._bytes - self._beyond:
            try:
                data = os.pread(self._file, size, self._beyond)
            except OSError:
                return  # the next time
            size *= 2
        whole = data[: data.rfind(b"\n") + 1]
        self._waiting.extend(point[1:] for point in _points(whole, {}))
        self._beyond += len(whole)
        if self._beyond >= self._bytes or not whole:
            self._beyond = None


def left(path: str, directory: str) -> list[tuple[float, int, Optional[int], dict[str, float]]]:
    """(seconds since the epoch, rank, step, values) of what an agent that is gone left behind; `directory` is its own.

    One that was killed had not read all that its programs reported: that is read here. Raises: OSError.
    """
    from trainmaster.wire.names import EXIT  # noqa: PLC0415 - as `parse` below: for the server alone

    with open(path, "rb") as file:
        data = file.read()
    read: dict[str, int] = {}
    found = [(time_s, rank, step, values) for time_s, _, rank, step, values in _points(data, read)]
    if not os.path.exists(os.path.join(directory, EXIT)):
        for name, offset in read.items():
            with contextlib.suppress(OSError):
                found += _reported(os.path.join(directory, name), offset)
    return found


def _reported(path: str, offset: int) -> Iterator[tuple[float, int, Optional[int], dict[str, float]]]:
    """The points of a program's own file beyond what was read; their time is that of its last line."""
    from trainmaster.agent.parse import sdk_point  # noqa: PLC0415 - as above

    name = os.path.basename(path).rpartition(".")[0]
    role = name.partition("-")[2]
    with open(path, "rb") as file:
        written_s = os.fstat(file.fileno()).st_mtime
        file.seek(offset)
        lines = file.read().split(b"\n")[:-1]
    for line in lines:
        message = _parsed(line)
        if isinstance(message, dict) and message.get("t") == "m":
            step, values = sdk_point(message)
            named = {f"{role}/{metric}" if role else metric: value for metric, value in values.items()}
            yield written_s, 0 if role else int(name[len("rank") :]), step, named


def _lines(points: list[Point], read: dict[str, int]) -> bytes:
    offset_s = time.time() - time.monotonic()
    rows = [[round(at + offset_s, 3), at, rank, step, values] for at, rank, step, values in points]
    parts = [rows[at : at + _LINE_POINTS] for at in range(0, len(rows), _LINE_POINTS)] or [[]]
    return b"".join(json.dumps({"points": part, "read": read}).encode() + b"\n" for part in parts)


def _points(data: bytes, read: dict[str, int]) -> Iterator[tuple[float, float, int, Optional[int], dict[str, float]]]:
    """The points in whole lines, the last of which may be torn; `read` becomes what the last line says of it."""
    for line in data.split(b"\n")[:-1]:
        value = _parsed(line)
        if isinstance(value, dict) and isinstance(value.get("points"), list):
            read.update(value.get("read") or {})
            for time_s, at, rank, step, values in value["points"]:
                yield time_s, at, rank, step, values


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
