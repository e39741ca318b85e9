"""Samples of run times: drawn from ended jobs, those of the same owner and kind first, given the age of the job.

Similar jobs are in four rings: the same member, command, request and limit; the same without the command; the member; all jobs.
A ring weighs more the more jobs it has, and the rest of the weight goes to the next ring. With a time limit, the samples are
fractions of it. Source: the shrinkage is ours; runs of one user resemble each other (Tsafrir, IEEE TPDS 18(6), 2007).
"""

from collections import deque
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from trainmaster.scheduling.model.jobs import Kind, Past

if TYPE_CHECKING:
    from random import Random

_RECENT, _EVERYBODY = 30, 300  # so many last jobs in a ring, and in the widest one
_TRUST = (2.0, 2.0, 4.0)  # a ring with so many jobs gets half of the remaining weight
_UNKNOWN_S = 60.0  # the assumed age of a new job if no job is known
_SHORTEST_S = 1.0
_LONGEST = 0.98  # the part of an infinite tail that is drawn from


class Lifetimes:
    """The run times of ended jobs. It may be thrown away and built again from the `ended` of a snapshot."""

    def __init__(self, ended: Iterable[Past] = ()) -> None:
        self._rings: dict[Hashable, deque[float]] = {}
        self.learned = 0  # jobs
        for past in ended:
            self.learn(past)

    def learn(self, past: Past) -> None:
        """Learn from an ended job."""
        self.learned += 1
        kind = past.kind
        value = past.ran_s / kind.limit_s if kind.limit_s else past.ran_s
        for ring in _rings(kind):
            values = self._rings.get(ring)
            if values is None:
                values = self._rings[ring] = deque(maxlen=_RECENT if ring[1:] else _EVERYBODY)
            values.append(value)

    def draw(self, kind: Kind, age_s: float, rng: "Random", count: int) -> list[float]:
        """`count` samples of the remaining run time in seconds of a job that has run `age_s`."""
        values, weights = self._like(kind, age_s)
        if values:
            unit = kind.limit_s or 1.0
            return [max(value * unit - age_s, _SHORTEST_S) for value in rng.choices(values, weights, k=count)]
        if kind.limit_s:
            return [max(kind.limit_s - age_s, _SHORTEST_S)] * count
        # No job ran as long: it is as likely in the first half of its life as in the second (Gott, Nature 363).
        old_s = age_s if _rings(kind)[-1] in self._rings else max(age_s, _UNKNOWN_S)
        return [max(old_s / (1.0 - _LONGEST * rng.random()) - age_s, _SHORTEST_S) for _ in range(count)]

    def knows(self, kind: Kind) -> str:
        """On what a forecast of such a job rests: `history` of the same owner, a `limit`, or `nothing`."""
        owner = _rings(kind)[2] in self._rings
        return "history" if owner else "limit" if kind.limit_s else "nothing"

    def _like(self, kind: Kind, age_s: float) -> tuple[list[float], list[float]]:
        """Run times (or fractions of the limit) of similar jobs that ran longer than `age_s`, and their weights."""
        floor = age_s / kind.limit_s if kind.limit_s else age_s
        left, values, weights = 1.0, list[float](), list[float]()
        rings = _rings(kind)
        for ring, trust in zip(rings, (*_TRUST, 0.0), strict=True):
            found = self._rings.get(ring)
            if found:
                share = left * len(found) / (len(found) + trust)
                left -= share
                longer = [value for value in found if value > floor]
                values += longer
                weights += [share / len(found)] * len(longer)
        return values, weights


def _rings(kind: Kind) -> tuple[tuple[Hashable, ...], ...]:
    """The rings of a kind, the narrowest first. Fractions of a limit and seconds are kept apart."""
    limited = kind.limit_s is not None and kind.limit_s > 0
    alike = (limited, kind.project, kind.member, kind.ask, kind.limit_s)
    return ((*alike, kind.command), alike, (limited, kind.project, kind.member), (limited,))
