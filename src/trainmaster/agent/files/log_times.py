"""Writes the times of a log: how long the log was when, at most one record per second.

Best effort: the job never fails or waits for it. After an error the file is removed, because times that are wrong are worse
than none, and `trouble` says why.
"""

from __future__ import annotations

import contextlib
import os

from trainmaster.wire.names import TIMES_RECORD, TIMES_RECORDS_MAX, times_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    Record = tuple[int, float]

_EVERY_S = 1.0
_EXACT_S = 8192.0  # records this young keep their distance of a second; older ones get coarser with their age


class LogTimes:
    """The times of one log. `trouble` is why there are none any more; "" if there are."""

    def __init__(self, log_path: str) -> None:
        self._path = times_path(log_path)
        self._file: Optional[int] = None
        self._count = 0
        self._offset = 0  # of the last record
        self._due_s = 0.0
        self.trouble = ""
        try:
            self._file = _open(self._path)
        except OSError as error:
            self.stop(str(error))

    def grown(self, size: int, written_s: float, now_s: float, last: bool = False) -> None:
        """The log has `size` bytes, the last of them written at `written_s`. `now_s`: monotonic. `last`: nothing follows."""
        if self._file is None or size == self._offset or (size > self._offset and now_s < self._due_s and not last):
            return
        if size < self._offset:  # the program emptied its log
            self._replace([])
        if self._count >= TIMES_RECORDS_MAX:
            records = self._records()
            if records:  # else it could not be read
                self._replace(_thinned(records, written_s))
        self._due_s = now_s + _EVERY_S
        self._write([(size, written_s)])

    def cut(self, kept: int, end: int, begins: int) -> None:
        """The log was cut: its first `kept` bytes stayed, and what began at offset `end` begins at `begins` now."""
        if self._file is None:
            return
        first: list[Record] = []
        records = self._records()
        for offset, time_s in records:
            first.append((min(offset, kept), time_s))
            if offset >= kept:
                break
        self._replace(first + [(offset - end + begins, time_s) for offset, time_s in records if offset > end])

    def stop(self, trouble: str) -> None:
        """Remove the file and write no more."""
        if self.trouble:
            return
        self.trouble = trouble
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _records(self) -> list[Record]:
        if self._file is None:
            return []
        try:
            data = os.pread(self._file, self._count * TIMES_RECORD.size, 0)
        except OSError as error:
            self.stop(str(error))
            return []
        if len(data) != self._count * TIMES_RECORD.size:
            self.stop("another process changed the file of its times")
            return []
        return list(TIMES_RECORD.iter_unpack(data))

    def _write(self, records: list[Record]) -> None:
        """Append records. A short write counts as an error."""
        if self._file is None or not records:
            return
        data = b"".join(TIMES_RECORD.pack(*one) for one in records)
        try:
            if os.fstat(self._file).st_size != self._count * TIMES_RECORD.size:
                raise OSError("another process changed the file of its times")
            if os.pwrite(self._file, data, self._count * TIMES_RECORD.size) != len(data):
                raise OSError("the disk is full")
        except OSError as error:
            self.stop(str(error))
            return
        self._count += len(records)
        self._offset = records[-1][0]

    def _replace(self, records: list[Record]) -> None:
        """Replace the file in one step, so that a reader sees the old or the new one."""
        if self._file is None:
            return
        part = self._path + ".part"
        self.close()
        self._count = self._offset = 0
        try:
            self._file = _open(part)
            self._write(records)
            if self._file is not None:
                os.replace(part, self._path)
        except OSError as error:
            self.stop(str(error))
        if self._file is None:
            with contextlib.suppress(OSError):
                os.unlink(part)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def _thinned(records: list[Record], now_s: float) -> list[Record]:
    """At most three quarters of the records that fit. The distance that is left between two of them grows with their age."""
    exact_s = _EXACT_S
    while exact_s >= 1.0:
        kept = [records[0]]
        for number in range(1, len(records) - 1):
            gap_s = records[number + 1][1] - kept[-1][1]  # without this one
            if gap_s > max(_EVERY_S, (now_s - records[number][1]) / exact_s):
                kept.append(records[number])
        kept.append(records[-1])
        if len(kept) <= TIMES_RECORDS_MAX * 3 // 4:
            return kept
        exact_s /= 2.0
    return records[1::2]  # the clock went back, so that they seem to be younger than now
