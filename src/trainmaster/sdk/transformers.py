"""Transformers: `Trainer(callbacks=[Callback()])` and `trainer.train(resume_from_checkpoint=resume_path())`.

What Trainer saves is handed over as it stands (hard links where the disk allows): its own `save_steps` count, and a
checkpoint that is asked for is saved in between.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, Optional

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainmaster.sdk.cadence import Cadence, heed_term
from trainmaster.sdk.channel import report
from trainmaster.sdk.checkpoints import checkpoint
from trainmaster.sdk.context import resume_dir
from trainmaster.sdk.torch import agreed


def resume_path() -> Optional[str]:
    """What `trainer.train(resume_from_checkpoint=…)` wants; None at a beginning and outside a job."""
    directory = resume_dir()
    return str(directory) if directory is not None else None


class Callback(TrainerCallback):
    """Reports what Trainer logs, hands its checkpoints over, and ends the training when it is asked to.

    `every`: save after each so many steps, besides `TrainingArguments.save_steps`; None: only those. Over several nodes
    `output_dir` must be one that they share.
    """

    def __init__(self, every: Optional[int] = None) -> None:
        self._cadence = Cadence(every)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Let the word to stop be obeyed at a step's end."""
        heed_term()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Have Trainer save, and end, when it is time for it."""
        order = agreed(self._cadence.ask(state.global_step))
        if order.save:
            control.should_save = True
        if order.stop:
            control.should_training_stop = True

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any) -> None:
        """Report every number that is logged."""
        logs: Dict[str, Any] = more.get("logs") or {}
        values = {name: value for name, value in logs.items() if isinstance(value, (int, float))}
        if values and state.is_world_process_zero:
            report(step=state.global_step, **values)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Hand over what was saved, once every rank has written its part."""
        if dist.is_available() and dist.is_initialized():
            dist.barrier()
        if state.is_world_process_zero:
            saved = os.path.join(args.output_dir or "", f"checkpoint-{state.global_step}")
            with checkpoint(state.global_step) as directory:
                shutil.copytree(saved, directory, dirs_exist_ok=True, copy_function=_link)
        if dist.is_available() and dist.is_initialized():
            dist.barrier()  # the oldest one may be removed by the next save


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
