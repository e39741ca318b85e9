"""What a policy is: a frozen value of pure functions over the snapshot. Each policy in this room is such a value."""

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
    """The order reads the snapshot itself."""
    return snapshot


def no_taste(snapshot: Snapshot, kept: dict[str, Any]) -> Taste | None:
    """A share of a GPU comes from the device with the least left of those that have enough."""
    return None


@dataclass(frozen=True, slots=True)
class Policy:
    """All that one policy decides.

    - `order`: the order of the queue. Either `Sharing`, if time never changes the order of one kind's jobs: once one job of a
      kind cannot start, the others are not tried. Or a function that ranks each job by itself: it gives keys for all jobs,
      those of `first` before its own, and its docstring is what users read of it.
    - `place`: the cells that can hold a member of a gang, the best first.
    - `depth`: how many jobs that cannot start get a reservation.
    - `preempt`: which live attempts may be preempted for a job, the first to stop first; None: none.
    - `beat_s`: how often to decide again although nothing happened.
    - `exact`: it needs exact run times, so it works only in a simulation.
    - `study`: makes the view that `order` reads, once per cycle; with `Sharing` the view has `now_s`. It may keep results in
      the dictionary, which may be lost.
    - `terms`: the terms of an order that is a sum. They are stored with each start.
    - `trusts`: whether the run time that a job states is believed. Otherwise, and for jobs that state none, it is predicted.
    - `parts`: the policies of several sets of pools, with the names of the pools. If there are any, the rest is ignored.
    - `taste`: which of several devices a share of a GPU comes from. `place` may use it too (`Cells.costs`).
    """

    name: str
    order: "Sharing | Ranking"
    place: Callable[[Space, Ask], Places]
    depth: Callable[[Snapshot], int]
    preempt: Preempt | None = None
    beat_s: float | None = None
    exact: bool = False
    study: Callable[[Snapshot, dict[str, Any]], Any] = plainly
    terms: Callable[[Any, Task], Mapping[str, float]] | None = None
    trusts: bool = True
    parts: "tuple[tuple[frozenset[str], Policy], ...]" = ()
    taste: Callable[[Snapshot, dict[str, Any]], Taste | None] = no_taste

    @property
    def sharing(self) -> Sharing | None:
        """The order, if it is one in two levels."""
        return self.order if isinstance(self.order, Sharing) else None

    @property
    def words(self) -> str:
        """The description of the order, as users see it."""
        return self.order.words if isinstance(self.order, Sharing) else self.order.__doc__ or ""

    @property
    def shares(self) -> bool:
        """Whether a start changes the order of the waiting jobs."""
        return self.sharing is not None and self.sharing.charge is not uncharged


def no_reservations(snapshot: Snapshot) -> int:
    """A job that fits may start; none has a reservation."""
    return 0


def one_reservation(snapshot: Snapshot) -> int:
    """EASY: the first job that cannot start is not delayed by jobs behind it."""
    return 1


def one_for_everybody(snapshot: Snapshot) -> int:
    """Conservative: no job is delayed by a job behind it."""
    return len(snapshot.waiting)
