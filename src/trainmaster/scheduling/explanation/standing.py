"""The order of the waiting jobs, and the terms of an order that is a sum."""

from collections.abc import Mapping

from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.pools import Parts
from trainmaster.scheduling.state.figures import figures_of
from trainmaster.scheduling.state.order import Sharing, by_keys


def ordered(snapshot: Snapshot, policy: Policy) -> list[Task]:
    """The waiting jobs in the policy's order."""
    if policy.parts:
        found = [task for seen, one in Parts(snapshot, policy) for task in ordered(seen, one)]
        return list({task.id: task for task in found}.values())
    view, order, tasks = policy.study(snapshot, {}), policy.order, list(snapshot.waiting.values())
    if isinstance(order, Sharing):
        return sorted(tasks, key=lambda task: (order.key(view, task), task.seq))
    jobs = figures_of(tasks)
    return [tasks[at] for at in by_keys(order(view, jobs), jobs.seq)]


def terms(snapshot: Snapshot, policy: Policy, id: str) -> Mapping[str, float] | None:
    """The terms of a waiting job, in the first pool where it could run; None: its order is no sum."""
    if policy.parts:
        return next((terms(seen, one, id) for seen, one in Parts(snapshot, policy) if id in seen.waiting), None)
    if policy.terms is None:
        return None
    return policy.terms(policy.study(snapshot, {}), snapshot.waiting[id])
