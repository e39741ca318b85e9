"""When a gang will fit: the ends of those that run, and the reservations of those ahead, walked through in their order."""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.domains import NOWHERE
from trainmaster.scheduling.model.jobs import Run
from trainmaster.scheduling.model.request import Ask, Shape
from trainmaster.scheduling.model.space import Space
from trainmaster.scheduling.reservation.backfill import Later
from trainmaster.scheduling.reservation.room import Room

End = tuple[float, int, Run]  # when, order of submission, who
Ends = Sequence[End]  # sorted


class Booking(NamedTuple):
    """Nodes, open ones, that are somebody else's until then."""

    until_s: float
    nodes: frozenset[int]


_NEVER = Booking(FOREVER, frozenset())


class Bookings:
    """Those of reservations, the first to be over first. What is theirs counts as taken from now on."""

    def __init__(self) -> None:
        self.made: list[Booking] = []
        self.until_s: dict[int, float] = {}  # of each of their nodes: until when it is anybody's

    def add(self, booking: Booking) -> None:
        """One more."""
        insort(self.made, booking, key=_UNTIL_S)
        for node in booking.nodes:
            self.until_s[node] = max(self.until_s.get(node, 0.0), booking.until_s)

    def then(self, at_s: float) -> frozenset[int]:
        """Nodes that are still somebody's at that time."""
        return frozenset([node for node, until_s in self.until_s.items() if until_s > at_s])


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


_Step = tuple[float, int, int, int, list[int]]  # when, a node, its cell before and after, what is free of its GPUs then
_UNTIL_S, _END_S = attrgetter("until_s"), itemgetter(0)
_STRIDE = 16  # ends that are looked at in one go


class Walk:
    """The ends of those that run, one after the other, and what becomes of their nodes: found out once for all who ask.

    `counts`: it is only asked when and on how many nodes, not on which.
    """

    def __init__(self, space: Space, ends: Ends, counts: bool = False) -> None:
        self.space, self.ends, self.counts = space, ends, counts
        self.steps: list[_Step] = []  # what has been found out so far
        self._at = 0  # the first end that has not been looked at
        self._cells, self._gpus = dict[int, int](), dict[int, list[int]]()  # of nodes, after those before
        self._turnings: dict[tuple[Shape, Shape, float], Turning] = {}

    def go_on(self, until_s: float) -> bool:
        """Look at some more ends; whether there are any that come before `until_s`, or just then."""
        space, cells, gpus, first = self.space, self._cells, self._gpus, self._at
        if first == len(self.ends) or self.ends[first][0] > until_s:
            return False
        for end_s, _, run in self.ends[first : first + _STRIDE]:
            if end_s == FOREVER:
                break
            for index, node in enumerate(run.grant.nodes):
                if node >= 0 and space.sites[node].open:
                    before, free = cells.get(node, space.of[node]), [*gpus.get(node, space.free[node])]
                    cells[node] = after = space.after(node, run.grant.part(index), before, free)
                    gpus[node] = free
                    self.steps.append((end_s, node, before, after, free))
            self._at += 1
        return self._at > first

    def turning(self, ask: Ask) -> "Turning":
        """When nodes can give a part of it that they cannot give now."""
        key = ask.each, ask.first, self.space.until_s  # (0 where no node closes)
        found = self._turnings.get(key)
        if found is None:
            found = self._turnings[key] = Turning(self, ask)
        return found

    def later(self, at_s: float) -> Later:
        """The space then."""
        while self.go_on(at_s):
            pass
        steps = self.steps[: bisect_right(self.steps, at_s, key=_END_S)]
        of, free = {step[1]: step[3] for step in steps}, {step[1]: step[4] for step in steps}
        return Later(self.space, of, free)


class Turning:
    """Of a gang with certain parts: the steps after which a node can give one that could not before. It can from then on."""

    def __init__(self, walk: Walk, ask: Ask) -> None:
        self._walk, self._at = walk, 0
        self._each = walk.space.giving(ask.each)
        self._lead = None if ask.lead is None else walk.space.giving(ask.lead)
        self.found: list[_Step] = []  # so far

    def more(self, until_s: float) -> bool:
        """Find some more; whether there may be one that comes before `until_s`, or just then."""
        walk, each, lead, count = self._walk, self._each, self._lead, len(self.found)
        while self._at < len(walk.steps) or walk.go_on(until_s):
            new = walk.steps[self._at :]
            self._at += len(new)
            if lead is None:
                self.found += [one for one in new if each(one[3]) and not each(one[2])]
            else:
                self.found += [one for one in new if (each(one[3]) and not each(one[2])) or (lead(one[3]) and not lead(one[2]))]
            if len(self.found) > count:
                return True
        return False


class _Count:
    """How much room there is for `ask` as time goes on."""

    def __init__(self, walk: Walk, ask: Ask, booked: Bookings) -> None:
        space = walk.space
        self.walk, self.room, self.ask = walk, Room(space, ask), ask
        self.back: list[int] = []  # nodes that have come back
        self._each, self._first = space.giving(ask.each), space.giving(ask.first)
        self._booked, self._taken = booked.made, booked.until_s.copy()  # nodes that are somebody else's, and until when
        self._cells: dict[int, int] = {}  # theirs, where they have changed
        if ask.within is None:  # it does not matter then which nodes these are
            for number, nodes in Counter(map(space.of.__getitem__, self._taken)).items():
                self._change(NOWHERE, number, -nodes)
        else:
            for node in self._taken:
                self._change(node, space.of[node], -1)

    def fits(self, now_s: float) -> float | None:
        """When there is enough, and everything that comes back by then is; None: nobody knows.

        This is where a decision with many reservations spends its time: what comes to nodes that are taken costs no call.
        """
        turning, room, taken, cells = self.walk.turning(self.ask), self.room, self._taken, self._cells
        turns, booked, place, at, at_s = turning.found, [*self._booked, _NEVER], 0, 0, FOREVER
        until_s = booked[at].until_s
        while True:
            if place < len(turns) or turning.more(min(at_s, until_s)):
                end_s, node, before, after, _ = turns[place]
            else:
                end_s = FOREVER
            if end_s < until_s and end_s <= at_s:
                place += 1
                if node in taken:
                    cells[node] = after
                    continue
                self._change(node, before, -1)
                self._change(node, after, 1)
            elif until_s < FOREVER and until_s <= at_s:
                self._over(booked[at])
                at, end_s, until_s = at + 1, until_s, booked[at + 1].until_s
            else:
                return None if at_s == FOREVER else at_s
            if at_s == FOREVER and room.enough:
                at_s = max(end_s, now_s)

    def _over(self, booking: Booking) -> None:
        """A reservation's nodes come back."""
        for node in booking.nodes:
            if self._taken.get(node) == booking.until_s:
                del self._taken[node]
                self._change(node, self._cells.get(node, self.walk.space.of[node]), 1)

    def found(self, at_s: float, then: Later) -> Found:
        """It fits then."""
        domain, able, led = self.room.best
        return Found(at_s, able, led, then, self.back, domain)

    def _change(self, node: int, number: int, sign: int) -> None:
        able = bool(self._each(number))
        self.room.change(node, sign * able, sign * bool(self._first(number)))
        if able and sign > 0:
            self.back.append(node)


def earliest(walk: Walk, ask: Ask, now_s: float, booked: Bookings | None = None) -> Found | None:
    """When `ask` will fit if nothing but ends happens; None: not for as long as those run of whom nobody knows how long.

    `booked` are reservations of those ahead. What is theirs counts as taken from now on, which it is not before they start:
    never too early an answer, sometimes too late a one.
    """
    space = walk.space
    if walk.counts and (booked is None or not booked.made) and ask.within is None:
        return _counted(walk, Room(space, ask), now_s)
    count = _Count(walk, ask, booked or Bookings())
    if count.room.enough:
        return count.found(now_s, Later(space))
    at_s = count.fits(now_s)
    return None if at_s is None else count.found(at_s, walk.later(at_s))


def _counted(walk: Walk, room: Room, now_s: float) -> Found | None:
    """The same where it is only asked on how many nodes."""
    later, at_s = Later(walk.space), None
    if room.enough:
        return Found(now_s, room.able, room.led, later, [])
    for end_s, _, run in walk.ends:
        if end_s == FOREVER or (at_s is not None and end_s > at_s):
            break
        room.come_back(later, run.grant)
        if at_s is None and room.enough:
            at_s = max(end_s, now_s)
    room.settle(later)
    return None if at_s is None else Found(at_s, room.able, room.led, later, [])


def named(space: Space, ask: Ask, found: Found, booked: Bookings) -> frozenset[int]:
    """Nodes for a reservation: of all that can by then the last ones.

    So they stay the same whoever starts meanwhile without spoiling them, and the first ones, which are given away first, stay
    free to be used.
    """
    taken = booked.then(found.at_s)
    gives, cell = space.giving(ask.each), found.then.cell
    of = None if ask.within is None else space.domains(ask.within)[0]
    most = ask.nodes if ask.lead is None else len(space.sites)  # of each cell the last ones are enough
    able = set[int]()
    for nodes in (sorted({node for node in found.back if gives(cell(node))}), *(nodes for _, nodes in space.fitting(ask.each))):
        last = (node for node in reversed(nodes) if node not in taken and (of is None or of[node] == found.domain))
        able.update(islice(last, most))
    each = sorted(able, reverse=True)
    if ask.lead is not None:
        head = next((node for node in each if space.gives(found.then.cell(node), ask.first)), None)
        each = each if head is None else [head, *(node for node in each if node != head)]
    return frozenset(each[: ask.nodes])
