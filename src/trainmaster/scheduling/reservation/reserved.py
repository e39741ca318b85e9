"""The reservations of one decision for jobs that cannot start yet, and what jobs that start take of them."""

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.snapshot import Reservation
from trainmaster.scheduling.model.space import Grant, Space
from trainmaster.scheduling.reservation.backfill import Kept
from trainmaster.scheduling.reservation.timeline import Booking, Bookings, Found, Walk, earliest, named


class Option(NamedTuple):
    """A request that a job accepts, and how long it would run with it."""

    ask: Ask
    run_s: float = 0.0


class Times(NamedTuple):
    """When a reservation may begin, and for how long its nodes must stay after that."""

    now_s: float
    stays_s: float = 0.0
    from_s: float = 0.0


class Reserved:
    """The reservations of one decision, at most `depth`."""

    def __init__(self, space: Space, depth: int) -> None:
        self._space, self.depth = space, depth
        self._booked = Bookings()
        self.kept: list[Kept] = []
        self.made: list[Reservation] = []
        self.full = depth <= 0  # no more are allowed

    def soonest(self, options: Sequence[Option], walk: Walk, times: Times) -> tuple[Option, Found] | None:
        """The option with which a job would end first, and when it fits; None: unknown."""
        best: tuple[float, Option, Found] | None = None
        for option in options:
            found = self._feasible(option.ask, walk, times)
            if found is not None and (best is None or found.at_s + option.run_s < best[0]):
                best = found.at_s + option.run_s, option, found
        return None if best is None else best[1:]

    def _feasible(self, ask: Ask, walk: Walk, times: Times) -> Found | None:
        """When a request fits on nodes that stay long enough after that. The later the time, the fewer nodes stay."""
        space = self._space
        space.until_s = times.now_s + times.stays_s if space.closing else 0.0
        while True:
            found = earliest(walk, ask, times.now_s, self._booked)
            if found is None:
                return None
            found = found if found.at_s >= times.from_s else found._replace(at_s=times.from_s)
            if not space.closing or found.at_s + times.stays_s <= space.until_s:
                return found
            space.until_s = found.at_s + times.stays_s

    def keep(self, job: str, ask: Ask, found: Found, holds_s: float) -> None:
        """Make a reservation. `holds_s`: for how long the job will hold its nodes."""
        several = self.depth > 1 or ask.within is not None
        nodes = named(self._space, ask, found, self._booked) if several else None
        if nodes is not None:
            self._booked.add(Booking(found.at_s + holds_s, nodes))
        self.made.append(Reservation(job, found.at_s))
        self.full = len(self.made) >= self.depth
        spare = (0, 0) if nodes is not None else (found.able - ask.nodes, found.led - 1)
        self.kept.append(Kept(ask.each, found.at_s, spare[0], found.then, nodes))
        if ask.lead is not None:
            self.kept.append(Kept(ask.lead, found.at_s, spare[1], found.then, nodes))

    def before(self, end_s: float) -> list[Kept]:
        """The reservations that a job could delay that holds its nodes until `end_s`."""
        return [one for one in self.kept if one.at_s < end_s]

    def spend(self, chosen: Sequence[int], ask: Ask, end_s: float) -> None:
        """The `chosen` nodes will be taken until `end_s`: subtract their harm from the spare parts."""
        for one in self.kept:
            if one.at_s < end_s:
                for index, node in enumerate(chosen):
                    one.spare -= one.harm_on(self._space, node, ask.first if index == 0 else ask.each)

    def placed(self, grant: Grant, end_s: float) -> None:
        """The nodes are taken now."""
        for one in {id(one.then): one for one in self.kept}.values():  # the parts of one gang share it
            one.then.placed(grant, one.at_s >= end_s)
