"""Samples the state of a replay at regular times: fewer than a thousand samples, however long it takes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.model.cells import Cells
from trainmaster.scheduling.model.jobs import Run, Task
from trainmaster.scheduling.model.request import width_of
from trainmaster.scheduling.model.space import Site, Space
from trainmaster.scheduling.placement.fragmentation import Fragmentation, counted, mix
from trainmaster.simulator.trace import Arrival, width_of_sites

SAMPLES = 480  # initial number; at twice as many, every other one is dropped
WINDOW = 12  # samples in a window of fairness
_MILLI = 1000
Tell = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one moment, in GPUs, or in CPUs if the cluster has no GPUs."""

    at_s: float
    waiting: int  # jobs
    busy: float
    fragments: float  # free GPUs that the typical request cannot use
    served: Mapping[str, float]  # GPU-seconds so far, by project
    eager: frozenset[str]  # projects with jobs in the queue


class Sampler:
    """Takes samples of one replay. `due_s` is the time of the next one; `tell` gets the number of ended jobs, and the time."""

    def __init__(self, arrivals: Sequence[Arrival], sites: tuple[Site, ...], tell: Tell | None = None) -> None:
        self._tell = tell
        first_s = arrivals[0].submit_s
        span_s = max(arrivals[-1].submit_s - first_s, max(one.run_s for one in arrivals), 1.0)
        self.due_s, self.step_s = first_s, span_s / SAMPLES
        self.samples: list[Sample] = []
        self.width = width_of_sites(sites)
        self._sites, self._cells = sites, Cells()
        self._ended: defaultdict[str, float] = defaultdict(float)
        shared = len({one.project for one in arrivals}) > 1
        self._projects = shared
        gpus = any(site.devices for site in sites)
        self._typical = Fragmentation(mix(counted(one.ask for one in arrivals))) if gpus else None

    def charge(self, run: Run, ran_s: float) -> None:
        """Count an ended attempt."""
        if self._projects:
            self._ended[run.task.kind.project] += ran_s * width_of(run.grant.ask)

    def look(self, until_s: float, waiting: Mapping[str, Task], running: Mapping[str, Run], over: int) -> None:
        """Take every sample due before `until_s`: nothing has changed since the last event. `over`: number of ended jobs."""
        if self._tell is not None:
            self._tell(over, until_s)
        busy = sum(width_of(run.grant.ask) for run in running.values())
        fragments = self._fragments(running.values())
        eager = frozenset({task.kind.project for task in waiting.values()}) if self._projects else frozenset()
        while self.due_s < until_s:
            served = self._served(running.values())
            self.samples.append(Sample(self.due_s, len(waiting), busy, fragments, served, eager))
            if len(self.samples) >= 2 * SAMPLES:
                self.samples, self.step_s = self.samples[::2], 2 * self.step_s
            self.due_s = self.samples[-1].at_s + self.step_s

    def _served(self, running: Iterable[Run]) -> Mapping[str, float]:
        if not self._projects:
            return {}
        served = defaultdict(float, self._ended)
        for run in running:
            served[run.task.kind.project] += (self.due_s - run.placed_s) * width_of(run.grant.ask)
        return served

    def _fragments(self, running: Iterable[Run]) -> float:
        if self._typical is None:
            return 0.0
        space = Space(self._sites, self._cells)
        for run in running:
            space.hold(run.grant)
        found = ((space.cells.values[number], len(nodes)) for number, nodes in space.nodes.items())
        return sum(self._typical.of(cell) * count for cell, count in found) / _MILLI


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything. Source: Jain, Chiu, Hawe, DEC TR-301 (1984)."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def fairness(samples: Sequence[Sample], rules: Cluster) -> list[tuple[float, float]]:
    """(time, Jain's index of service over weight) of projects with work during a whole window, if there were two."""
    found = []
    for at in range(WINDOW, len(samples)):
        window = samples[at - WINDOW : at + 1]
        always = frozenset.intersection(*(sample.eager for sample in window))
        if len(always) > 1:
            before, after = window[0].served, window[-1].served
            had = [(after.get(name, 0.0) - before.get(name, 0.0)) / rules.project(name).weight for name in sorted(always)]
            found.append((samples[at].at_s, jain(had)))
    return found


def mean(points: Sequence[tuple[float, float]]) -> float | None:
    """The time average of a step function; None for fewer than two points."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    area = sum((later[0] - now[0]) * now[1] for now, later in pairwise(points))
    return area / (points[-1][0] - points[0][0])
