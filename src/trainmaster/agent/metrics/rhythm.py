"""Learns the usual time between the steps of a program, and the longest pause that the program made itself. Pure."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

KNOWN = 10  # gaps before the usual time is known
SHORTEST_S = 60.0  # a shorter pause is never unusual
USUAL_TIMES, LONGEST_TIMES = 10.0, 2.0  # a pause may be so many times the usual gap, and the longest one
REMEMBERED = 1024  # gaps; after that, old ones count half
_FINEST_S = 0.001
_BUCKETS = 64  # two per doubling, up to 49 days


class Rhythm:
    """The gaps between checks that found new steps. Constant memory, and constant time per check.

    Several steps may come in one gap: `usual_s` is the time of one step, `limit_s` is based on gaps.

    Laws: the median gap is exact to a factor of √2 while at most `REMEMBERED` gaps were seen. `limit_s` is at least
    `SHORTEST_S`, and `LONGEST_TIMES` the longest gap ever seen: a pause that the program made once is not unusual again.
    """

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self._gaps_s = [0.0] * _BUCKETS  # their sums
        self._steps_s = [0.0] * _BUCKETS  # sums of each gap divided by the steps that ended it
        self._total = 0  # of `_counts`
        self._longest_s = 0.0
        self.last_s: Optional[float] = None  # when the last step was seen

    def stepped(self, now_s: float, steps: int = 1) -> None:
        """Record that `steps` new steps were found at `now_s`, on a monotonic clock."""
        if self.last_s is not None:
            gap_s = max(0.0, now_s - self.last_s)
            at = _bucket(gap_s)
            self._counts[at] += 1
            self._gaps_s[at] += gap_s
            self._steps_s[at] += gap_s / max(1, steps)
            self._total += 1
            self._longest_s = max(self._longest_s, gap_s)
            if self._total > REMEMBERED:
                self._halve()
        self.last_s = now_s

    @property
    def usual_s(self) -> Optional[float]:
        """The usual time of one step in seconds; None while too few gaps were seen."""
        at = self._median()
        return None if at is None else self._steps_s[at] / self._counts[at]

    @property
    def limit_s(self) -> Optional[float]:
        """The length in seconds beyond which a pause is unusual; None while too few gaps were seen."""
        at = self._median()
        if at is None:
            return None
        return max(SHORTEST_S, USUAL_TIMES * self._gaps_s[at] / self._counts[at], LONGEST_TIMES * self._longest_s)

    def _median(self) -> Optional[int]:
        """The bucket with the median gap."""
        if self._total < KNOWN:
            return None
        seen = 0
        for at, count in enumerate(self._counts):
            seen += count
            if 2 * seen >= self._total:
                return at
        return None

    def _halve(self) -> None:
        """Give old gaps less weight, because the usual time may change. The longest gap stays: an evaluation may be rare."""
        for at, count in enumerate(self._counts):
            if count:
                self._counts[at] = count // 2
                self._gaps_s[at] *= self._counts[at] / count
                self._steps_s[at] *= self._counts[at] / count
        self._total = sum(self._counts)


def _bucket(gap_s: float) -> int:
    if gap_s <= _FINEST_S:
        return 0
    return min(_BUCKETS - 1, int(2 * math.log2(gap_s / _FINEST_S)))
