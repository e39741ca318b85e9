"""The clocks of a simulated machine: the time since boot, which only moves when told to, and a wall clock that people set."""

from dataclasses import dataclass

_BOOT_S = 1000.0


@dataclass(slots=True)
class Clocks:
    """`now_s` is the time since boot, by which machines and programs run: nobody can set it."""

    time_s: float = _BOOT_S
    ahead_s: float = 1_700_000_000.0  # the wall clock: dates before 1970 are nobody's

    def now_s(self) -> float:
        """Since boot."""
        return self.time_s

    def wall_s(self) -> float:
        """What the wall clock shows: the dates of what the api accepts."""
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
