"""The clock and the sleep of the loop, so that tests and the simulator own time."""

from typing import Protocol


class Clock(Protocol):
    """Time for decisions. Law: `now_s` never runs backwards, whatever the wall clock does."""

    def now_s(self) -> float:
        """Seconds since the epoch: the later of wall clock and last recorded time at start, monotonic from then on."""
        ...


class Waker(Protocol):
    """Lets the loop sleep until there is something to do."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until woken or `timeout_s` passed; True when woken. Several wakes in between count as one."""
        ...
