"""The shape of an adapter for a loop that people write themselves: `restore` before it, `after_step` in it."""

from typing import TYPE_CHECKING, Any, Optional

from trainmaster.sdk.cadence import Cadence, Order, heed_term
from trainmaster.sdk.channel import report
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import rank, resume_dir

if TYPE_CHECKING:
    from pathlib import Path


class BaseSaver:
    """Reports, saves and stops; a framework's own Saver says how its state is written and read."""

    ranks = "one"  # who writes the checkpoint: rank 0 ("one"), or each its own files ("all")

    def __init__(self, every: Optional[int] = None) -> None:
        self._cadence = Cadence(every)
        heed_term()

    def restore(self) -> int:
        """Load the checkpoint that was put back. Returns its step; 0 at a beginning and outside a job."""
        directory = resume_dir()
        return self.read(directory) if directory is not None else 0

    def after_step(self, step: int, **metrics: Any) -> bool:
        """Report rank 0's metrics, save if it is time to. Returns whether the loop should end now.

        Where there are several ranks, call it on each of them after each step. Raises: TypeError for a metric that is
        no number, and what the framework raises when it cannot write its state.
        """
        if metrics and rank() == 0:
            report(step=step, **metrics)
        order = self.agree(self._cadence.ask(step))
        if order.save:
            with checkpoint(step, ranks=self.ranks) as directory:
                self.write(directory, step)
        return order.stop

    def agree(self, order: Order) -> Order:
        """What all ranks do: here this rank's own answer, for a framework of one process."""
        return order

    def write(self, directory: "Path", step: int) -> None:
        """Write the state after `step` into `directory`."""
        raise NotImplementedError

    def read(self, directory: "Path") -> int:
        """Load the state from `directory`; the step it is of."""
        raise NotImplementedError
