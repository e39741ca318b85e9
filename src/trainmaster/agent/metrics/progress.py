"""Tracks the progress of the program: its steps, and its metric points on their way to the server."""

from __future__ import annotations

import time
from bisect import bisect_right

from trainmaster.agent.metrics.counting import EpochCounts
from trainmaster.agent.metrics.evidence import Evidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.launch import Launch

_REPEATED_MAX = 5  # metrics that are named
_LATEST = 64  # steps: those of calls that overtake each other are nearer
_KEPT = 2048  # steps remembered with their times: the last minutes, at any speed
LONG_S = 60.0  # of steps, after which missing checkpoints are reported
_ANY_STEP = float("inf")
_CLOCK_SET_BACK_S = 10.0  # if the clock was set back by more, older entries are useless


class Progress:
    """Progress of a node's ranks. Steps reported through the SDK take precedence over printed ones.

    `again`: this attempt may go on from an earlier one, so what its program shows is reported while it runs.
    `named`: see `Evidence`. `epochs`: what earlier attempts learned of how the program numbers its epochs.
    """

    def __init__(
        self, outbox: Outbox, again: bool = False, named: frozenset[str] = frozenset(), epochs: Optional[EpochCounts] = None
    ) -> None:
        self._outbox = outbox
        self._again = again
        self.epochs = epochs or EpochCounts()
        self.evidence = Evidence(named, self.epochs)
        self._calls = _Calls()
        self._seen: list[tuple[float, float]] = []  # (time, step), ascending; also read by another thread
        self.first_step: Optional[int] = None
        self.last_step: Optional[int] = None
        self.named = 0  # number of steps so far; a step that several ranks report counts once
        self.first_s = 0.0  # seconds since the epoch: when the first step was reported
        self.written_s = 0.0  # seconds since the epoch: write time of the lines being read, set by the reader

    @classmethod
    def of_launch(cls, outbox: Outbox, launch: Launch, named: frozenset[str]) -> Progress:
        """For the ranks of one agent."""
        again = launch["node_index"] == 0 and (launch["attempt"] > 1 or bool(launch["resume"]))
        counts = EpochCounts(launch.get("epoch_first"), launch.get("epoch_steps"), launch.get("epoch_anew"))
        return cls(outbox, again, named, counts)

    def step_at(self, time_s: float) -> Optional[int]:
        """The last step reported by `time_s` (seconds since the epoch); None if there was none. Callable from any thread."""
        seen = self._seen
        index = bisect_right(seen, (time_s, _ANY_STEP))
        return int(seen[index - 1][1]) if index else None

    @property
    def stepping_s(self) -> float:
        """Seconds between the first and the last reported step."""
        return self._seen[-1][0] - self.first_s if self._seen else 0.0

    def warn(self, topic: str, text: str) -> None:
        """Report a warning about the output to the user."""
        self._outbox.warn(topic, text)

    def printed(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Handle a line of a rank's output."""
        if not self._calls.sdk_steps:
            self._step(step)
            self.evidence.point(rank, step, values)
        if values:
            self._outbox.point(rank, step if step is not None else self.last_step, values)

    def printed_beside(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Handle a line of a program that also reports metrics by other means: it may count otherwise, so only forward."""
        if not self._calls.sdk_steps and step is not None and self.last_step is not None and step > self.last_step:
            self._step(step)
        if values:
            self._outbox.point(rank, step, values)

    def recount(self, rank: int) -> None:
        """What a rank had printed of steps so far were epochs: they show nothing of where the program began."""
        if not self._calls.sdk_steps and self.evidence.recount(rank):
            self.first_step = None

    def reported(self, rank: int, step: Optional[int], values: dict[str, float], counted: bool = False) -> None:
        """Handle a metrics message of the SDK. `counted`: the SDK counted the step, from the restored checkpoint on."""
        if step is not None and not self._calls.sdk_steps:
            self._calls.sdk_steps = True
            self.first_step = None
            self._seen = []
            self.evidence.reset()
        self._step(step)
        self.evidence.point(rank, None if counted else step, values)
        if values:
            self._outbox.point(rank, step, values)
        if not counted:
            self._warn_of_repeats(rank, step, values)

    def read(self, read: dict[str, int]) -> None:
        """Record how far an SDK file was read, after its points were queued; writes them to disk if they are many."""
        self._outbox.points.persist(read, now=False)

    def restored(self, loaded: bool) -> None:
        """Handle the SDK's word about the restored checkpoint: it loaded it, or the program asked where it is."""
        self.evidence.restored(loaded)

    def tell(self) -> None:
        """Report what shows whether the program went on, or that its steps fell back, if that is news."""
        news = self.evidence.news() if self._again or self.evidence.fell else None
        if news is not None:
            self._outbox.report("progress", progress=news)

    def logged(self, step: int, values: dict[str, float], counts: bool, named: bool = True) -> None:
        """Handle values that rank 0 logged with a tracker's API. `counts`: a higher step than the last is progress.

        Such a step may count epochs, or be counted here because none was given (not `named`). So it never sets progress back.
        """
        if counts and not self._calls.sdk_steps:
            further = step > max(0, self.last_step or 0)
            leads = named and self._calls.leads(values, further or not self.evidence.stepped)
            self.evidence.point(0, step if leads else None, values)
            if further:
                self.written_s = time.time()
                self._step(step)
        self._outbox.point(0, step, values)
        self._warn_of_repeats(0, step if named else None, values)

    def reports(self, name: str) -> bool:
        """Whether rank 0 has reported this metric, other than by its output."""
        return self._calls.reported(0, name)

    def _warn_of_repeats(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        if step is not None and self._calls.repeats(rank, step, values):
            self.warn("several values", self._calls.told_repeats())

    def _step(self, step: Optional[int]) -> None:
        if step is not None:
            self.named += step != self.last_step
            self.last_step = step
            if self.first_step is None:
                self.first_step, self.first_s = step, self.written_s
            self._remember(step)

    def _remember(self, step: int) -> None:
        if self._seen and self._seen[-1][0] == self.written_s:
            self._seen[-1] = (self.written_s, step)
            return
        if self._seen and self._seen[-1][0] > self.written_s:
            if self._seen[-1][0] - self.written_s < _CLOCK_SET_BACK_S:
                return  # another rank's log, read a little later: the ranks of a gang are at the same step
            self._seen = []
        self._seen.append((self.written_s, step))
        if len(self._seen) > 2 * _KEPT:
            self._seen = self._seen[-_KEPT:]


class _Calls:
    """What a program reports by calls of the SDK or of a tracker, in so far as steps are concerned."""

    def __init__(self) -> None:
        self.sdk_steps = False  # the SDK reports steps, which take precedence over others
        self._lead: Optional[str] = None  # the tracker's metric with the highest step: others may count epochs
        self._latest: dict[tuple[int, str], dict[int, float]] = {}  # (rank, metric) -> its newest steps, with their values
        self._lowest: dict[tuple[int, str], int] = {}  # (rank, metric) -> its lowest step
        self._repeated: dict[str, int] = {}  # metric -> first step with which it came again

    def leads(self, values: dict[str, float], further: bool) -> bool:
        """Whether a step that came with these values is of the count that leads. `further`: it is the highest, or the first."""
        if further:
            self._lead = next(iter(values))
        return self._lead in values

    def reported(self, rank: int, name: str) -> bool:
        """Whether a rank has reported a metric with a step."""
        return (rank, name) in self._lowest

    def repeats(self, rank: int, step: int, values: dict[str, float]) -> bool:
        """Whether a metric came with another value for a step that it had reached, or may have, and that is news."""
        known = len(self._repeated)
        for name, value in values.items():
            latest = self._latest.setdefault((rank, name), {})
            before = latest.get(step)
            another = before is not None and before != value and (before == before or value == value)  # NaN is no number
            lowest = self._lowest.setdefault((rank, name), step)
            if another or (len(latest) == _LATEST and lowest <= step < next(iter(latest))):
                self._repeated.setdefault(name, step)
            self._lowest[rank, name] = min(lowest, step)
            latest[step] = value
            if len(latest) > _LATEST:
                del latest[next(iter(latest))]
        return len(self._repeated) > known

    def told_repeats(self) -> str:
        """As a warning."""
        named = [f"{name} (step {step})" for name, step in list(self._repeated.items())[:_REPEATED_MAX]]
        more = f" and {len(self._repeated) - len(named)} more" if len(self._repeated) > len(named) else ""
        told = f"reported again for a step already reached, or out of order: {', '.join(named)}{more}"
        return f"{told}; the record has a step's last value"


class RoleProgress:
    """Metric points of a role, with its name as prefix: `evaluator/accuracy`. They do not count as training progress."""

    def __init__(self, outbox: Outbox, role: str, ranks: Progress) -> None:
        self._outbox = outbox
        self._role = role
        self._ranks = ranks
        self.epochs = EpochCounts()
        self._step: Optional[int] = None
        self.written_s = 0.0  # as in `Progress`

    def warn(self, topic: str, text: str) -> None:
        """Report a warning about the output to the user."""
        self._outbox.warn(topic, text)

    def printed(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Handle a line of its output."""
        self._step = step if step is not None else self._step
        if values:
            named = {f"{self._role}/{name}": value for name, value in values.items()}
            self._outbox.point(0, self._step, named)
            both = next((name for name in named if self._ranks.reports(name)), None)
            if both is not None:
                told = f"rank 0 and the role {self._role} both report {both}"
                self.warn("role metrics", f"{told}: it has the values of both; give the role another name")

    def printed_beside(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Handle a line of a role that also reports metrics by other means."""
        self.printed(rank, step, values)

    def recount(self, rank: int) -> None:
        """Its steps are not judged."""

    def reported(self, rank: int, step: Optional[int], values: dict[str, float], counted: bool = False) -> None:
        """Handle a metrics message of the SDK."""
        self.printed(rank, step, values)

    def restored(self, loaded: bool) -> None:
        """A role resumes nothing."""

    def read(self, read: dict[str, int]) -> None:
        """Record how far its SDK file was read."""
        self._outbox.points.persist(read, now=False)
