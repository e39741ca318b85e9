"""Reads curves and best values of jobs, without the points of lost work.

An attempt that begins at an earlier step than the one before it ended at does that work again, or it stays undone. The points
of the earlier attempt stay on record, but no model has what they measured.
"""

from collections.abc import Sequence

from trainmaster.model.job import Job
from trainmaster.ports.metric_store import LostWork, MetricStore
from trainmaster.ports.store import EventStore
from trainmaster.recovery import resumption
from trainmaster.server.views.resources import all_attempts
from trainmaster.wire.names import METRICS_ELSEWHERE

_NAMED_MAX = 5
Best = tuple[int | None, float, float]  # step (None: before the first one), value, time_s


class Curves:
    """For one request: reads the attempts of each job once."""

    def __init__(self, events: EventStore, metrics: MetricStore) -> None:
        self._events, self._metrics = events, metrics
        self._lost: dict[str, LostWork] = {}

    def series(self, job: Job, name: str, limit: int) -> list[tuple[int, float]]:
        """See `MetricStore.series`."""
        return self._metrics.series(job.id, name, limit, self.lost_of(job, name))

    def best(self, job: Job, name: str, largest: bool) -> Best | None:
        """See `MetricStore.best`."""
        return self._metrics.best(job.id, name, largest, self.lost_of(job, name))

    def last(self, jobs: Sequence[Job]) -> dict[str, dict[str, tuple[int | None, float, float]]]:
        """See `MetricStore.last`."""
        by_id = {job.id: job for job in jobs}
        return self._metrics.last(list(by_id), lambda job, name: self.lost_of(by_id[job], name))

    def elsewhere(self, job: Job) -> list[str]:
        """A note if another rank has values that are not shown: some programs print on the last one, which changes."""
        if job.attempt is None or job.attempt.number == 1:
            return []
        names = self._metrics.elsewhere(job.id, lambda name: self.lost_of(job, name))
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        return [f"{METRICS_ELSEWHERE}: {', '.join(names[:_NAMED_MAX])}{more}"] if names else []

    def lost_of(self, job: Job, name: str) -> LostWork:
        """The lost work of a job as it concerns one metric."""
        if job.attempt is None or job.attempt.number == 1 or job.counts_apart(name):
            return ()
        if job.id not in self._lost:
            self._lost[job.id] = resumption.lost_work(all_attempts(job, self._events.attempts(job.id)))
        return self._lost[job.id]
