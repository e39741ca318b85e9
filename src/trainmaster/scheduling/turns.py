"""Whose turn it is where a policy shares: after each start those whose shares it has changed are held against others anew."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple

from trainmaster.scheduling.carry import Head
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.policy import Clock, Sharing
from trainmaster.scheduling.task import Task

_Group = tuple[bool, Hashable]  # whether they have waited for long, whose they are


class _Line(NamedTuple):
    """Heads of one owner's queues, in their order. As long as `clock[0]` is the same, so is their claim."""

    heads: deque[Head]
    clock: Clock
    group: _Group


class Turns:
    """The heads of all queues, one after the other, and those behind each if that is wanted."""

    def __init__(self, sharing: Sharing, view: Any, owned: Mapping[Hashable, Sequence[Head]], early: bool) -> None:
        """`early`: there may be some who have waited for too long."""
        self._sharing, self._view, self._early_s = sharing, view, sharing.early_s(view)
        self._lines: dict[_Group, _Line] = {}
        for owner, heads in owned.items():
            if early and any(head[2][0][2].since_s <= self._early_s for head in heads):
                for head in heads:
                    self._line((head[2][0][2].since_s <= self._early_s, owner), head).heads.append(head)
            elif heads:
                self._line((False, owner), heads[0]).heads.extend(heads)
        self._claims = [self._claim(line) for line in self._lines.values()]
        self._group: _Group = (False, None)
        heapify(self._claims)

    def next(self, passes: Callable[[Task], bool]) -> Head | None:
        """The next head of those that are not passed over; None: there is none."""
        claims = self._claims
        while claims:
            _, _, seq, marked, line = claims[0]
            heads, clock, self._group = line
            if not heads:
                heappop(claims)
            elif heads[0][1] != seq or marked != clock[0]:
                heapreplace(claims, self._claim(line))  # its next one, or its shares have changed
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
        behind = self._sharing.rank(task), task.seq, queue, at + 1
        line = self._line((task.since_s <= self._early_s, self._group[1]), behind)
        insort(line.heads, behind)
        if line.group != self._group:
            heappush(self._claims, self._claim(line))
        return True

    def _line(self, group: _Group, head: Head) -> _Line:
        found = self._lines.get(group)
        if found is None:
            clock = self._sharing.clock(self._view, head[2][head[3]][2].kind)
            found = self._lines[group] = _Line(deque(), clock, group)
        return found

    def _claim(self, line: _Line) -> tuple[Key, Key, int, int, _Line]:
        rank, seq, queue, at = line.heads[0]
        return self._sharing.claim(self._view, queue[at][2]), rank, seq, line.clock[0], line
