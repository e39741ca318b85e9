"""Decisions into events: verdicts over ended attempts, limits that are reached, and the scheduler's plan."""

from collections.abc import Callable, Sequence
from math import inf
from random import Random

from trainmaster.control import charging
from trainmaster.control.world import Batch
from trainmaster.model.events import AttemptEnded, Placed, Planned, PromiseBroken, Promised, StopOrdered, Waited, Warned
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt, Job, NodePhase, State, StopFor
from trainmaster.model.nodes import Node
from trainmaster.recovery.restart_policy import verdict_of
from trainmaster.scheduling.cycle import Carry, cycle
from trainmaster.scheduling.nouns import allocation
from trainmaster.scheduling.policy import Policy
from trainmaster.scheduling.snapshot import Handover
from trainmaster.scheduling.words import given_up, length

TELL_S = 60.0  # in which an agent that runs has surely told of itself, once it can reach the server
Heard = Callable[[AgentKey], float | None]  # when an agent was last heard of, in seconds since the epoch
MAKES_WAY, GIVES_BACK = "makes way for ", "gives back nodes for "  # and then for whom


def settle(batch: Batch, rng: Random, heard: Heard) -> None:
    """Judge every attempt that this tick saw the last agent of end."""
    for job_id in sorted(batch.jobs):
        job = batch.world.jobs[job_id]
        if job.state.live and job.attempt is not None and all(n.phase is NodePhase.ENDED for n in job.attempt.nodes):
            ran_s = _ran_s(job_id, job.attempt, batch.now_s, heard)
            batch.record(job_id, AttemptEnded(job.attempt.number, verdict_of(job, rng), ran_s))


def _ran_s(job_id: str, attempt: Attempt, now_s: float, heard: Heard) -> float | None:
    """How long its ranks ran, as its agents measured it: the server may have been away at its start or its end.

    Where none could tell (the machine went down), until they were last heard of, if that is long ago. None: until now.
    """
    told = [node.outcome.ran_s for node in attempt.nodes if node.outcome is not None and not node.outcome.lost]
    if told or attempt.started_s is None:
        return max(told, default=None)
    words = [heard(attempt.key(job_id, index)) for index in range(len(attempt.nodes))]
    last_s = max((word_s for word_s in words if word_s is not None), default=now_s)
    return max(0.0, last_s - attempt.started_s) if now_s - last_s > TELL_S else None


def enforce_limits(batch: Batch, looked: bool, since_s: float = -inf) -> float | None:
    """Stop what ran out of its time to run or to start; returns when the next one will, in seconds from now.

    Only where the engine was `looked` at: what seems to be over its limit may have ended before. 0: a look is wanted.
    `since_s`: since when agents can be heard. What started while they could not is given time to say so.
    """
    soonest: float | None = None
    for job_id in list(batch.world.held):
        job = batch.world.jobs[job_id]
        starting = job.state is State.STARTING
        left_s = start_left_s(job, batch.now_s) if starting else time_left_s(job, batch.now_s)
        if left_s is None:
            continue
        if starting:
            left_s = max(left_s, since_s + TELL_S - batch.now_s)
        if left_s <= 0 and looked:
            batch.record(job_id, _too_slow(job) if starting else _too_long(job))
        else:
            soonest = max(0.0, left_s if soonest is None else min(soonest, left_s))
    return soonest


def _too_long(job: Job) -> StopOrdered:
    return StopOrdered(StopFor.LIMIT, f"reached its time limit of {job.spec.time_limit_s:g} s")


def _too_slow(job: Job) -> StopOrdered:
    doing = "" if job.reason == "starting" else f": {job.reason}"
    limit = f"did not start within {length(job.spec.start_limit_s)}{doing}; start_limit in its spec allows more"
    return StopOrdered(StopFor.START, limit)


def start_left_s(job: Job, now_s: float) -> float | None:
    """What is left of the time in which a starting job's ranks are to run."""
    return None if job.attempt is None else job.spec.start_limit_s - (now_s - job.attempt.placed_s)


def time_left_s(job: Job, now_s: float) -> float | None:
    """What is left of a running job's time limit, which counts the running time of all its attempts; None without one."""
    if job.spec.time_limit_s is None or job.state is not State.RUNNING or job.attempt is None or job.attempt.started_s is None:
        return None
    return job.spec.time_limit_s - job.ran_s - (now_s - job.attempt.started_s)


def plan(batch: Batch, policy: Policy, carry: Carry, depth: int) -> Carry:
    """Run one cycle over the world as it is now, with room kept for `depth` jobs at most, and record what it changed."""
    snapshot = batch.world.snapshot(batch.now_s, depth)
    decided, carry = cycle(snapshot, policy, carry)
    nodes = tuple(batch.world.nodes[name] for name in sorted(batch.world.nodes))
    for id in decided.broken:
        batch.record(id, PromiseBroken("what was given back for it is not to be had any more: it waits like all others"))
    placed = []
    for placement in decided.placements:
        job = batch.world.jobs[placement.job]
        number = job.attempt.number + 1 if job.attempt else 1
        given = allocation(placement.grant, nodes, snapshot.waiting[job.id].kind.choice_of(placement.grant.ask))
        rates = charging.rates(given, batch.world.nodes, snapshot.rules)
        terms = dict(decided.terms.get(job.id, {}))
        batch.record(job.id, Placed(number, given, job.resumable(), rates, terms))
        _tell_start(batch, job, number)
        placed.append(f"{job.id}.{number}")
    handed = _hand_over(batch, decided.handovers, nodes)
    for task in list(batch.world.waiting.values()):
        if task.not_before_s > snapshot.now_s:
            continue  # it says so itself
        text = handed.get(task.id) or decided.reason(task, snapshot.now_s).text
        if batch.world.jobs[task.id].reason != text:
            batch.record(task.id, Waited(text))
    if placed or handed:
        batch.record_cluster(Planned(snapshot.seen_seq, tuple(placed), decided.depth, decided.policy))
    return carry


def _tell_start(batch: Batch, job: Job, number: int) -> None:
    """Say that attempt `number` does not start from the newest checkpoint; `job` is as it was before."""
    newest, resume = job.good_checkpoints[-1:], job.resumable()
    if not newest or resume[0] == newest[0].id:
        return
    first = next(c for c in job.checkpoints if c.id == resume[0])
    text = (
        f"{newest[0].label} could not be read in {newest[0].doubts} attempts: it goes on from {first.label}; nothing was "
        "deleted: check that the store can be read"
    )
    batch.record(job.id, Warned(number, -1, "restart", text))


def clear_windows(batch: Batch) -> None:
    """Stop what still runs on nodes whose maintenance has begun: it goes on elsewhere, from its last checkpoint."""
    now_s = batch.now_s
    batch.world.look_at_windows(now_s)
    sites = batch.world.sites
    for id, run in list(batch.world.running.items()):
        left = [sites[node].name for node in run.grant.nodes if node >= 0 and sites[node].cell.closes_s <= now_s]
        if left and not run.stopping:
            batch.record(id, StopOrdered(StopFor.EVICT, f"maintenance of {', '.join(left)}"))


def stop_of(handover: Handover, victim: str) -> StopOrdered:
    """What one is told who makes way, or gives back what it has beyond its least."""
    if victim in handover.shrunk:
        return StopOrdered(StopFor.SHRINK, GIVES_BACK + handover.job)
    return StopOrdered(StopFor.EVICT, MAKES_WAY + handover.job)


def _hand_over(batch: Batch, handovers: Sequence[Handover], nodes: tuple[Node, ...]) -> dict[str, str]:
    """Stop those who make way, and keep what they give back; why each job for which that is done waits meanwhile."""
    reasons = {}
    for one in handovers:
        choice = batch.world.waiting[one.job].kind.choice_of(one.grant.ask)
        batch.record(one.job, Promised(allocation(one.grant, nodes, choice), one.victims, one.shrunk))
        for victim in one.victims:
            if not batch.world.running[victim].stopping:
                batch.record(victim, stop_of(one, victim))
        reasons[one.job] = given_up(one.victims, one.shrunk)
    return reasons
