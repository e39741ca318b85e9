"""The file of unacknowledged metric points: the agent writes it, and a later reader recovers points from it.

Each line is a JSON object. A line with `points` holds a list of `[seconds since the epoch, monotonic seconds, rank, step,
values, number]`. A line with `read` ends one append; the lines before it count only if it is there. Its value
`{"rank0.sdk": bytes}` says how far the programs' own files were read for these points, and `n` is the highest number given
out. If the agent was killed, a reader continues in the programs' files at these offsets. So it takes each point exactly
once, with the number that the agent gave it or would have given it.
"""

from __future__ import annotations

import contextlib
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Optional

    Point = tuple[int, float, int, Optional[int], dict[str, float]]  # number, monotonic seconds, rank, step, values

FILE_MAX_BYTES = 256 * 1024 * 1024
_REWRITTEN_BYTES = 8 * 1024 * 1024  # a file of this size is rewritten with only the points that still wait
_CHUNK = 1024 * 1024
_LINE_POINTS = 500


class RecoveredPoint:
    """A point that an agent left behind. `n` is None if an older agent wrote it; `at_s` (agent's clock) if it was not read."""

    __slots__ = ("at_s", "n", "rank", "step", "time_s", "values")

    def __init__(self, row: list[Any]) -> None:
        self.time_s, self.at_s, self.rank, self.step, self.values = row[:5]
        self.n: Optional[int] = row[5] if len(row) > 5 else None


class PointFile:
    """Created by the first `append`. Not thread-safe."""

    def __init__(self, path: str, origin_s: float) -> None:
        self._path = path
        self._origin_s = origin_s  # seconds since the epoch at the monotonic clock's 0
        self._file = -1
        self._rewrite_bytes = _REWRITTEN_BYTES
        self._unsynced = False
        self.bytes = 0

    @property
    def opened(self) -> bool:
        """Whether the file exists."""
        return self._file >= 0

    @property
    def long(self) -> bool:
        """Whether the file is long enough to rewrite it with only the points that still wait."""
        return self.bytes > self._rewrite_bytes

    def lines(self, points: list[Point]) -> bytes:
        """The lines that hold `points`."""
        rows = [[round(at_s + self._origin_s, 3), at_s, rank, step, values, n] for n, at_s, rank, step, values in points]
        parts = [rows[at : at + _LINE_POINTS] for at in range(0, len(rows), _LINE_POINTS)]
        return b"".join(json.dumps({"points": part}).encode() + b"\n" for part in parts)

    def append(self, data: bytes, read: dict[str, int], n: int) -> None:
        """Append all of `data` or nothing. Raises: OSError."""
        if self._file < 0:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        data += _mark(read, n)
        if self.bytes + len(data) > FILE_MAX_BYTES:
            raise OSError("the file has its full length")
        if os.fstat(self._file).st_size != self.bytes:
            os.ftruncate(self._file, self.bytes)  # a failed append left a torn line
        _write_all(self._file, data)
        self.bytes += len(data)
        self._unsynced = True

    def replace(self, data: bytes, read: dict[str, int], n: int) -> None:
        """Replace the content with `data`. Raises: OSError (the content is then unchanged)."""
        data += _mark(read, n)
        part = f"{self._path}.part"
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, data)
            os.rename(part, self._path)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self.bytes, self._unsynced = file, len(data), True
        self._rewrite_bytes = max(_REWRITTEN_BYTES, 2 * len(data))

    def clear(self, read: dict[str, int], n: int) -> None:
        """Remove all points. Raises: OSError."""
        os.ftruncate(self._file, 0)
        self.bytes = 0
        self.append(b"", read, n)

    def next_points(self, offset: int) -> tuple[list[Point], int]:
        """Some of the points from `offset` on, and the offset after them; no points only at the end. Raises: OSError."""
        rows: list[list[Any]] = []
        size = _CHUNK
        while not rows and offset < self.bytes:
            data = os.pread(self._file, min(size, self.bytes - offset), offset)  # bytes after that are a torn append
            whole = data[: data.rfind(b"\n") + 1]  # empty, or only a `read` line, if the next line of points is longer
            rows = [row for value in _objects(whole) for row in value.get("points", ())]
            offset += len(whole)
            if not data:
                break
            size *= 2
        return [(row[5], row[1], row[2], row[3], row[4]) for row in rows], offset

    def sync(self) -> None:
        """Wait until the data is on the disk. Raises: OSError."""
        if self._unsynced and self._file >= 0:
            os.fsync(self._file)
            self._unsynced = False

    def remove(self) -> None:
        """Delete the file: no point in it is needed. Raises: OSError."""
        if self._file >= 0:
            os.unlink(self._path)


def recover(path: str, directory: str) -> list[RecoveredPoint]:
    """The points that an ended agent left behind, in order; `directory` is the agent's own.

    An agent that was killed had not read everything that its programs reported; the rest is read here. Raises: OSError.
    """
    from trainmaster.wire.names import EXIT  # noqa: PLC0415 - only the server needs it

    with open(path, "rb") as file:
        data = file.read()
    found: list[RecoveredPoint] = []
    read: dict[str, int] = {}
    pending: list[RecoveredPoint] = []
    number = 0
    for value in _objects(data):
        pending += [RecoveredPoint(row) for row in value.get("points") or ()]
        if "read" in value:
            found, pending = found + pending, []
            read.update(value.get("read") or {})
            number = max(number, int(value.get("n") or 0))
    if not os.path.exists(os.path.join(directory, EXIT)):
        for name, offset in sorted(read.items()):
            with contextlib.suppress(FileNotFoundError):
                for time_s, rank, step, values in _reported(os.path.join(directory, name), offset):
                    number += 1
                    found.append(RecoveredPoint([time_s, None, rank, step, values, number]))
    return found


def _reported(path: str, offset: int) -> Iterator[tuple[float, int, Optional[int], dict[str, float]]]:
    """The points of a program's own file after `offset`. Their time is the file's last modification."""
    from trainmaster.agent.transport.point_values import sdk_point  # noqa: PLC0415 - as above
    from trainmaster.wire.names import is_metric_name  # noqa: PLC0415 - as above

    name = os.path.basename(path).rpartition(".")[0]
    role = name.partition("-")[2]
    with open(path, "rb") as file:
        written_s = os.fstat(file.fileno()).st_mtime
        file.seek(offset)
        data = file.read()
    for message in _objects(data):
        if message.get("t") == "m":
            step, values = sdk_point(message)
            before = f"{role}/" if role else ""
            named = {f"{before}{metric}": value for metric, value in values.items() if is_metric_name(metric)}
            yield written_s, 0 if role else int(name[len("rank") :]), step, named


def _mark(read: dict[str, int], n: int) -> bytes:
    return json.dumps({"read": read, "n": n}).encode() + b"\n"


def _objects(data: bytes) -> Iterable[dict[str, Any]]:
    """The JSON objects in complete lines; a torn last line is skipped."""
    for line in data.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
