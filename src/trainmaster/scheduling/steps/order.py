"""The next job to try: the heads of all lines in the policy's order, which a start may change.

Under a policy that shares (`Policy.sharing`), the jobs of an owner are sorted, and owners go by their use. A start can put
other owners first, so a claim is computed again when it is on top. Claims only grow.
"""

from bisect import insort
from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Protocol

from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.state.figures import Floats, waiting
from trainmaster.scheduling.state.order import Key, Sharing, by_keys, waited_long
from trainmaster.scheduling.state.queue import Head, Line, Queue

Hopeful = Callable[[Task, Line], bool]  # whether to try a job at all


class Turns(Protocol):
    """The heads of the lines, one after the other."""

    def next(self, hopeful: Hopeful) -> Head | None:
        """The next head that is worth trying; None: there is none."""

    def behind(self, head: Head) -> None:
        """The job behind it in its line has a turn too."""


def turns(policy: Policy, view: Any, queue: Queue, now_s: float) -> Turns:
    """The turns of all waiting jobs."""
    if policy.sharing is not None:
        return _Shared(policy.sharing, view, queue.heads, now_s)
    return _Ranked([queue.all[at] for at in ranked(policy, view, [line[0][2] for line in queue.all], queue.rows.array)])


def ranked(policy: Policy, view: Any, tasks: Sequence[Task], rows: Floats) -> list[int]:
    """The indices of jobs in their order, where each job is ranked by itself."""
    assert not isinstance(policy.order, Sharing)
    jobs = waiting(tasks, rows)
    found: list[int] = by_keys(policy.order(view, jobs), jobs.seq).tolist()
    return found


class _Ranked:
    """An order that ranks each job by itself."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines, self._at = lines, 0

    def next(self, hopeful: Hopeful) -> Head | None:
        for at in range(self._at, len(self._lines)):
            line = self._lines[at]
            if hopeful(line[0][2], line):
                self._at = at + 1
                return (), line[0][1], line, 0
        return None

    def behind(self, head: Head) -> None:
        """Each line has one job, so no job is behind it."""


class _Owned:
    """The sorted heads of one owner: either those that have waited too long, or the others."""

    __slots__ = ("at", "early", "heads", "owner")

    def __init__(self, early: bool, owner: Hashable, heads: Sequence[Head]) -> None:
        self.early, self.owner, self.heads, self.at = early, owner, list(heads), 0


_Claim = tuple[bool, Key, Key, int, _Owned]  # not early, claim, rank, order of submission, owner


class _Shared:
    """Owner by owner: after each start their claims are compared again."""

    def __init__(self, sharing: Sharing, view: Any, heads: Mapping[Hashable, Sequence[Head]], now_s: float) -> None:
        self._sharing, self._view, self._now_s = sharing, view, now_s
        self._owned: dict[tuple[bool, Hashable], _Owned] = {}
        for owner, some in heads.items():
            early = [head for head in some if waited_long(now_s, head[2][0][2])]
            rest = some if not early else [head for head in some if not waited_long(now_s, head[2][0][2])]
            for is_early, own in ((True, early), (False, rest)):
                if own:
                    self._owned[is_early, owner] = _Owned(is_early, owner, own)
        self._claims = [self._claim(owned) for owned in self._owned.values()]
        heapify(self._claims)
        self._last: _Owned | None = None  # the owner that had the last turn

    def next(self, hopeful: Hopeful) -> Head | None:
        """As in `Turns`."""
        claims = self._claims
        while claims:
            owned = claims[0][-1]
            heads, at = owned.heads, owned.at
            while at < len(heads):
                _, _, line, place = heads[at]
                if hopeful(line[place][2], line):
                    break
                at += 1
            owned.at = at
            if at == len(heads):
                heappop(claims)
                continue
            claim = self._claim(owned) if len(claims) > 1 else claims[0]  # a single owner has no rival
            if claim[:4] == claims[0][:4]:
                owned.at += 1
                self._last = owned
                return heads[at]
            heapreplace(claims, claim)  # another owner is first now, or its claim has changed
        return None

    def behind(self, head: Head) -> None:
        """As in `Turns`."""
        _, _, line, at = head
        if at + 1 == len(line):
            return
        rank, seq, task = line[at + 1]
        group = waited_long(self._now_s, task), self._sharing.owner(task.kind)
        owned = self._owned.get(group)
        if owned is None:
            owned = self._owned[group] = _Owned(*group, ())
        over = owned.at == len(owned.heads) and owned is not self._last
        insort(owned.heads, (rank, seq, line, at + 1), owned.at)
        if over:
            heappush(self._claims, self._claim(owned))

    def _claim(self, owned: _Owned) -> _Claim:
        rank, seq, line, at = owned.heads[owned.at]
        return not owned.early, self._sharing.claim(self._view, line[at][2]), rank, seq, owned
