"""Accelerate: `Saver(accelerator, every=100)` around the loop, after `accelerator.prepare`.

`accelerator.save_state` saves model, optimizer, scheduler, scaler, random states and objects given to
`register_for_checkpointing`. To skip batches already seen, use `accelerator.skip_first_batches` or a stateful loader.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Optional

from accelerate import Accelerator

from trainmaster.sdk.cadence import Order
from trainmaster.sdk.saver import BaseSaver
from trainmaster.sdk.torch import agreed

if TYPE_CHECKING:
    from pathlib import Path

_STEP = "step.json"


class Saver(BaseSaver):
    """Checkpoints of everything an accelerator has prepared, on all ranks."""

    ranks = "all"

    def __init__(self, accelerator: Accelerator, every: Optional[int] = None) -> None:
        super().__init__(every)
        self._accelerator = accelerator
        accelerator.project_configuration.save_on_each_node = True  # each node restores the files that it wrote

    def agree(self, order: Order) -> Order:
        """Rank 0's answer, on every rank."""
        return agreed(order)

    def write(self, directory: Path, step: int) -> None:
        """Write the accelerator's state."""
        self._accelerator.save_state(str(directory))
        if self._accelerator.is_local_main_process:
            (directory / _STEP).write_text(json.dumps({"step": step}))

    def read(self, directory: Path) -> int:
        """Load the accelerator's state."""
        self._accelerator.load_state(str(directory))
        return int(json.loads((directory / _STEP).read_text())["step"])
