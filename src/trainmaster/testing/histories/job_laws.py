"""Laws of one job's life, read from the log and checked against the truth of the machines.

- A checkpoint is marked bad only if some node found a different digest, and a bad one is not used again.
- Every good checkpoint of earlier attempts is offered at a start: a job never starts over while it has one.
- A checkpoint is deleted only if there is a good one of a later step, or on a person's request.
- A job fails for good only by its program's fault, its time limit, or after its last restart. Its program is blamed only if
  nothing from outside came first.
- A stopped agent ends soon; an agent on a node that a person declares lost ends even sooner.
- Nothing runs beyond its time limit, a gang runs from one checkpoint, and a recorded checkpoint has all its parts.
- A start that takes too long is stopped only if the launch was requested.
"""

from collections.abc import Iterable

from trainmaster.engines.simulated.truth import Truth, full_name
from trainmaster.lifecycle.machine import apply
from trainmaster.model import events as ev
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.job import Attempt, Cause, Job, State, StopFor
from trainmaster.ports.store import Recorded

_STOPPED_S = 200.0  # grace, partition, late record, dead control
_DECLARED_S = 60.0 + 30.0  # the engine has the first part to end what it still sees
_LATE_S = 35.0  # control may be dead or its disk full for a while, and in the calm it ticks once in 30 s
_OWN_SIGNALS = (None, 4, 6, 7, 8, 11)  # raised by the program itself; any other signal comes from outside


def life_problems(log: Iterable[Recorded], truth: Truth) -> list[str]:
    """Every law of a job's life that this history violated."""
    jobs: dict[str, Job] = {}
    found: list[str] = []
    declared_s: dict[tuple[str, int], float] = {}  # when a person declared the node of an agent lost
    for recorded in log:
        if recorded.job is None or isinstance(recorded.event, ev.Noted):
            continue
        before = jobs.get(recorded.job)
        job, _ = apply(before, recorded.job, recorded.event, recorded.now_s)  # type: ignore[arg-type]
        jobs[job.id] = job
        if before is None:
            continue
        found += [*_retention(before, job, recorded.event, truth), *_whole(before, job)]
        match recorded.event:
            case ev.Placed(resume=resume):
                found += _resume(before, resume)
            case ev.StopOrdered(stop_for=StopFor.START):
                found += _begun(job, truth)
            case ev.NodeStarted(bad=bad):
                found += _believed(job, bad)
            case ev.NodeLost(node_index=index, declared=True):
                declared_s.setdefault((job.id, index), recorded.now_s)
            case ev.ClockSet(by_s=by_s):
                declared_s.update({key: at_s + by_s for key, at_s in declared_s.items() if key[0] == job.id})
            case ev.NodeEnded(node_index=index, outcome=outcome):
                lost_s = declared_s.pop((job.id, index), None)
                found += [*_believed(job, outcome.bad), *_soon(before, index, recorded.now_s, lost_s)]
            case ev.AttemptEnded():
                found += [*_blame(before, job, truth), *_verdict(before, job, truth), *_limit(before)]
    return found


def _retention(before: Job, job: Job, event: object, truth: Truth) -> Iterable[str]:
    """Deleted checkpoints, and those marked bad."""
    for one in job.checkpoints:
        if not one.good and not truth.proven_bad(full_name(job.id, one.id)):
            yield f"{job.id} calls {one.id} bad, and no node found another digest"
    if isinstance(event, ev.CheckpointsGivenUp | ev.BytesGivenUp):
        return
    kept = {one.id for one in job.checkpoints}
    for gone in before.checkpoints:
        if gone.id not in kept and not any(one.good and _later(one, gone) for one in job.checkpoints):
            yield f"{job.id} gave up {gone.id} of step {gone.step} without a good one of a later step"


def _believed(job: Job, bad: tuple[str, ...]) -> Iterable[str]:
    """A digest that differs is proof: the checkpoint must not be good any more."""
    for one in job.checkpoints:
        if one.good and one.id in bad:
            yield f"{job.id} calls {one.id} good, which a node has just found damaged"


def _begun(job: Job, truth: Truth) -> Iterable[str]:
    """A start that was stopped for its limit must have been ordered."""
    keys = [job.attempt.key(job.id, index) for index in range(len(job.attempt.nodes))] if job.attempt is not None else []
    for key in set(keys) - truth.asked:
        yield f"{key} was stopped as it did not start, and the engine was never asked to start it"


def _soon(before: Job, index: int, now_s: float, declared_s: float | None) -> Iterable[str]:
    """An agent ends within a bounded time after the order, or after a person's declaration."""
    attempt = before.attempt
    if attempt is None or attempt.stopping_s is None:
        return
    since_s, allowed_s = attempt.stopping_s, _STOPPED_S
    if declared_s is not None:
        since_s, allowed_s = max(since_s, declared_s), _DECLARED_S
    if now_s - since_s > allowed_s:
        yield f"{attempt.key(before.id, index)} ended {now_s - since_s:.0f} s after it was to stop"


def _blame(before: Job, job: Job, truth: Truth) -> Iterable[str]:
    """The program is not blamed for failures from outside."""
    if job.attempt is None or job.attempt.failure is None or before.attempt is None:
        return
    first = truth.firsts.get((job.id, before.attempt.number))
    own = first is not None and first[1].signal in _OWN_SIGNALS
    if job.attempt.failure.cause in (Cause.PROGRAM, Cause.CRASH) and not own:
        yield f"{job.id}: the program is blamed for what came from outside: {job.reason}"


def _whole(before: Job, job: Job) -> Iterable[str]:
    """A checkpoint is committed with all its parts, and a gang runs from one checkpoint."""
    for one in job.checkpoints:
        if len(one.parts) != one.parts_expected:
            yield f"{one.id} of {job.id} is on record with {len(one.parts)} of {one.parts_expected} parts"
    begins = job.state is State.RUNNING and before.state is State.STARTING and job.attempt is not None
    restored = {node.restored for node in job.attempt.nodes} if begins and job.attempt is not None else set()
    if len(restored) > 1:
        yield f"{job.id} runs from different checkpoints: {restored}"


def _later(one: Checkpoint, other: Checkpoint) -> bool:
    if one.step is None or other.step is None:
        return (one.committed_s or 0.0) >= (other.committed_s or 0.0)
    return one.step > other.step or (one.step == other.step and one.id != other.id)


def _resume(job: Job, resume: tuple[str, ...]) -> Iterable[str]:
    """An attempt is offered all good checkpoints, and none that was found bad."""
    good = {one.id for one in job.good_checkpoints}
    if job.checkpoints and not resume:
        yield f"{job.id} starts from the beginning, with {[one.id for one in job.checkpoints]} on record"
    if missing := good - set(resume):
        yield f"{job.id} starts without {sorted(missing)}, which are good"
    if good and (bad := {one.id for one in job.checkpoints if not one.good} & set(resume)):
        yield f"{job.id} is to resume from {sorted(bad)}, which were found bad"


def _verdict(before: Job, job: Job, truth: Truth) -> Iterable[str]:
    """Whether an ended job has a reason for it."""
    if job.state is not State.FAILED or job.failure is None or before.attempt is None:
        return
    match job.failure.cause:
        case Cause.TIME_LIMIT | Cause.PROGRAM | Cause.CRASH:
            return
        case Cause.LAUNCH if not all(truth.proven_bad(full_name(job.id, ref)) for ref in before.attempt.resume):
            yield f"{job.id} failed for good as its program could not be started, which nothing kept from it"
        case cause if cause is not Cause.LAUNCH:
            if job.restarts_infrastructure < job.spec.restarts.infrastructure and not job.fruitless_restarts:
                yield f"{job.id} failed for good with restarts left: {job.reason}"


def _limit(job: Job) -> Iterable[str]:
    attempt, limit_s = job.attempt, job.spec.time_limit_s
    if attempt is None or limit_s is None or attempt.started_s is None:
        return
    ran_s = _ran_s(attempt)
    if ran_s is not None and ran_s > max(0.0, limit_s - job.ran_s) + _LATE_S:
        yield f"{attempt.key(job.id, 0)} ran {ran_s:.0f} s after {job.ran_s:.0f} s, and its limit is {limit_s:g} s"


def _ran_s(attempt: Attempt) -> float | None:
    """How long it ran before it was stopped; None if it ended by itself."""
    return None if attempt.stopping_s is None or attempt.started_s is None else attempt.stopping_s - attempt.started_s
