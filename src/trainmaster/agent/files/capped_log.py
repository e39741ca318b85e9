"""Follows a log and limits its size: its beginning and end stay, the middle is dropped, and a notice says so.

The times of its lines (`log_times`) follow what is cut.
"""

from __future__ import annotations

import contextlib
import os
import time

from trainmaster.agent.files.following import CHUNK, Lines, Tail
from trainmaster.agent.files.log_times import LogTimes

END_KEPT = 256 * 1024  # bytes kept at the end of a log that is cut
_BEGINNING_KEPT = 1024 * 1024  # and at its beginning
_MAX_LEAST = 4096  # no limit is lower
_CATCH_UP = 16  # chunks that may be written while the end is read


class CappedLog:
    """One log. `max_bytes` is its limit; a line longer than `line_max` bytes is split."""

    def __init__(self, path: str, max_bytes: int, line_max: int) -> None:
        self._tail = Tail(path)
        self._times = LogTimes(path)
        self._lines = Lines(line_max)
        self._max_bytes = max(max_bytes, _MAX_LEAST)
        self.dropped_bytes = 0
        self.written_s = 0.0  # when the lines read last were written, at the latest; in seconds since the epoch

    def waiting(self) -> int:
        """Number of unread bytes. Raises: OSError, as all that reads."""
        return self._tail.waiting()

    def read(self) -> list[bytes]:
        """The lines that the next chunk completes."""
        data = self._tail.read()
        self.written_s = os.fstat(self._tail.descriptor).st_mtime
        return self._lines.feed(data)

    def skip(self, keep: int) -> list[bytes]:
        """Continue `keep` bytes before the end. A line that is only partly read is left out: half of "step 10" is "step 1"."""
        self._lines.finish()
        self._tail.skip(keep)
        return self.read()[1:]

    def finish(self) -> list[bytes]:
        """Nothing follows: the last line if it has no line end."""
        return self._lines.finish()

    def last_lines(self) -> list[str]:
        """The last lines that were read."""
        return self._lines.last()

    @property
    def position(self) -> int:
        """A number that grows with what is read, whatever is cut."""
        return self._tail.offset + self.dropped_bytes

    @property
    def skipped_bytes(self) -> int:
        """Bytes that were never read."""
        return self._tail.skipped_bytes

    @property
    def lost(self) -> str:
        """Why its path no longer leads to it; see `Tail.lost`."""
        return self._tail.lost

    def emptied(self) -> bool:
        """Whether another process has emptied it since the last call."""
        emptied, self._tail.truncated = self._tail.truncated, False
        return emptied

    def note_times(self, last: bool = False) -> str:
        """Note its length and when it was last written, before it is cut. Returns why times are not known; "" if they are."""
        status = os.fstat(self._tail.descriptor)
        self._times.grown(status.st_size, status.st_mtime, time.monotonic(), last)
        return self._times.trouble

    def stop_times(self, why: str) -> None:
        """Note no more times."""
        self._times.stop(why)

    def close(self) -> None:
        """Close its files."""
        self._tail.close()
        self._times.close()

    @property
    def over_limit(self) -> bool:
        """Whether it is to be cut."""
        return os.fstat(self._tail.descriptor).st_size > self._max_bytes

    def cut(self) -> list[bytes]:
        """Cut it. Returns the lines in what was unread of it, as far as that is kept.

        Bytes that are written at this very moment may be dropped too.
        """
        tail, size = self._tail, os.fstat(self._tail.descriptor).st_size
        kept, waited = min(_BEGINNING_KEPT, self._max_bytes // 4), tail.waiting()
        end, grown = self._end(size, min(END_KEPT, self._max_bytes // 4))
        size, unread = size + grown, waited + grown
        os.ftruncate(tail.descriptor, kept)
        self.dropped_bytes += size - kept - len(end)
        notice = (f"\n[trainmaster: this log reached its limit of {self._max_bytes} bytes; "
                  f"{self.dropped_bytes} bytes in all were dropped here, after the first {kept}]\n").encode()  # fmt: skip
        before, begins, moved = b"", kept, size
        tail.offset = kept
        with contextlib.suppress(OSError):  # the disk is completely full: the cut itself is more important
            written = os.write(tail.descriptor, notice + end)
            tail.offset = os.lseek(tail.descriptor, 0, os.SEEK_CUR)
            begins, moved = max(kept, tail.offset - len(end)), size - len(end)
            before = os.pread(tail.descriptor, tail.offset - written - kept, kept)  # written since then, so newer
            if before and written == len(notice + end):
                _write_over(tail.descriptor, notice + end + before, kept)
                begins = kept + len(notice)
        self._times.cut(kept, moved, begins)
        if unread > len(end):
            self._lines.finish()  # an incomplete line, as in `skip`
            tail.skipped_bytes += unread - len(end)
        return self._lines.feed(end[len(end) - min(unread, len(end)) :] + before)

    def _end(self, size: int, count: int) -> tuple[bytes, int]:
        """(the log's last `count` bytes, from the start of a line if there is one; how much it has grown meanwhile)."""
        end, grown = os.pread(self._tail.descriptor, count, size - count), 0
        for _ in range(_CATCH_UP):
            more = os.pread(self._tail.descriptor, CHUNK, size + grown)
            if not more:
                break
            end, grown = (end + more)[-count:], grown + len(more)
        return end[end.find(b"\n") + 1 :], grown


def _write_over(descriptor: int, data: bytes, at: int) -> None:
    """Write at an offset of an open file, which others only append to. One that appends would do so too. Raises: OSError."""
    own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(own, data, at)
    finally:
        os.close(own)
