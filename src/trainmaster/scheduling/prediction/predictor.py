"""Predictions of the total run time of jobs, from ended and running jobs. A time limit is only an upper bound.

Jobs that one owner submits one after the other are similar. So the predicted run time of a job is the mean of its owner's jobs
just before and after it, nearer ones with more weight, and more for the same request, limit and command. If these are few, it
is the mean of all jobs, narrowed down step by step. Jobs without a member belong to several people; those submitted together
count as of one. A running job says that it takes longer than it has run.

The mean is arithmetic, since long runs hold nodes as long as they take (medians were worse). Without a limit, one long run
would outweigh all other neighbors. So there the neighbors give the mean of their square roots, and all jobs together give the
ratio of the mean to the square of that. Sources: D. Tsafrir, Y. Etsion and D. Feitelson, IEEE TPDS 18(6), 2007, for the owner's
last jobs; the weights, and the way from roots to the mean, are ours.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from math import exp2, log2, sqrt
from typing import Any, NamedTuple

from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Kind, Past, Task
from trainmaster.scheduling.model.request import width_of
from trainmaster.scheduling.model.snapshot import Snapshot

Owner = tuple[str, str]  # project, member
NEAR = 24  # neighbors on each side
FADE = 0.85  # how fast their weight falls from one to the next
UNLIKE = 0.15  # weight of a neighbor with another request; likewise with another limit
SAME = 5.0  # weight of a neighbor with the same command, if it is known
TRUST = 0.5  # weight of the mean of all jobs; a neighbor has 1
APART = 8.0  # without a member: half the weight at this distance in submissions
LASTING = 2.0  # a running job is expected to run at least so many times its age
_FADES = tuple(FADE**distance for distance in range(NEAR))
_FORGET_ALL, _FORGET = 0.998, 0.95  # decay of older jobs with each newer one: of all jobs, of a part of them
_FIRST_SHARE, _FIRST_S = 0.3, 3600.0  # before any job has ended: fraction of the limit; without a limit
_ROOM, _LOG_MAX = 1000, 10_000  # cached results of jobs that are gone; length of a log of changes
_AGE_S = 240.0  # ages count from here on, at each doubling; a younger job says nothing
_LEAST_S = 60.0  # no prediction is shorter
_BATCH, _BATCH_MAX = 64, 64  # of so many ended jobs, the last one counts as running; at most so many


class Life(NamedTuple):
    """How long one job ran, or has run so far."""

    seq: int
    ran_s: float
    kind: Kind


class _Crowd:
    """The jobs of one owner."""

    def __init__(self) -> None:
        self.over: list[Life] = []  # by submission
        self.living: list[Life] = []  # by submission
        self.changes: list[int] = []  # jobs whose life has changed, in order
        self.gaps: dict[Hashable, _Near] = {}  # equal jobs between the same two neighbors share a result

    def learn(self, life: Life) -> None:
        """A job has ended."""
        insort(self.over, life, key=_seq)
        self.changes.append(life.seq)

    def see(self, living: list[Life]) -> None:
        """Update the running jobs."""
        if living != self.living:
            self.changes += {life.seq for life in set(living) ^ set(self.living)}
            self.living = living

    def near(self, seq: int, kind: Kind) -> "_Near":
        """The neighbors of a job."""
        if not kind.member:
            return _Near(self, seq, kind)
        at, beside = bisect_left(self.over, seq, key=_seq), bisect_left(self.living, seq, key=_seq)
        itself = beside < len(self.living) and self.living[beside].seq == seq
        before = self.over[at - 1].seq if at else -1, self.living[beside - 1].seq if beside else -1
        gap = (before, seq if itself else -1, kind.ask, kind.limit_s, kind.command)
        found = self.gaps.get(gap)
        if found is None or found.touched(self):
            found = self.gaps[gap] = _Near(self, seq, kind)
        return found


class Predictor:
    """What is known. It follows the `ended` of snapshots, and may be thrown away and built again."""

    def __init__(self) -> None:
        self.seen = 0  # how many of `ended`
        self._crowds: dict[Owner, _Crowd] = {}
        self._running: set[Owner] = set()
        self._sums: dict[Hashable, tuple[float, float, float]] = {}  # run times; bent; weights
        self._near: dict[int, _Near] = {}  # by order of submission
        self._known: dict[int, tuple[int, int, float]] = {}  # ended jobs, changes, result

    def follow(self, snapshot: Snapshot) -> None:
        """Learn from the jobs that have ended since, and from the ages of the running jobs."""
        ended, now_s = snapshot.ended, snapshot.now_s
        known = len(ended) - len(ended) % min(_BATCH_MAX, max(1, len(ended) // _BATCH))
        for past in ended[self.seen : known]:
            self._learn(past)
        self.seen = known
        running: dict[Owner, list[Life]] = {}
        for past in ended[known:]:
            if past.ran_s >= _AGE_S:
                kind = past.kind
                running.setdefault((kind.project, kind.member), []).append(Life(past.seq, _round_s(past.ran_s), kind))
        for run in snapshot.running.values():
            age_s = run.task.attained_s + now_s - run.placed_s
            if age_s >= _AGE_S:
                kind = run.task.kind
                running.setdefault((kind.project, kind.member), []).append(Life(run.task.seq, _round_s(age_s), kind))
        for owner in running.keys() | self._running:
            self._crowds.setdefault(owner, _Crowd()).see(sorted(running.get(owner, ()), key=_seq))
        self._running = set(running)
        gone = len(self._known) > _ROOM + 4 * (len(snapshot.waiting) + len(snapshot.running))
        if gone or any(len(self._crowds[owner].changes) > _LOG_MAX for owner in self._running):
            self._known, self._near = {}, {}  # most of them are of jobs that are gone
            for crowd in self._crowds.values():
                crowd.changes.clear()
                crowd.gaps.clear()

    def total_s(self, task: Task) -> float:
        """The predicted total run time of a job in all its attempts, whatever it has run so far."""
        kind = task.kind
        crowd = self._crowds.get((kind.project, kind.member), _ALONE)
        changes = len(crowd.changes)
        known = self._known.get(task.seq)
        if known is not None and known[0] == self.seen and known[1] == changes:
            return known[2]
        near = self._near.get(task.seq)
        if near is None or near.touched(crowd):
            near = self._near[task.seq] = crowd.near(task.seq, kind)
        prior_s, heavy = self._prior_s(kind)
        total_s = near.mean_s(prior_s) * heavy
        if kind.limit_s is not None:
            total_s = min(total_s, kind.limit_s)
        self._known[task.seq] = (self.seen, changes, total_s)
        return total_s

    def _learn(self, past: Past) -> None:
        kind = past.kind
        self._crowds.setdefault((kind.project, kind.member), _Crowd()).learn(Life(past.seq, past.ran_s, kind))
        self._near.pop(past.seq, None)
        self._known.pop(past.seq, None)
        value = past.ran_s / kind.limit_s if kind.limit_s else past.ran_s
        for key, forget in zip(_parts(kind), (_FORGET_ALL, _FORGET, _FORGET), strict=True):
            total, bent, weight = self._sums.get(key, _NOTHING)
            self._sums[key] = (total * forget + value, bent * forget + _bent(value, kind), weight * forget + 1.0)

    def _prior_s(self, kind: Kind) -> tuple[float, float]:
        """The prediction without neighbors: from all jobs to similar ones, each step with the weight of one job.

        That is a mean of bent times. The second value is the ratio of the mean of all jobs to it.
        """
        mean, heavy = _FIRST_SHARE if kind.limit_s else _FIRST_S, 0.0
        middle = _bent(mean, kind)
        for key in _parts(kind):
            total, bent, weight = self._sums.get(key, _NOTHING)
            middle = (bent + middle) / (weight + 1.0)
            heavy = heavy or (total + mean) / (weight + 1.0) / _straight(middle, kind)
        return _straight(middle, kind) * (kind.limit_s or 1.0), heavy


class _Near:
    """The neighbors of a job: the weighted sum (bent) and weight of ended ones; weight, age and limit of running ones."""

    def __init__(self, crowd: _Crowd, seq: int, kind: Kind) -> None:
        self.kind = kind
        self.bent = self.weight = 0.0
        self.living: list[tuple[float, float, float]] = []
        self.looked = len(crowd.changes)  # so many changes were processed
        self.stale = False
        self.told: tuple[float, float] | None = None  # the prior, and the mean with it
        over, living = crowd.over, crowd.living
        at, beside = bisect_left(over, seq, key=_seq), bisect_left(living, seq, key=_seq)
        found = self._walk(seq, kind, _backwards(over, living, at - 1, beside - 1))
        self.first = -1 if found == FOREVER else found
        at, beside = bisect_right(over, seq, at, key=_seq), bisect_right(living, seq, beside, key=_seq)
        self.last = self._walk(seq, kind, _forwards(over, living, at, beside))

    def _walk(self, seq: int, kind: Kind, lives: Iterator[tuple[Life, bool]]) -> float:
        """Add the neighbors of one side, the nearest first. Returns the last one; infinite: there were no more."""
        ask, limit_s, command, life = kind.ask, kind.limit_s, kind.command, None
        for share in _FADES:
            life, over = next(lives, _NOBODY)
            if life is None:
                return FOREVER
            other = life.kind
            if other.ask is not ask:
                share *= UNLIKE
            if other.limit_s != limit_s:
                share *= UNLIKE
            if command and other.command == command:
                share *= SAME
            if not kind.member:
                share *= APART / (APART + abs(life.seq - seq))
            if over:
                self.bent += share * (life.ran_s if kind.limit_s else sqrt(life.ran_s))
                self.weight += share
            else:
                self.living.append((share, life.ran_s, FOREVER if other.limit_s is None else other.limit_s))
        return FOREVER if life is None else life.seq

    def touched(self, crowd: _Crowd) -> bool:
        """Whether any of the neighbors has changed."""
        first, last, changes = self.first, self.last, crowd.changes
        if not self.stale and self.looked < len(changes):
            self.stale = any(first <= seq <= last for seq in changes[self.looked :])
            self.looked = len(changes)
        return self.stale

    def mean_s(self, prior_s: float) -> float:
        """The mean of the neighbors. A running one counts more the older it is, and runs at least as long as the others."""
        if self.told is not None and self.told[0] == prior_s:
            return self.told[1]
        kind = self.kind
        bent, weight = self.bent + TRUST * _bent(prior_s, kind), self.weight + TRUST
        mean_s = _straight(bent / weight, kind)
        for share, age_s, limit_s in self.living:
            share *= age_s / (age_s + mean_s)
            bent += share * _bent(min(max(mean_s, LASTING * age_s), limit_s), kind)
            weight += share
        self.told = prior_s, _straight(bent / weight, kind)
        return self.told[1]


_NOTHING = (0.0, 0.0, 0.0)
_NOBODY: tuple[Life | None, bool] = (None, False)
_ALONE = _Crowd()


def _backwards(over: list[Life], living: list[Life], at: int, beside: int) -> Iterator[tuple[Life, bool]]:
    """The jobs before these indices, the latest submission first; and whether each has ended."""
    while at >= 0 or beside >= 0:
        if beside < 0 or (at >= 0 and over[at].seq > living[beside].seq):
            yield over[at], True
            at -= 1
        else:
            yield living[beside], False
            beside -= 1


def _forwards(over: list[Life], living: list[Life], at: int, beside: int) -> Iterator[tuple[Life, bool]]:
    """The jobs from these indices on, the earliest submission first; and whether each has ended."""
    while at < len(over) or beside < len(living):
        if beside == len(living) or (at < len(over) and over[at].seq < living[beside].seq):
            yield over[at], True
            at += 1
        else:
            yield living[beside], False
            beside += 1


def _parts(kind: Kind) -> tuple[Hashable, Hashable, Hashable]:
    """The parts of all jobs that a kind belongs to, from the widest to the narrowest."""
    owner = kind.project, kind.member
    if kind.limit_s:
        return "limited", ("limited", int(2 * log2(kind.limit_s))), ("limited", owner)
    width = round(log2(max(width_of(kind.ask), 1e-3)))
    return "unlimited", ("unlimited", width), (owner, width)


def _bent(value: float, kind: Kind) -> float:
    """The value that is averaged: the square root without a limit, so that a long run does not outweigh all others."""
    return value if kind.limit_s else sqrt(value)


def _straight(mean: float, kind: Kind) -> float:
    """The inverse of `_bent`."""
    return mean if kind.limit_s else mean * mean


def _round_s(age_s: float) -> float:
    """An age, rounded down to a doubling, so that it rarely changes."""
    return _AGE_S * exp2(int(log2(age_s / _AGE_S)))


def _seq(life: Life) -> int:
    return life.seq


class Foresight:
    """Predictions for one snapshot. The predictor learns from the snapshot at the first question."""

    def __init__(self, predictor: Predictor, snapshot: Snapshot) -> None:
        self.now_s = snapshot.now_s
        self._predictor, self._snapshot, self._asked = predictor, snapshot, False

    def left_s(self, task: Task) -> float:
        """The predicted remaining run time of a job."""
        return _still_s(self._total_s(task), task)

    def held_s(self, task: Task) -> float:
        """How long a job is assumed to hold its nodes, for reservations.

        Twice the prediction, since a reservation that comes too early keeps other jobs out in vain, again and again. It is the
        same for a job that starts as for one that runs: else each backfilled job would delay the reservation. (`left_s`
        backfills more and gains more, until a job has waited very long: `steps.reserve`.) Source: doubled estimates, D. Zotkin
        and P. Keleher, HPDC'99.
        """
        return _still_s(2.0 * self._total_s(task), task)

    def _total_s(self, task: Task) -> float:
        if not self._asked:
            self._predictor.follow(self._snapshot)
            self._asked = True
        return self._predictor.total_s(task)


def foresee(snapshot: Snapshot, kept: dict[str, Any]) -> Foresight:
    """The predictions for a snapshot. `kept` holds the predictor."""
    predictor = kept.get("predictor")
    if predictor is None:
        predictor = kept["predictor"] = Predictor()
    return Foresight(predictor, snapshot)


def _still_s(total_s: float, task: Task) -> float:
    """The remaining time. A total that the job has passed is doubled until it is longer."""
    total_s = max(total_s, _LEAST_S)
    while total_s <= task.attained_s:
        total_s *= 2.0
    limit_s = task.kind.limit_s
    return max(0.0, (total_s if limit_s is None else min(total_s, limit_s)) - task.attained_s)
