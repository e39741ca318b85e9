"""What giving up bytes does to a job: recorded first, removed then, and forgotten when they are gone."""

from dataclasses import replace

from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect
from trainmaster.lifecycle.transitions import Change
from trainmaster.model.events import BytesGivenUp, BytesRemoved, JobEvent
from trainmaster.model.job import Job
from trainmaster.model.storage_kinds import OF_ANY, OF_ENDED, StorageKind


def give_up_bytes(job: Job, event: JobEvent, now_s: float) -> Change:
    """Law: of a job that is not over only what none of its next attempts needs. A fork's checkpoint stays while it needs it.

    Metrics are not in control's hands: the api removes them once it reads here that they were given up.
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
    """They are gone."""
    assert isinstance(event, BytesRemoved)
    return replace(job, clearing=tuple(kind for kind in job.clearing if kind != event.kind)), ()
