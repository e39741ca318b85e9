"""From which step on work is lost, as one metric counts. Pure.

A program may log one metric by steps, one by samples and one by epochs. A later attempt began at a step of one of these counts.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

_FAR = 2  # times where the attempt began, and where the metric did: no step of the same count comes first there


def of_metric(lost: Sequence[tuple[int, int]], firsts: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """(attempt, step) from which on earlier work is lost, for a metric with these first steps by attempt. Both ascend.

    `lost`: likewise, as the attempts began. A metric that goes on far behind that counts something else: its own first step
    since then is meant.
    """
    if not firsts:
        return tuple(lost)
    attempts = sorted(firsts)
    least = list(accumulate((firsts[one] for one in reversed(attempts)), min))[::-1]  # of each attempt and those after it
    found: list[tuple[int, int]] = []
    for attempt, begin in lost:
        at = bisect_left(attempts, attempt)
        since = least[at] if at < len(least) else begin
        first = since if since > _FAR * max(begin, least[0]) else begin
        while found and found[-1][1] >= first:
            found.pop()
        found.append((attempt, first))
    return tuple(found)
