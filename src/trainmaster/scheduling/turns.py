"""Whose turn it is where a policy shares: after each start those whose shares it has changed are held against others anew."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from trainmaster.scheduling.carry import Head
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.policy import Sharing
from trainmaster.scheduling.task import Task

_Group = tuple[bool, Hashable]  # whether they have waited for long, whose they are


class Turns:
    """The heads of all queues, one after the other, and those behind each if that is wanted."""

    def __init__(self, sharing: Sharing, view: Any, owned: Mapping[Hashable, Sequence[Head]], early: bool) -> None:
        """`early`: there may be some who have waited for too long."""
        self._sharing, self._view, self._early_s = sharing, view, sharing.early_s(view)
        self._groups: dict[_Group, deque[Head]] = {}  # in their order
        for owner, heads in owned.items():
            if early and any(head[2][0][2].since_s <= self._early_s for head in heads):
                for head in heads:
                    self._groups.setdefault((head[2][0][2].since_s <= self._early_s, owner), deque()).append(head)
            elif heads:
                self._groups[False, owner] = deque(heads)
        self._claims = [self._claim(heads[0], group) for group, heads in self._groups.items()]
        self._group: _Group = (False, None)
        heapify(self._claims)

    def next(self, passes: Callable[[Task], bool]) -> Head | None:
        """The next head of those that are not passed over; None: there is none."""
        claims, mark = self._claims, self._sharing.mark
        while claims:
            _, _, seq, marked, self._group = claims[0]
            heads = self._groups[self._group]
            if not heads:
                heappop(claims)
            elif heads[0][1] != seq or marked != mark(self._view, heads[0][2][heads[0][3]][2].kind):
                heapreplace(claims, self._claim(heads[0], self._group))  # its next one, or its shares have changed
            else:
                head = heads.popleft()
                if not passes(head[2][head[3]][2]):
                    return head
                while heads:
                    _, _, queue, at = heads[0]
                    if not passes(queue[at][2]):
                        break
                    heads.popleft()
        return None

    def behind(self, head: Head) -> bool:
        """Who is behind it in its queue is to have a turn too; whether there is anybody."""
        _, _, queue, at = head
        if at + 1 == len(queue):
            return False
        task = queue[at + 1][2]
        group = (task.since_s <= self._early_s, self._group[1])
        heads = self._groups.setdefault(group, deque())
        insort(heads, (self._sharing.rank(task), task.seq, queue, at + 1))
        if group != self._group:
            heappush(self._claims, self._claim(heads[0], group))
        return True

    def _claim(self, head: Head, group: _Group) -> tuple[Key, Key, int, int, _Group]:
        rank, seq, queue, at = head
        task = queue[at][2]
        return self._sharing.claim(self._view, task), rank, seq, self._sharing.mark(self._view, task.kind), group
