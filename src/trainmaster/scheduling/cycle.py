"""One decision: which jobs start where, which make way, for which room is kept, and why the others wait.

It reads the state, which events keep up to date, and remembers nothing: the same state gives the same plan.
"""

from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.pools import Parts
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.state.queue import Line
from trainmaster.scheduling.steps.attempt import attempt, waits_alone
from trainmaster.scheduling.steps.decision import Decision
from trainmaster.scheduling.steps.order import turns
from trainmaster.scheduling.steps.start import grow, keep_promises


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
    decision = Decision(snapshot, policy, state)
    keep_promises(decision)
    fitting, preempt, holds_s = decision.fitting, policy.preempt, decision.outlook.holds_s

    def worth(task: Task, line: Line) -> bool:  # fit: it may start, now or once others have made way
        may = fitting.may(task, line, holds_s)
        return may or (preempt is not None and preempt.may_help(decision.stage, task, line))

    queue = turns(policy, decision.view, state.queue, snapshot.now_s)  # order

    while (head := queue.next(worth)) is not None:
        _, _, line, place = head
        task = line[place][2]
        if attempt(decision, task) or waits_alone(decision, task):  # admit, place, make way, reserve, or refuse
            queue.behind(head)
    grow(decision)
    return decision.plan()


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
