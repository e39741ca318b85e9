"""Reading jobs: lists, one job, why it waits, its metrics, its events."""

import asyncio
import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response, StreamingResponse

from trainmaster.errors import UsageError
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.ports.store import JobQuery
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import NAMES_MAX, NUMBER_MAX, STATES_MAX, Metric, Number, Ref, Text, Wait
from trainmaster.server.jobs import queue
from trainmaster.server.record.artifacts import kept_by
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import models
from trainmaster.server.schemas.queue_schemas import Why
from trainmaster.server.views import event_text, resources
from trainmaster.server.views.lookup import find, page
from trainmaster.server.views.silent_agents import silent_agents

router = APIRouter(tags=["jobs"])

_RUNNING = (State.RUNNING.value, State.STOPPING.value)
_LISTED_MAX = 1000
_PAGE = 500  # jobs read at once where all are asked for
_EVENTS_MAX = 1000
_SERIES_MAX, _POINTS_MAX = 2000, 500_000  # points of one metric, and of one answer
_WATCH_BEAT_S = 1.0  # metrics ring no bell: a watched job is looked at this often
_BEAT_S = 5.0  # should a datagram have been lost


@dataclass(slots=True)
class ListQuery:
    """Which jobs to list."""

    limit: Annotated[int, Query(ge=1, le=_LISTED_MAX)] = 50
    all: Annotated[bool, Query(description="every job, whatever `limit` says")] = False
    before: Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="only jobs with a lower `seq`: the next page")] = None
    state: Annotated[list[State] | None, Query(max_length=STATES_MAX)] = None
    project: Text = None
    experiment: Text = None

    def asked(self) -> JobQuery:
        """As the store takes it."""
        limit = _PAGE if self.all else self.limit
        return JobQuery(tuple(self.state or ()), self.project, self.experiment, limit, self.before)


@router.get("/jobs", summary="List jobs, newest first", response_model=None, responses=models.answers(models.JobList))
def list_jobs(request: Request, query: Annotated[ListQuery, Depends()]) -> Response:
    """Jobs accepted a moment ago are among them, as `queued`."""
    desk = runtime.of(request)
    if query.all:
        return StreamingResponse(_stream(desk, query.asked()), media_type=bodies.Json.media_type)
    return bodies.Json({"jobs": _views(desk, query.asked())})


def _views(desk: runtime.Runtime, query: JobQuery) -> list[resources.View]:
    """One page."""
    found = page(desk, query)
    points = desk.services.metrics.last([one.job.id for one in found])
    return _stepped(desk, [resources.job_view(one.job, points.get(one.job.id, {}), one.reason) for one in found])


def _stepped(desk: runtime.Runtime, listed: list[resources.View]) -> list[resources.View]:
    """With the step of running jobs of which no metric tells one: that of a heartbeat, of all of them in one query."""
    silent = {job["id"]: job for job in listed if job["step"] is None and job["state"] in _RUNNING}
    for beat in desk.services.metrics.heartbeats(*silent) if silent else ():
        key = AgentKey.parse(beat.key)
        job = silent[key.job]
        if beat.step is not None and key.attempt == job["attempt"]:
            job["step"] = beat.step if job["step"] is None else max(beat.step, job["step"])
    return listed


def _stream(desk: runtime.Runtime, query: JobQuery) -> Iterator[bytes]:
    """All jobs, a page at a time, so that neither memory nor the other callers notice how many there are."""
    yield b'{"jobs":['
    between = b""
    while rows := _views(desk, query):
        yield between + bodies.encode(rows)[1:-1]
        between = b","
        query = replace(query, before_seq=rows[-1]["seq"])
    yield b"]}"


@router.get("/jobs/{ref}", summary="Show a job", response_model=None, responses=models.answers(models.JobDetail))
def show(request: Request, ref: Ref) -> bodies.Json:
    """Everything about one job: its attempts, checkpoints, artifacts and last metric values."""
    desk = runtime.of(request)
    found = find(desk, ref)
    job, home = found.job, desk.services.home
    points = desk.services.metrics.last([job.id]).get(job.id, {})
    attempts = desk.services.events.attempts(job.id)
    nodes = dict.fromkeys(share.node for attempt in attempts for share in attempt.allocation.shares)
    work = [job.origin.directory] if job.code.in_place else [str(home.work(job.id, node)) for node in nodes]
    (detail,) = _stepped(desk, [resources.job_detail(job, attempts, points, found.reason, work)])
    kept = kept_by(desk, job)
    children, runs = desk.services.events.children(job.id), {"runs": desk.services.runs(job.id)}
    troubles = [*detail["troubles"], *silent_agents(desk, job)]
    notes = [*detail["notes"], *kept["notes"]]
    return bodies.Json({**detail, **kept, "notes": notes, "troubles": troubles, "children": children, **runs})


@router.get("/jobs/{ref}/why", summary="Why a job waits", response_model=None, responses=models.answers(Why))
def show_why(request: Request, ref: Ref) -> bodies.Json:
    """The reason in plain words, what would let it start, the place in the queue, and when it will start."""
    desk = runtime.of(request)
    found = find(desk, ref)
    job, told = found.job, {**queue.NOT_WAITING, "reason": found.reason}
    if job.state is State.QUEUED:
        seen = queue.why_view(desk, job)
        told = seen if found.reason == job.reason else {**told, "position": seen["position"], "ahead": seen["ahead"]}
    elif job.state is State.STARTING and job.attempt is not None:
        told = {**told, "reason": resources.starting_text(job, found.reason, time.time())}
    troubles = [*resources.trouble_views(job), *silent_agents(desk, job)]
    return bodies.Json({"id": job.id, "state": job.state.value, "text": told["reason"], **told, "troubles": troubles})


@router.get("/jobs/{ref}/metrics", summary="Metric series", response_model=None, responses=models.answers(models.Series))
def series(request: Request, ref: Ref, name: Annotated[list[Metric] | None, Query(max_length=NAMES_MAX)] = None) -> bodies.Json:
    """Values by step, thinned evenly, the more so the more metrics: all, 1000 at most, unless `name` says which."""
    desk = runtime.of(request)
    job = find(desk, ref).job
    metrics = desk.services.metrics
    names = name or sorted(metrics.last([job.id]).get(job.id, {}))
    if len(names) > NAMES_MAX:
        words = f"{job.id} has {len(names)} metrics; {NAMES_MAX} at most are told at once"
        raise UsageError(words, "say which: ?name=loss&name=acc")
    each = min(_SERIES_MAX, _POINTS_MAX // max(1, len(names)))
    return bodies.Json({"series": {one: [list(point) for point in metrics.series(job.id, one, each)] for one in names}})


@router.get("/jobs/{ref}/events", summary="What happened", response_model=None, responses=models.answers(models.EventList))
async def job_events(request: Request, ref: Ref, after: Number = 0, wait_s: Wait = 0) -> bodies.Json:
    """The job's events after sequence number `after`; with `wait_s` the answer waits until there is one."""
    desk = runtime.of(request)
    job = (await asyncio.to_thread(find, desk, ref)).job
    deadline_s = time.monotonic() + wait_s
    with desk.bells.listen(job.id) as bell:
        while True:
            bell.clear()
            rows = await asyncio.to_thread(desk.services.events.told, after, _EVENTS_MAX, job.id)
            left_s = deadline_s - time.monotonic()
            if rows or left_s <= 0 or desk.bells.closing:
                return bodies.Json({"events": [event_text.event_view(row) for row in rows]})
            await desk.bells.wait(bell, min(left_s, _BEAT_S))


@router.get("/jobs/{ref}/watch", summary="Wait for a change", response_model=None, responses=models.answers(models.Watched))
async def watch(request: Request, ref: Ref, version: Number = 0, wait_s: Wait = 0) -> bodies.Json:
    """The job as soon as it is another than the one that `version` names."""
    desk = runtime.of(request)
    deadline_s = time.monotonic() + wait_s
    job_id = (await asyncio.to_thread(find, desk, ref)).job.id
    with desk.bells.listen(job_id) as bell:
        while True:
            bell.clear()
            seen, view = await asyncio.to_thread(_versioned, desk, job_id)
            left_s = deadline_s - time.monotonic()
            if seen != version or left_s <= 0 or desk.bells.closing:
                return bodies.Json({"version": seen, "job": view})
            await desk.bells.wait(bell, min(left_s, _WATCH_BEAT_S))


def _versioned(desk: runtime.Runtime, job_id: str) -> tuple[int, dict[str, Any]]:
    """A job's view, and the number that names exactly this view."""
    found = find(desk, job_id)
    points = desk.services.metrics.last([job_id]).get(job_id, {})
    (view,) = _stepped(desk, [resources.job_view(found.job, points, found.reason)])
    return zlib.crc32(json.dumps(view, sort_keys=True).encode()) or 1, view
