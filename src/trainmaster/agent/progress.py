"""How far the program is: the steps it named, and its metric points on their way to the server."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.spool import Outbox


class Progress:
    """Shared by the ranks of a node. Steps told through the SDK outrank printed ones."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._told = False
        self.first_step: Optional[int] = None
        self.last_step: Optional[int] = None

    def printed(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """A line of a rank's output."""
        if not self._told:
            self._step(step)
        if values:
            self._outbox.point(rank, step if step is not None else self.last_step, values)

    def reported(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """A metrics message of the SDK."""
        if step is not None and not self._told:
            self._told = True
            self.first_step = None
        self._step(step)
        if values:
            self._outbox.point(rank, step, values)

    def _step(self, step: Optional[int]) -> None:
        if step is not None:
            self.last_step = step
            if self.first_step is None:
                self.first_step = step
