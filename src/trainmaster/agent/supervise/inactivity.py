"""Telling that a node's ranks may hang: no step where steps are usual, or no sign of life at all. It only observes.

One rule decides which of the two is looked at, so that one agent tells one thing. Where the program has named so many steps
that their rhythm is known (`Rhythm`), only a step counts: none for longer than `Rhythm.limit_s` is told. Time in which the
ranks write files, a checkpoint for example, does not count, nor does time in which their output cannot be read. Elsewhere
any output, any message, processor time beyond that of a loop that waits, and a busy accelerator count.
Nothing is told in an attempt's first minutes. What was told is taken back at the next sign.
"""

from __future__ import annotations

from trainmaster.agent.metrics.rhythm import SHORTEST_S, Rhythm
from trainmaster.agent.metrics.usage import written_by_processes
from trainmaster.wire.names import STALLED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Sequence

    from trainmaster.agent.metrics.output import RankOutput
    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.transport.outbox import Outbox

FIRST_S = 300.0  # of an attempt, in which nothing is told
TOLD_S = 300.0  # without any sign, where no rhythm is known
_WAITING_CPU_S, _WAITING_SHARE = 1.0, 0.02  # processor time of a rank that waits: in all, and of one processor
_WRITTEN_BYTES = 64 * 1024  # from one look to the next: it saves something
_LISTED = 4  # ranks whose processor time is told one by one


class _Sign:
    """The last sign that the ranks go on, and what they had used and said by then."""

    def __init__(self, now_s: float, outputs: Sequence[RankOutput], written: Optional[int]) -> None:
        self.at_s = now_s
        self.cpu_s = [output.rank.cpu_s for output in outputs]
        self.heard = [output.heard for output in outputs]
        self.written = written  # bytes, at the last look at that; None: not looked at since the last step


class Inactivity:
    """Of one agent. `busy` says whether an accelerator works: that needs no processor time."""

    def __init__(
        self, job: str, outbox: Outbox, outputs: Sequence[RankOutput], progress: Progress, busy: Callable[[], bool]
    ) -> None:
        self._job, self._outbox, self._outputs, self._progress, self._busy = job, outbox, outputs, progress, busy
        self._rhythm = Rhythm()
        self._named = 0  # steps, at the last look
        self._began_s: Optional[float] = None
        self._sign: Optional[_Sign] = None
        self._told_s = 0.0  # how long the pause was when it was last told; 0: it is not

    def look(self, now_s: float, pids: Sequence[int]) -> None:
        """`now_s` on the monotonic clock, `pids` of the ranks' trees."""
        steps, self._named = self._progress.named - self._named, self._progress.named
        if steps:
            self._rhythm.stepped(now_s, steps)
        if self._began_s is None:
            self._began_s = now_s
        limit_s = self._rhythm.limit_s
        last = self._sign
        if last is None or (steps if limit_s is not None else self._lives(now_s, last)):
            self._goes_on(now_s)
            return
        if limit_s is not None and self._excused(now_s, last, pids):
            self._goes_on(now_s, last.written)
            return
        pause_s = now_s - last.at_s
        if now_s - self._began_s < FIRST_S or pause_s < max(TOLD_S if limit_s is None else limit_s, 2 * self._told_s):
            return
        if limit_s is None and self._busy():
            self._goes_on(now_s)
            return
        self._told_s = pause_s
        self._outbox.warn(STALLED, self._text(now_s, last))

    def end(self) -> None:
        """The ranks have ended well: what was told is over."""
        self._take_back()

    def _goes_on(self, now_s: float, written: Optional[int] = None) -> None:
        self._sign = _Sign(now_s, self._outputs, written)
        self._take_back()

    def _take_back(self) -> None:
        if self._told_s:
            self._told_s = 0.0
            self._outbox.warn(STALLED, "")

    def _lives(self, now_s: float, last: _Sign) -> bool:
        """Whether there was any sign of life since the last one."""
        used_s = sum(output.rank.cpu_s for output in self._outputs) - sum(last.cpu_s)
        heard = [output.heard for output in self._outputs] != last.heard
        return heard or used_s > _WAITING_CPU_S + _WAITING_SHARE * (now_s - last.at_s)

    def _excused(self, now_s: float, last: _Sign, pids: Sequence[int]) -> bool:
        """Whether a pause of the steps says nothing: the output is not read to its end, or the ranks write files."""
        if any(output.trouble or output.behind for output in self._outputs):
            return True
        if last.written is None and now_s - last.at_s < SHORTEST_S / 2:  # a look at every process: only where it matters
            return False
        before, last.written = last.written, written_by_processes(pids)
        return before is not None and last.written - before >= _WRITTEN_BYTES

    def _text(self, now_s: float, last: _Sign) -> str:
        where = f"tm exec {self._job} --stacks shows where it is"
        used = self._cpu_use(now_s, last)
        usual_s, step_s = self._rhythm.usual_s, self._rhythm.last_s
        if usual_s is None or step_s is None:
            seen = f"no output, no report and hardly any processor time for {_length(now_s - last.at_s)}"
            return f"{seen}; it may wait for another rank, a lock, a pipe or the network; {used}; {where}"
        silent = [output.heard for output in self._outputs] == last.heard
        rhythm = f"no step for {_length(now_s - step_s)} (usually every {_length(usual_s)})"
        return f"{rhythm}, {'and no output' if silent else 'but other output'}; {used}; {where}"

    def _cpu_use(self, now_s: float, last: _Sign) -> str:
        """Of each rank since the last sign, in percent of one processor; of many the lowest and the highest."""
        took_s = max(now_s - last.at_s, 1e-3)
        pairs = [
            (round(100 * max(0.0, output.rank.cpu_s - before_s) / took_s), output.rank.label)
            for output, before_s in zip(self._outputs, last.cpu_s)  # noqa: B905 - Python 3.9
            if output.rank.role is None
        ]
        if len(pairs) > _LISTED:
            (low, idle), (high, busy) = min(pairs), max(pairs)
            return f"CPU use: {low} % ({idle}) to {high} % ({busy})"
        return "CPU use: " + ", ".join(f"{label} {used} %" for used, label in pairs)


def _length(seconds: float) -> str:
    """`0.02 s`, `1.5 s`, `75 s`, `2 min`, `3 h`: rounded down, so that it is never more than it was."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    for unit_s, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{seconds // 1:.0f} s"
