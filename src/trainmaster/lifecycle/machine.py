"""Applies events. `apply` is the only place where a job's state changes, both live and on replay."""

from trainmaster.lifecycle.effects import Effect
from trainmaster.lifecycle.table import TABLE
from trainmaster.model.events import JobEvent, Submitted
from trainmaster.model.job import Job, State
from trainmaster.model.options.start_conditions import waiting_text


class TransitionError(ValueError):
    """An event that cannot happen in this state: a defect in the code that made the event, never bad outside input."""


def submit(job_id: str, event: Submitted, now_s: float) -> Job:
    """The job created by its submission."""
    start = event.start or None
    state = State.QUEUED if event.held is None and start is None else State.HELD
    reason = event.held or ("queued" if start is None else waiting_text(start, event.member or event.origin.user))
    return Job(
        id=job_id, seq=event.seq, spec=event.spec, origin=event.origin, code=event.code, created_s=event.created_s,
        state=state, reason=reason, queued_s=now_s, lineage=event.lineage, data=event.data,
        urgent=event.urgent,
        member=event.member, start=start, blocked=start is not None, hold=event.held or "",
    )  # fmt: skip


def apply(job: Job | None, job_id: str, event: JobEvent, now_s: float) -> tuple[Job, tuple[Effect, ...]]:
    """The job after `event`, and the effects to run.

    Raises: TransitionError for a pair that is not in the table, or an event of another attempt.
    """
    if isinstance(event, Submitted):
        if job is not None:
            raise TransitionError(f"{job_id} was submitted twice")
        return submit(job_id, event, now_s), ()
    if job is None:
        raise TransitionError(f"{type(event).__name__} for {job_id}, which does not exist")
    row = TABLE.get((job.state, type(event)))
    if row is None:
        raise TransitionError(f"{type(event).__name__} cannot happen to {job_id}, which is {job.state}")
    number = getattr(event, "attempt", None)
    expected = _expected_attempt(job, event)
    if number is not None and number != expected:
        raise TransitionError(f"{type(event).__name__} carries attempt {number} of {job_id}; expected {expected}")
    changed, effects = row.do(job, event, now_s)
    if changed.state not in row.to:
        raise TransitionError(f"{type(event).__name__} led {job_id} from {job.state} to {changed.state}: not in its row")
    return changed, effects


def accepts(job: Job, event: JobEvent) -> bool:
    """Whether `event` may be recorded for `job`: the table has a row for it, and it belongs to the live attempt."""
    if (job.state, type(event)) not in TABLE:
        return False
    number = getattr(event, "attempt", None)
    return number is None or number == _expected_attempt(job, event)


def _expected_attempt(job: Job, event: JobEvent) -> int:
    current = job.attempt.number if job.attempt else 0
    return current + 1 if type(event).__name__ == "Placed" else current
