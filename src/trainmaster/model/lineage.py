"""Where a job comes from that was made out of another one."""

from dataclasses import dataclass
from enum import StrEnum

from trainmaster.model.checkpoints import Checkpoint


class Relation(StrEnum):
    """What a job is to the one it was made from."""

    FORK = "fork"  # goes on from one of its checkpoints, with something changed
    REQUEUE = "requeue"  # the same once more, since the first one ended
    REPRODUCTION = "reproduction"  # the same once more, to see whether the same comes out


@dataclass(frozen=True, slots=True)
class Lineage:
    """The job this one was made from, and the checkpoint it starts from: a fork's, or that of what is made of a fork.

    The checkpoint is complete here, so that the job can be started, and started again, whatever became of `owner`, whose
    it is.
    """

    relation: Relation
    job: str
    checkpoint: Checkpoint | None = None
    owner: str | None = None  # None without a checkpoint

    @property
    def inherited(self) -> str | None:
        """The checkpoint's name among those the job may resume from: none of its own is called so."""
        return None if self.checkpoint is None else f"{self.owner}:{self.checkpoint.id}"
