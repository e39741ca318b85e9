"""Reserve: nodes for a job that cannot start yet, as long as the policy allows more reservations."""

from collections.abc import Sequence

from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.reservation.reserved import Option, Times
from trainmaster.scheduling.steps.decision import Decision

STRICT_S = 3 * 86_400.0  # a wait from which on only jobs that surely end in time are backfilled


def keep(decision: Decision, task: Task, wanted: Sequence[Option], anyhow: Sequence[Option]) -> None:
    """Make a reservation with one of the `wanted` requests, or with one of `anyhow`, which it accepts in the end."""
    reserved, outlook, now_s = decision.reserved, decision.outlook, decision.snapshot.now_s
    if reserved.full:
        return
    walk, times = outlook.walk(), Times(now_s, outlook.need(task).least_s)
    patient_s = task.since_s + task.kind.wish.prefer_s
    found = reserved.soonest(wanted, walk, times)
    if anyhow is not wanted and (found is None or found[1].at_s > patient_s):  # it stops waiting for its wish before that
        found = reserved.soonest(anyhow, walk, times._replace(from_s=patient_s))
    if found is not None:
        reserved.keep(task.id, found[0].ask, found[1], outlook.holds_s(task))
        outlook.strict = outlook.strict or now_s - task.since_s >= STRICT_S


def keep_sooner(decision: Decision, task: Task, hoped: Sequence[Option], run_s: float) -> Option | None:
    """Make a reservation with one of `hoped` if the job ends sooner with it than if it starts now and runs `run_s`."""
    reserved, outlook, now_s = decision.reserved, decision.outlook, decision.snapshot.now_s
    if reserved.full:
        return None
    found = reserved.soonest(hoped, outlook.walk(), Times(now_s, outlook.need(task).least_s))
    if found is None or found[1].at_s <= now_s or found[1].at_s + found[0].run_s >= now_s + run_s:
        return None
    reserved.keep(task.id, found[0].ask, found[1], outlook.holds_s(task))
    return found[0]
