"""The clock and the sleep of the loop, so that tests and the simulator own time."""

from typing import Protocol


class Clock(Protocol):
    """Time for decisions. Law: `now_s` never runs backwards, but by a step of the machine's clock that is recorded."""

    def now_s(self) -> float:
        """Seconds since the epoch: the machine's clock as it was last followed, moved on by the time since boot."""
        ...


class Waker(Protocol):
    """Lets the loop sleep until there is something to do."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until woken or `timeout_s` passed; True when woken. Several wakes in between count as one."""
        ...
