"""The clocks of a simulated machine: time since boot, which moves only on command, and a wall clock that can be set."""

from dataclasses import dataclass

_BOOT_S = 1000.0


@dataclass(slots=True)
class Clocks:
    """`now_s` is the time since boot, which machines and programs use. It cannot be set."""

    time_s: float = _BOOT_S
    ahead_s: float = 1_700_000_000.0  # offset of the wall clock: realistic dates

    def now_s(self) -> float:
        """Time since boot."""
        return self.time_s

    def wall_s(self) -> float:
        """The wall clock, which dates what the api accepts."""
        return self.time_s + self.ahead_s

    def readings(self) -> tuple[float, float]:
        """Wall clock and time since boot, for `control.clock.SteadyClock`."""
        return self.wall_s(), self.time_s


@dataclass(slots=True)
class Wall:
    """The wall clock alone, as `ports.clock.Clock`."""

    clocks: Clocks

    def now_s(self) -> float:
        """See `Clocks.wall_s`."""
        return self.clocks.wall_s()
