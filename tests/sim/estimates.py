"""The start estimates that the api of a live workload gives, by its own code, in the workload's time."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

from live import Live

from trainmaster.model.commands import RecordForecast
from trainmaster.scheduling.explanation.forecast import Waits
from trainmaster.server.jobs import forecast_records, forecasting, queue
from trainmaster.server.runtime.ended_jobs import EndedJobs
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.simulator.forecast_scores import Told


@dataclass
class Estimates:
    """A forecast for each job that must wait, when it comes. Each goes on record, and so corrects later ones."""

    server: Live
    _said: dict[str, tuple[Waits, str]] = field(default_factory=dict)  # and what it rested on

    def __post_init__(self) -> None:
        """An api without processes of its own."""
        events = self.server.events
        parts = {
            "services": SimpleNamespace(events=events),
            "recorded": SimpleNamespace(ended=EndedJobs(events).now),
            "commands": SimpleNamespace(pending=list),
        }
        self._api = cast(Runtime, SimpleNamespace(**parts))

    def look(self) -> None:
        """Forecast what has come and waits."""
        clock = SimpleNamespace(time=self.server.clock.now_s)
        with patch.object(queue, "time", clock), patch.object(forecast_records, "time", clock):
            while (row := forecast_records.foreseen(self._api)) is not None:
                assert isinstance(row.command, RecordForecast)
                id, known, seen = row.command.job, forecasting.history(self._api), queue.snapshot(self._api)
                corrected = known.calibration.corrected(Waits(*row.command.waits_s))
                self._said[id] = corrected, known.lifetimes.knows(seen.waiting[id].kind)
                self.server.inbox.accept([row])
                self.server.loop.tick(self.server.clock.time_s)

    def told(self) -> dict[str, Told]:
        """The forecasts of the jobs that have started, and how long these waited, by the record."""
        found = {}
        for id, (said, knew) in self._said.items():
            job = self.server.events.job(id)
            assert job is not None
            if job.forecast is not None and job.started_s is not None:
                found[id] = Told(id, job.forecast.at_s, said, job.started_s - job.forecast.at_s, 0.0, knew)
        return found
