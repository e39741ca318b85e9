"""Warns if a node's ranks may hang: no step although steps are usual, or no sign of life at all. It only observes.

One rule selects the check, so that one agent gives one warning. If the program has reported enough steps to know their
rhythm (`Rhythm`), only a step counts: a pause longer than `Rhythm.limit_s` gives a warning. Time in which the ranks write
files, such as a checkpoint, is excluded, and so is time in which their output cannot be read. Otherwise these are signs of
life: any output, any message, a new step of another node of the gang, more CPU time than a waiting loop uses, and a busy
accelerator. Both checks learn the pauses that the ranks make. There is no warning in the first minutes of an attempt. The next
sign clears the warning.
"""

from __future__ import annotations

from trainmaster.agent.metrics.rhythm import LONGEST_TIMES, SHORTEST_S, Rhythm
from trainmaster.agent.processes.usage import written_by_processes
from trainmaster.wire.names import STALLED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Sequence

    from trainmaster.agent.metrics.output import RankOutput
    from trainmaster.agent.metrics.progress import Progress
    from trainmaster.agent.transport.outbox import Outbox

FIRST_S = 300.0  # of an attempt: no warning is given
TOLD_S = 300.0  # without any sign of life, if no rhythm is known
_WAITING_CPU_S, _WAITING_SHARE = 1.0, 0.02  # CPU use of a waiting rank: seconds in total, and share of one CPU
_WRITTEN_BYTES = 64 * 1024  # between two checks: more means that the ranks are saving
_LISTED = 4  # up to so many ranks, each one's CPU use is shown


class _Sign:
    """The last sign of life, with CPU time and output at that time."""

    def __init__(self, now_s: float, outputs: Sequence[RankOutput], written: Optional[int], gang_step: Optional[int]) -> None:
        self.at_s = now_s
        self.gang_step = gang_step
        self.cpu_s = [output.rank.cpu_s for output in outputs]
        self.heard = [output.heard for output in outputs]
        self.written = written  # bytes at the last check; None: not checked since the last step
        self.told_s = 0.0  # length of the pause after it at the last warning; 0: no warning is active


class Inactivity:
    """The check of one agent. `busy`: whether an accelerator is in use, which needs no CPU time."""

    def __init__(
        self, job: str, outbox: Outbox, outputs: Sequence[RankOutput], progress: Progress, busy: Callable[[], bool]
    ) -> None:
        self._job, self._outbox, self._outputs, self._progress, self._busy = job, outbox, outputs, progress, busy
        self._rhythm = Rhythm()
        self._named = 0  # steps at the last check
        self._began_s: Optional[float] = None
        self._sign: Optional[_Sign] = None
        self._longest_s = 0.0  # the longest pause between two signs of life

    def look(self, now_s: float, pids: Sequence[int], gang_step: Optional[int] = None) -> None:
        """Check once. `now_s`: monotonic clock; `pids`: of the ranks' process trees; `gang_step`: the highest of any node."""
        steps, self._named = self._progress.named - self._named, self._progress.named
        if steps:
            self._rhythm.stepped(now_s, steps)
        if self._began_s is None:
            self._began_s = now_s
        limit_s = self._rhythm.limit_s
        last = self._sign
        if last is None or (steps if limit_s is not None else self._lives(now_s, last, gang_step)):
            self._longest_s = max(self._longest_s, now_s - last.at_s if last is not None else 0.0)
            self._goes_on(now_s, gang_step)
            return
        if limit_s is not None and self._excused(now_s, last, pids):
            self._goes_on(now_s, gang_step, last.written)
            return
        pause_s = now_s - last.at_s
        least_s = max(TOLD_S, LONGEST_TIMES * self._longest_s) if limit_s is None else limit_s
        if now_s - self._began_s < FIRST_S or pause_s < max(least_s, 2 * last.told_s):
            return
        if limit_s is None and self._busy():
            self._goes_on(now_s, gang_step)
            return
        last.told_s = pause_s
        self._outbox.warn(STALLED, self._text(now_s, last))

    def end(self) -> None:
        """The ranks have succeeded: clear the warning."""
        self._goes_on(0.0)

    def _goes_on(self, now_s: float, gang_step: Optional[int] = None, written: Optional[int] = None) -> None:
        last, self._sign = self._sign, _Sign(now_s, self._outputs, written, gang_step)
        if last is not None and last.told_s:
            self._outbox.warn(STALLED, "")

    def _lives(self, now_s: float, last: _Sign, gang_step: Optional[int]) -> bool:
        """Whether there was a sign of life since the last one."""
        used_s = sum(output.rank.cpu_s for output in self._outputs) - sum(last.cpu_s)
        heard = [output.heard for output in self._outputs] != last.heard or gang_step != last.gang_step
        return heard or used_s > _WAITING_CPU_S + _WAITING_SHARE * (now_s - last.at_s)

    def _excused(self, now_s: float, last: _Sign, pids: Sequence[int]) -> bool:
        """Whether a pause of steps has a reason: the output is not fully read, or the ranks are writing files."""
        if any(output.trouble or output.behind for output in self._outputs):
            return True
        if last.written is None and now_s - last.at_s < SHORTEST_S / 2:  # reading every process is slow: only if needed
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
        """CPU use of each rank since the last sign, in percent of one CPU; of many ranks, the lowest and the highest."""
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
    """`0.02 s`, `1.5 s`, `75 s`, `2 min`, `3 h`: rounded down, so that it never exceeds the real time."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    for unit_s, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{seconds // 1:.0f} s"
