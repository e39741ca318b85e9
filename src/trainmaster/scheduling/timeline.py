"""When a gang will fit: the ends of those that run, and the reservations of those ahead, walked through in their order."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter, itemgetter
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
    """Nodes, open ones, that are somebody else's until then."""

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
_UNTIL_S, _END_S = attrgetter("until_s"), itemgetter(0)


class Walk:
    """The ends of those that run, one after the other, and what becomes of their nodes: found out once for all who ask.

    `counts`: it is only asked when and on how many nodes, not on which.
    """

    def __init__(self, space: Space, ends: Ends, counts: bool = False) -> None:
        self.space, self.ends, self.counts = space, ends, counts
        self.known: list[list[_Change]] = []  # what `changes` has found out so far
        self._later = Later(space)
        self._over, self._of, self._free = 0, dict[int, int](), dict[int, list[int]]()  # `later` was last asked for so many

    def changes(self, at: int) -> list[_Change]:
        """What becomes of the nodes of the one whose end is at this place."""
        sites, later = self.space.sites, self._later
        while len(self.known) <= at:
            grant, found = self.ends[len(self.known)][2].grant, list[_Change]()
            for index, node in enumerate(grant.nodes):
                if node >= 0 and sites[node].open:
                    before = later.cell(node)
                    later.give(node, grant.part(index))
                    found.append((node, before, later.cell(node), later.gpus(node).copy()))
            self.known.append(found)
        return self.known[at]

    def later(self, count: int) -> Later:
        """The space when the first `count` are over."""
        if count < self._over:
            self._over, self._of, self._free = 0, {}, {}
        for found in self.known[self._over : count]:
            for node, _, after, free in found:
                self._of[node], self._free[node] = after, free
        self._over = count
        return Later(self.space, self._of.copy(), self._free.copy())


class _Count:
    """How much room there is for `ask` as time goes on."""

    def __init__(self, walk: Walk, ask: Ask, booked: Sequence[Booking]) -> None:
        """`booked`: the first to be over first."""
        space = walk.space
        self.walk, self.room, self.ended = walk, Room(space, ask), 0
        self.back: list[int] = []  # nodes that have come back
        self._each, self._first = space.giving(ask.each), space.giving(ask.first)
        self._taken: dict[int, float] = {}  # nodes that are somebody else's, and until when
        for one in booked:
            self._taken.update(dict.fromkeys(one.nodes, one.until_s))
        self._cells = dict(zip(self._taken, map(space.of.__getitem__, self._taken), strict=True))
        if ask.within is None:  # it does not matter then which nodes these are
            for number, nodes in Counter(self._cells.values()).items():
                self._change(NOWHERE, number, -nodes)
        else:
            for node, number in self._cells.items():
                self._change(node, number, -1)

    def fits(self, now_s: float, booked: Sequence[Booking]) -> float | None:
        """When there is enough, and everything that comes back by then is; None: nobody knows.

        One loop without calls where nothing comes of an end: this is where a decision with many reservations spends its time.
        """
        walk, room, taken, cells, each, first = self.walk, self.room, self._taken, self._cells, self._each, self._first
        known, at, at_s = walk.known, 0, FOREVER
        for end_s in chain(map(_END_S, walk.ends), (FOREVER,)):
            while at < len(booked) and booked[at].until_s <= end_s and booked[at].until_s <= at_s:
                self.over(booked[at])
                if at_s == FOREVER and room.enough:
                    at_s = max(booked[at].until_s, now_s)
                at += 1
            if end_s > at_s or end_s == FOREVER:
                break
            place = self.ended
            for node, before, after, _ in known[place] if place < len(known) else walk.changes(place):
                if node in taken:
                    cells[node] = after
                elif (first(after) and not first(before)) or (each(after) and not each(before)):
                    self._change(node, before, -1)
                    self._change(node, after, 1)
                    if at_s == FOREVER and room.enough:
                        at_s = max(end_s, now_s)
            self.ended += 1
        return None if at_s == FOREVER else at_s

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
    space = walk.space
    if walk.counts and not booked and ask.lead is None and ask.within is None and space.even is not None:
        room = Room(space, ask)
        if not room.enough and not space.shared and space.gives(space.even, ask.each):
            return _counted(walk, room, now_s)
    booked = sorted(booked, key=_UNTIL_S)
    count = _Count(walk, ask, booked)
    if count.room.enough:
        return count.found(now_s)
    at_s = count.fits(now_s, booked)
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
    room.settle(later)
    return None if at_s is None else Found(at_s, room.able, room.led, later, [])


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
