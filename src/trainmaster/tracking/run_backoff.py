"""Backs off from runs on which a tracker fails although it answers, with growing intervals, so that other runs continue."""

from collections.abc import Callable
from typing import NamedTuple

_PAUSE_S, _PAUSE_MAX_S = 2.0, 300.0


class _Pause(NamedTuple):
    """End of the pause, its full length, and its reason."""

    until_s: float
    pause_s: float
    why: str


class RunBackoff:
    """Jobs whose runs are paused, by the monotonic `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pauses: dict[str, _Pause] = {}

    def pause(self, job: str, why: str) -> bool:
        """Pause a run after a failure. Returns whether it is the first failure since the last success."""
        before = self._pauses.get(job)
        pause_s = _PAUSE_S if before is None else min(2 * before.pause_s, _PAUSE_MAX_S)
        self._pauses[job] = _Pause(self._clock() + pause_s, pause_s, why)
        return before is None

    def is_paused(self, job: str) -> bool:
        """Whether the run is paused now."""
        pause = self._pauses.get(job)
        return pause is not None and self._clock() < pause.until_s

    def due(self) -> list[str]:
        """Runs to retry."""
        return [job for job in self._pauses if not self.is_paused(job)]

    def recover(self, job: str) -> None:
        """End the pause of a run without any work left. The cause may be gone for all: other runs are retried at once."""
        if self._pauses and job in self._pauses and not self.is_paused(job):
            del self._pauses[job]
            self._pauses = {other: pause._replace(until_s=self._clock()) for other, pause in self._pauses.items()}

    def forget(self, job: str) -> None:
        """Drop a run that no longer exists."""
        self._pauses.pop(job, None)

    def failures(self) -> dict[str, str]:
        """Every failing run, and why."""
        return {job: pause.why for job, pause in list(self._pauses.items())}
