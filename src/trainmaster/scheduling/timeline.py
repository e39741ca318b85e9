"""When a gang will fit: the ends of those that run, and the reservations of those ahead, walked through in their order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
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


@dataclass(slots=True)
class _Count:
    """How much room there is for `ask` as time goes on."""

    space: Space
    ask: Ask
    taken: dict[int, float]  # nodes that are somebody else's, and until when
    later: Later
    back: list[int]
    room: Room

    def begin(self) -> None:
        """As it is now."""
        for node in self.taken:
            if self.space.sites[node].open:
                self._change(node, -1)

    def end(self, run: Run) -> None:
        """A run's nodes come back."""
        for index, node in enumerate(run.grant.nodes):
            if node >= 0 and self.space.sites[node].open:
                taken = node in self.taken
                if not taken:
                    self._change(node, -1)
                self.later.give(node, run.grant.part(index))
                if not taken:
                    self._change(node, 1)

    def over(self, booking: Booking) -> None:
        """A reservation's nodes come back."""
        for node in booking.nodes:
            if self.taken.get(node) == booking.until_s:
                del self.taken[node]
                self._change(node, 1)

    def found(self, at_s: float) -> Found:
        """It fits then."""
        domain, able, led = self.room.best
        return Found(at_s, able, led, self.later, self.back, domain)

    def _change(self, node: int, sign: int) -> None:
        number = self.later.cell(node)
        able = self.space.gives(number, self.ask.each)
        self.room.change(node, sign * able, sign * self.space.gives(number, self.ask.first))
        if able and sign > 0:
            self.back.append(node)


def earliest(space: Space, ask: Ask, ends: Ends, now_s: float, booked: Sequence[Booking] = ()) -> Found | None:
    """When `ask` will fit if nothing but ends happens; None: not for as long as those run of whom nobody knows how long.

    `booked` are reservations of those ahead. What is theirs counts as taken from now on, which it is not before they start:
    never too early an answer, sometimes too late a one.
    """
    taken: dict[int, float] = {}
    for one in booked:
        for node in one.nodes:
            taken[node] = max(one.until_s, taken.get(node, 0.0))
    room = Room(space, ask)
    count = _Count(space, ask, taken, Later(space), [], room)
    count.begin()
    if room.enough:
        return count.found(now_s)
    at_s = None
    even = space.even is not None and not space.shared and space.gives(space.even, ask.each)
    alone = even and ask.lead is None and ask.within is None and not booked
    overs: list[tuple[float, int, Run | Booking]] = sorted((one.until_s, -1, one) for one in booked)
    events: Iterable[tuple[float, int, Run | Booking]] = merge(ends, overs) if overs else ends
    for end_s, _, what in events:
        if end_s == FOREVER or (at_s is not None and end_s > at_s):
            break
        if isinstance(what, Booking):
            count.over(what)
        elif alone and what.grant.ask.lead is None and space.cells.used_up(space.of[what.grant.nodes[0]]):
            room.able += len(what.grant.nodes)  # nothing can come to them meanwhile: they are whole again then
            room.led = room.able
            count.back += what.grant.nodes
        else:
            count.end(what)
        if at_s is None and room.enough:
            at_s = max(end_s, now_s)
    return None if at_s is None else count.found(at_s)


def named(space: Space, ask: Ask, found: Found, booked: Sequence[Booking]) -> frozenset[int]:
    """Nodes for a reservation: of all that can by then the last ones.

    So they stay the same whoever starts meanwhile without spoiling them, and the first ones, which are given away first, stay
    free to be used.
    """
    taken = frozenset[int]().union(*(one.nodes for one in booked if one.until_s > found.at_s))
    able = {node for node in found.back if space.gives(found.then.cell(node), ask.each)}
    able.update(node for number, nodes in space.nodes.items() if space.gives(number, ask.each) for node in nodes)
    if ask.within is not None:
        of = space.domains(ask.within)[0]
        able = {node for node in able if of[node] == found.domain}
    each = sorted(able - taken, reverse=True)
    if ask.lead is not None:
        head = next((node for node in each if space.gives(found.then.cell(node), ask.first)), None)
        each = each if head is None else [head, *(node for node in each if node != head)]
    return frozenset(each[: ask.nodes])
