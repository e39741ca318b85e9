"""A step of the machine's clock: moves all dates of a job, so that no duration and no wait changes."""

from dataclasses import replace

from trainmaster.lifecycle.transitions import Change
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.events import ClockSet, JobEvent
from trainmaster.model.job import Attempt, Job
from trainmaster.model.options.start_conditions import StartConditions


def move_dates(job: Job, event: JobEvent, now_s: float) -> Change:
    """Law: the difference between any two dates of the job is unchanged, except a begin that a person gave as a date."""
    assert isinstance(event, ClockSet)
    by_s = event.by_s
    return replace(
        job,
        created_s=job.created_s + by_s,
        queued_s=job.queued_s + by_s,
        not_before_s=job.not_before_s + by_s if job.not_before_s else 0.0,
        start=_moved_start(job.start, by_s),
        started_s=_moved(job.started_s, by_s),
        ended_s=_moved(job.ended_s, by_s),
        attempt=None if job.attempt is None else moved_attempt(job.attempt, by_s),
        checkpoints=tuple(_moved_checkpoint(one, by_s) for one in job.checkpoints),
        staged=tuple(_moved_checkpoint(one, by_s) for one in job.staged),
        troubles=tuple(replace(one, since_s=one.since_s + by_s) for one in job.troubles),
        forecast=None if job.forecast is None else replace(job.forecast, at_s=job.forecast.at_s + by_s),
    ), ()


def moved_attempt(attempt: Attempt, by_s: float) -> Attempt:
    """The attempt with its dates moved."""
    return replace(
        attempt,
        placed_s=attempt.placed_s + by_s,
        started_s=_moved(attempt.started_s, by_s),
        stopping_s=_moved(attempt.stopping_s, by_s),
        ended_s=_moved(attempt.ended_s, by_s),
        nodes=tuple(replace(node, ended_s=_moved(node.ended_s, by_s)) for node in attempt.nodes),
    )


def _moved(time_s: float | None, by_s: float) -> float | None:
    return None if time_s is None else time_s + by_s


def _moved_start(start: StartConditions | None, by_s: float) -> StartConditions | None:
    """A begin that was given as a date stays what it was."""
    moves = start is not None and start.relative
    return replace(start, begin_s=_moved(start.begin_s, by_s)) if start is not None and moves else start


def _moved_checkpoint(one: Checkpoint, by_s: float) -> Checkpoint:
    return replace(one, committed_s=one.committed_s + by_s) if one.committed_s else one
