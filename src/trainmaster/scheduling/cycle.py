"""One decision. `carry` is a cache that may be thrown away: any reachable one gives the plan of an empty one."""

from dataclasses import dataclass, field

from trainmaster.model.job import Job
from trainmaster.model.nodes import Node
from trainmaster.model.spec import Resources
from trainmaster.scheduling.capacity import free_nodes
from trainmaster.scheduling.explain import refusal
from trainmaster.scheduling.policy import Policy
from trainmaster.scheduling.request import Request, requested
from trainmaster.scheduling.snapshot import Placement, Plan, Refusal, Snapshot

_BACKOFF = Refusal("backoff", "waiting before the next restart (back-off)")


@dataclass(slots=True)
class Carry:
    """Refusal texts by request, for the nodes they were written about."""

    nodes: tuple[Node, ...] = ()
    refusals: dict[Request, Refusal] = field(default_factory=dict)


def cycle(snapshot: Snapshot, policy: Policy, carry: Carry) -> tuple[Plan, Carry]:
    """Place what fits, in the policy's order, and say why the rest waits.

    A request that did not fit is not tried again within the cycle, so the cost is one attempt per distinct request,
    plus the order. A head that cannot start does not block those behind it.
    """
    if carry.nodes != snapshot.nodes:
        carry = Carry(snapshot.nodes)
    free = free_nodes(snapshot.nodes, snapshot.held)
    placements: list[Placement] = []
    refusals: dict[str, Refusal] = {}
    misfits: dict[Request | Resources, Refusal] = {}
    for job in ordered(snapshot, policy):
        if job.not_before_s > snapshot.now_s:
            refusals[job.id] = _BACKOFF
            continue
        spec = job.spec
        looked_up = requested(spec) if spec.roles else spec.resources
        refused = misfits.get(looked_up)  # the one look-up that a long queue costs: hashing a request is dear
        if refused is None:
            ask = requested(spec)
            allocation = policy.place(ask, free)
            if allocation is not None:
                placements.append(Placement(job.id, allocation))
                continue
            if ask not in carry.refusals:
                carry.refusals[ask] = refusal(ask, snapshot.nodes)
            refused = misfits[looked_up] = carry.refusals[ask]
        refusals[job.id] = refused
    return Plan(tuple(placements), refusals, policy.depth(snapshot), policy.name), carry


def ordered(snapshot: Snapshot, policy: Policy) -> list[Job]:
    """The waiting jobs as the policy wants them tried."""
    return sorted(snapshot.waiting, key=lambda job: policy.order(snapshot, job))
