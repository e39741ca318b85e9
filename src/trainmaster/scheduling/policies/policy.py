"""What a policy is: a frozen value of pure functions over the snapshot. Each policy of this room is such a value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.scheduling.model.cells import Taste
from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Space
from trainmaster.scheduling.placement.strategies import Places
from trainmaster.scheduling.preemption.victims import Preempt
from trainmaster.scheduling.state.order import Ranking, Sharing, uncharged


def plainly(snapshot: Snapshot, kept: dict[str, Any]) -> Snapshot:
    """The snapshot itself is enough."""
    return snapshot


def tightest(snapshot: Snapshot, kept: dict[str, Any]) -> Taste | None:
    """A share comes from the device that has least left of those that have enough."""
    return None


@dataclass(frozen=True, slots=True)
class Policy:
    """`order` says who goes first; `place` the cells that can hold a member of a gang, best first; `depth` how many of
    those that cannot start get a reservation.

    `preempt` gives live attempts that may be stopped for a task, the first to go first; None: none ever. `beat_s`: how often to
    look again though nothing happened. `study` makes of the snapshot what `order` is given, once for each cycle; it may keep
    things in the dictionary, which may be thrown away.
    `parts` are policies of several sets of pools, by name; where there are any, nothing else here is looked at.
    `trusts`: what a job says of its run time is believed; else, and of one that says nothing, run times are predicted.
    An order is `Sharing`, where jobs of one kind are in an order that time never changes and the first of them is looked at, or
    it gives keys of jobs side by side, each ranked by itself.
    `terms` says what an order by a sum is the sum of; it is kept with each start.
    `taste` says which of several devices a share comes from, and `place` may ask it too (`Cells.worths`).
    """

    name: str
    order: "Sharing | Ranking"
    place: Callable[[Space, Ask], Places]
    depth: Callable[[Snapshot], int]
    preempt: Preempt | None = None
    beat_s: float | None = None
    exact: bool = False  # it is meaningful only where run times are known beforehand: in a simulation
    study: Callable[[Snapshot, dict[str, Any]], Any] = plainly
    terms: Callable[[Any, Task], Mapping[str, float]] | None = None
    trusts: bool = True
    parts: "tuple[tuple[frozenset[str], Policy], ...]" = ()
    taste: Callable[[Snapshot, dict[str, Any]], Taste | None] = tightest

    @property
    def sharing(self) -> Sharing | None:
        """The order, where it is one in steps."""
        return self.order if isinstance(self.order, Sharing) else None

    @property
    def words(self) -> str:
        """What the order says of itself."""
        return self.order.words if isinstance(self.order, Sharing) else self.order.__doc__ or ""

    @property
    def shares(self) -> bool:
        """Whether a start changes the order of those who wait."""
        return self.sharing is not None and self.sharing.charge is not uncharged


def no_reservations(snapshot: Snapshot) -> int:
    """Whoever fits may start; nobody is waited for."""
    return 0


def one_reservation(snapshot: Snapshot) -> int:
    """EASY: the first that cannot start is not delayed by those behind it."""
    return 1


def as_the_loop_can(snapshot: Snapshot) -> int:
    """As many as there is time for."""
    return snapshot.depth


def one_for_everybody(snapshot: Snapshot) -> int:
    """Conservative: nobody is delayed by anyone behind."""
    return len(snapshot.waiting)
