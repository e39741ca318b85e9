"""One decision: who starts where, who makes way, for whom room is kept, and why the others wait.

It reads the state, which events keep up to date, and remembers nothing: the same state gives the same plan.
"""

from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.pools import Parts
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.trying import Tries
from trainmaster.scheduling.turns import turns


def cycle(snapshot: Snapshot, policy: Policy, state: ClusterState | None = None) -> Plan:
    """Start what fits in the policy's order, keep room for as many of the rest as it says, and say why they wait.

    `state` is that of this snapshot and policy, kept up to date; None: it is made from the snapshot.
    """
    if policy.parts:
        parts = Parts(snapshot, policy)
        for seen, one in parts:
            parts.took(cycle(seen, one))
        return parts.whole()
    state = state or ClusterState(snapshot, policy.sharing)
    state.settle()
    tries = Tries(snapshot, policy, state)
    tries.keep_promises()
    queue = turns(policy, tries.view, state.queue, snapshot.now_s)
    while (head := queue.next(tries.worth)) is not None:
        task = head[2][head[3]][2]
        if tries.attempt(task) or tries.only_it(task):
            queue.behind(head)
    tries.grow()
    return tries.plan()


def kept(state: ClusterState | None, snapshot: Snapshot, policy: Policy) -> ClusterState | None:
    """The state for such a decision: this one, or a new one where nodes, rules or order are others now.

    None where every pool has a policy of its own: then each part of the cluster is looked at by itself.
    """
    if policy.parts:
        return None
    if state is not None and state.sharing is policy.sharing and not state.worn:
        inventory = state.inventory
        if inventory.sites is snapshot.sites and inventory.rules is snapshot.rules:
            return state
    return ClusterState(snapshot, policy.sharing)
