"""Collects what shows whether the program went on from its checkpoint: its first steps, its losses, and the SDK's word.

The server judges it (`recovery.resumption`). What the user named counts as a loss: the primary metric, and the groups of the
pattern. Of several ranks, the lowest one that shows a step counts, because ranks are read one after the other. The first time
that has passed tells lines that are printed again, as Chainer prints its whole table after a restart, from those of new work.
"""

from __future__ import annotations

import math

from trainmaster.agent.metrics.counting import EpochCounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

CLOCKS = ("elapsed_time", "elapsed", "wall_time", "walltime", "total_time")  # as `model.progress.CLOCKS`
_HEAD = 3  # steps
_LOSSES = 4
_VALUE_MAX = 1e15
_NO_RANK = 1 << 62


class Evidence:
    """Memory and work per line are constant. `record` may be called from any thread.

    `named`: metrics that are compared as losses are, because the user named them. `epochs`: how the program numbers them.
    """

    def __init__(self, named: frozenset[str] = frozenset(), epochs: Optional[EpochCounts] = None) -> None:
        self._named = named
        self._epochs = epochs or EpochCounts()
        self._sdk: Optional[str] = None
        self._reported: Optional[tuple[Any, ...]] = None
        self.reset()

    def reset(self) -> None:
        """Forget the steps and losses: those of another source take precedence."""
        self._rank = _NO_RANK
        self._steps: list[int] = []
        self._last: Optional[int] = None
        self._fell_to: Optional[int] = None
        self._first_losses: dict[str, float] = {}
        self._last_losses: dict[str, float] = {}

    def recount(self, rank: int) -> bool:
        """Forget the steps so far if they are of this rank, and say so. They counted something else."""
        if rank == self._rank:
            self._steps, self._last, self._fell_to = [], None, None
        return rank == self._rank

    def point(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """Add what a rank shows. `step`: None if it names none, or if it was counted for the program."""
        if rank > self._rank:
            return
        if step is not None:
            if rank < self._rank:
                self.reset()
                self._rank = rank
            self._step(step)
        for name, value in values.items():
            lowered = name.lower()
            passed = lowered in CLOCKS and name not in self._named
            if ("loss" in lowered or name in self._named or passed) and math.isfinite(value) and abs(value) < _VALUE_MAX:
                if name not in self._first_losses and len(self._first_losses) < _LOSSES + passed:
                    self._first_losses = {**self._first_losses, name: value}
                if name in self._first_losses:
                    self._last_losses[name] = value

    def _step(self, step: int) -> None:
        last, self._last = self._last, step
        if last is None or step not in self._steps:
            self._steps = [*self._steps, step][:_HEAD]
        if last is not None and self._fell_to is None and step < last:
            first = self._steps[0]
            if step <= first or step - first < (last - first) / 2:  # a line about a step just before is no fall
                self._fell_to = step

    @property
    def stepped(self) -> bool:
        """Whether a step of this attempt is known."""
        return bool(self._steps)

    @property
    def fell(self) -> bool:
        """Whether the steps fell back in this attempt: later values replace those of the same steps."""
        return self._fell_to is not None

    def restored(self, loaded: bool) -> None:
        """The SDK loaded the checkpoint, or the program asked the SDK where it is."""
        self._sdk = "loaded" if loaded else self._sdk or "asked"

    def record(self) -> dict[str, Any]:
        """As `wire.messages.Progress`."""
        return {
            "steps": list(self._steps),
            "last_step": self._last,
            "fell_to": self._fell_to,
            "first": dict(self._first_losses),
            "last": {name: self._last_losses[name] for name in list(self._first_losses)},
            "epoch_first": self._epochs.first,
            "epoch_steps": self._epochs.steps,
            "epoch_anew": self._epochs.anew,
            "sdk": self._sdk,
        }

    def news(self) -> Optional[dict[str, Any]]:
        """The record if it says more than at the last call. That is the case a few times in an attempt at most."""
        says = (len(self._steps), self._fell_to, tuple(self._first_losses), self._sdk)
        if says == self._reported or says == (0, None, (), None):
            return None
        self._reported = says
        return self.record()
