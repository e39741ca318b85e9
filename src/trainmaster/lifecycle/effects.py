"""Effects: what to do next, as values compared with `==`. Each is idempotent under its key."""

from dataclasses import dataclass

from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, StopFor

GRACE_S = 30.0  # TERM to KILL when a person, a limit or the policy ends an attempt: time for a last checkpoint
FAILURE_GRACE_S = 2.0  # when the gang has failed: the other ranks hang in a collective and cannot save


def grace_s(job: Job) -> float:
    """Grace from TERM to KILL of a job that is `stopping`, in seconds. A cancel may set its own."""
    if job.stopping_for in (StopFor.FAILURE, StopFor.START):
        return FAILURE_GRACE_S
    return GRACE_S if job.stop_grace_s is None else job.stop_grace_s


@dataclass(frozen=True, slots=True)
class Launch:
    """Have the engine start this agent."""

    key: AgentKey


@dataclass(frozen=True, slots=True)
class Stop:
    """Have the engine stop this agent and all it started."""

    key: AgentKey
    grace_s: float


@dataclass(frozen=True, slots=True)
class DeleteCheckpoint:
    """Remove the bytes of a checkpoint that retention no longer keeps."""

    job: str
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove the bytes of one kind (`model.storage_kinds.StorageKind`) of a job."""

    job: str
    kind: str


Effect = Launch | Stop | DeleteCheckpoint | Clear
