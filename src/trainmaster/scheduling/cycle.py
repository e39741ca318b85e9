"""One decision: which jobs start where, which are preempted, which get a reservation, and why the others wait.

The plan depends on the snapshot and the policy alone. The state, which events keep up to date, is how it reads them fast: a
decision leaves in it only its starts, and `settle` takes out those that were not carried out.
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
    """Start the jobs that fit, in the policy's order; reserve nodes for as many others as it says; say why the rest wait.

    `state` is the up-to-date state of this snapshot and policy; None: it is built from the snapshot.
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

    def hopeful(task: Task, line: Line) -> bool:  # fit: it may start now, or after a preemption
        may = fitting.may(task, line, holds_s)
        return may or (preempt is not None and preempt.may_help(decision.stage, task, line))

    heads = turns(policy, decision.view, state.queue, snapshot.now_s)  # order

    while (head := heads.next(hopeful)) is not None:
        _, _, line, at = head
        task = line[at][2]
        # The next of its line has a turn if this one started, or waits for a reason of its own; else all of the line wait.
        if attempt(decision, task) or waits_alone(decision, task):
            heads.behind(head)
    grow(decision)
    return decision.plan()


def kept(state: ClusterState | None, snapshot: Snapshot, policy: Policy) -> ClusterState | None:
    """The state for the next decision: the same, or a new one if nodes, rules or order have changed.

    None if pools have different policies: then each part of the cluster is planned by itself, with its own state.
    """
    if policy.parts:
        return None
    if state is not None and state.sharing is policy.sharing and not state.worn:
        inventory = state.inventory
        if inventory.sites is snapshot.sites and inventory.rules is snapshot.rules:
            return state
    return ClusterState(snapshot, policy.sharing)
