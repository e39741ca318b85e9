"""When a gang will fit: the ends of those that run, and the reservations of those ahead, walked through in their order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmaster.scheduling.ahead import Later
from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.domains import NOWHERE
from trainmaster.scheduling.room import Room
from trainmaster.scheduling.space import Space
from trainmaster.scheduling.task import Run

End = tuple[float, int, Run]  # when, order of submission, who
Ends = Sequence[End]  # sorted


class Booking(NamedTuple):
    """Nodes that are somebody else's until then."""

    until_s: float
    nodes: frozenset[int]


class Found(NamedTuple):
    """When a gang will fit, how many nodes can give a member's part then and how many the first's, and the space then.

    `back` are nodes that can because somebody has gone from them by then. Of a gang that must be in one domain, `domain` is
    the one in which it will fit, and those are its nodes.
    """

    at_s: float
    able: int
    led: int
    then: Later
    back: list[int]
    domain: int = NOWHERE


_Change = tuple[int, int, int, list[int]]  # a node, its cell before and after, what is free of its GPUs then


class Walk:
    """The ends of those that run, one after the other, and what becomes of their nodes: found out once for all who ask.

    `counts`: it is only asked when and on how many nodes, not on which.
    """

    def __init__(self, space: Space, ends: Ends, counts: bool = False) -> None:
        self.space, self.ends, self.counts = space, ends, counts
        self._changes: list[list[_Change]] = []
        self._later = Later(space)

    def changes(self, at: int) -> list[_Change]:
        """What becomes of the nodes of the one whose end is at this place."""
        sites, later = self.space.sites, self._later
        while len(self._changes) <= at:
            grant, found = self.ends[len(self._changes)][2].grant, list[_Change]()
            for index, node in enumerate(grant.nodes):
                if node >= 0 and sites[node].open:
                    before = later.cell(node)
                    later.give(node, grant.part(index))
                    found.append((node, before, later.cell(node), later.gpus(node).copy()))
            self._changes.append(found)
        return self._changes[at]

    def later(self, count: int) -> Later:
        """The space when the first `count` are over."""
        over = [change for found in self._changes[:count] for change in found]
        return Later(self.space, {node: after for node, _, after, _ in over}, {node: free for node, _, _, free in over})


class _Count:
    """How much room there is for `ask` as time goes on."""

    def __init__(self, walk: Walk, ask: Ask, booked: Sequence[Booking]) -> None:
        space = walk.space
        self.walk, self.room, self.ended = walk, Room(space, ask), 0
        self.back: list[int] = []  # nodes that have come back
        self._each, self._first = space.giving(ask.each), space.giving(ask.first)
        self._taken: dict[int, float] = {}  # nodes that are somebody else's, and until when
        for one in booked:
            for node in one.nodes:
                if one.until_s > self._taken.get(node, 0.0) and space.sites[node].open:
                    self._taken[node] = one.until_s
        self._cells = {node: space.of[node] for node in self._taken}
        if ask.within is None:  # it does not matter then which nodes these are
            for number, nodes in Counter(self._cells.values()).items():
                self._change(NOWHERE, number, -nodes)
        else:
            for node, number in self._cells.items():
                self._change(node, number, -1)

    def end(self) -> None:
        """The nodes of the next one come back."""
        for node, before, after, _ in self.walk.changes(self.ended):
            if node in self._taken:
                self._cells[node] = after
            elif (self._first(after) and not self._first(before)) or (self._each(after) and not self._each(before)):
                self._change(node, before, -1)
                self._change(node, after, 1)
        self.ended += 1

    def over(self, booking: Booking) -> None:
        """A reservation's nodes come back."""
        for node in booking.nodes:
            if self._taken.get(node) == booking.until_s:
                del self._taken[node]
                self._change(node, self._cells[node], 1)

    def found(self, at_s: float) -> Found:
        """It fits then."""
        domain, able, led = self.room.best
        return Found(at_s, able, led, self.walk.later(self.ended), self.back, domain)

    def _change(self, node: int, number: int, sign: int) -> None:
        able = bool(self._each(number))
        self.room.change(node, sign * able, sign * bool(self._first(number)))
        if able and sign > 0:
            self.back.append(node)


def earliest(walk: Walk, ask: Ask, now_s: float, booked: Sequence[Booking] = ()) -> Found | None:
    """When `ask` will fit if nothing but ends happens; None: not for as long as those run of whom nobody knows how long.

    `booked` are reservations of those ahead. What is theirs counts as taken from now on, which it is not before they start:
    never too early an answer, sometimes too late a one.
    """
    space, count = walk.space, _Count(walk, ask, booked)
    if count.room.enough:
        return count.found(now_s)
    even = space.even is not None and not space.shared and space.gives(space.even, ask.each)
    if even and walk.counts and ask.lead is None and ask.within is None and not booked:
        return _counted(walk, count.room, now_s)
    at_s = None
    for end_s, one in _in_turn(walk.ends, sorted(booked, key=lambda one: one.until_s)):
        if end_s == FOREVER or (at_s is not None and end_s > at_s):
            break
        if one is None:
            count.end()
        else:
            count.over(one)
        if at_s is None and count.room.enough:
            at_s = max(end_s, now_s)
    return None if at_s is None else count.found(at_s)


def _counted(walk: Walk, room: Room, now_s: float) -> Found | None:
    """The same where nodes are alike and nobody shares one: of whom has used one up it is enough to count the nodes."""
    space, later, at_s = walk.space, Later(walk.space), None
    for end_s, _, run in walk.ends:
        if end_s == FOREVER or (at_s is not None and end_s > at_s):
            break
        if run.grant.ask.lead is None and space.cells.used_up(space.of[run.grant.nodes[0]]):
            room.able += len(run.grant.nodes)  # nothing can come to them meanwhile: they are whole again then
        else:
            room.come_back(later, run.grant)
        room.led = room.able
        if at_s is None and room.enough:
            at_s = max(end_s, now_s)
    return None if at_s is None else Found(at_s, room.able, room.led, later, [])


def _in_turn(ends: Ends, booked: Sequence[Booking]) -> Iterator[tuple[float, Booking | None]]:
    """When something comes back; None: the next of `ends`."""
    at = 0
    for end in ends:
        while at < len(booked) and booked[at].until_s <= end[0]:
            yield booked[at].until_s, booked[at]
            at += 1
        yield end[0], None
    for one in booked[at:]:
        yield one.until_s, one


def named(space: Space, ask: Ask, found: Found, booked: Sequence[Booking]) -> frozenset[int]:
    """Nodes for a reservation: of all that can by then the last ones.

    So they stay the same whoever starts meanwhile without spoiling them, and the first ones, which are given away first, stay
    free to be used.
    """
    taken = frozenset[int]().union(*(one.nodes for one in booked if one.until_s > found.at_s))
    gives, cell = space.giving(ask.each), found.then.cell
    able = {node for node in found.back if gives(cell(node))}
    able.update(*(nodes for _, nodes in space.fitting(ask.each)))
    if ask.within is not None:
        of = space.domains(ask.within)[0]
        able = {node for node in able if of[node] == found.domain}
    each = sorted(able - taken, reverse=True)
    if ask.lead is not None:
        head = next((node for node in each if space.gives(found.then.cell(node), ask.first)), None)
        each = each if head is None else [head, *(node for node in each if node != head)]
    return frozenset(each[: ask.nodes])
