"""The relative speed of kinds of GPU for the same work, measured by ended jobs.

The same work is one owner's program with one time limit, as in `predictor`. Of each kind, the newest successful runs in a
single attempt count, by their GPU time. Medians are compared, so one odd run changes nothing. If half of the runs are not near
their median, they were not the same work, and they say nothing. Source: ours.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from trainmaster.scheduling.model.jobs import Kind, Past
from trainmaster.scheduling.model.request import width_of

LEAST, NEWEST = 3, 20  # runs on a kind
SPREAD = 0.25  # of the median: half of the runs are within this distance

Work = tuple[str, str, str, float | None]  # project, member, program, time limit


class Speed(NamedTuple):
    """The speed of one GPU of a kind, relative to the slowest measured kind, and the number of runs."""

    times: float
    runs: int


def work_of(kind: Kind) -> Work:
    """The work of a kind: its runs are compared."""
    return kind.project, kind.member, kind.command, kind.limit_s


class Speeds:
    """What is known. It follows the `ended` of snapshots, and may be thrown away and built again."""

    def __init__(self) -> None:
        self.seen = 0  # how many of `ended`
        self._gpu_s: dict[Work, dict[str, deque[float]]] = {}

    def follow(self, ended: Sequence[Past]) -> set[Work]:
        """Learn from the jobs that have ended since; returns the work of which more is known now."""
        news = set()
        for past in ended[self.seen :]:
            on, work = past.on, work_of(past.kind)
            if on is None or not past.well or past.ran_s <= 0 or len(on.each.kinds) != 1 or not past.kind.command:
                continue
            runs = self._gpu_s.setdefault(work, defaultdict(_newest))
            runs[on.each.kinds[0]].append(past.ran_s * width_of(on))
            news.add(work)
        self.seen = len(ended)
        return news

    def of(self, work: Work) -> Mapping[str, Speed]:
        """The speeds by kind of GPU; with fewer than two kinds, none."""
        runs = {gpu: times for gpu, times in self._gpu_s.get(work, {}).items() if _steady(times)}
        if len(runs) < 2:
            return {}
        slowest_s = max(median(times) for times in runs.values())
        return {gpu: Speed(slowest_s / median(times), len(times)) for gpu, times in sorted(runs.items())}

    def every(self) -> Mapping[Work, Mapping[str, Speed]]:
        """The speeds of all work for which there are any, in the order of the first runs."""
        return {work: found for work in self._gpu_s if (found := self.of(work))}


def _newest() -> deque[float]:
    return deque(maxlen=NEWEST)


def _steady(gpu_s: Sequence[float]) -> bool:
    """Whether there are enough runs, and they agree."""
    if len(gpu_s) < LEAST:
        return False
    middle = median(gpu_s)
    return median([abs(one - middle) for one in gpu_s]) <= SPREAD * middle


def told(found: Mapping[str, Speed]) -> str:
    """`one of h100 as much as 2.3 of a100 (5 and 4 runs)`: the speeds, in the middle of a sentence."""
    (slowest, least), *faster = sorted(found.items(), key=lambda one: one[1].times)
    said = [f"one of {gpu} as much as {one.times:.2g}" for gpu, one in reversed(faster)]
    runs = [str(one.runs) for _, one in reversed(faster)] + [str(least.runs)]
    return f"{' and '.join(said)} of {slowest} ({', '.join(runs[:-1])} and {runs[-1]} runs)"
