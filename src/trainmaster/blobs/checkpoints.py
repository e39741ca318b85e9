"""Names of a job's blobs in the store: `checkpoints/<job>/<id>/n<i>/` and `artifacts/<job>/<sha256>`."""

from trainmaster.errors import OperationError
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.ports.blobs import Blobs
from trainmaster.wire.launch import ResumePoint


def checkpoint_name(job: str, checkpoint_id: str) -> str:
    """The prefix of one checkpoint."""
    return f"checkpoints/{job}/{checkpoint_id}"


def artifact_name(job: str, digest: str) -> str:
    """The blob of one artifact."""
    return f"artifacts/{job}/{digest}"


def delete_checkpoint(blobs: Blobs, job: str, checkpoint_id: str) -> None:
    """Remove the bytes of a checkpoint that retention gave up. A missing one is not an error."""
    blobs.delete_tree(checkpoint_name(job, checkpoint_id))


def resume_point(blobs: Blobs, job: str, checkpoint: Checkpoint) -> ResumePoint:
    """What an agent needs to restore `checkpoint`. Raises: OperationError if the store is not a directory."""
    root = blobs.local_path(checkpoint_name(job, checkpoint.id))
    if root is None:
        raise OperationError(f"the checkpoints of {job} are in a store that nodes do not see as a directory")
    return ResumePoint(
        id=checkpoint.id,
        step=checkpoint.step,
        approximate=checkpoint.approximate,
        root=root,
        digests={f"n{part.node_index}": part.digest for part in checkpoint.parts},
    )
