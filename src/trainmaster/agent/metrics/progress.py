"""How far the program is: the steps it named, and its metric points on their way to the server."""

from __future__ import annotations

import time
from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from trainmaster.agent.transport.outbox import Outbox

_KEPT = 2048  # steps remembered with their time: the last minutes, however fast they come
LONG_S = 60.0  # of steps, after which a program that saves nothing where it said is asked about
_ANY_STEP = float("inf")
_CLOCK_SET_BACK_S = 10.0  # what was remembered before is of no use then


class Progress:
    """Shared by the ranks of a node. Steps told through the SDK outrank printed ones."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._told = False
        self._seen: list[tuple[float, float]] = []  # ascending; another thread reads what it finds here
        self.first_step: Optional[int] = None
        self.last_step: Optional[int] = None
        self.named = 0  # steps so far, each told by however many ranks
        self.first_s = 0.0  # seconds since the epoch: when the first step was told
        self.written_s = 0.0  # seconds since the epoch: write time of the lines being read, set by the reader

    def step_at(self, time_s: float) -> Optional[int]:
        """The last step named by `time_s` (seconds since the epoch); None when there was none yet. Any thread may ask."""
        seen = self._seen
        index = bisect_right(seen, (time_s, _ANY_STEP))
        return int(seen[index - 1][1]) if index else None

    @property
    def stepping_s(self) -> float:
        """How long it has told steps, in seconds: from the first to the last of them."""
        return self._seen[-1][0] - self.first_s if self._seen else 0.0

    def warn(self, topic: str, text: str) -> None:
        """Tell what a person would want to know of the output."""
        self._outbox.warn(topic, text)

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
            self._seen = []
        self._step(step)
        if values:
            self._outbox.point(rank, step, values)

    def read(self, read: dict[str, int]) -> None:
        """How far an SDK file was read, once what it says was passed on: much of it is not held in memory."""
        self._outbox.points.keep(read, now=False)

    def logged(self, step: int, values: dict[str, float], counts: bool) -> None:
        """Values that rank 0 logged through a tracker's own calls. `counts`: a higher step than the last is progress.

        A step told so may as well count epochs, or be the 0 that stands for none: it never sets progress back.
        """
        if counts and not self._told and step > max(0, self.last_step or 0):
            self.written_s = time.time()
            self._step(step)
        self._outbox.point(0, step, values)

    def _step(self, step: Optional[int]) -> None:
        if step is not None:
            self.named += step != self.last_step
            self.last_step = step
            if self.first_step is None:
                self.first_step, self.first_s = step, self.written_s
            self._remember(step)

    def _remember(self, step: int) -> None:
        if self._seen and self._seen[-1][0] == self.written_s:
            self._seen[-1] = (self.written_s, step)
            return
        if self._seen and self._seen[-1][0] > self.written_s:
            if self._seen[-1][0] - self.written_s < _CLOCK_SET_BACK_S:
                return  # another rank's log, read a little later: the ranks of a gang go in step
            self._seen = []
        self._seen.append((self.written_s, step))
        if len(self._seen) > 2 * _KEPT:
            self._seen = self._seen[-_KEPT:]


class RoleProgress:
    """The metric points of a role: under its name, `evaluator/accuracy`, and saying nothing of how far the training is."""

    def __init__(self, outbox: Outbox, role: str) -> None:
        self._outbox = outbox
        self._role = role
        self._step: Optional[int] = None
        self.written_s = 0.0  # as of `Progress`

    def warn(self, topic: str, text: str) -> None:
        """Tell what a person would want to know of the output."""
        self._outbox.warn(topic, text)

    def printed(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """A line of its output."""
        self._step = step if step is not None else self._step
        if values:
            self._outbox.point(0, self._step, {f"{self._role}/{name}": value for name, value in values.items()})

    def reported(self, rank: int, step: Optional[int], values: dict[str, float]) -> None:
        """A metrics message of the SDK."""
        self.printed(rank, step, values)

    def read(self, read: dict[str, int]) -> None:
        """How far its SDK file was read."""
        self._outbox.points.keep(read, now=False)
