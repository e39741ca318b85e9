"""Lightning: `Trainer(callbacks=[Callback(every=100)])` and `trainer.fit(model, ckpt_path=resume_path())`.

Lightning can resume in the middle of an epoch only if the data loader has `state_dict`. With other loaders, save at the end
of epochs (`every` = the steps of an epoch). This callback saves the random states of rank 0.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

import lightning.pytorch as pl
from lightning.pytorch.trainer.states import TrainerFn

from trainmaster.sdk.cadence import Cadence, heed_term
from trainmaster.sdk.channel import report_values
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import resume_dir, tell_loaded
from trainmaster.sdk.torch import agreed, random_states, set_random_states

_FILE = "lightning.ckpt"


def resume_path() -> Optional[str]:
    """The value for `trainer.fit(ckpt_path=…)`: the restored checkpoint; None on a first start and outside a job."""
    directory = resume_dir()
    return str(directory / _FILE) if directory is not None else None


class Callback(pl.Callback):
    """Reports what the module logs, saves checkpoints, and ends the training on request.

    `every`: save every so many optimizer steps; None: only on request and before a stop. Put it after other callbacks with
    a state, so that a checkpoint holds their state of the same step.
    """

    def __init__(self, every: Optional[int] = None) -> None:
        self._cadence = Cadence(every)
        self._random: Optional[Dict[str, Any]] = None  # restored before the first batch
        self._step = 0
        self._reported: Dict[str, Any] = {}  # the last value of each metric, to tell a new one from one that only remains

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Replace Lightning's SIGTERM handler, which ends the training before it is saved; restore the random states."""
        heed_term(instead=True)
        self._step = trainer.global_step
        if self._random is not None:
            set_random_states(self._random)
            tell_loaded(self._step)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After a batch that was also an optimizer step: report, save, stop."""
        step = trainer.global_step
        if step == self._step:
            return  # gradients are still being accumulated
        self._step = step
        if trainer.is_global_zero:
            report_values(step, self._new(trainer))  # the step itself is progress, also if nothing was logged
        order = agreed(self._cadence.ask(step))
        if order.save:
            with checkpoint(step) as directory:
                trainer.save_checkpoint(directory / _FILE)
        if order.stop:
            trainer.should_stop = True

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the validation at the step whose model it measured. It runs after the hook of that step's batch."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._report_between(trainer, self._new(trainer))

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report what was computed over the epoch before, at its last step. The module's own hook at its end may log, too."""
        self._report_between(trainer, self._new_of_epoch(trainer))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report what was computed over the last epoch."""
        self._report_between(trainer, self._new_of_epoch(trainer))

    def _report_between(self, trainer: pl.Trainer, values: Dict[str, Any]) -> None:
        if values and trainer.is_global_zero:
            report_values(trainer.global_step, values)

    def _new(self, trainer: pl.Trainer) -> Dict[str, Any]:
        """The metrics logged since the last call. Lightning keeps the values of the others, which are of earlier steps."""
        logged = {name: value for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        new = {name: value for name, value in logged.items() if not _same(self._reported.get(name), value)}
        self._reported.update(new)
        return new

    def _new_of_epoch(self, trainer: pl.Trainer) -> Dict[str, Any]:
        """Likewise, at the end of an epoch. A mean `…_epoch` is then also under the name that has the values of steps."""
        return {name: value for name, value in self._new(trainer).items() if f"{name}_epoch" not in trainer.callback_metrics}

    def state_dict(self) -> Dict[str, Any]:
        """The random states, for Lightning's checkpoint."""
        return {"random": random_states()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the random states from Lightning's checkpoint."""
        self._random = state_dict["random"]


def _same(before: Any, value: Any) -> bool:
    """Whether it is the tensor that was logged before, not an equal one. Lightning hands out each with a new object around it.

    `before` is kept, so its memory is not used for another one.
    """
    return before is not None and before.data_ptr() == value.data_ptr()
