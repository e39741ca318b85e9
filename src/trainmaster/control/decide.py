"""Turns decisions into events: verdicts on ended attempts, time limits, and the scheduler's plan."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from trainmaster.control import charging
from trainmaster.control.world import Batch
from trainmaster.model.cluster import Cluster
from trainmaster.model.events import (
    AttemptEnded,
    Placed,
    Planned,
    PromiseBroken,
    Promised,
    StartAllowed,
    StartRefused,
    StopOrdered,
    Waited,
    Warned,
)
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt, Job, NodePhase, State, StopFor
from trainmaster.model.nodes import Node
from trainmaster.model.options.start_conditions import Dependency, StartConditions, When, waiting_text
from trainmaster.recovery.restart_policy import verdict_of
from trainmaster.scheduling.cycle import cycle, kept
from trainmaster.scheduling.model.convert import allocation
from trainmaster.scheduling.model.snapshot import Handover
from trainmaster.scheduling.model.words import given_up, length
from trainmaster.scheduling.policies.known import chosen
from trainmaster.scheduling.policies.policy import Policy

HEARD_WITHIN_S = 60.0  # a running agent that can reach the server reports within this time
_ENDS = {When.OK: (State.SUCCEEDED,), When.ANY: (State.SUCCEEDED, State.FAILED, State.CANCELLED), When.FAILED: (State.FAILED,)}
_VERBS = {State.SUCCEEDED: "has succeeded", State.FAILED: "has failed", State.CANCELLED: "was cancelled"}
Heard = Callable[[AgentKey], float | None]  # time of an agent's last heartbeat, in seconds since the epoch
MAKES_WAY, GIVES_BACK = "makes way for ", "gives back nodes for "  # followed by the id of the preempting job


@dataclass(slots=True)
class Contact:
    """Whether agents can reach the server, and when they last did."""

    heard: Heard | None = None  # of an agent: None if it sent no heartbeat, inf if that is not known. Itself None: of no agent
    since_s: float = -inf  # the time from which agents can reach the server

    def reported_by_s(self) -> float:
        """The time by which every running agent has reported what happened before."""
        return self.since_s + HEARD_WITHIN_S

    def lost_s(self, keys: Iterable[AgentKey], known_s: float, now_s: float) -> float | None:
        """When any of these agents was last heard of, if that is long ago: by its heartbeat, else `known_s`. None: lately."""
        if self.heard is None:
            return None
        words = [self.heard(key) for key in keys]
        last_s = max((word_s for word_s in words if word_s is not None), default=known_s)
        return last_s if now_s - last_s > HEARD_WITHIN_S else None


def settle(batch: Batch, rng: Random, contact: Contact) -> None:
    """Record a verdict for every attempt whose last agent ended in this tick."""
    for job_id in sorted(batch.jobs):
        job = batch.world.jobs[job_id]
        if job.state.live and job.attempt is not None and all(n.phase is NodePhase.ENDED for n in job.attempt.nodes):
            ran_s = _ran_s(job, job.attempt, batch.now_s, contact)
            batch.record(job_id, AttemptEnded(job.attempt.number, verdict_of(job, rng), ran_s))


def settle_starts(batch: Batch) -> None:
    """Let blocked jobs start, cancel those that never can, and update the reasons of the others."""
    gate = batch.world.gate
    while due := gate.take_due(batch.now_s):  # a job that is cancelled here may be what others wait for
        found = [job for id in due if (job := batch.world.jobs.get(id)) is not None]
        for job in sorted(found, key=lambda one: one.seq):
            if job.blocked and job.start is not None:
                _look_at(batch, job, job.start)


def _look_at(batch: Batch, job: Job, conditions: StartConditions) -> None:
    left = []
    for one in conditions.after:
        parent = batch.known(one.job)
        if parent is None or not parent.state.ended:  # one that the log does not know: wait, do not cancel
            left.append(one)
        elif parent.state not in _ENDS[one.when]:
            batch.record(job.id, StartRefused(one.job, _refusal(one, parent.state)))
            return
    early = conditions.begin_s is not None and batch.now_s < conditions.begin_s
    lacks_turn = batch.world.gate.lacks_turn(job)
    batch.world.gate.wait_for_turn(job, lacks_turn and not (left or early))  # its turn comes after everything else
    waits = bool(left) or early or lacks_turn
    unmet = replace(
        conditions,
        after=tuple(left),
        begin_s=conditions.begin_s if early else None,
        at_most=conditions.at_most if waits else 0,
        max_running=conditions.max_running if waits else 0,
    )
    if not unmet:
        batch.record(job.id, StartAllowed("; ".join(_met(conditions))))
        return
    reason = waiting_text(unmet, job.owner)
    if not job.hold and job.reason != reason:
        batch.record(job.id, Waited(reason))


def _refusal(one: Dependency, state: State) -> str:
    wanted = {When.OK: "success", When.ANY: "end", When.FAILED: "failure"}[one.when]
    return f"{one.job} {_VERBS[state]}, and this job was to start only after its {wanted}"


def _met(conditions: StartConditions) -> Iterator[str]:
    if conditions.after:
        yield f"{' and '.join(one.job for one in conditions.after)} ended"
    if conditions.begin_s is not None:
        yield "its begin time has come"
    if conditions.at_most:
        yield "it is its turn in its array"
    if conditions.max_running:
        few = f"fewer than {conditions.max_running}" if conditions.max_running > 1 else "none"
        yield f"{few} of its owner's other jobs run"


def _ran_s(job: Job, attempt: Attempt, now_s: float, contact: Contact) -> float | None:
    """How long the ranks of an attempt ran, as measured by its agents: the server may have been down at start or end.

    If no agent could report (the machine went down), the time until the last heartbeat, if that is old; without one, until the
    last checkpoint that a server recorded before this one; without that, none. None: until now.
    """
    told = [node.outcome.ran_s for node in attempt.nodes if node.outcome is not None and not node.outcome.lost]
    if told or attempt.started_s is None:
        return max(told, default=None)
    keys = (attempt.key(job.id, index) for index in range(len(attempt.nodes)))
    saved = [one.committed_s for one in job.checkpoints if one.attempt == attempt.number and one.committed_s < contact.since_s]
    last_s = contact.lost_s(keys, max([attempt.started_s, *saved]), now_s)
    return None if last_s is None else max(0.0, last_s - attempt.started_s)


def enforce_limits(batch: Batch, looked: bool, contact: Contact | None = None) -> float | None:
    """Stop jobs that reached their time limit or start limit. Returns the time until the next limit, in seconds from now.

    Jobs are stopped only if the engine was observed (`looked`): a job that seems to be over its limit may have ended before.
    Returns 0 to request an observation. A job that started before agents could reach the server gets time to report that.
    """
    reported_by_s = (contact or Contact()).reported_by_s()
    soonest: float | None = None
    for job_id in list(batch.world.workload.running):
        job = batch.world.jobs[job_id]
        starting = job.state is State.STARTING
        left_s = start_left_s(job, batch.now_s) if starting else time_left_s(job, batch.now_s)
        if left_s is None:
            continue
        if starting:
            left_s = max(left_s, reported_by_s - batch.now_s)
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
    """Time left for a starting job's ranks to start."""
    return None if job.attempt is None else job.spec.start_limit_s - (now_s - job.attempt.placed_s)


def time_left_s(job: Job, now_s: float) -> float | None:
    """Time left of a running job's time limit, which counts the run time of all attempts; None without a limit."""
    if job.spec.time_limit_s is None or job.state is not State.RUNNING or job.attempt is None or job.attempt.started_s is None:
        return None
    return job.spec.time_limit_s - job.ran_s - (now_s - job.attempt.started_s)


@dataclass(slots=True)
class Planner:
    """Runs a scheduling cycle when its input may have changed."""

    choose: Callable[[Cluster], Policy] = chosen
    queue_changed: bool = True

    def plan(self, batch: Batch) -> None:
        """Record a plan if jobs wait and anything has changed since the last one."""
        if batch.world.workload.waiting and (self.queue_changed or batch.events):
            plan(batch, self.choose(batch.world.rules))
        self.queue_changed = False


def plan(batch: Batch, policy: Policy) -> None:
    """Run one scheduling cycle, and record the changes."""
    snapshot, load = batch.world.snapshot(batch.now_s), batch.world.workload
    load.state = kept(load.state, snapshot, policy)
    decided = cycle(snapshot, policy, load.state)
    nodes = tuple(batch.world.nodes[name] for name in sorted(batch.world.nodes))
    for id in decided.broken:
        batch.record(id, PromiseBroken("the nodes reserved for it are no longer available: it waits in the queue again"))
    placed = []
    for placement in decided.placements:
        job = batch.world.jobs[placement.job]
        number = job.attempt.number + 1 if job.attempt else 1
        given = allocation(placement.grant, nodes, snapshot.waiting[job.id].kind.choice_of(placement.grant.ask))
        rates = charging.rates(given, batch.world.nodes, snapshot.rules)
        terms = dict(decided.terms.get(job.id, {}))
        batch.record(job.id, Placed(number, given, job.resumable(), rates, terms))
        _warn_older_start(batch, job, number)
        placed.append(f"{job.id}.{number}")
    handed = _hand_over(batch, decided.handovers, nodes)
    for task in list(batch.world.workload.waiting.values()):
        if task.not_before_s > snapshot.now_s:
            continue  # its reason already says so
        text = handed.get(task.id) or decided.reason(task, snapshot.now_s).text
        if batch.world.jobs[task.id].reason != text:
            batch.record(task.id, Waited(text))
    if placed or handed:
        batch.record_cluster(Planned(snapshot.seen_seq, tuple(placed), decided.depth, decided.policy))


def _warn_older_start(batch: Batch, job: Job, number: int) -> None:
    """Warn that attempt `number` does not start from the newest checkpoint. `job` is its value before the attempt."""
    newest, resume = job.good_checkpoints[-1:], job.resumable()
    if not newest or resume[0] == newest[0].id:
        return
    first = next(c for c in job.checkpoints if c.id == resume[0])
    text = (
        f"{newest[0].label} could not be read in {newest[0].doubts} attempts: the job resumes from {first.label}; nothing was "
        "deleted: check that the store can be read"
    )
    batch.record(job.id, Warned(number, -1, "restart", text))


def clear_windows(batch: Batch) -> None:
    """Evict jobs on nodes whose maintenance has begun. They resume elsewhere from their last checkpoint."""
    now_s = batch.now_s
    batch.world.apply_windows(now_s)
    sites = batch.world.sites.all
    for id, run in list(batch.world.workload.running.items()):
        left = [sites[node].name for node in run.grant.nodes if node >= 0 and sites[node].cell.closes_s <= now_s]
        if left and not run.stopping:
            batch.record(id, StopOrdered(StopFor.EVICT, f"maintenance of {', '.join(left)}"))


def stop_of(handover: Handover, victim: str) -> StopOrdered:
    """The stop order for a preemption victim, or for a job that gives back nodes beyond its minimum."""
    if victim in handover.shrunk:
        return StopOrdered(StopFor.SHRINK, GIVES_BACK + handover.job)
    return StopOrdered(StopFor.EVICT, MAKES_WAY + handover.job)


def _hand_over(batch: Batch, handovers: Sequence[Handover], nodes: tuple[Node, ...]) -> dict[str, str]:
    """Stop the victims of each handover and reserve their nodes. Returns the waiting reason of each preempting job."""
    reasons = {}
    for one in handovers:
        choice = batch.world.workload.waiting[one.job].kind.choice_of(one.grant.ask)
        batch.record(one.job, Promised(allocation(one.grant, nodes, choice), one.victims, one.shrunk))
        for victim in one.victims:
            if not batch.world.workload.running[victim].stopping:
                batch.record(victim, stop_of(one, victim))
        reasons[one.job] = given_up(one.victims, one.shrunk)
    return reasons
