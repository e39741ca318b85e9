"""The loop's clock and sleep, so that tests and the simulator can control time."""

from typing import Protocol


class Clock(Protocol):
    """Time for decisions. Law: `now_s` never runs backwards, except by a recorded step of the machine's clock."""

    def now_s(self) -> float:
        """Seconds since the epoch: the machine's date when it was last followed, plus the time passed since."""
        ...


class Waker(Protocol):
    """Lets the loop sleep until there is work."""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until woken or until `timeout_s` has passed. True if woken; several wakes may count as one."""
        ...
