"""Transitions: one small function for each kind of change, used by the rows of the table."""

from collections.abc import Callable
from dataclasses import replace

from trainmaster.lifecycle.effects import DeleteCheckpoint, Effect, Launch, Stop, grace_s
from trainmaster.model.checkpoints import SavedAfter
from trainmaster.model.events import (
    AttemptEnded,
    CancelRequested,
    EnvironmentSeen,
    Foreseen,
    Held,
    JobEvent,
    NodeEnded,
    NodeLost,
    NodeStarted,
    Placed,
    PreparationBegan,
    PromiseBroken,
    Promised,
    Released,
    RendezvousChosen,
    StartAllowed,
    StartRefused,
    StopOrdered,
    Waited,
)
from trainmaster.model.job import (
    CONTROL,
    DAMAGED,
    Attempt,
    Cause,
    Forecast,
    Job,
    NodePhase,
    NodeRun,
    RestartBudget,
    State,
    StopFor,
    Trouble,
)
from trainmaster.model.nodes import Allocation
from trainmaster.model.options.start_conditions import waiting_text
from trainmaster.wire.names import STALLED

_TROUBLES_MAX = 8
Change = tuple[Job, tuple[Effect, ...]]
Handler = Callable[[Job, JobEvent, float], Change]

# Topics of troubles that are cleared when a new attempt begins.
_OF_ATTEMPT = ("restart", "restore", STALLED, "artifacts")
_RANK = {
    StopFor.FAILURE: 0, StopFor.START: 1, StopFor.SHRINK: 2, StopFor.EVICT: 3, StopFor.LIMIT: 4, StopFor.CANCEL: 5,
}  # fmt: skip


def live_attempt(job: Job) -> Attempt:
    """The attempt of a job in a live state."""
    if job.attempt is None:
        raise ValueError(f"{job.id} is {job.state} without an attempt")
    return job.attempt


def ignore(job: Job, event: JobEvent, now_s: float) -> Change:
    """An expected race: recorded, without any change."""
    return job, ()


def hold(job: Job, event: JobEvent, now_s: float) -> Change:
    """Move a waiting job to `held`."""
    assert isinstance(event, Held)
    reason = f"held by {event.by}" + (f": {event.reason}" if event.reason else "")
    return replace(job, state=State.HELD, reason=reason, hold=reason, promised=None, keeps=False), ()


def release(job: Job, event: JobEvent, now_s: float) -> Change:
    """Move a held job to the queue. One that also has start conditions still waits for them; a second release drops them."""
    assert isinstance(event, Released)
    if job.blocked and job.hold and job.start is not None:
        return replace(job, hold="", reason=waiting_text(job.start, job.owner)), ()
    if job.blocked:
        return replace(_queued(job, now_s), start=None), ()
    if job.start is not None and job.start.takes_turns:  # its turn may be taken
        return replace(job, hold="", blocked=True, reason=waiting_text(job.start, job.owner)), ()
    return _queued(job, now_s), ()


def _queued(job: Job, now_s: float) -> Job:
    return replace(job, state=State.QUEUED, reason="queued", queued_s=now_s, blocked=False, hold="")


def allow_start(job: Job, event: JobEvent, now_s: float) -> Change:
    """Move a job whose start conditions are met to the queue, unless a person holds it."""
    assert isinstance(event, StartAllowed)
    return (replace(job, blocked=False, reason=job.hold) if job.hold else _queued(job, now_s)), ()


def refuse_start(job: Job, event: JobEvent, now_s: float) -> Change:
    """Cancel a job whose start conditions can never be met."""
    assert isinstance(event, StartRefused)
    return replace(job, state=State.CANCELLED, reason=event.reason, ended_s=now_s, blocked=False), ()


def cancel_waiting(job: Job, event: JobEvent, now_s: float) -> Change:
    """Cancel a waiting job. It has no processes, so it is over at once."""
    assert isinstance(event, CancelRequested)
    reason = _cancelled_by(event)
    return replace(job, state=State.CANCELLED, reason=reason, ended_s=now_s, promised=None, keeps=False, blocked=False), ()


def cancel_live(job: Job, event: JobEvent, now_s: float) -> Change:
    """Stop a live job for a cancel. A second cancel with a shorter grace shortens the first."""
    assert isinstance(event, CancelRequested)
    if job.state is State.STOPPING and job.stopping_for is StopFor.CANCEL:
        if event.grace_s is None or event.grace_s >= grace_s(job):
            return job, ()
        job = replace(job, stop_grace_s=event.grace_s)
        return job, _stops(job)
    return stop_all(replace(job, stop_grace_s=event.grace_s), StopFor.CANCEL, _cancelled_by(event), now_s)


def _cancelled_by(event: CancelRequested) -> str:
    return f"cancelled by {event.by}" + (f": {event.reason}" if event.reason else "")


def stop_all(job: Job, stop_for: StopFor, reason: str, now_s: float) -> Change:
    """Move to `stopping`, unless the job already stops for a reason of higher rank."""
    if job.state is State.STOPPING and job.stopping_for is not None and _RANK[stop_for] <= _RANK[job.stopping_for]:
        return job, ()
    attempt = live_attempt(job)
    stopping_s = attempt.stopping_s if attempt.stopping_s is not None else now_s
    stopped = replace(
        job, state=State.STOPPING, stopping_for=stop_for, reason=reason, attempt=replace(attempt, stopping_s=stopping_s)
    )
    return stopped, _stops(stopped)


def _stops(job: Job) -> tuple[Stop, ...]:
    """A stop order for each agent that may still run. The remains of a lost agent get no grace."""
    attempt, allowed_s = live_attempt(job), grace_s(job)
    return tuple(Stop(attempt.key(job.id, i), 0.0 if n.lost else allowed_s) for i, n in _live_nodes(attempt))


def _live_nodes(attempt: Attempt) -> list[tuple[int, NodeRun]]:
    return [(i, n) for i, n in enumerate(attempt.nodes) if n.phase is not NodePhase.ENDED]


def wait(job: Job, event: JobEvent, now_s: float) -> Change:
    """Update the reason why the job waits."""
    assert isinstance(event, Waited)
    return replace(job, reason=event.reason), ()


def foresee(job: Job, event: JobEvent, now_s: float) -> Change:
    """Store the forecast of the job's wait. Only the first one is kept."""
    assert isinstance(event, Foreseen)
    return replace(job, forecast=job.forecast or Forecast(event.at_s, event.waits_s)), ()


def promise(job: Job, event: JobEvent, now_s: float) -> Change:
    """Reserve nodes for the job; preemption victims free them."""
    assert isinstance(event, Promised)
    return replace(job, promised=event.allocation, keeps=False), ()


def break_promise(job: Job, event: JobEvent, now_s: float) -> Change:
    """Drop the reservation. The job waits in the queue without one."""
    assert isinstance(event, PromiseBroken)
    return replace(job, promised=None, keeps=False, reason=event.reason), ()


def place(job: Job, event: JobEvent, now_s: float) -> Change:
    """Begin a new attempt. Its number is the fence from now on."""
    assert isinstance(event, Placed)
    count = len(event.allocation.shares)
    before = job.attempt.shown if job.attempt is not None else None
    nodes = (NodeRun(),) * count
    attempt = Attempt(event.attempt, event.allocation, now_s, nodes, event.resume, rates=event.rates, before=before)
    troubles = tuple(one for one in job.troubles if one.topic not in _OF_ATTEMPT)
    placed = replace(
        job, state=State.STARTING, reason="starting", attempt=attempt, stopping_for=None, promised=None, keeps=False,
        troubles=troubles,
    )  # fmt: skip
    return placed, tuple(Launch(attempt.key(job.id, i)) for i in range(count))


def prepare(job: Job, event: JobEvent, now_s: float) -> Change:
    """Show what the start is waiting for."""
    assert isinstance(event, PreparationBegan)
    return replace(job, reason=event.doing), ()


def choose_rendezvous(job: Job, event: JobEvent, now_s: float) -> Change:
    """Store the rendezvous address. The other agents of the gang receive it with their next sync."""
    assert isinstance(event, RendezvousChosen)
    attempt = replace(live_attempt(job), master_address=event.address, master_port=event.port)
    return replace(job, attempt=attempt), ()


def start_node(job: Job, event: JobEvent, now_s: float) -> Change:
    """Record that an agent's ranks run. The job runs once all of them do, from the same checkpoint."""
    assert isinstance(event, NodeStarted)
    attempt = live_attempt(job)
    node = attempt.nodes[event.node_index]
    phase = NodePhase.RUNNING if node.phase is NodePhase.LAUNCHING else node.phase
    environment = event.environment or node.environment
    node = replace(node, phase=phase, reports=max(node.reports, event.report), environment=environment)
    node = replace(node, restored=event.restored, unread=event.unread)
    attempt = with_node(attempt, event.node_index, node)
    if event.node_index == 0:
        attempt = _resumed(job, attempt, event)
    job = found_bad(replace(job, attempt=attempt), event.bad, now_s)
    begun = {n.restored for n in attempt.nodes if n.phase is NodePhase.RUNNING or (n.outcome is not None and n.outcome.ranks)}
    if job.state is State.STARTING and len(begun) > 1:  # one node found its part corrupt, another did not
        return stop_all(job, StopFor.FAILURE, "its nodes restored different checkpoints", now_s)
    if job.state is State.STARTING and all(n.phase is not NodePhase.LAUNCHING for n in attempt.nodes):
        ago_s = event.ago_s if len(attempt.nodes) == 1 else 0.0  # of a gang, the last one of whose reports may be of the first
        began_s = min(now_s, max(attempt.placed_s, now_s - ago_s))
        started = replace(attempt, started_s=began_s)
        job = replace(job, state=State.RUNNING, reason="running", attempt=started, started_s=job.started_s or began_s)
        job = _read_by_all(job, attempt, now_s)
    return job, ()


def _resumed(job: Job, attempt: Attempt, event: NodeStarted) -> Attempt:
    """Record what was restored: the step of the checkpoint, else what is known of it."""
    step = event.step if event.restored else None
    kept = next((one for one in job.checkpoints if one.id == event.restored), None)
    if kept is None and job.lineage is not None and event.restored == job.lineage.inherited:
        kept = job.lineage.checkpoint
    about, saved = event.approximate if kept is None else kept.approximate, None
    if kept is not None and step is None:
        step, about = kept.at_least, kept.at_least is not None
        saved = SavedAfter(kept.attempt, kept.after_s) if kept.after_s is not None else None
    given = kept.progress if kept is not None else None
    return replace(
        attempt, restored=event.restored, resumed_from_step=step, resumed_about=about, resumed_saved=saved, given=given
    )


def found_bad(job: Job, ids: tuple[str, ...], now_s: float) -> Job:
    """Mark checkpoints whose digests differed as bad, and warn. That is proof; an unreadable checkpoint is not marked."""
    if not ids:
        return job
    labels = " and ".join(next((c.label for c in job.checkpoints if c.id == id), f"checkpoint {id}") for id in ids)
    one = len(ids) == 1
    text = f"{labels} {'is' if one else 'are'} damaged: the bytes in the store do not have their digest"
    text += "; used only if no other is good"
    marked = tuple(replace(c, good=False) if c.id in ids else c for c in job.checkpoints)
    return warned(replace(job, checkpoints=marked), Trouble(DAMAGED, text, live_attempt(job).number, CONTROL, now_s))


def warned(job: Job, told: Trouble) -> Job:
    """Replace the earlier warning on the same topic and node; without a text it is over. An unchanged one keeps its date."""
    known = next((one for one in job.troubles if (one.topic, one.node_index) == (told.topic, told.node_index)), None)
    others = tuple(one for one in job.troubles if one is not known)
    if not told.text:
        return replace(job, troubles=others)
    same = known is not None and (known.text, known.attempt) == (told.text, told.attempt)
    return replace(job, troubles=(*others, known if known is not None and same else told)[-_TROUBLES_MAX:])


def _read_by_all(job: Job, attempt: Attempt, now_s: float) -> Job:
    """Clear all doubts about the restored checkpoint if the part of each node was read from the store, by it or another one."""
    kept = next((one for one in job.checkpoints if one.id == attempt.restored), None)
    if kept is None or kept.proven:
        return job
    own = {part.node_index for part in kept.parts}
    parts = [(index if index in own else 0, node.unread) for index, node in enumerate(attempt.nodes)]
    if not {part for part, _ in parts} <= {part for part, unread in parts if not unread}:
        return job
    fresh = tuple(replace(one, good=True, doubts=0) if one is kept else one for one in job.checkpoints)
    job = replace(job, checkpoints=fresh)
    text = f"{kept.label} was damaged, and attempt {attempt.number} has read it whole: it counts as good again"
    return job if kept.good else warned(job, Trouble(DAMAGED, text, attempt.number, CONTROL, now_s))


def see_environment(job: Job, event: JobEvent, now_s: float) -> Change:
    """Store the digest of the environment in which the ranks run."""
    assert isinstance(event, EnvironmentSeen)
    attempt = live_attempt(job)
    node = replace(attempt.nodes[event.node_index], environment=event.environment)
    return replace(job, attempt=with_node(attempt, event.node_index, node)), ()


def with_node(attempt: Attempt, index: int, node: NodeRun) -> Attempt:
    """The attempt with one of its agents replaced."""
    return replace(attempt, nodes=(*attempt.nodes[:index], node, *attempt.nodes[index + 1 :]))


def lose_node(job: Job, event: JobEvent, now_s: float) -> Change:
    """An agent is lost: end what is left of it at once, and stop the rest of the gang."""
    assert isinstance(event, NodeLost)
    attempt = live_attempt(job)
    node = attempt.nodes[event.node_index]
    if node.phase is NodePhase.ENDED or (node.lost and not event.declared):
        return job, ()
    declared = event.evidence if event.declared else node.declared_lost
    job = replace(job, attempt=with_node(attempt, event.node_index, replace(node, lost=True, declared_lost=declared)))
    if job.state is State.STOPPING:
        return job, (Stop(attempt.key(job.id, event.node_index), 0.0),)
    return stop_all(job, StopFor.FAILURE, event.evidence, now_s)


def end_node(job: Job, event: JobEvent, now_s: float) -> Change:
    """One agent has ended; a failure stops the rest of the gang. `AttemptEnded` decides about the whole attempt."""
    assert isinstance(event, NodeEnded)
    attempt = live_attempt(job)
    node = attempt.nodes[event.node_index]
    if node.phase is NodePhase.ENDED:
        return job, ()
    node = replace(node, phase=NodePhase.ENDED, outcome=event.outcome, ended_s=now_s)
    attempt = with_node(attempt, event.node_index, node)
    job = found_bad(replace(job, attempt=attempt), event.outcome.bad, now_s)
    if job.state is State.STOPPING or event.outcome.clean or not _live_nodes(attempt):
        return job, ()
    return stop_all(job, StopFor.FAILURE, f"node {event.node_index} of the gang failed", now_s)


def order_stop(job: Job, event: JobEvent, now_s: float) -> Change:
    """Stop the job for a time limit, an eviction, or to shrink it."""
    assert isinstance(event, StopOrdered)
    return stop_all(job, event.stop_for, event.reason, now_s)


def _least(job: Job, attempt: Attempt) -> Allocation:
    """The nodes that a shrunk job keeps and continues on: the first ones of its allocation (`scheduling.task.Run.least`)."""
    had = attempt.allocation
    return Allocation(had.shares[: job.spec.resources.nodes], had.choice)


def end_attempt(job: Job, event: JobEvent, now_s: float) -> Change:
    """Apply the recorded verdict. Incomplete checkpoints are deleted: their missing parts will never come."""
    assert isinstance(event, AttemptEnded)
    verdict = event.verdict
    attempt = live_attempt(job)
    elapsed_s = now_s - attempt.started_s if attempt.started_s is not None else 0.0
    ran_s = elapsed_s if event.ran_s is None else event.ran_s
    attempt = replace(attempt, ended_s=now_s, ran_s=event.ran_s, verdict=verdict, failure=verdict.failure)
    steps = [n.outcome.last_step for n in attempt.nodes if n.outcome is not None and n.outcome.last_step is not None]
    newest = job.good_checkpoints[-1].id if job.good_checkpoints else None
    deletes = tuple(DeleteCheckpoint(job.id, c.id) for c in job.staged)
    doubted = {id for n in attempt.nodes if n.outcome is not None for id in n.outcome.doubted}
    checkpoints = tuple(replace(c, doubts=c.doubts + 1) if c.id in doubted else c for c in job.checkpoints)
    began_s, _ = replace(job, attempt=attempt).span
    job = replace(
        job, state=verdict.state, reason=verdict.reason, attempt=attempt, stopping_for=None, stop_grace_s=None,
        started_s=began_s, ran_s=job.ran_s + ran_s, failure=verdict.failure,
        checkpoints=checkpoints, staged=(), deleting=(*job.deleting, *(c.id for c in job.staged)),
    )  # fmt: skip
    if verdict.state.ended:
        return replace(job, ended_s=now_s), deletes
    cause = verdict.failure.cause if verdict.failure is not None else None
    evicted = cause is Cause.EVICTED
    waited_s = job.waited_s + max(0.0, attempt.placed_s - job.queued_s) if evicted else 0.0
    job = replace(
        job, queued_s=now_s, waited_s=waited_s, not_before_s=now_s + verdict.delay_s, evictions=job.evictions + evicted
    )
    if cause is Cause.SHRUNK:
        job = replace(job, shrinks=job.shrinks + 1, promised=_least(job, attempt), keeps=True)
    if verdict.ledger is RestartBudget.NONE:
        return job, deletes
    advanced = job.progressed(attempt)
    return replace(
        job,
        restarts_program=job.restarts_program + (verdict.ledger is RestartBudget.PROGRAM),
        restarts_infrastructure=job.restarts_infrastructure + (verdict.ledger is RestartBudget.INFRASTRUCTURE),
        progress_step=max(steps, default=job.progress_step),
        progress_checkpoint=newest,
        fruitless_restarts=0 if advanced else job.fruitless_restarts + 1,
        fruitless_kills=0 if advanced else job.fruitless_kills + verdict.fruitless,
    ), deletes
