"""Selects the run by which an idle tracker is probed: if that run is gone, the tracker may have been wiped."""

from collections.abc import Callable

_PROBE_S = 30.0  # interval for asking an idle tracker whether it was wiped


class WipeProbe:
    """One run, and when the tracker was last asked for it, by the monotonic `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked_s = -_PROBE_S
        self.job = ""  # "": no run yet

    def begin(self, job: str) -> None:
        """Probe this run from now on."""
        self._asked_s, self.job = -_PROBE_S, job

    def offer(self, job: str) -> None:
        """Probe this run if there is none yet. The first is kept: a later run may have been created after a wipe."""
        self.job = self.job or job

    def drop(self, job: str) -> None:
        """This run is gone."""
        if self.job == job:
            self.job = ""

    def is_due(self) -> bool:
        """Whether to ask now."""
        return self.job != "" and self._clock() - self._asked_s >= _PROBE_S

    def note_asked(self, then: str) -> None:
        """The tracker is asked now; next time for the run of `then`."""
        self._asked_s, self.job = self._clock(), then
