"""How long jobs will run in all, from those that are over and those that run; a time limit is only the most that it can be.

Jobs that one owner submits one after the other are alike. So the run time of a job is the mean of its owner's next ones before
and after it, the nearer the heavier, the same request, limit and command more than others; where there are few, of all jobs,
narrowed down step by step. One that runs already says that it takes longer than it has run.

The mean is arithmetic: who starts a job that cannot be stopped is held by its long cases as long as they take (medians did
worse). Sources: D. Tsafrir, Y. Etsion and D. Feitelson, IEEE TPDS 18(6), 2007, for the owner's last jobs; the weights are ours.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from heapq import merge
from math import exp2, log2
from typing import Any, NamedTuple

from trainmaster.model.cluster import DAY_S
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.order import Key, aged, first, width_of
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.task import Kind, Past, Task

Owner = tuple[str, str]  # project, member
NEAR = 30  # jobs on each side that are looked at
FADE = 0.85  # how fast their weight falls from one to the next
UNLIKE = 0.15  # weight of one with another request; with another limit likewise
SAME = 5.0  # weight of one with the same command, where it is known
TRUST = 0.5  # weight of what is known of all, beside a neighbour's 1
LASTING = 2.0  # who has run for so long is thought to run as long again
_FADES = tuple(FADE**distance for distance in range(NEAR))
_FORGET_ALL, _FORGET = 0.998, 0.95  # what is left of older jobs with each newer one: of all jobs, of a part of them
_FIRST_SHARE, _FIRST_S = 0.3, 3600.0  # before anything is known: of the limit; without one
_ROOM = 1000  # answers that are kept of jobs that are gone
_AGE_S, _AGES = 60.0, 2  # ages are told apart from a minute on, so many to a doubling


class Life(NamedTuple):
    """What one job says: it ran so long, or has run so long up to now."""

    seq: int
    ran_s: float
    kind: Kind


class _Crowd:
    """The jobs of one owner."""

    def __init__(self) -> None:
        self.over: list[Life] = []  # by submission
        self.living: tuple[Life, ...] = ()  # by submission
        self.version = 0


class Predictor:
    """What is known. It follows the `ended` of snapshots, and may be thrown away and made again from that."""

    def __init__(self) -> None:
        self.seen = 0  # how many of `ended`
        self._crowds: dict[Owner, _Crowd] = {}
        self._running: set[Owner] = set()
        self._means: dict[Hashable, tuple[float, float]] = {}  # sum and weight of shares of the limit, or of seconds
        self._near: dict[int, tuple[int, _Near]] = {}  # by order of submission: the version of its crowd, what it said
        self._known: dict[int, tuple[int, int, float]] = {}

    def follow(self, snapshot: Snapshot) -> None:
        """Take in what has ended since, and how long those that run have run by now."""
        for past in snapshot.ended[self.seen :]:
            self._learn(past)
        self.seen = len(snapshot.ended)
        running: dict[Owner, list[Life]] = {}
        for run in snapshot.running.values():
            kind = run.task.kind
            age_s = _round_s(run.task.attained_s + snapshot.now_s - run.placed_s)
            running.setdefault((kind.project, kind.member), []).append(Life(run.task.seq, age_s, kind))
        for owner in running.keys() | self._running:
            crowd = self._crowds.setdefault(owner, _Crowd())
            living = tuple(sorted(running.get(owner, ()), key=_seq))
            if living != crowd.living:
                crowd.living = living
                crowd.version += 1
        self._running = set(running)
        if len(self._known) > _ROOM + 4 * (len(snapshot.waiting) + len(snapshot.running)):
            self._known, self._near = {}, {}  # most are of jobs that are gone

    def total_s(self, task: Task) -> float:
        """How long it will have run when it is over, in all its attempts; whatever it has run so far."""
        kind = task.kind
        crowd = self._crowds.get((kind.project, kind.member))
        version = crowd.version if crowd is not None else 0
        known = self._known.get(task.seq)
        if known is not None and known[0] == self.seen and known[1] == version:
            return known[2]
        near = _NOBODY
        if crowd is not None:
            seen = self._near.get(task.seq)
            if seen is None or seen[0] != version:
                seen = self._near[task.seq] = (version, _near(crowd, task.seq, kind))
            near = seen[1]
        total_s = near.mean_s(self._prior_s(kind))
        if kind.limit_s is not None:
            total_s = min(total_s, kind.limit_s)
        self._known[task.seq] = (self.seen, version, total_s)
        return total_s

    def _learn(self, past: Past) -> None:
        kind = past.kind
        crowd = self._crowds.setdefault((kind.project, kind.member), _Crowd())
        insort(crowd.over, Life(past.seq, past.ran_s, kind), key=_seq)
        crowd.version += 1
        self._near.pop(past.seq, None)
        self._known.pop(past.seq, None)
        value = past.ran_s / kind.limit_s if kind.limit_s else past.ran_s
        for key, forget in zip(_parts(kind), (_FORGET_ALL, _FORGET, _FORGET), strict=True):
            total, weight = self._means.get(key, (0.0, 0.0))
            self._means[key] = (total * forget + value, weight * forget + 1.0)

    def _prior_s(self, kind: Kind) -> float:
        """What one would think without its neighbours: from all jobs to the like of it, each step with one job's weight."""
        mean = _FIRST_SHARE if kind.limit_s else _FIRST_S
        for key in _parts(kind):
            total, weight = self._means.get(key, (0.0, 0.0))
            mean = (total + mean) / (weight + 1.0)
        return mean * kind.limit_s if kind.limit_s else mean


class _Near(NamedTuple):
    """What neighbours say: of those that are over the weighted sum, and the weight; of each that runs weight, age and limit."""

    total: float = 0.0
    weight: float = 0.0
    living: tuple[tuple[float, float, float], ...] = ()

    def mean_s(self, prior_s: float) -> float:
        """Of one that runs one learns the more, the longer it has; it is thought to run at least as long as the others did."""
        total, weight = self.total + TRUST * prior_s, self.weight + TRUST
        mean_s = total / weight
        for share, age_s, limit_s in self.living:
            share *= age_s / (age_s + mean_s)
            total += share * min(max(mean_s, LASTING * age_s), limit_s)
            weight += share
        return total / weight


_NOBODY = _Near()


def _near(crowd: _Crowd, seq: int, kind: Kind) -> _Near:
    """What those next to `seq` say."""
    total = weight = 0.0
    living = []
    before, after = _before(crowd, seq), _after(crowd, seq)
    for side in (before, after):
        for share, (life, over) in zip(_FADES, side, strict=False):
            share *= _likeness(kind, life.kind)
            if over:
                total += share * life.ran_s
                weight += share
            else:
                limit_s = life.kind.limit_s
                living.append((share, life.ran_s, FOREVER if limit_s is None else limit_s))
    return _Near(total, weight, tuple(living))


def _before(crowd: _Crowd, seq: int) -> Iterator[tuple[Life, bool]]:
    """Neighbours submitted before it, the next one first, and whether each is over."""
    at, living = bisect_left(crowd.over, seq, key=_seq), bisect_left(crowd.living, seq, key=_seq)
    over = ((crowd.over[i], True) for i in range(at - 1, max(-1, at - NEAR - 1), -1))
    return merge(over, ((crowd.living[i], False) for i in range(living - 1, -1, -1)), key=lambda one: -one[0].seq)


def _after(crowd: _Crowd, seq: int) -> Iterator[tuple[Life, bool]]:
    """Neighbours submitted after it."""
    at, living = bisect_right(crowd.over, seq, key=_seq), bisect_right(crowd.living, seq, key=_seq)
    over = ((crowd.over[i], True) for i in range(at, min(len(crowd.over), at + NEAR)))
    return merge(over, ((crowd.living[i], False) for i in range(living, len(crowd.living))), key=lambda one: one[0].seq)


def _likeness(kind: Kind, other: Kind) -> float:
    share = 1.0
    if kind.ask is not other.ask:
        share *= UNLIKE
    if kind.limit_s != other.limit_s:
        share *= UNLIKE
    if kind.command and kind.command == other.command:
        share *= SAME
    return share


def _parts(kind: Kind) -> tuple[Hashable, Hashable, Hashable]:
    """Of which parts of all jobs one is, from the widest to the narrowest."""
    owner = kind.project, kind.member
    if kind.limit_s:
        return "limited", ("limited", int(2 * log2(kind.limit_s))), ("limited", owner)
    width = round(log2(max(width_of(kind.ask), 1e-3)))
    return "unlimited", ("unlimited", width), (owner, width)


def _round_s(age_s: float) -> float:
    """An age, rounded down: it is news only so often."""
    return _AGE_S * exp2(int(_AGES * log2(max(age_s, _AGE_S) / _AGE_S)) / _AGES)


def _seq(life: Life) -> int:
    return life.seq


class Foresight(NamedTuple):
    """What the predicted order looks at."""

    predictor: Predictor
    now_s: float

    def left_s(self, task: Task) -> float:
        """How long a job will still run once it does."""
        return _still_s(self.predictor.total_s(task), task)

    def held_s(self, task: Task) -> float:
        """How long what one holds should be counted on to be held.

        Of one that runs twice the prediction: a reservation that comes too early keeps others out in vain, again and again.
        Source: doubled estimates, D. Zotkin and P. Keleher, HPDC'99.
        """
        total_s = self.predictor.total_s(task)
        return _still_s(2.0 * total_s if task.running else total_s, task)


def foresee(snapshot: Snapshot, kept: dict[str, Any]) -> Foresight:
    """What is known by now."""
    predictor = kept.get("predictor")
    if predictor is None:
        predictor = kept["predictor"] = Predictor()
    predictor.follow(snapshot)
    return Foresight(predictor, snapshot.now_s)


def predicted(view: Foresight, task: Task) -> Key:
    """Who will be done soonest, but whoever has waited for long compared with that comes before."""
    return (*first(view.now_s, task), aged(view.left_s(task), view.now_s - task.since_s, DAY_S))


def _still_s(total_s: float, task: Task) -> float:
    """What is left of it; doubled as often as it has been passed."""
    total_s = max(total_s, _AGE_S)
    while total_s <= task.attained_s:
        total_s *= 2.0
    limit_s = task.kind.limit_s
    return max(0.0, (total_s if limit_s is None else min(total_s, limit_s)) - task.attained_s)
