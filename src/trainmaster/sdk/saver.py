"""Base class of adapters for training loops that users write: `restore` before the loop, `after_step` inside it."""

from typing import TYPE_CHECKING, Any, Optional

from trainmaster.sdk.cadence import Cadence, Order, heed_term
from trainmaster.sdk.channel import report_values, tell_restored
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import rank, resume_dir

if TYPE_CHECKING:
    from pathlib import Path


class BaseSaver:
    """Reports, saves and stops. A framework's subclass defines how its state is written and read."""

    ranks = "one"  # the ranks that write the checkpoint: rank 0 ("one"), or each rank its own files ("all")

    def __init__(self, every: Optional[int] = None) -> None:
        self._cadence = Cadence(every)
        heed_term()

    def restore(self) -> int:
        """Load the restored checkpoint. Returns its step; 0 on a first start and outside a job."""
        directory = resume_dir()
        if directory is None:
            return 0
        step = self.read(directory)
        tell_restored(loaded=True)
        return step

    def after_step(self, step: int, **metrics: Any) -> bool:
        """Report rank 0's metrics, and save if it is due. Returns whether the loop should end now.

        With several ranks, call it on each of them after each step. Raises: TypeError if a metric is no number, and the
        framework's errors if it cannot write its state.
        """
        if metrics and rank() == 0:
            report_values(step, metrics)
        order = self.agree(self._cadence.ask(step))
        if order.save:
            with checkpoint(step, ranks=self.ranks) as directory:
                self.write(directory, step)
        return order.stop

    def agree(self, order: Order) -> Order:
        """The common answer of all ranks. Here it is this rank's own, for frameworks with one process."""
        return order

    def write(self, directory: "Path", step: int) -> None:
        """Write the state after `step` into `directory`."""
        raise NotImplementedError

    def read(self, directory: "Path") -> int:
        """Load the state from `directory`; returns its step."""
        raise NotImplementedError
