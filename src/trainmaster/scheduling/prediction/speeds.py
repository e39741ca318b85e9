"""How fast kinds of GPU are beside each other for one and the same work, measured by what has run on them.

The same work is one owner's program with one time limit, as for predictions of run times (`predictor`). Of each kind the newest
runs count that ended well in a single attempt, by the time that they took of all their GPUs together. Medians are held against
each other, so that one odd run changes nothing; where half of the runs are not near their median they were not the same work
after all, and nothing is said. Source: ours.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from trainmaster.scheduling.model.jobs import Kind, Past
from trainmaster.scheduling.model.request import width_of

LEAST, NEWEST = 3, 20  # runs on a kind
SPREAD = 0.25  # of the median: half of them are no further from it

Work = tuple[str, str, str, float | None]  # project, member, program, time limit


class Speed(NamedTuple):
    """Of one GPU of a kind, the slowest that was measured being 1, and from how many runs."""

    times: float
    runs: int


def work_of(kind: Kind) -> Work:
    """Whose runs say how fast it is."""
    return kind.project, kind.member, kind.command, kind.limit_s


class Speeds:
    """What is known. It follows the `ended` of snapshots, and may be thrown away and made again from that."""

    def __init__(self) -> None:
        self.seen = 0  # how many of `ended`
        self._gpu_s: dict[Work, dict[str, deque[float]]] = {}

    def follow(self, ended: Sequence[Past]) -> set[Work]:
        """Take in what has ended since; returns the work of which more is known now."""
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
        """By kind of GPU; of fewer than two kinds nothing can be said."""
        runs = {gpu: times for gpu, times in self._gpu_s.get(work, {}).items() if _steady(times)}
        if len(runs) < 2:
            return {}
        slowest_s = max(median(times) for times in runs.values())
        return {gpu: Speed(slowest_s / median(times), len(times)) for gpu, times in sorted(runs.items())}

    def every(self) -> Mapping[Work, Mapping[str, Speed]]:
        """Of all work of which anything can be said, as it came."""
        return {work: found for work in self._gpu_s if (found := self.of(work))}


def _newest() -> deque[float]:
    return deque(maxlen=NEWEST)


def _steady(gpu_s: Sequence[float]) -> bool:
    """Whether so many runs say one thing."""
    if len(gpu_s) < LEAST:
        return False
    middle = median(gpu_s)
    return median([abs(one - middle) for one in gpu_s]) <= SPREAD * middle


def told(found: Mapping[str, Speed]) -> str:
    """`one of h100 as much as 2.3 of a100 (5 and 4 runs)`: what GPUs do, in the middle of a sentence."""
    (slowest, least), *faster = sorted(found.items(), key=lambda one: one[1].times)
    said = [f"one of {gpu} as much as {one.times:.2g}" for gpu, one in reversed(faster)]
    runs = [str(one.runs) for _, one in reversed(faster)] + [str(least.runs)]
    return f"{' and '.join(said)} of {slowest} ({', '.join(runs[:-1])} and {runs[-1]} runs)"
