"""Decides about an ended attempt: finish, restart (and when), requeue or stop. Restarts are bounded and backed off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.model.job import Action, Attempt, Cause, Failure, Job, RestartBudget, State, StopFor, Verdict
from trainmaster.recovery.classify import classify, failed_before

if TYPE_CHECKING:
    from random import Random

BACKOFF_FIRST_S = 2.0  # the first restart is immediate; this is the delay of the second, doubled for each further one
BACKOFF_MAX_S = 600.0
_FRUITLESS_MAX = 5  # consecutive restarts after kills without progress
_QUICK_S = 60.0  # without steps and checkpoints, only attempts shorter than this count as without progress
_FREE_RENDEZVOUS = 5  # port collisions that are not charged; later ones are, so that they are bounded too


def verdict_of(job: Job, rng: Random) -> Verdict:
    """The verdict on `job`, all of whose agents have ended. `rng` only spreads the back-off."""
    attempt = job.attempt
    if attempt is None:
        raise ValueError(f"{job.id} has no attempt to decide about")
    if job.stopping_for is StopFor.CANCEL:
        return Verdict(Action.FINISH, State.CANCELLED, job.reason, failure=Failure(Cause.CANCELLED, job.reason))
    if _ended_well(attempt):
        return Verdict(Action.FINISH, State.SUCCEEDED, "every rank exited 0")
    failure = classify(attempt) or _unexplained(job, attempt)
    own = attempt.stopping_s is not None and failed_before(attempt, attempt.stopping_s)  # its end was still being stored
    match job.stopping_for:
        case StopFor.LIMIT if own and failure.cause in (Cause.PROGRAM, Cause.CRASH):
            return _stop(_because(failure, f"not restarted: it {job.reason}"))
        case StopFor.LIMIT:
            return _stop(Failure(Cause.TIME_LIMIT, job.reason))
        case StopFor.EVICT if not own:
            failure = Failure(Cause.EVICTED, job.reason)
            return Verdict(Action.REQUEUE, State.QUEUED, f"requeued: {job.reason}", failure=failure)
        case StopFor.SHRINK if not own:
            failure = Failure(Cause.SHRUNK, job.reason)
            return Verdict(Action.REQUEUE, State.QUEUED, f"continues on fewer nodes: {job.reason}", failure=failure)
        case StopFor.START if not own and failure.cause not in (Cause.LAUNCH, Cause.MACHINE):
            failure = Failure(Cause.START_LIMIT, job.reason)
    return _of_failure(job, attempt, failure, rng)


def _of_failure(job: Job, attempt: Attempt, failure: Failure, rng: Random) -> Verdict:
    match failure.cause:
        case Cause.OUT_OF_MEMORY:
            return _stop(failure)
        case Cause.LAUNCH if not any(n.outcome is not None and n.outcome.lost for n in attempt.nodes):
            return _stop(failure)  # the program cannot be started: a restart would fail the same way
        case Cause.PROGRAM | Cause.CRASH:
            return _program(job, attempt, failure, rng)
        case Cause.RENDEZVOUS if _free_restarts(job, attempt) <= _FREE_RENDEZVOUS:
            return Verdict(Action.RESTART, State.QUEUED, f"restarting: {failure.message}", 0.0, RestartBudget.NONE, failure)
        case _:
            return _infrastructure(job, failure, rng)


def backoff_s(restarts: int, rng: Random) -> float:
    """Delay before consecutive restart `restarts + 1`: none at first, then doubled, ± 25 % to spread simultaneous restarts."""
    if restarts == 0:
        return 0.0
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(restarts - 1, 16)) * rng.uniform(0.75, 1.25)


def _ended_well(attempt: Attempt) -> bool:
    outcomes = [n.outcome for n in attempt.nodes]
    return all(o is not None and o.clean and not any(r.stopped_by_us for r in o.ranks) and o.ranks for o in outcomes)


def _free_restarts(job: Job, attempt: Attempt) -> int:
    """How many of its attempts no budget pays for, with this one. Those that were evicted or shrunk do not count."""
    return attempt.number - job.restarts_program - job.restarts_infrastructure - job.evictions - job.shrinks


def _unexplained(job: Job, attempt: Attempt) -> Failure:
    """The failure if ranks were stopped and no agent knows why."""
    if any(node.lost for node in attempt.nodes):
        return Failure(Cause.AGENT_LOST, job.reason)
    if job.stopping_for is StopFor.FAILURE:  # its nodes restored different checkpoints
        return Failure(Cause.MACHINE, job.reason)
    return Failure(Cause.KILLED, "its ranks were stopped, and its agent does not say why")  # one of an older version


def _stop(failure: Failure) -> Verdict:
    return Verdict(Action.STOP, State.FAILED, failure.message, failure=failure)


def _program(job: Job, attempt: Attempt, failure: Failure, rng: Random) -> Verdict:
    if not job.progressed(attempt) and not _unread(attempt):
        return _stop(_because(failure, f"not restarted: {_standstill(job, attempt)}"))
    allowed = job.spec.restarts.program
    if job.restarts_program >= allowed:
        return _stop(_because(failure, f"not restarted: its {allowed} program restarts are spent"))
    delay_s = backoff_s(job.restarts_program, rng)
    return Verdict(Action.RESTART, State.QUEUED, f"restarting: {failure.message}", delay_s, RestartBudget.PROGRAM, failure)


def _infrastructure(job: Job, failure: Failure, rng: Random) -> Verdict:
    allowed = job.spec.restarts.infrastructure
    if job.restarts_infrastructure >= allowed:
        return _stop(_because(failure, f"not restarted: its {allowed} infrastructure restarts are spent"))
    advanced = job.attempt is not None and job.progressed(job.attempt)
    killed = failure.cause in (Cause.KILLED, Cause.AGENT_LOST)
    fruitless = not advanced and (failure.cause is Cause.START_LIMIT or (killed and _nowhere(job)))
    if fruitless and job.fruitless_kills >= _FRUITLESS_MAX:
        return _stop(_because(failure, f"not restarted: {_FRUITLESS_MAX + 1} times in a row it made no progress"))
    delay_s = backoff_s(0 if advanced else job.fruitless_restarts, rng)
    reason = f"restarting: {failure.message}"
    return Verdict(Action.RESTART, State.QUEUED, reason, delay_s, RestartBudget.INFRASTRUCTURE, failure, fruitless)


def _unread(attempt: Attempt) -> bool:
    """Whether output could not be read: then a lack of steps proves nothing."""
    return any(node.outcome is not None and node.outcome.unread for node in attempt.nodes)


def _standstill(job: Job, attempt: Attempt) -> str:
    """Why it does not count as progress. A program that names no steps may have made some, so that is not denied."""
    named = any(node.outcome is not None and node.outcome.last_step is not None for node in attempt.nodes)
    if not named and job.progress_step is None and not job.checkpoints:
        return "no progress was seen: no step was read of its output, and no checkpoint of it is stored"
    since = "" if job.restarts_program + job.restarts_infrastructure == 0 else " since its last failure"
    return f"it made no progress{since}"


def _nowhere(job: Job) -> bool:
    """Whether lack of progress is certain: the job reports its progress, or the attempt ended within a minute."""
    attempt = job.attempt
    if attempt is None or _unread(attempt):
        return False
    outcomes = [n.outcome for n in attempt.nodes if n.outcome is not None]
    if job.progress_step is not None or job.progress_checkpoint is not None or any(o.last_step is not None for o in outcomes):
        return True
    until_s = attempt.stopping_s or attempt.started_s or 0.0
    ran_s = until_s - attempt.started_s if attempt.started_s is not None else 0.0
    return max([ran_s, *(o.ran_s for o in outcomes)]) < _QUICK_S


def _because(failure: Failure, why: str) -> Failure:
    return Failure(
        failure.cause, f"{failure.message}; {why}", failure.rank, failure.exit_code, failure.signal, failure.last_lines
    )
