"""Reads the output of a rank: its log and its SDK file. Each is tailed with bounded work per turn, whatever it contains.

Lines are searched for metrics until the turn's time is over. The rest waits in memory for the next turn, and nothing more
is read before that. So a slow pattern delays metrics, but not heartbeats, limits or a cancel.
"""

from __future__ import annotations

import time
from collections import deque

from trainmaster.agent.files.capped_log import END_KEPT, CappedLog
from trainmaster.agent.metrics.parse import JSON_MAX, is_long_json
from trainmaster.agent.transport.point_values import sdk_point
from trainmaster.agent.transport.sdk_file import LINE_MAX as MESSAGE_MAX
from trainmaster.agent.transport.sdk_file import SdkFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Optional

    from trainmaster.agent.metrics.parse import Found, Parser
    from trainmaster.agent.metrics.progress import Progress, RoleProgress
    from trainmaster.agent.processes.rank import Rank

LINE_MAX = JSON_MAX  # bytes; a longer line is split
_BEHIND_MAX = 16 * 1024 * 1024  # unread bytes beyond which the reader skips ahead
_BEHIND_KEPT = 256 * 1024
_SEARCH_S = 0.05  # searching may exceed the turn's time by so much: one chunk, unless a pattern is slow
_FINISH_S = 1.0  # of processor time to read the rest after the rank has ended; after that only the last bytes are read
_FINISH_TIMES = 5  # so many times longer on the clock, because others may use the processor
_TRIES, _AGAIN_S = 4, 0.5  # to read the end
_SHOWN_MAX = 1000  # names of metrics that are remembered
_LAST_SEARCHED = 10  # lines that are always searched, because they show the last step


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
        self.log = CappedLog(rank.log_path, log_max_bytes, LINE_MAX)
        self._sdk = SdkFile(rank.sdk_path)
        self._search = _LineSearch(parser, self._printed, self._warn_long_line)
        self._progress = progress
        self._logged = logged
        self.messages: list[dict[str, Any]] = []
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
        found = self.behind
        while self._search.run(_until(until_s + _SEARCH_S)) and self.log.waiting():
            found = True
            self._read_log()
            self._turn_sdk(until_s)  # what was reported before these lines were printed decides whether they are parsed
            if self._logged is not None:
                self._logged()
            if time.monotonic() > until_s:
                break
        if self.log.waiting() > _BEHIND_MAX:
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
        self.log.close()
        self._sdk.close()

    def _finish_log(self) -> None:
        over = _processor_time(_FINISH_S)
        while self.log.waiting():
            if self.log.waiting() > (_BEHIND_KEPT if over() else _BEHIND_MAX):
                self._skip()
            self._read_log()
            self._search.run(over)
        last = self.log.finish()
        self._search.take(map(_but_its_end, last) if self.rank.signal or self.rank.exit_code else last)
        self._search.run(_processor_time(_FINISH_S))
        self._warn_truncated()
        self._note_times(last=True)
        self._cut()
        unsearched = self.log.skipped_bytes + self._search.finish()
        if unsearched and self._search.parses:
            self._progress.warn(
                "output",
                f"{self.rank.label}: {unsearched} bytes of output were not searched for metrics: it was written faster than "
                "it can be searched; print less, or report metrics through the SDK",
            )

    def _finish_sdk(self) -> None:
        while self._turn_sdk(time.monotonic() + 60.0):
            pass

    def stop_parsing(self, names: Iterable[str]) -> None:
        """The program reports these metrics by other means than its output. See `_LineSearch.narrow`."""
        self._search.narrow(names)

    def leave_out(self, names: Iterable[str]) -> None:
        """These metrics stand in files of the program: they are not read from its output."""
        self._search.in_files.update(names)

    def sdk_read(self) -> tuple[str, int]:
        """The SDK file's name, and the number of processed bytes (complete lines)."""
        return self._sdk.processed

    @property
    def behind(self) -> bool:
        """Whether lines that were read wait to be searched."""
        return self._search.behind

    @property
    def heard(self) -> tuple[int, int]:
        """A value that changes whenever something new was read."""
        return self.log.position, self._sdk.position

    def last_lines(self) -> list[str]:
        """The last lines of output, at most `TAIL_LINES`."""
        return self.log.last_lines()

    def _read_log(self) -> None:
        self._search.take(self.log.read())
        self._progress.written_s = self.log.written_s

    def _skip(self) -> None:
        """Continue near the end."""
        self._search.take(self.log.skip(_BEHIND_KEPT))
        self._progress.written_s = self.log.written_s

    def _cut(self) -> None:
        """Limit the size of the log, and so of the lines of it that wait."""
        if self.log.over_limit:
            self._search.take(self.log.cut())
            self._search.limit(2 * END_KEPT)

    def _note_times(self, last: bool = False) -> None:
        trouble = self.log.note_times(last)
        if trouble:
            self._say("log times", f"the times of its lines are not known: {trouble}")

    def _printed(self, found: Found, recounts: bool, beside: bool) -> None:
        """Handle a line that was searched. `recounts`: see `Parser.recounts`; `beside`: `Progress.printed_beside`."""
        if beside:
            if found is not None:
                self._progress.printed_beside(self.rank.number, *found)
            return
        if recounts:
            self._progress.recount(self.rank.number)
        if found is not None:
            self._progress.printed(self.rank.number, *found)

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
        told = "while it ran, and what is written to it is not seen by others: leave the attempt's directory alone"
        for file, what in ((self.log, "log"), (self._sdk, "file of the SDK's messages")):
            lost = file.lost
            if lost:
                self._say(f"lost {what}", f"the {what} was {lost} {told}")
                if file is self.log:
                    self.log.stop_times(f"the log was {lost}")
        if self.log.emptied():
            self._progress.warn(
                "log",
                f"{self.rank.label}: the program emptied its own log, and what it had printed is lost: write >&2 "
                "in place of > /dev/stderr (>&1 of > /dev/stdout), tee -a in place of tee",
            )

    def _turn_sdk(self, until_s: float) -> bool:
        self._sdk.free_what_was_read()
        found = False
        while self._sdk.waiting():
            found = True
            messages = self._sdk.read()
            self._progress.written_s = self._sdk.written_s
            if self._sdk.skipped:
                self._say("sdk", f"a message of over {MESSAGE_MAX} bytes was skipped: report less per message")
            for message in messages:
                self._reported(message)
            self._progress.read(dict((self.sdk_read(),)))
            if time.monotonic() > until_s:
                break
        return found

    def _reported(self, message: dict[str, Any]) -> None:
        """Handle a message of the SDK."""
        if message.get("t") == "m":
            step, values = sdk_point(message)
            self.stop_parsing(values)
            if step is None and message.get("step") is not None:
                words = f"metrics told at step {str(message['step'])[:40]} are recorded without one: no step is so far"
                self._progress.warn("sdk", f"{self.rank.label}: {words}")
            self._progress.reported(self.rank.number, step, values, bool(message.get("counted")))
        elif message.get("t") == "r":
            self._progress.restored(bool(message.get("loaded")))
        else:
            self.messages.append(message)


class _LineSearch:
    """Searches lines for metrics, as long as there is time. The rest waits.

    `printed` gets what is found in a line, whether the parser counts anew, and whether the program also reports metrics by
    other means. `long_line` is called for a JSON line that is too long, with whether anything of it was taken.
    """

    def __init__(self, parser: Parser, printed: Callable[[Found, bool, bool], None], long_line: Callable[[bool], None]) -> None:
        self._parser = parser
        self._printed = printed
        self._long_line = long_line
        self._lines: deque[bytes] = deque()  # that were read but not searched
        self._shown: set[str] = set()  # metrics that were read without the pattern, and are not reported otherwise
        self._step: Optional[int] = None  # the last one that was read
        self._narrowed = False
        self.in_files: set[str] = set()  # metrics that are not to be read
        self._dropped_bytes = 0

    @property
    def behind(self) -> bool:
        """Whether lines wait."""
        return bool(self._lines)

    def take(self, lines: Iterable[bytes]) -> None:
        """Lines to be searched by `run`. Empty ones are left out."""
        self._lines.extend(filter(None, lines))

    def run(self, over: Callable[[], bool]) -> bool:
        """Search the lines that wait, at least one, until the time is over. Returns whether all were searched."""
        if not self.parses:
            self._lines.clear()
        while self._lines:
            line = self._lines.popleft()
            found = self._parser.parse(line)
            self._pass_on(found)
            if self._parser.automatic and is_long_json(line):
                self._long_line(found is not None)
            if over():
                break
        return not self._lines

    def narrow(self, names: Iterable[str]) -> None:
        """The program reports these metrics by other means: from now on, no new ones are read without the user's pattern.

        Those that were read so far and are not reported go on, because nobody could see that half a curve is not all of it.
        """
        self._narrowed = True
        self._shown.difference_update(names)
        self._parser.automatic = self._parser.automatic and bool(self._shown)

    @property
    def parses(self) -> bool:
        """Whether anything is read of the lines."""
        return not self._narrowed or self._parser.by_pattern or bool(self._shown)

    def _pass_on(self, found: Found) -> None:
        recounts, beside = self._parser.recounts(), self._narrowed and self._parser.automatic and self._parser.rule != "pattern"
        if found is not None:
            step, values = found[0], {name: value for name, value in found[1].items() if name not in self.in_files}
            found, self._step = (step, values), self._step if step is None else step
            if beside:
                found = self._step, {name: value for name, value in values.items() if name in self._shown}
            elif self._parser.rule != "pattern" and len(self._shown) < _SHOWN_MAX:
                self._shown.update(values)
        self._printed(found, recounts, beside)

    def limit(self, most_bytes: int) -> None:
        """Drop the oldest lines beyond so many bytes."""
        excess = sum(map(len, self._lines)) - most_bytes
        while excess > 0:
            excess -= len(self._lines[0])
            self._dropped_bytes += len(self._lines.popleft())

    def finish(self) -> int:
        """No line follows: search the last ones. Returns how many bytes had to wait until now, or were dropped."""
        waited = self._dropped_bytes + sum(map(len, self._lines))
        while len(self._lines) > _LAST_SEARCHED:
            self._lines.popleft()
        while self._lines:
            self.run(_until(0.0))
        rest = self._parser.rest()
        if rest is not None and self.parses:
            self._pass_on(rest)
        return waited


def _but_its_end(line: bytes) -> bytes:
    """The last line of a program that failed, as far as it is whole: a buffer's end cuts `loss 0.97` to `loss 0.`."""
    return line if line[-1:].isspace() else line[: line.rfind(b" ") + 1]


def _until(until_s: float) -> Callable[[], bool]:
    """Whether the monotonic clock has passed `until_s`."""
    return lambda: time.monotonic() > until_s


def _processor_time(budget_s: float) -> Callable[[], bool]:
    """Whether this thread has used so much processor time, or waited for the processor much longer."""
    used_s, clock_s = time.thread_time() + budget_s, time.monotonic() + _FINISH_TIMES * budget_s
    return lambda: time.thread_time() > used_s or time.monotonic() > clock_s
