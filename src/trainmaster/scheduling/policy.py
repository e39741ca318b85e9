"""The Policy contract, and the policies known by name.

A policy is a frozen value of four pure functions over the frozen snapshot. Every order is total: it ends in the job's
order of submission, so that the same snapshot always gives the same plan.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.model.job import Job
from trainmaster.model.nodes import Allocation
from trainmaster.model.spec import Resources
from trainmaster.scheduling.capacity import Free
from trainmaster.scheduling.snapshot import Snapshot

OrderKey = tuple[float | int, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """`order` gives a job's sort key; `place` a gang's allocation or None when it does not fit whole; `depth` how many
    refused jobs get a reservation; `preempt` which live jobs make way for one (their ids, the gain being whole)."""

    name: str
    order: Callable[[Snapshot, Job], OrderKey]
    place: Callable[[Resources, list[Free]], Allocation | None]
    depth: Callable[[Snapshot], int]
    preempt: Callable[[Snapshot, Job], tuple[str, ...]]


def priority_then_fifo(snapshot: Snapshot, job: Job) -> OrderKey:
    """Higher priority first, then who was submitted first."""
    return (-job.spec.priority, job.seq)


def first_fit(ask: Resources, free: list[Free]) -> Allocation | None:
    """The first nodes by name with room, one member each; nothing is taken unless the whole gang fits."""
    chosen = []
    for node in free:
        if node.fits(ask):
            chosen.append(node)
            if len(chosen) == ask.nodes:
                return Allocation(tuple(node.take(ask) for node in chosen))
    return None


def no_reservations(snapshot: Snapshot) -> int:
    """Whoever fits may start; nobody is waited for."""
    return 0


def no_preemption(snapshot: Snapshot, job: Job) -> tuple[str, ...]:
    """Nobody makes way."""
    return ()


POLICIES: dict[str, Policy] = {
    "fifo": Policy("fifo", priority_then_fifo, first_fit, no_reservations, no_preemption),
}
