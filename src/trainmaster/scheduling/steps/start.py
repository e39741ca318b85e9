"""Start: a job takes its nodes and its owners are charged. At the end elastic jobs take nodes that no other job needs."""

from collections.abc import Mapping, Sequence

from trainmaster.scheduling.model.jobs import Run, Task, alone
from trainmaster.scheduling.model.request import ask_of
from trainmaster.scheduling.model.snapshot import Handover, Placement
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.reservation.backfill import choose
from trainmaster.scheduling.steps.decision import Decision
from trainmaster.scheduling.steps.place import places


def keep_promises(decision: Decision) -> None:
    """Handovers come first: a job whose nodes are free starts; nodes whose victims still run stay reserved."""
    promises = decision.promises
    for task, grant in promises.begin():
        decision.draft.placements.append(Placement(task.id, grant))
    for task in promises.settled.values():
        _charge(decision, task)
    decision.fitting.settled = promises.settled
    decision.fitting.all_may = bool(decision.state.running.wide) or decision.state.space.closing


def start(decision: Decision, task: Task, chosen: list[int], end_s: float, stopped: Sequence[Run] = ()) -> None:
    """Take the `chosen` nodes: for a start now, or for a handover if victims still hold some of them."""
    ask, state, draft, promises = task.kind.ask, decision.state, decision.draft, decision.promises
    decision.reserved.spend(chosen, ask, end_s)
    grant = state.space.take(ask, chosen)
    decision.outlook.moved()
    _charge(decision, task)
    decision.reserved.placed(grant, end_s)
    before = promises.before(task, grant) | {run.task.id for run in stopped}
    if before:
        state.tally.enter(task.kind, grant)
        draft.handovers.append(Handover(task.id, grant, tuple(sorted(before)), promises.shrunk(before)))
    else:
        draft.placements.append(Placement(task.id, grant))
        state.plan(decision.snapshot.waiting[task.id], grant)
    if not decision.reserved.full:
        decision.outlook.begins(task, grant, end_s)


def _charge(decision: Decision, task: Task) -> None:
    """Charge the owners of a job that starts."""
    policy = decision.policy
    if policy.terms is not None:
        decision.draft.terms[task.id] = policy.terms(decision.view, task)
    if policy.sharing is not None:
        policy.sharing.charge(decision.view, task)


def grow(decision: Decision) -> None:
    """Elastic jobs that start take more nodes, in the order of the starts, if no waiting job could use them."""
    draft = decision.draft
    tasks = {one.job: decision.snapshot.waiting[one.job] for one in draft.placements}
    elastic = any(task.kind.choices is not None and task.kind.choices.most for task in tasks.values())
    if not elastic or draft.handovers or decision.promises.told or _claimed(decision, tasks):
        return  # nodes on their way to other jobs are not free
    for at, one in enumerate(draft.placements):
        choices = tasks[one.job].kind.choices
        if choices is not None and choices.most > one.grant.ask.nodes:
            draft.placements[at] = Placement(one.job, _grown(decision, tasks[one.job], one.grant, choices.most))


def _claimed(decision: Decision, started: Mapping[str, Task]) -> bool:
    """Whether a waiting job may use the free nodes, now or together with others."""
    plan = decision.plan_of(decision.fitting.reasons())
    left = (task for id, task in decision.snapshot.waiting.items() if id not in started)
    return any(plan.reason(task, decision.snapshot.now_s).cause.claims for task in left)


def _grown(decision: Decision, task: Task, grant: Grant, most: int) -> Grant:
    """The grant with as many more nodes as are free and quotas allow, in the same domain if the job must stay in one."""
    ask, state, found = grant.ask, decision.state, grant
    space, tally = state.space, state.tally
    space.until_s = decision.outlook.stays_until_s(task) if space.closing else 0.0
    of = space.domains(ask.within)[0] if ask.within is not None else None
    it = task._replace(kind=alone(task.kind, ask))
    able = [
        (number, [node for node in nodes if node not in grant.nodes and (of is None or of[node] == of[grant.nodes[0]])])
        for number, nodes in places(decision, it, tally.shut(it.kind))
    ]
    owed = list(tally.set_aside(space, task.kind).values())
    tally.enter(task.kind, grant, -1)
    for count in range(min(most - ask.nodes, sum(len(nodes) for _, nodes in able)), 0, -1):
        nodes = choose(space, ask_of(count, ask.each), able, owed)
        if nodes is None:
            continue
        more = space.take(ask_of(count, ask.each), nodes)
        larger = ask_of(ask.nodes + count, ask.each, ask.lead, ask.within)
        found = Grant(larger, grant.nodes + more.nodes, grant.devices + more.devices)
        if tally.barrier(task.kind, found) is None:
            break
        space.give(more)
        found = grant
    state.plan(task, found)
    return found
