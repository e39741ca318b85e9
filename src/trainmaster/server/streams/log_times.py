"""Reads the times of a log, which the agent writes beside it (`wire.names.times_path` defines the file)."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import BinaryIO

from trainmaster.home import open_regular
from trainmaster.wire.names import TIMES_RECORD, TIMES_RECORDS_MAX, times_path

Lines = tuple[int, float | None]  # a number of lines, and when they were written; None: not known


class LogTimes:
    """The times of one log as a context manager. Raises: OSError if there are none, as of an older version."""

    def __init__(self, log_path: str) -> None:
        self._file: BinaryIO = open_regular(times_path(log_path))
        self._count = min(os.fstat(self._file.fileno()).st_size // TIMES_RECORD.size, TIMES_RECORDS_MAX)

    def __enter__(self) -> "LogTimes":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def last_offset(self) -> int:
        """The number of bytes whose time is known."""
        return self._at(self._count - 1)[0] if self._count else 0

    def fits(self, size: int) -> bool:
        """Whether it belongs to the log of this size, and has not been replaced since it was opened."""
        return self.last_offset <= size and os.fstat(self._file.fileno()).st_nlink > 0

    def offset_since(self, since_s: float) -> int:
        """The offset of the first byte that may have been written at `since_s` or later."""
        before = 0
        for offset, time_s in self._from(0):
            if time_s >= since_s:
                break
            before = offset
        return before

    def lines(self, data: bytes, begin: int, rest_s: float | None) -> list[Lines]:
        """The times of the lines of `data`, which is at offset `begin` of the log, in order.

        `rest_s`: the time of the bytes behind the last record.
        """
        first = bisect_right(range(self._count), begin, key=lambda number: self._at(number)[0])
        found: list[Lines] = []
        at = 0
        for offset, time_s in self._from(first):
            at = _add(found, data, (at, offset - begin), round(time_s, 3))
            if at >= len(data):
                break
        _add(found, data, (at, len(data)), rest_s)
        return found

    def _at(self, number: int) -> tuple[int, float]:
        self._file.seek(number * TIMES_RECORD.size)
        return self._next()

    def _from(self, first: int) -> Iterator[tuple[int, float]]:
        self._file.seek(first * TIMES_RECORD.size)
        for _ in range(first, self._count):
            yield self._next()

    def _next(self) -> tuple[int, float]:
        data = self._file.read(TIMES_RECORD.size)
        if len(data) < TIMES_RECORD.size:
            raise OSError("the times of the log cannot be read")
        offset, time_s = TIMES_RECORD.unpack(data)
        return int(offset), float(time_s)


def _add(found: list[Lines], data: bytes, span: tuple[int, int], time_s: float | None) -> int:
    """Add the lines that begin within `span` of `data`; returns its end. Lines of equal times are one entry."""
    begin, end = span[0], min(span[1], len(data))
    if end <= begin:
        return begin
    count = data.count(b"\n", max(0, begin - 1), end - 1) + (begin == 0)
    if count:
        if found and found[-1][1] == time_s:
            count += found.pop()[0]
        found.append((count, time_s))
    return end
