"""The store port of metric points and heartbeats, which the api writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a point arrived. An agent numbers its points from 1; each number is stored once, even if it arrives again or late."""

    node_index: int
    n: int
    at_s: float | None = None  # measurement time on the agent's monotonic clock; None: not known


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value. `attempt` is the fence: a point below the highest attempt of its job is refused.

    `time_s` is used if `arrival` has no time. Otherwise the agent's clock is mapped once, at its first heartbeat or point.
    """

    job: str
    attempt: int
    rank: int
    step: int | None
    name: str
    value: float
    time_s: float
    arrival: Arrival | None = None  # one object for all values of a point; None: the agent does not number its points


@dataclass(frozen=True, slots=True)
class HeartbeatRow:
    """The latest heartbeat of an agent: the one with the highest `at_s`, whatever the dates are."""

    key: str
    time_s: float
    step: int | None
    memory_bytes: int
    cpu_s: float
    at_s: float = 0.0  # send time on the agent's monotonic clock


LostWork = tuple[tuple[int, int], ...]
"""(attempt, step): it began at this step, so what earlier attempts did from there on is lost. Both ascend.

A metric that counts something else than that step, such as samples, goes on at a step of its own: see `recovery.lost_work`."""


class MetricStore(Protocol):
    """Metric points and heartbeats: not events; group-committed, and fenced by attempt."""

    def write(self, points: Sequence[MetricPoint], heartbeats: Sequence[HeartbeatRow], fenced: bool = True) -> int:
        """Write one group. Returns how many points were refused. A repeated step replaces the old value of no later attempt.

        Points of one agent are in the order of their numbers. A point that is already stored is ignored, and not counted.
        `fenced=False`: points below the fence are stored, too.
        """
        ...

    def raise_fence(self, job: str, attempt: int) -> None:
        """Refuse points of `job` below `attempt` from now on, and forget which of them arrived."""
        ...

    def series(self, job: str, name: str, limit: int = 2000, lost: LostWork = ()) -> list[tuple[int, float]]:
        """(step, value) of the lowest rank that has the metric, by step (else numbered from 0), thinned evenly to `limit`."""
        ...

    def elsewhere(self, job: str, lost_of: Callable[[str], LostWork] = lambda _: ()) -> list[str]:
        """Metrics of which only another rank than that of `series` has the newest values. `lost_of`: the lost work by name."""
        ...

    def points(self, job: str, name: str, after: int | None, limit: int) -> list[tuple[int, float, float, int]]:
        """(step, value, time_s, attempt) of the same curve, not thinned: those of steps after `after`."""
        ...

    def stepless(self, job: str, name: str, after: int | None, limit: int) -> list[tuple[int, float, float, int]]:
        """(number, value, time_s, attempt) of the points before the first step of a curve that has steps, after `after`."""
        ...

    def best(self, job: str, name: str, largest: bool = False, lost: LostWork = ()) -> tuple[int | None, float, float] | None:
        """(step, value, time_s) of the smallest or largest value, of the same rank as in `series`. NaN is never best.

        `step` is None if it came before the first step of a curve that has steps. It is lost with the first step after it.
        """
        ...

    def divergence(self, job: str, name: str, step: int | None, near: int) -> tuple[int | None, tuple[int, float] | None]:
        """Since which step a curve is not finite at `step`, and its last finite point. Reads `near` points; None: before."""
        ...

    def last(
        self, jobs: Sequence[str], lost_of: Callable[[str, str], LostWork] = lambda _job, _name: ()
    ) -> dict[str, dict[str, tuple[int | None, float, float]]]:
        """By job and metric name: (step, value, time_s) of the latest point, of the same rank as in `series`.

        `lost_of`: the lost work by job and metric; it is asked of metrics that the newest attempt with points has none of. Of
        those whose latest point is lost, the one of the highest step that is not; they are left out where all are lost.
        """
        ...

    def jobs(self, after: str, limit: int) -> list[str]:
        """Jobs that have, or had, a curve: by id, after `after`."""
        ...

    def thin(self, job: str, keep: int, lost_of: Callable[[str], LostWork] = lambda _: ()) -> int:
        """Thin each curve with more than twice `keep` points to about `keep`. Returns the number removed.

        Its best and last stay, and where it stopped being finite. `lost_of`: the lost work by the name of a metric. Those with
        it and those without it both stay.
        """
        ...

    def shrink(self) -> bool:
        """Return some freed space to the disk. Returns whether there may be more."""
        ...

    def heartbeats(self, *jobs: str) -> list[HeartbeatRow]:
        """The latest heartbeat of each agent of these jobs' current attempts."""
        ...
