"""What scheduling and forecasts need of ended jobs. Each job is read and decoded once, so that no request pays for history."""

import threading
from collections import deque
from typing import NamedTuple

from trainmaster.model.job import Forecast, Job
from trainmaster.ports.store import EventStore, forgotten
from trainmaster.scheduling.model.convert import past
from trainmaster.scheduling.model.jobs import Past
from trainmaster.scheduling.prediction.lifetimes import Lifetimes


class Start(NamedTuple):
    """A job's first forecast, and when the job started."""

    forecast: Forecast
    started_s: float


class Ended(NamedTuple):
    """The ended jobs that are remembered, in the order in which their ends were recorded."""

    pasts: tuple[Past, ...]
    starts: tuple[Start, ...]  # of those with a forecast
    lifetimes: Lifetimes  # only read


class EndedJobs:
    """The jobs that ran and ended; an ended job changes in nothing that is kept here."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._turn = threading.Lock()
        self._count = 0  # of ended jobs that were read, or are forgotten
        self._known: deque[tuple[Past, Start | None]] = deque()  # the last ones of these
        self._ended = Ended((), (), Lifetimes())

    def now(self) -> Ended:
        """As of now. Linear in the jobs that ended since the last call."""
        with self._turn:
            count, jobs = self._events.over_since(self._count)
            if count != self._count:
                self._known.extend((past(job), _start(job)) for job in jobs)
                while len(self._known) > count - forgotten(count):
                    self._known.popleft()
                pasts = tuple(one for one, _ in self._known)
                starts = tuple(start for _, start in self._known if start is not None)
                self._count, self._ended = count, Ended(pasts, starts, Lifetimes(pasts))
            return self._ended


def _start(job: Job) -> Start | None:
    return None if job.forecast is None or job.started_s is None else Start(job.forecast, job.started_s)
