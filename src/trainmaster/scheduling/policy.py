"""The Policy contract, and the policies known by name.

A policy is a frozen value of four pure functions over the frozen snapshot. Every order is total: it ends in the job's
order of submission, so that the same snapshot always gives the same plan.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trainmaster.model.job import Job
from trainmaster.model.nodes import Allocation
from trainmaster.scheduling.capacity import Free
from trainmaster.scheduling.request import Request
from trainmaster.scheduling.snapshot import Snapshot

OrderKey = tuple[float | int, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """`order` gives a job's sort key; `place` a gang's allocation or None when it does not fit whole; `depth` how many
    refused jobs get a reservation; `preempt` which live jobs make way for one (their ids, the gain being whole)."""

    name: str
    order: Callable[[Snapshot, Job], OrderKey]
    place: Callable[[Request, list[Free]], Allocation | None]
    depth: Callable[[Snapshot], int]
    preempt: Callable[[Snapshot, Job], tuple[str, ...]]


def priority_then_fifo(snapshot: Snapshot, job: Job) -> OrderKey:
    """Higher priority first, then who was submitted first."""
    return (-job.spec.priority, job.seq)


def first_fit(ask: Request, free: list[Free]) -> Allocation | None:
    """The first nodes by name with room, one member each; nothing is taken unless the whole gang fits.

    Where roles run beside the ranks, the first node with room for both leads: it could have been any other's place too,
    so that no choice of it can keep a gang from fitting.
    """
    each, lead = ask.each, ask.lead
    head = None
    if lead is not None:
        head = next((node for node in free if node.fits(lead)), None)
        if head is None:
            return None
    chosen = [] if head is None else [head]
    for node in free:
        if len(chosen) == each.nodes:
            break
        if node is not head and node.fits(each):
            chosen.append(node)
    if len(chosen) < each.nodes:
        return None
    return Allocation(tuple(node.take(lead if node is head and lead else each) for node in chosen))


def no_reservations(snapshot: Snapshot) -> int:
    """Whoever fits may start; nobody is waited for."""
    return 0


def no_preemption(snapshot: Snapshot, job: Job) -> tuple[str, ...]:
    """Nobody makes way."""
    return ()


POLICIES: dict[str, Policy] = {
    "fifo": Policy("fifo", priority_then_fifo, first_fit, no_reservations, no_preemption),
}
