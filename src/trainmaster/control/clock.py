"""The clock that decisions run by."""

import time


class SteadyClock:
    """`ports.clock.Clock`: starts at the later of wall clock and last recorded time, then runs by the monotonic clock."""

    def __init__(self, not_before_s: float) -> None:
        self._origin_s = max(time.time(), not_before_s) - time.monotonic()

    def now_s(self) -> float:
        """Seconds since the epoch; never backwards, whatever happens to the wall clock meanwhile."""
        return self._origin_s + time.monotonic()
