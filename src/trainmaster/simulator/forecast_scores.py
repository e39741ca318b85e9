"""Makes forecasts during a replay, for jobs that must wait, and compares them with the actual waits."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from statistics import fmean, median
from typing import NamedTuple

from trainmaster.scheduling.explanation.forecast import TELLING, Calibration, Waits, forecasts
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.lifetimes import Lifetimes
from trainmaster.simulator.scheduler import ARRIVED, STARTED


class Told(NamedTuple):
    """A forecast made at `at_s`, and the actual wait. `seconds` is the processor time that the forecast took."""

    job: str
    at_s: float
    said: Waits
    waited_s: float
    seconds: float
    knew: str = "nothing"  # what it rested on: `Lifetimes.knows`

    @property
    def held(self) -> bool:
        """Whether it started within the 90 % bound."""
        return self.said.low90_s <= self.waited_s <= self.said.high90_s

    @property
    def early(self) -> bool:
        """Whether it started before the 90 % bound."""
        return self.waited_s < self.said.low90_s

    @property
    def width(self) -> float:
        """Width of the 90 % bound, relative to the actual wait."""
        return (self.said.high90_s - self.said.low90_s) / self.waited_s if self.waited_s else inf

    @property
    def off_s(self) -> float:
        """Absolute error of the estimate."""
        return abs(self.said.p50_s - self.waited_s)


@dataclass(frozen=True, slots=True)
class Eta:
    """Quality of start estimates. Shares and other figures are over `told`."""

    waited: int  # jobs that had to wait
    told: int  # of them, jobs with an estimate that have started
    held50: float  # share that started within the 50 % bound
    held90: float
    before90: float  # share that started before the 90 % bound
    width90_p50: float | None  # median width of the 90 % bound, relative to the wait; None: half of them are unbounded
    error_p50_s: float  # error of the estimate (the median forecast)
    error_mean_s: float

    @property
    def telling(self) -> bool:
        """Whether there are enough estimates for shares to be meaningful."""
        return self.told >= TELLING


def scored(told: Collection[Told], waited: int) -> Eta | None:
    """Compare forecasts with the actual waits; None without forecasts."""
    if not told:
        return None
    width = median(one.width for one in told)
    return Eta(
        waited,
        len(told),
        fmean(one.said.low50_s <= one.waited_s <= one.said.high50_s for one in told),
        fmean(one.held for one in told),
        fmean(one.early for one in told),
        width if width < inf else None,
        median(one.off_s for one in told),
        fmean(one.off_s for one in told),
    )


@dataclass(slots=True)
class ForecastScorer:
    """Observes a replay, and knows at any time only what has happened by then.

    A waiting job gets a forecast if the share of `count` made so far is smaller than the share of the trace's `jobs` that have
    arrived. So the trace alone determines the number of forecasts and the jobs. It learns only from jobs with a forecast.
    `tell` gets the number of each forecast before it is made: one may take seconds.
    """

    policy: Policy
    jobs: int = 1
    count: int = 1
    tell: Callable[[int], None] | None = None
    told: list[Told] = field(default_factory=list)  # in order of start
    waited: int = 0  # jobs that had to wait
    seconds: float = 0.0  # of real time
    _made: int = 0  # forecasts, up to `count`
    _known: set[str] = field(default_factory=set)
    _open: dict[str, tuple[float, Waits, Waits, float, str]] = field(default_factory=dict)
    _ended: int = 0
    _lifetimes: Lifetimes = field(default_factory=Lifetimes)
    _calibration: Calibration = field(default_factory=Calibration)

    @property
    def eta(self) -> Eta | None:
        """The quality so far."""
        return scored(self.told, self.waited)

    def look(self, snapshot: Snapshot, news: Sequence[tuple[str, str]]) -> None:
        """Process the state after a decision, and what has arrived and started since the last call."""
        for past in snapshot.ended[self._ended :]:
            self._lifetimes.learn(past)
        self._ended = len(snapshot.ended)
        started = {id for what, id in news if what == STARTED}
        for id in [id for id in self._open if id in started]:  # in the order of the forecasts
            self._started(id, snapshot.now_s)
        came = dict.fromkeys(id for what, id in news if what == ARRIVED and id not in self._known)
        self._known.update(came)
        for id in came:
            if id in snapshot.waiting:
                self.waited += 1
                if self._made * self.jobs < self.count * len(self._known):
                    self._say(snapshot, id)

    def _started(self, id: str, now_s: float) -> None:
        at_s, drawn, said, seconds, knew = self._open.pop(id)
        self.told.append(Told(id, at_s, said, now_s - at_s, seconds, knew))
        self._calibration = self._calibration.after(drawn, now_s - at_s)

    def _say(self, snapshot: Snapshot, id: str) -> None:
        self._made += 1
        if self.tell is not None:
            self.tell(self._made)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        drawn = forecasts(snapshot, self.policy, self._lifetimes, (id,), Random(id)).get(id)
        taken_s = time.process_time() - cpu_s
        if drawn is not None:
            kind = snapshot.waiting[id].kind
            self._open[id] = snapshot.now_s, drawn, self._calibration.corrected(drawn), taken_s, self._lifetimes.knows(kind)
        self.seconds += time.perf_counter() - began_s
