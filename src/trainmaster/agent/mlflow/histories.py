"""The values of a run's metrics in this attempt, as `metrics/get-history` answers them. No I/O."""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    Point = tuple[int, int, float]  # step, timestamp in ms, value

_KEPT_MAX = 500_000  # points of all metrics: 24 bytes each


class Histories:
    """All points by metric, oldest first. A metric whose points are not all there any more has no history."""

    def __init__(self) -> None:
        self._points: dict[str, tuple[array[int], array[int], array[float]]] = {}
        self._kept = 0
        self._incomplete: set[str] = set()

    def add(self, name: str, point: Point) -> None:
        """Keep a point. Beyond the limit, the metric with the most points loses its history."""
        if name in self._incomplete:
            return
        steps, times, values = self._points.setdefault(name, (array("q"), array("q"), array("d")))
        steps.append(point[0])
        times.append(point[1])
        values.append(point[2])
        self._kept += 1
        if self._kept > _KEPT_MAX:
            longest = max(self._points, key=lambda one: len(self._points[one][0]))
            self._kept -= len(self._points.pop(longest)[0])
            self._incomplete.add(longest)

    def points(self, name: str, begin: int, most: int) -> Optional[list[Point]]:
        """`most` points from number `begin` on; None if they are not all known."""
        if name in self._incomplete:
            return None
        steps, times, values = self._points.get(name, (array("q"), array("q"), array("d")))
        part = slice(begin, begin + most)
        return list(zip(steps[part], times[part], values[part]))  # noqa: B905 - Python 3.9
