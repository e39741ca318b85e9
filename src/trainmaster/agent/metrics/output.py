"""Reads the output of a rank: its log and its SDK file. Each is tailed with bounded work per turn, whatever it contains.

Lines are searched for metrics until the turn's time is over. The rest waits in memory for the next turn, and nothing more
is read before that. So a slow pattern delays metrics, but not heartbeats, limits or a cancel.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque

from trainmaster.agent.files.following import CHUNK, Lines, Tail
from trainmaster.agent.files.log_times import LogTimes
from trainmaster.agent.metrics.parse import JSON_MAX, is_long_json
from trainmaster.agent.processes import libc
from trainmaster.agent.transport.point_values import sdk_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from trainmaster.agent.metrics.parse import Parser
    from trainmaster.agent.metrics.progress import Progress, RoleProgress
    from trainmaster.agent.processes.rank import Rank

LINE_MAX = JSON_MAX  # bytes; a longer line is split
_SDK_LINE_MAX = 4 * 1024 * 1024  # bytes; a longer line is not a valid SDK message
_BEHIND_MAX = 16 * 1024 * 1024  # unread bytes beyond which the reader skips ahead
_BEHIND_KEPT = 256 * 1024
_SEARCH_S = 0.05  # searching may exceed the turn's time by so much: one chunk, unless a pattern is slow
_FINISH_S = 1.0  # of processor time to read the rest after the rank has ended; after that only the last bytes are read
_FINISH_TIMES = 5  # so many times longer on the clock, because others may use the processor
_TRIES, _AGAIN_S = 4, 0.5  # to read the end
_LOG_KEPT = 1024 * 1024  # kept at the beginning of a log that is cut
_END_KEPT = 256 * 1024  # and at its end
_CATCH_UP = 16  # chunks that may be written while the end is read
_LAST_SEARCHED = 10  # lines that are always searched, because they show the last step
_PUNCH = 16 * 1024 * 1024


class RankOutput:
    """One rank's log and SDK file. Points go to `progress`, other SDK messages to `messages`.

    `logged`: takes what the program logged by other means, such as MLflow's client; it may call `stop_parsing`.
    """

    def __init__(
        self,
        rank: Rank,
        parser: Parser,
        log_max_bytes: int,
        progress: Progress | RoleProgress,
        logged: Optional[Callable[[], None]] = None,
    ) -> None:
        self.rank = rank
        self._log, self._times = Tail(rank.log_path), LogTimes(rank.log_path)
        self._sdk = Tail(rank.sdk_path)
        self._lines = Lines(LINE_MAX)
        self._unsearched: deque[bytes] = deque()  # lines that were read but not searched
        self._sdk_rest = b""
        self._parser = parser
        self._parses = True
        self._log_max_bytes = max(log_max_bytes, 4096)
        self._punched = 0
        self.dropped_bytes = 0
        self.messages: list[dict[str, Any]] = []
        self._progress = progress
        self._logged = logged
        self.trouble = ""  # the read error of the last turn; the next turn retries
        self._said: set[str] = set()

    def turn(self, until_s: float) -> bool:
        """Read until the monotonic clock reaches `until_s`. Returns whether there was anything to read."""
        found, self.trouble = False, ""
        for part in (self._turn_log, self._turn_sdk):
            try:
                found = part(until_s) or found
            except OSError as error:
                self.trouble = f"{self.rank.label}: its output cannot be read: {error}"
        return found

    def _turn_log(self, until_s: float) -> bool:
        found = bool(self._unsearched)
        while self._search(_until(until_s + _SEARCH_S)) and self._log.waiting():
            found = True
            self._take(self._lines.feed(self._read(self._log)))
            self._turn_sdk(until_s)  # what was reported before these lines were printed decides whether they are parsed
            if self._logged is not None:
                self._logged()
            if time.monotonic() > until_s:
                break
        if self._log.waiting() > _BEHIND_MAX:
            self._skip()
        self._warn_truncated()
        self._note_times()
        self._cut()
        return found

    def finish(self) -> None:
        """Read the rest, after the rank and its descendants have ended. Read errors are retried for a short time."""
        self.trouble = ""
        for part in (self._finish_sdk, self._finish_log):
            for left in reversed(range(_TRIES)):
                try:
                    part()
                    break
                except OSError as error:
                    if left:
                        time.sleep(_AGAIN_S)
                    else:
                        self.trouble = f"{self.rank.label}: the end of its output cannot be read: {error}"
        for one in (self._log, self._sdk, self._times):
            one.close()

    def _finish_log(self) -> None:
        over = _processor_time(_FINISH_S)
        while self._log.waiting():
            if self._log.waiting() > (_BEHIND_KEPT if over() else _BEHIND_MAX):
                self._skip()
            self._take(self._lines.feed(self._read(self._log)))
            self._search(over)
        self._take(self._lines.finish())
        self._search(_processor_time(_FINISH_S))
        self._warn_truncated()
        self._note_times(last=True)
        self._cut()
        unsearched = self._log.skipped_bytes + sum(map(len, self._unsearched))
        while len(self._unsearched) > _LAST_SEARCHED:
            self._unsearched.popleft()
        while self._unsearched:
            self._search(_until(0.0))
        rest = self._parser.rest()
        if rest is not None and self._parses:
            self._progress.printed(self.rank.number, *rest)
        if unsearched:
            self._progress.warn(
                "output",
                f"{self.rank.label}: {unsearched} bytes of output were not searched for metrics: it was written faster than "
                "it can be searched; print less, or report metrics through the SDK",
            )

    def _finish_sdk(self) -> None:
        while self._turn_sdk(time.monotonic() + 60.0):
            pass

    def stop_parsing(self) -> None:
        """The program reports metrics by other means than its output, so that is only searched by the user's pattern."""
        self._parses, self._parser.automatic = self._parser.by_pattern, False

    def sdk_read(self) -> tuple[str, int]:
        """The SDK file's name, and the number of processed bytes (complete lines)."""
        return os.path.basename(self.rank.sdk_path), self._sdk.offset - len(self._sdk_rest)

    @property
    def behind(self) -> bool:
        """Whether lines that were read wait to be searched."""
        return bool(self._unsearched)

    @property
    def heard(self) -> tuple[int, int]:
        """A value that changes whenever something new was read."""
        return self._log.offset + self.dropped_bytes, self._sdk.offset

    def last_lines(self) -> list[str]:
        """The last lines of output, at most `TAIL_LINES`."""
        return self._lines.last()

    def _read(self, tail: Tail) -> bytes:
        """Read one chunk. Its lines were written before the file's modification time, which is read after it."""
        data = tail.read()
        self._progress.written_s = os.fstat(tail.descriptor).st_mtime
        return data

    def _take(self, lines: list[bytes]) -> None:
        self._unsearched.extend(filter(None, lines))

    def _search(self, over: Callable[[], bool]) -> bool:
        """Search the lines that were read, at least one, until the time is over. Returns whether all were searched."""
        if not self._parses:
            self._unsearched.clear()
        while self._unsearched:
            line = self._unsearched.popleft()
            found = self._parser.parse(line)
            if self._parser.recounts():
                self._progress.recount(self.rank.number)
            if found is not None:
                self._progress.printed(self.rank.number, *found)
            if self._parser.automatic and is_long_json(line):
                self._warn_long_line(found is not None)
            if over():
                break
        return not self._unsearched

    def _skip(self) -> None:
        """Continue near the end. A line that is only partly read is not searched: half of "step 100" is "step 10"."""
        self._lines.finish()
        self._log.skip(_BEHIND_KEPT)
        self._take(self._lines.feed(self._read(self._log))[1:])

    def _cut(self) -> None:
        """Limit the log's size: its beginning and end stay, the middle is dropped, and a notice says so.

        Bytes that are written at this very moment may be dropped too, or appear before the notice.
        """
        size = os.fstat(self._log.descriptor).st_size
        if size <= self._log_max_bytes:
            return
        kept, waited = min(_LOG_KEPT, self._log_max_bytes // 4), self._log.waiting()
        end, grown = self._end(size, min(_END_KEPT, self._log_max_bytes // 4))
        size, unread = size + grown, waited + grown
        os.ftruncate(self._log.descriptor, kept)
        self.dropped_bytes += size - kept - len(end)
        notice = (f"\n[trainmaster: this log reached its limit of {self._log_max_bytes} bytes; "
                  f"{self.dropped_bytes} bytes in all were dropped here, after the first {kept}]\n").encode()  # fmt: skip
        before, begins, moved = b"", kept, size
        self._log.offset = kept
        with contextlib.suppress(OSError):  # the disk is completely full: the cut itself is more important
            written = os.write(self._log.descriptor, notice + end)
            self._log.offset = os.lseek(self._log.descriptor, 0, os.SEEK_CUR)
            begins, moved = max(kept, self._log.offset - len(end)), size - len(end)
            before = os.pread(self._log.descriptor, self._log.offset - written - kept, kept)  # written since then, so newer
        self._times.cut(kept, moved, begins)
        if unread > len(end):
            self._lines.finish()  # an incomplete line, as in `_skip`
            self._log.skipped_bytes += unread - len(end)
        self._take(self._lines.feed(end[len(end) - min(unread, len(end)) :] + before))
        excess = sum(map(len, self._unsearched)) - 2 * _END_KEPT
        while excess > 0:
            excess -= len(self._unsearched[0])
            self._log.skipped_bytes += len(self._unsearched.popleft())

    def _note_times(self, last: bool = False) -> None:
        """Note the length of the log and when it was last written, before it is cut."""
        status = os.fstat(self._log.descriptor)
        self._times.grown(status.st_size, status.st_mtime, time.monotonic(), last)
        if self._times.trouble:
            self._say("log times", f"the times of its lines are not known: {self._times.trouble}")

    def _say(self, topic: str, text: str) -> None:
        """Warn once per text, independent of the warnings of other ranks."""
        if text not in self._said:
            self._said.add(text)
            self._progress.warn(topic, f"{self.rank.label}: {text}")

    def _warn_long_line(self, taken: bool) -> None:
        """Warn once if a JSON object is longer than the bytes that are parsed: only its first entries are used."""
        what = "only the metrics in its first" if taken else "no metrics, as none or no step is in its first"
        advice = "print it in several lines, each with its step, or report metrics through the SDK"
        self._say("long lines", f"of a JSON line {what} {JSON_MAX} bytes were taken: {advice}")

    def _warn_truncated(self) -> None:
        """Warn if the log was emptied, deleted or replaced. A program that opens `/dev/stderr` anew may empty its own log."""
        for tail, what in ((self._log, "log"), (self._sdk, "file of the SDK's messages")):
            if tail.lost:
                told = "while it ran, and what is written to it is not seen by others: leave the attempt's directory alone"
                self._say(f"lost {what}", f"the {what} was {tail.lost} {told}")
                if tail is self._log:
                    self._times.stop(f"the log was {tail.lost}")
        if self._log.truncated:
            self._log.truncated = False
            self._progress.warn(
                "log",
                f"{self.rank.label}: the program emptied its own log, and what it had printed is lost: write >&2 "
                "in place of > /dev/stderr (>&1 of > /dev/stdout), tee -a in place of tee",
            )

    def _end(self, size: int, count: int) -> tuple[bytes, int]:
        """(the log's last `count` bytes, from the start of a line if there is one; how much it has grown meanwhile)."""
        end, grown = os.pread(self._log.descriptor, count, size - count), 0
        for _ in range(_CATCH_UP):
            more = os.pread(self._log.descriptor, CHUNK, size + grown)
            if not more:
                break
            end, grown = (end + more)[-count:], grown + len(more)
        return end[end.find(b"\n") + 1 :], grown

    def _turn_sdk(self, until_s: float) -> bool:
        if self._sdk.offset - self._punched > _PUNCH and libc.punch_hole(self._sdk.descriptor, self._sdk.offset):
            self._punched = self._sdk.offset  # the file of `points` has what earlier turns read
        found = False
        while self._sdk.waiting():
            found = True
            lines = (self._sdk_rest + self._read(self._sdk)).split(b"\n")
            self._sdk_rest = lines.pop()
            if len(self._sdk_rest) > _SDK_LINE_MAX:
                self._sdk_rest = b"\0"  # the rest of this line is not a valid message either
                self._say("sdk", f"a message of over {_SDK_LINE_MAX} bytes was skipped: report less per message")
            for line in lines:
                self._sdk_line(line)
            self._progress.read(dict((self.sdk_read(),)))
            if time.monotonic() > until_s:
                break
        return found

    def _sdk_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return  # torn by a crash of the writer
        if not isinstance(message, dict):
            return
        if message.get("t") == "m":
            self.stop_parsing()
            step, values = sdk_point(message)
            if step is None and message.get("step") is not None:
                words = f"metrics told at step {str(message['step'])[:40]} are recorded without one: no step is so far"
                self._progress.warn("sdk", f"{self.rank.label}: {words}")
            self._progress.reported(self.rank.number, step, values, bool(message.get("counted")))
        elif message.get("t") == "r":
            self._progress.restored(bool(message.get("loaded")))
        else:
            self.messages.append(message)


def _until(until_s: float) -> Callable[[], bool]:
    """Whether the monotonic clock has passed `until_s`."""
    return lambda: time.monotonic() > until_s


def _processor_time(budget_s: float) -> Callable[[], bool]:
    """Whether this thread has used so much processor time, or waited for the processor much longer."""
    used_s, clock_s = time.thread_time() + budget_s, time.monotonic() + _FINISH_TIMES * budget_s
    return lambda: time.thread_time() > used_s or time.monotonic() > clock_s
