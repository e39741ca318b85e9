"""Removal of a job's stored bytes: recorded first, removed by effects, and cleared from the job when gone."""

from dataclasses import replace

from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect
from trainmaster.lifecycle.transitions import Change
from trainmaster.model.events import BytesGivenUp, BytesRemoved, JobEvent
from trainmaster.model.job import Job
from trainmaster.model.storage_kinds import OF_ANY, OF_ENDED, StorageKind


def give_up_bytes(job: Job, event: JobEvent, now_s: float) -> Change:
    """Give up bytes. Law: a job that is not over keeps everything that its next attempts need, and a checkpoint stays while
    a fork needs it.

    Control does not delete metrics: the api removes them once it reads from this event that they were given up.
    """
    assert isinstance(event, BytesGivenUp)
    allowed = (*OF_ENDED, *OF_ANY) if job.state.ended else OF_ANY
    kinds = tuple(kind for kind in allowed if kind in event.kinds)
    going: tuple[str, ...] = ()
    if StorageKind.CHECKPOINTS in kinds:
        going = tuple(checkpoint.id for checkpoint in job.checkpoints)
        job = replace(job, checkpoints=(), deleting=(*job.deleting, *going))
    clearing = tuple(kind.value for kind in kinds if kind not in (StorageKind.CHECKPOINTS, StorageKind.METRICS))
    removed = tuple(kind.value for kind in kinds if kind not in OF_ANY)
    job = replace(
        job,
        clearing=tuple(dict.fromkeys((*job.clearing, *clearing))),
        removed=tuple(dict.fromkeys((*job.removed, *removed))),
        removed_by=event.by if removed else job.removed_by,
    )
    effects: list[Effect] = [DeleteCheckpoint(job.id, id) for id in going]
    return job, (*effects, *(Clear(job.id, kind) for kind in clearing))


def remove_bytes(job: Job, event: JobEvent, now_s: float) -> Change:
    """The bytes are deleted."""
    assert isinstance(event, BytesRemoved)
    return replace(job, clearing=tuple(kind for kind in job.clearing if kind != event.kind)), ()
