"""Backs off from runs on which a tracker fails although it answers, with growing intervals, so that other runs continue."""

from collections.abc import Callable
from typing import NamedTuple

_REST_S, _REST_MAX_S = 2.0, 300.0


class _Rest(NamedTuple):
    """End of the pause, its full length, and its reason."""

    until_s: float
    pause_s: float
    why: str


class RunBackoff:
    """Jobs whose runs are paused, by the monotonic `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rests: dict[str, _Rest] = {}

    def put(self, job: str, why: str) -> bool:
        """Pause a run after a failure. Returns whether it is the first failure since the last success."""
        before = self._rests.get(job)
        pause_s = _REST_S if before is None else min(2 * before.pause_s, _REST_MAX_S)
        self._rests[job] = _Rest(self._clock() + pause_s, pause_s, why)
        return before is None

    def holds(self, job: str) -> bool:
        """Whether the run is paused now."""
        rest = self._rests.get(job)
        return rest is not None and self._clock() < rest.until_s

    def due(self) -> list[str]:
        """Runs to retry."""
        return [job for job in self._rests if not self.holds(job)]

    def well(self, job: str) -> None:
        """End the pause of a run without any work left. The cause may be gone for all: other runs are retried at once."""
        if self._rests and job in self._rests and not self.holds(job):
            del self._rests[job]
            self._rests = {other: rest._replace(until_s=self._clock()) for other, rest in self._rests.items()}

    def forget(self, job: str) -> None:
        """Drop a run that no longer exists."""
        self._rests.pop(job, None)

    def told(self) -> dict[str, str]:
        """Every failing run, and why."""
        return {job: rest.why for job, rest in list(self._rests.items())}
