"""Recomputes every recorded plan from the events before it, to verify that the live loop decides as `cycle` does.

A plan saw everything that was recorded before it in its tick. Its outcome is the events right before its `Planned`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from trainmaster.control.decide import MAKES_WAY, stop_of
from trainmaster.control.world import Batch, World
from trainmaster.model import events as ev
from trainmaster.model.cluster import Cluster
from trainmaster.model.job import StopFor
from trainmaster.model.nodes import Allocation
from trainmaster.ports.store import Recorded
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.convert import allocation
from trainmaster.scheduling.model.snapshot import Plan
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.model.words import given_up
from trainmaster.scheduling.policies.known import chosen
from trainmaster.scheduling.policies.policy import Policy

_OUTCOMES = (ev.PromiseBroken, ev.Placed, ev.Promised, ev.Waited, ev.StopOrdered)


@dataclass(frozen=True, slots=True)
class Replanned:
    """One recorded plan: its recorded outcome, and the outcome recomputed from the events. The two must be equal."""

    seq: int
    recorded: frozenset[object]
    decided: frozenset[object]


@dataclass(slots=True)
class _Fold:
    """The world folded from the events, and the latest events that may be a plan's outcome."""

    choose: Callable[[Cluster], Policy]
    world: World = field(default_factory=World)
    pending: list[Recorded] = field(default_factory=list)

    def take(self, row: Recorded) -> Replanned | None:
        """Process the next event. If it is a `Planned`, return that plan, recomputed."""
        found = None
        if self.pending and self.pending[0].now_s != row.now_s:
            self._apply()
        if isinstance(row.event, ev.Planned):
            found = Replanned(row.seq, _outcomes(self.pending), self._decided(row, row.event))
            self._apply()
        elif _is_outcome(row.event) and not self._is_of_start_gate(row):
            self.pending.append(row)
        else:
            self._apply()
            self.note(row)
        return found

    def _is_of_start_gate(self, row: Recorded) -> bool:
        """Whether it is the reason of a job that may not start yet: no plan has seen that job."""
        job = self.world.jobs.get(row.job or "")
        return isinstance(row.event, ev.Waited) and job is not None and job.blocked

    def _apply(self) -> None:
        for row in self.pending:
            self.note(row)
        self.pending = []

    def note(self, row: Recorded) -> None:
        """Apply an event to the world."""
        batch = Batch(self.world, row.now_s)
        if row.job is None:
            if not isinstance(row.event, ev.Noted):
                batch.record_cluster(row.event)  # type: ignore[arg-type]
        elif not isinstance(row.event, ev.Noted):
            batch.record(row.job, row.event)  # type: ignore[arg-type]
            self.world.forget_ended({row.job})

    def _decided(self, row: Recorded, planned: ev.Planned) -> frozenset[object]:
        snapshot, policy = self.world.snapshot(row.now_s), self.choose(self.world.rules)
        plan = cycle(snapshot, replace(policy, depth=lambda _: planned.depth))  # earlier versions reserved for more jobs
        waited = (one.job for one in self.pending if isinstance(one.event, ev.Waited))
        reasons = {("waits", id, _reason(plan, id, self.world, row.now_s)) for id in waited if id is not None}
        nodes = tuple(self.world.nodes[name] for name in sorted(self.world.nodes))
        running, waiting = self.world.workload.running, self.world.workload.waiting

        def given(job: str, grant: Grant) -> Allocation:
            return allocation(grant, nodes, waiting[job].kind.choice_of(grant.ask))

        found: set[object] = {("starts", one.job, given(one.job, one.grant)) for one in plan.placements}
        found |= {("promised", one.job, given(one.job, one.grant), one.victims, one.shrunk) for one in plan.handovers}
        stops = {id: stop_of(one, id) for one in reversed(plan.handovers) for id in one.victims if not running[id].stopping}
        found |= {("stops", id, stop) for id, stop in stops.items()}
        found |= {("broken", id) for id in plan.broken}
        return frozenset(found | reasons)


def replan(rows: Iterable[Recorded], choose: Callable[[Cluster], Policy] = chosen) -> Iterator[Replanned]:
    """Recompute every plan in the log. `rows` are all events, from the first."""
    fold = _Fold(choose)
    for row in rows:
        found = fold.take(row)
        if found is not None:
            yield found


def folded(rows: Iterable[Recorded]) -> World:
    """The world folded from all events, as if one control process had run from the first."""
    fold = _Fold(chosen)
    for row in rows:
        fold.note(row)
    return fold.world


def _reason(plan: Plan, id: str, world: World, now_s: float) -> str:
    handed = next((one for one in plan.handovers if one.job == id), None)
    if handed is not None:
        return given_up(handed.victims, handed.shrunk)
    return plan.reason(world.workload.waiting[id], now_s).text


def _is_outcome(event: ev.Event) -> bool:
    if isinstance(event, ev.StopOrdered):
        return event.stop_for is StopFor.SHRINK or (event.stop_for is StopFor.EVICT and event.reason.startswith(MAKES_WAY))
    return isinstance(event, _OUTCOMES)


def _outcomes(rows: list[Recorded]) -> frozenset[object]:
    found: set[object] = set()
    for row in rows:
        match row.event:
            case ev.Placed(_, allocated):
                found.add(("starts", row.job, allocated))
            case ev.Promised(allocated, victims, shrunk):
                found.add(("promised", row.job, allocated, victims, shrunk))
            case ev.StopOrdered() as stop:
                found.add(("stops", row.job, stop))
            case ev.PromiseBroken():
                found.add(("broken", row.job))
            case ev.Waited(reason):
                found.add(("waits", row.job, reason))
    return frozenset(found)
