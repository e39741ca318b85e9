"""Runs at which a tracker fails though it answers: left alone for a while, longer each time, so that the others go on."""

from collections.abc import Callable
from typing import NamedTuple

_REST_S, _REST_MAX_S = 2.0, 300.0


class _Rest(NamedTuple):
    """How long, how long that is altogether, and why."""

    until_s: float
    pause_s: float
    why: str


class RunBackoff:
    """Jobs whose runs rest, by the monotonic `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rests: dict[str, _Rest] = {}

    def put(self, job: str, why: str) -> bool:
        """It failed; whether for the first time since it was well."""
        before = self._rests.get(job)
        pause_s = _REST_S if before is None else min(2 * before.pause_s, _REST_MAX_S)
        self._rests[job] = _Rest(self._clock() + pause_s, pause_s, why)
        return before is None

    def holds(self, job: str) -> bool:
        """Whether it is to be left alone now."""
        rest = self._rests.get(job)
        return rest is not None and self._clock() < rest.until_s

    def due(self) -> list[str]:
        """Those to be tried again."""
        return [job for job in self._rests if not self.holds(job)]

    def well(self, job: str) -> None:
        """Nothing of it is left to be done. What ailed it may have ailed the others: they are tried at once."""
        if self._rests and job in self._rests and not self.holds(job):
            del self._rests[job]
            self._rests = {other: rest._replace(until_s=self._clock()) for other, rest in self._rests.items()}

    def forget(self, job: str) -> None:
        """There is no such run any more."""
        self._rests.pop(job, None)

    def told(self) -> dict[str, str]:
        """Every one that is not well, and why."""
        return {job: rest.why for job, rest in list(self._rests.items())}
