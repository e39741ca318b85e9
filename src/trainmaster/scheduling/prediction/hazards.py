"""How soon a job will end, learned from similar jobs: for an order that needs no stated run times.

Neighboring submissions of one width are similar. So the chance of a job to end at each age is estimated from the jobs submitted
just before and after it, nearer ones with more weight, unfinished ones up to their age. If these are few, it is estimated from
all jobs of its width, and then from all jobs. The index is the Gittins index: the best chance to end per second of run time,
over all spans. Sources: J. Gittins, J. R. Stat. Soc. B 41 (1979); Z. Scully and M. Harchol-Balter, on its use where sizes are
unknown (2018).
"""

from collections.abc import Sequence
from math import exp, log1p
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LEVELS = 16
STAY = 0.7  # how much a running job is ahead of its equals: the cost of a preemption
BOUNDS = tuple([0.0] + [1200.0 * 2**n for n in range(LEVELS - 1)])  # run time in seconds at which each level begins
REACH = 4.0  # how fast the weight of neighbors falls with the distance in submissions
NEAR = 24  # neighbors on each side
TRUST = 0.5  # so many neighbors weigh as much as the whole width; so many jobs of a width as much as all jobs
_BLOCK = 16
_WEIGHTS = tuple(exp(-distance / REACH) for distance in range(NEAR + 1))


class Life(NamedTuple):
    """How long one job has run, and whether it has ended."""

    seq: int
    width: float
    ran_s: float
    ended: bool


def level_of(ran_s: float) -> int:
    """The level of a run time."""
    level = 0
    while level + 1 < LEVELS and BOUNDS[level + 1] <= ran_s:
        level += 1
    return level


class Hazards:
    """Run times and ends by width, in the order of submission."""

    def __init__(self) -> None:
        self.widths: dict[float, _Width] = {}
        self.ends = [0.0] * LEVELS
        self.reached = [0.0] * LEVELS
        self.version = 0
        self._latest = -1  # the last submission of all known jobs
        self._living: set[int] = set()

    def follow(self, living: Sequence[Life], ended: Sequence[Life]) -> bool:
        """Learn from all live jobs and from those that have ended since; False: start anew, since a job vanished or came late.

        So the result is the same as that of a new object that sees the same jobs.
        """
        now = {life.seq for life in living}
        over = {life.seq for life in ended}
        late = any(seq <= self._latest for seq in (now | over) - self._living)
        if late or not self._living <= now | over:
            return False
        for life in sorted((*living, *ended)):
            self.learn(life)
        self._latest = max(self._latest, max(now | over, default=-1))
        self._living = now
        return True

    def learn(self, life: Life) -> None:
        """Learn the present state of a job."""
        width = self.widths.setdefault(life.width, _Width())
        level = level_of(life.ran_s)
        if width.put(life.seq, level, life.ended) and life.ended:
            for one in range(level + 1):
                self.reached[one] += 1
            self.ends[level] += 1
            self.version += 1

    def index(self, seq: int, width: float, ran_s: float) -> float:
        """The best chance to end per second from now on, for a known job. Larger is sooner."""
        return self.widths[width].index(seq, level_of(ran_s), self)

    def overall(self, level: int) -> float:
        """The chance of any job that reaches a level to end in it."""
        return (self.ends[level] + 0.5 * TRUST) / (self.reached[level] + TRUST)


class _Width:
    """The jobs of one width."""

    def __init__(self) -> None:
        self._rank: dict[int, int] = {}
        self._levels: list[int] = []
        self._ended: list[bool] = []
        self._stamps: list[int] = []  # by block of jobs: how often it changed
        self._ends = [0.0] * LEVELS
        self._reached = [0.0] * LEVELS
        self._known: dict[tuple[int, int], tuple[tuple[int, ...], float]] = {}

    def put(self, seq: int, level: int, ended: bool) -> bool:
        """Record a job; whether that changed anything. Jobs come in the order of submission."""
        rank = self._rank.get(seq)
        if rank is None:
            rank = self._rank[seq] = len(self._levels)
            self._levels.append(0)
            self._ended.append(False)
            if rank % _BLOCK == 0:
                self._stamps.append(0)
        elif self._ended[rank] or (self._levels[rank] == level and not ended):
            return False
        self._levels[rank], self._ended[rank] = level, ended
        self._stamps[rank // _BLOCK] += 1
        if ended:
            for one in range(level + 1):
                self._reached[one] += 1
            self._ends[level] += 1
        return True

    def index(self, seq: int, level: int, everybody: Hazards) -> float:
        """The index of a job. It is computed again when a neighbor has changed or any job has ended."""
        rank = self._rank[seq]
        first, last = max(0, rank - NEAR), min(len(self._levels) - 1, rank + NEAR)
        stamp = (everybody.version, last, *self._stamps[first // _BLOCK : last // _BLOCK + 1])
        known = self._known.get((seq, level))
        if known is None or known[0] != stamp:
            known = self._known[seq, level] = (stamp, gittins(self._chances(rank, everybody), level))
        return known[1]

    def _chances(self, rank: int, everybody: Hazards) -> list[float]:
        """For each level, the chance of a job that reaches it to end in it."""
        ends, reached = [0.0] * LEVELS, [0.0] * (LEVELS + 1)
        for other in range(max(0, rank - NEAR), min(len(self._levels), rank + NEAR + 1)):
            if other == rank:
                continue
            weight, level = _WEIGHTS[abs(other - rank)], self._levels[other]
            if self._ended[other]:
                ends[level] += weight
                reached[level] += weight
            elif level:
                reached[level - 1] += weight
        chances = []
        total = 0.0
        for level in range(LEVELS - 1, -1, -1):
            total += reached[level]
            alike = (self._ends[level] + TRUST * everybody.overall(level)) / (self._reached[level] + TRUST)
            chances.append((ends[level] + TRUST * alike) / (total + TRUST))
        chances.reverse()
        return chances


def gittins(chances: Sequence[float], level: int) -> float:
    """The Gittins index of a job at the beginning of `level`, from the chances to end in each level."""
    alive, time_s, best = 1.0, 0.0, 0.0
    for one in range(level, len(chances)):
        chance = min(chances[one], 0.999)
        span_s = BOUNDS[one + 1] - BOUNDS[one] if one + 1 < len(BOUNDS) else BOUNDS[one]
        rate = -log1p(-chance) / span_s
        time_s += _time_in_s(alive, chance, rate, span_s)
        alive *= 1.0 - chance
        best = max(best, (1.0 - alive) / time_s)
    return best


def _time_in_s(alive: float, chance: float, rate: float, span_s: float) -> float:
    """The expected time that a job spends in a level, times the chance `alive` to reach it."""
    return alive * (chance / rate if rate > 0 else span_s)


def urgency(index: npt.NDArray[np.float64], width: npt.NDArray[np.float64], running: bool) -> npt.NDArray[np.float64]:
    """The key of the order, smaller first: the chance per GPU-second. A running job is ahead of its equals."""
    found: npt.NDArray[np.float64] = -(np.log(np.maximum(index, 1e-12)) - np.log(width) + (STAY if running else 0.0))
    return found
