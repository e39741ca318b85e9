"""Records start forecasts while jobs wait, so that later forecasts can be corrected by what happened.

At intervals it takes one newly queued job that could not start at once, of any owner. Recording only the jobs that users ask
about would bias the correction.
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
from trainmaster.scheduling.explanation.forecast import AHEAD_MAX, forecasts
from trainmaster.scheduling.policies.known import chosen
from trainmaster.server.jobs import forecasting, queue
from trainmaster.server.runtime.runtime import Runtime

BEAT_S = 5.0
_FRESH_S = 30.0  # a job that has waited longer than this is not new: its forecast would come too late
_REST = 20.0  # pause, as a multiple of the computing time


def recording(api: Runtime) -> Callable[[], Awaitable[float]]:
    """A background task that records one forecast if a job needs one; it pauses longer if that takes long."""

    async def record() -> float:
        began_s = time.monotonic()
        row = await asyncio.to_thread(foreseen, api)
        if row is not None:
            await api.commands.accept([row])
        return max(BEAT_S, _REST * (time.monotonic() - began_s))

    return record


def foreseen(api: Runtime) -> NewRow | None:
    """The first forecast of the newest waiting job; None if there is no such job, or if the queue is too long."""
    events = api.services.events
    if not 0 < events.live_counts()[State.QUEUED] <= AHEAD_MAX:
        return None
    seen = queue.snapshot(api)
    fresh = (task for task in sorted(seen.waiting.values()) if seen.now_s - task.since_s < _FRESH_S and not task.attained_s)
    jobs = (events.job(task.id) for task in fresh)
    job = next((one for one in jobs if one is not None and one.attempt is None and one.forecast is None), None)
    if job is None:
        return None
    waits = forecasts(seen, chosen(seen.rules), forecasting.history(api).lifetimes, (job.id,), Random(job.id)).get(job.id)
    if waits is None or not all(map(isfinite, waits)):
        return None
    return NewRow(f"forecast-{os.urandom(12).hex()}", RecordForecast(job.id, tuple(waits)), time.time())
