"""When a gang will fit: a walk through the ends of running jobs and of reservations, in their order."""

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

End = tuple[float, int, Run]  # when, order of submission, job
Ends = Sequence[End]  # sorted


class Booking(NamedTuple):
    """Open nodes that a reservation holds until `until_s`."""

    until_s: float
    nodes: frozenset[int]


_NEVER = Booking(FOREVER, frozenset())


class Bookings:
    """The bookings of all reservations, the first to end first. Their nodes count as taken from now on."""

    def __init__(self) -> None:
        self.made: list[Booking] = []
        self.until_s: dict[int, float] = {}  # of each booked node: until when

    def add(self, booking: Booking) -> None:
        """Add a booking."""
        insort(self.made, booking, key=_UNTIL_S)
        for node in booking.nodes:
            self.until_s[node] = max(self.until_s.get(node, 0.0), booking.until_s)

    def then(self, at_s: float) -> frozenset[int]:
        """The nodes that are still booked at that time."""
        return frozenset([node for node, until_s in self.until_s.items() if until_s > at_s])


class Found(NamedTuple):
    """When a gang will fit, how many nodes can hold a member then, how many the first member, and the space then.

    `back` are the nodes that can because a job has ended on them by then. For a gang that must be in one domain, `domain` is
    the one in which it will fit, and the counts are of its nodes.
    """

    at_s: float
    able: int
    led: int
    then: Later
    back: list[int]
    domain: int = NOWHERE


_Step = tuple[float, int, int, int, list[int]]  # when, node, its cell before and after, its free GPUs then
_UNTIL_S, _END_S = attrgetter("until_s"), itemgetter(0)
_STRIDE = 16  # ends that are processed at a time


class Walk:
    """The ends of running jobs, one after the other, and the changes of their nodes: computed once for all questions.

    `counts`: the questions are only when and on how many nodes, not on which.
    """

    def __init__(self, space: Space, ends: Ends, counts: bool = False) -> None:
        self.space, self.ends, self.counts = space, ends, counts
        self.steps: list[_Step] = []  # so far
        self._at = 0  # the first end that has not been processed
        self._cells, self._gpus = dict[int, int](), dict[int, list[int]]()  # of nodes, after the ends so far
        self._turnings: dict[tuple[Shape, Shape, float], Turning] = {}

    def go_on(self, until_s: float) -> bool:
        """Process some more ends; whether there were any at or before `until_s`."""
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
        """When nodes can hold a member of the request that they cannot hold now."""
        key = ask.each, ask.first, self.space.until_s  # (0 where no node closes)
        found = self._turnings.get(key)
        if found is None:
            found = self._turnings[key] = Turning(self, ask)
        return found

    def later(self, at_s: float) -> Later:
        """The space at that time."""
        while self.go_on(at_s):
            pass
        steps = self.steps[: bisect_right(self.steps, at_s, key=_END_S)]
        of, free = {step[1]: step[3] for step in steps}, {step[1]: step[4] for step in steps}
        return Later(self.space, of, free)


class Turning:
    """For the parts of a gang: the steps after which a node can give one that it could not give before."""

    def __init__(self, walk: Walk, ask: Ask) -> None:
        self._walk, self._at = walk, 0
        self._each = walk.space.giving(ask.each)
        self._lead = None if ask.lead is None else walk.space.giving(ask.lead)
        self.found: list[_Step] = []  # so far

    def more(self, until_s: float) -> bool:
        """Find more of these steps; whether there may be one at or before `until_s`."""
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
    """How many nodes can hold `ask` as time goes on."""

    def __init__(self, walk: Walk, ask: Ask, booked: Bookings) -> None:
        space = walk.space
        self.walk, self.room, self.ask = walk, Room(space, ask), ask
        self.back: list[int] = []  # nodes that have been freed
        self._each, self._first = space.giving(ask.each), space.giving(ask.first)
        self._booked, self._taken = booked.made, booked.until_s.copy()  # booked nodes, and until when
        self._cells: dict[int, int] = {}  # of booked nodes that have changed
        if ask.within is None:  # then it does not matter which nodes
            for number, nodes in Counter(map(space.of.__getitem__, self._taken)).items():
                self._change(NOWHERE, number, -nodes)
        else:
            for node in self._taken:
                self._change(node, space.of[node], -1)

    def fits(self, now_s: float) -> float | None:
        """When the gang fits, after all ends at that time; None: unknown.

        A decision with many reservations spends its time here, so a change of a booked node costs no call.
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
        """A booking ends."""
        for node in booking.nodes:
            if self._taken.get(node) == booking.until_s:
                del self._taken[node]
                self._change(node, self._cells.get(node, self.walk.space.of[node]), 1)

    def found(self, at_s: float, then: Later) -> Found:
        """The result: it fits at `at_s`."""
        domain, able, led = self.room.best
        return Found(at_s, able, led, then, self.back, domain)

    def _change(self, node: int, number: int, sign: int) -> None:
        able = bool(self._each(number))
        self.room.change(node, sign * able, sign * bool(self._first(number)))
        if able and sign > 0:
            self.back.append(node)


def earliest(walk: Walk, ask: Ask, now_s: float, booked: Bookings | None = None) -> Found | None:
    """When `ask` will fit if nothing happens but ends; None: only after jobs whose end is unknown.

    `booked` are the reservations of jobs ahead. Their nodes count as taken from now on, although these jobs start later: the
    answer is never too early, but sometimes too late.
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
    """The same if only the number of nodes matters."""
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
    """The nodes of a reservation: of all that can hold a member by then, the last ones.

    So they stay the same whichever jobs are backfilled, and the first nodes stay usable: placement prefers these among equals.
    """
    taken = booked.then(found.at_s)
    gives, cell = space.giving(ask.each), found.then.cell
    of = None if ask.within is None else space.domains(ask.within)[0]
    most = ask.nodes if ask.lead is None else len(space.sites)  # the last ones of each cell are enough
    able = set[int]()
    for nodes in (sorted({node for node in found.back if gives(cell(node))}), *(nodes for _, nodes in space.fitting(ask.each))):
        last = (node for node in reversed(nodes) if node not in taken and (of is None or of[node] == found.domain))
        able.update(islice(last, most))
    each = sorted(able, reverse=True)
    if ask.lead is not None:
        head = next((node for node in each if space.gives(found.then.cell(node), ask.first)), None)
        each = each if head is None else [head, *(node for node in each if node != head)]
    return frozenset(each[: ask.nodes])
