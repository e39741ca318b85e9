"""Lineage: the job that another job was made from."""

from dataclasses import dataclass
from enum import StrEnum

from trainmaster.model.checkpoints import Checkpoint


class Relation(StrEnum):
    """How a job relates to the job it was made from."""

    FORK = "fork"  # continues from one of its checkpoints, with changes
    REQUEUE = "requeue"  # runs it again, since the first one ended
    REPRODUCTION = "reproduction"  # runs it again to check that the result is the same


@dataclass(frozen=True, slots=True)
class Lineage:
    """The job this one was made from, and the checkpoint it starts from, if any.

    The checkpoint is stored completely, so that the job can start and restart whatever happens to `owner`, the job that made
    the checkpoint. A requeue or reproduction of a fork has the fork's checkpoint.
    """

    relation: Relation
    job: str
    checkpoint: Checkpoint | None = None
    owner: str | None = None  # None without a checkpoint

    @property
    def inherited(self) -> str | None:
        """The checkpoint's id among those that the job may resume from. It is distinct from the job's own ids."""
        return None if self.checkpoint is None else f"{self.owner}:{self.checkpoint.id}"
