"""Transformers: `Trainer(callbacks=[Callback()])` and `trainer.train(resume_from_checkpoint=resume_path())`.

Trainer's own checkpoints (`save_steps`) are handed over unchanged, with hard links if possible. A requested checkpoint is
saved in between.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, Optional

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainmaster.sdk.cadence import Cadence, heed_term
from trainmaster.sdk.channel import report_values
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import resume_dir, tell_loaded
from trainmaster.sdk.torch import agreed


def resume_path() -> Optional[str]:
    """The value for `trainer.train(resume_from_checkpoint=…)`; None on a first start and outside a job."""
    directory = resume_dir()
    return str(directory) if directory is not None else None


class Callback(TrainerCallback):
    """Reports what Trainer logs, hands over its checkpoints, and ends the training on request.

    `every`: save every so many steps, in addition to `TrainingArguments.save_steps`; None: only those. With several nodes,
    `output_dir` must be a shared directory.
    """

    def __init__(self, every: Optional[int] = None) -> None:
        self._cadence = Cadence(every)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """From now on, obey the stop flag at the end of a step. Trainer has loaded its checkpoint by now, if it does."""
        heed_term()
        tell_loaded(state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Make Trainer save and stop when it is due."""
        order = agreed(self._cadence.ask(state.global_step))
        if order.save:
            control.should_save = True
        if order.stop:
            control.should_training_stop = True

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Report every logged number."""
        logs: Dict[str, Any] = more.get("logs") or {}
        values = {name: value for name, value in logs.items() if isinstance(value, (int, float))}
        if values and state.is_world_process_zero:
            report_values(state.global_step, values)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Hand over the saved checkpoint, after every rank has written its part."""
        if dist.is_available() and dist.is_initialized():
            dist.barrier()
        if state.is_world_process_zero:
            saved = os.path.join(args.output_dir or "", f"checkpoint-{state.global_step}")
            with checkpoint(state.global_step) as directory:
                shutil.copytree(saved, directory, dirs_exist_ok=True, copy_function=_link)
        if dist.is_available() and dist.is_initialized():
            dist.barrier()  # the next save may remove the oldest checkpoint


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)
