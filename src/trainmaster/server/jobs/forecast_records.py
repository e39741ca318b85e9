"""Forecasts are put on record while jobs wait, so that later ones can be corrected by what came true.

Not of each job: now and then of one that has just come and could not start at once, whoever it belongs to. Who is asked about
by people would be a choice of its own.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from math import isfinite
from random import Random

from trainmaster.model.commands import RecordForecast
from trainmaster.model.job import State
from trainmaster.ports.store import NewRow
from trainmaster.scheduling.forecast import AHEAD_MAX, forecasts
from trainmaster.scheduling.policy import chosen
from trainmaster.server.jobs import forecasting, queue
from trainmaster.server.runtime.runtime import Runtime

BEAT_S = 5.0
_FRESH_S = 30.0  # who has waited for longer is no beginner: of such a one it would be said too late
_REST = 20.0  # times as long as it took


def recording(desk: Runtime) -> Callable[[], Awaitable[float]]:
    """What records a forecast, where a job needs one, and says when to be called again: later where it takes long."""

    async def record() -> float:
        began_s = time.monotonic()
        row = await asyncio.to_thread(foreseen, desk)
        if row is not None:
            await desk.accept([row])
        return max(BEAT_S, _REST * (time.monotonic() - began_s))

    return record


def foreseen(desk: Runtime) -> NewRow | None:
    """The first forecast of the first job that has come and waits; None where there is none, or where the queue is too long."""
    events = desk.services.events
    if not 0 < events.live_counts()[State.QUEUED] <= AHEAD_MAX:
        return None
    seen = queue.snapshot(desk)
    fresh = (task for task in sorted(seen.waiting.values()) if seen.now_s - task.since_s < _FRESH_S and not task.attained_s)
    jobs = (events.job(task.id) for task in fresh)
    job = next((one for one in jobs if one is not None and one.attempt is None and one.forecast is None), None)
    if job is None:
        return None
    waits = forecasts(seen, chosen(seen.rules), forecasting.history(desk).lifetimes, (job.id,), Random(job.id)).get(job.id)
    if waits is None or not all(map(isfinite, waits)):
        return None
    return NewRow(f"forecast-{os.urandom(12).hex()}", RecordForecast(job.id, tuple(waits)), time.time())
