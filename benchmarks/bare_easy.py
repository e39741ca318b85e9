"""EASY backfill as bare as Python can have it: numbers of nodes, one queue, one reservation. What ours is held against.

No node is named, nobody is told why he waits, there are no owners, quotas, life cycles or records. Its waits are the same as
those of the production cycle, which shows that both play the same game.
"""

from bisect import insort
from collections.abc import Sequence
from heapq import heappop, heappush

Job = tuple[float, float, int, float]  # submitted, runs for, nodes, says that it runs for


def waits(jobs: Sequence[Job], nodes: int) -> list[float]:
    """How long each of `jobs`, in the order of their submission, waits on so many nodes, in seconds."""
    found, queue = [0.0] * len(jobs), list[int]()
    ends, thought = list[tuple[float, int]](), list[tuple[float, int]]()  # who runs: truly, and as it says
    free, at, now_s = nodes, 0, 0.0
    while at < len(jobs) or ends:
        now_s = min(jobs[at][0] if at < len(jobs) else float("inf"), ends[0][0] if ends else float("inf"))
        while ends and ends[0][0] <= now_s:
            free += jobs[heappop(ends)[1]][2]
        gone = len(thought) != len(ends)
        if gone:
            live = {job for _, job in ends}
            thought = [one for one in thought if one[1] in live]
        while at < len(jobs) and jobs[at][0] <= now_s:
            queue.append(at)
            at += 1
        if not queue:
            continue
        rest, kept_s, spare = list[int](), None, 0
        for place, job in enumerate(queue):
            _, run_s, wants, says_s = jobs[job]
            late = kept_s is not None and now_s + says_s > kept_s
            if wants <= free and (not late or wants <= spare):
                found[job], free = now_s - jobs[job][0], free - wants
                spare -= wants if late else 0
                heappush(ends, (now_s + run_s, job))
                insort(thought, (now_s + says_s, job))
                continue
            rest.append(job)
            if kept_s is None:
                kept_s, spare = _room(free, wants, thought, jobs)
            if not free:
                rest += queue[place + 1 :]
                break
        queue = rest
    return found


def _room(free: int, wants: int, thought: Sequence[tuple[float, int]], jobs: Sequence[Job]) -> tuple[float, int]:
    """When so many are free, and how many more are then."""
    at_s: float | None = None
    for end_s, job in thought:
        if at_s is not None and end_s > at_s:
            break
        free += jobs[job][2]
        if at_s is None and free >= wants:
            at_s = end_s
    assert at_s is not None, "it asks for more than there is"
    return at_s, free - wants
