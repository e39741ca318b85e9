"""Writes metrics to their store, on one thread. Only the api process writes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.ports.metric_store import HeartbeatRow, MetricPoint, MetricStore
from trainmaster.server.runtime.group_commit import GroupWriter
from trainmaster.server.runtime.unsent_points import has_left, import_points

_VALUES_AT_ONCE = 10_000  # metric values per database call: larger calls block the interpreter for too long


@dataclass(frozen=True, slots=True)
class _Sample:
    """Metric points and heartbeats of one sync call."""

    points: tuple[MetricPoint, ...]
    heartbeats: tuple[HeartbeatRow, ...]
    unsent: bool = False  # instead of bringing data, ask the writer to import what dead agents left on disk


class MetricWriter:
    """Stores points and heartbeats of agents, and fences off the points of earlier attempts."""

    def __init__(self, home: Home, metrics: MetricStore) -> None:
        self._home, self._metrics = home, metrics
        self._writer: GroupWriter[_Sample, int] = GroupWriter(self._write, lambda: None)
        self._fences: dict[str, int] = {}  # job -> the attempt below which points are rejected; writer's thread only
        self.points_written = 0  # since the start
        self.discarded_curves: set[str] = set()  # jobs whose curves a user discards; an id leaves the set when they are removed

    async def put(self, points: Sequence[MetricPoint], heartbeats: Sequence[HeartbeatRow]) -> None:
        """Store points and heartbeats durably. Raises: OperationError, DiskFullError."""
        await self._writer.put([_Sample(tuple(points), tuple(heartbeats))])

    async def import_unsent(self) -> None:
        """Import metric points that dead agents left on disk. Raises: OperationError, DiskFullError, OSError."""
        await self._writer.put([_Sample((), (), unsent=True)])

    def close(self) -> None:
        """Finish the current write."""
        self._writer.close()

    def _write(self, samples: list[_Sample]) -> Sequence[int]:
        """Write samples on the writer's thread, one transaction per chunk of values.

        The first sample of a new attempt raises that job's fence. Points that earlier attempts left on disk are imported first.
        As long as some cannot be, which of them had arrived is not forgotten: writing the sample raises the fence all the same.
        """
        home, metrics = self._home, self._metrics
        if any(sample.unsent for sample in samples):
            self.points_written += import_points(home, metrics)
        points = [point for sample in samples for point in sample.points]
        beats = [AgentKey.parse(beat.key) for sample in samples for beat in sample.heartbeats]
        for job, attempt in {(one.job, one.attempt) for one in points} | {(key.job, key.attempt) for key in beats}:
            if self._fences.get(job, 0) < attempt:
                if attempt > 1:
                    self.points_written += import_points(home, metrics, job)
                if not has_left(home, job, attempt):
                    metrics.raise_fence(job, attempt)
                self._fences[job] = attempt
        told = [beat for sample in samples for beat in sample.heartbeats]
        for some in _whole_points(points, _VALUES_AT_ONCE):
            metrics.write(some, told)
            told = []
        self.points_written += len(points)
        return [0] * len(samples)


def _whole_points(values: Sequence[MetricPoint], most: int) -> Iterator[Sequence[MetricPoint]]:
    """Split `values` into chunks of about `most`; there is at least one chunk, which may be empty.

    The values of one agent point stay together: the store accepts each point number once, so the rest of a split point
    would be lost.
    """
    begin = 0
    while True:
        end = min(begin + most, len(values))
        while end < len(values) and values[end].arrival is not None and values[end].arrival is values[end - 1].arrival:
            end += 1
        yield values[begin:end]
        begin = end
        if begin >= len(values):
            return
