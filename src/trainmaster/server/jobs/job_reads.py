"""Routes that read jobs: lists, one job, why it waits, its metrics, its events."""

import asyncio
import hashlib
import json
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response, StreamingResponse

from trainmaster.errors import UsageError
from trainmaster.model import redaction
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.model.spec import Mode
from trainmaster.ports.store import JobQuery
from trainmaster.recovery import resumption
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import (
    NAMES_MAX,
    NUMBER_MAX,
    STATES_MAX,
    TAGS_MAX,
    TEXT_MAX,
    TIME_MAX_S,
    LongText,
    Metric,
    Number,
    Ref,
    Text,
    Wait,
)
from trainmaster.server.http.permissions import may_change
from trainmaster.server.http.unchanged import answers_of
from trainmaster.server.jobs import queue
from trainmaster.server.jobs.start_waits import outlook
from trainmaster.server.record.artifacts import kept_by
from trainmaster.server.record.curves import Curves
from trainmaster.server.record.divergence import LISTED, diverged
from trainmaster.server.record.ranking import mode_of, point_view
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.unsent_points import arriving
from trainmaster.server.schemas import described, models
from trainmaster.server.schemas.queue_schemas import Why
from trainmaster.server.schemas.record_schemas import PointPage, Series
from trainmaster.server.views import event_text, job_notes, resources
from trainmaster.server.views.lookup import FoundJob, find, page
from trainmaster.server.views.silent_agents import silent_agents
from trainmaster.spec.mapping import to_file
from trainmaster.wire.names import SYSTEM

router = APIRouter(tags=["jobs"])

_RUNNING = (State.RUNNING.value, State.STOPPING.value)
_LISTED_MAX = 1000
_PAGE = 500  # jobs per read when all are requested
_EVENTS_MAX = 1000
_SERIES_MAX, _POINTS_MAX = 2000, 500_000  # points per metric, and per response
_POINTS_PAGE = 50_000
Step = Annotated[int | None, Query(ge=-NUMBER_MAX, le=NUMBER_MAX, description="only points of later steps")]
PointCount = Annotated[int, Query(ge=1, le=_POINTS_PAGE)]
_WATCH_BEAT_S = 1.0  # metrics send no notification: a watched job is checked this often
_BEAT_S = 5.0  # in case a notification was lost


@dataclass(slots=True)
class PointQuery:
    """Which points of a metric."""

    after: Step = None
    limit: PointCount = _SERIES_MAX
    stepless: Annotated[
        bool, Query(description="those before the first step of a metric that has steps, with their numbers in place of steps")
    ] = False


@dataclass(slots=True)
class ListQuery:
    """Which jobs to list."""

    limit: Annotated[int, Query(ge=1, le=_LISTED_MAX)] = 50
    all: Annotated[bool, Query(description="every job, whatever `limit` says")] = False
    before: Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="only jobs with a lower `seq`: the next page")] = None
    state: Annotated[list[State] | None, Query(max_length=STATES_MAX)] = None
    project: Text = None
    experiment: Text = None
    member: Annotated[str | None, Query(max_length=TEXT_MAX, description="the owner")] = None
    mine: Annotated[bool, Query(description="only those of the caller")] = False
    name: Annotated[str | None, Query(max_length=TEXT_MAX, description="with a `*` at its end: names that begin so")] = None
    tag: Annotated[list[LongText] | None, Query(max_length=TAGS_MAX, description="NAME or NAME=VALUE; all of them")] = None
    since_s: Annotated[float | None, Query(ge=0, le=TIME_MAX_S, description="accepted then or later")] = None
    until_s: Annotated[float | None, Query(ge=0, le=TIME_MAX_S, description="accepted before")] = None

    def asked(self, caller: str) -> JobQuery:
        """As a query for the store."""
        limit = _PAGE if self.all else self.limit
        pairs = [text.partition("=") for text in self.tag or ()]
        return JobQuery(
            tuple(self.state or ()), self.project, self.experiment, limit, self.before, caller if self.mine else self.member,
            self.name, tuple((name, value if equals else None) for name, equals, value in pairs), self.since_s, self.until_s,
        )  # fmt: skip


@router.get("/jobs", summary="List jobs, newest first", response_model=None, responses=described.answers(models.JobList))
def list_jobs(request: Request, query: Annotated[ListQuery, Depends()]) -> Response:
    """Includes jobs that were accepted a moment ago, as `queued`.

    Except with `all`, the answer has an `ETag`; sent back in `If-None-Match`, it is answered with 304 while nothing changed.
    """
    api = runtime.of(request)
    asked = query.asked(runtime.user(request))
    if query.all:
        return StreamingResponse(_stream(api, asked), media_type=bodies.Json.media_type)
    stores = api.services
    version = f"{stores.events.version()}.{stores.inbox.version()}.{stores.metrics.version()}"
    if query.mine:  # the same question of another member has another answer
        version += f".{hashlib.sha256(str(asked.owner).encode()).hexdigest()[:16]}"
    return answers_of(request).give(request, version, lambda: {"jobs": _views(api, asked)})


def _views(api: runtime.Runtime, query: JobQuery) -> list[resources.View]:
    """One page of list entries."""
    found = page(api, query)
    points = _curves(api).last([one.job for one in found])
    return _stepped(api, [_view(api, one, points.get(one.job.id, {})) for one in found])


def _curves(api: runtime.Runtime) -> Curves:
    return Curves(api.services.events, api.services.metrics)


def _view(api: runtime.Runtime, found: FoundJob, points: resources.Points) -> resources.View:
    """One list entry."""
    told = diverged(api.services.metrics, found.job.id, points, LISTED)
    return {**resources.job_view(found.job, points, found.reason), "diverged": told}


def _stepped(api: runtime.Runtime, listed: list[resources.View]) -> list[resources.View]:
    """Fill in steps from heartbeats for running jobs without a step in their metrics, with one query for all."""
    silent = {job["id"]: job for job in listed if job["step"] is None and job["state"] in _RUNNING}
    for beat in api.services.metrics.heartbeats(*silent) if silent else ():
        key = AgentKey.parse(beat.key)
        job = silent[key.job]
        if beat.step is not None and key.attempt == job["attempt"]:
            job["step"] = beat.step if job["step"] is None else max(beat.step, job["step"])
    return listed


def _stream(api: runtime.Runtime, query: JobQuery) -> Iterator[bytes]:
    """All jobs, read in pages, so that memory use and delays for other callers stay small."""
    yield b'{"jobs":['
    between = b""
    while rows := _views(api, query):
        yield between + bodies.encode(rows)[1:-1]
        between = b","
        query = replace(query, before_seq=rows[-1]["seq"])
    yield b"]}"


@router.get("/jobs/{ref}", summary="Show a job", response_model=None, responses=described.answers(models.JobDetail))
def show(request: Request, ref: Ref) -> bodies.Json:
    """A job in full detail: attempts, checkpoints, artifacts and last metric values."""
    api = runtime.of(request)
    found = find(api, ref)
    job, home = found.job, api.services.home
    late = arriving(home, job)  # before `points`: others may come any moment
    named = api.services.metrics.last([job.id]).get(job.id, {}).keys()  # likewise
    points = _curves(api).last([job]).get(job.id, {})
    attempts = api.services.events.attempts(job.id)
    nodes = dict.fromkeys(share.node for attempt in attempts for share in attempt.allocation.shares)
    work = [job.origin.directory] if job.code.in_place else [str(home.work(job.id, node)) for node in nodes]
    (detail,) = _stepped(api, [resources.job_detail(job, attempts, points, found.reason, work)])
    averages = api.services.metrics.averages(job.id, SYSTEM) if job.state.ended else {}
    system = resources.system_view(detail["system"], averages)
    kept = kept_by(api, job)
    children, runs = api.services.events.children(job.id), {"runs": api.services.runs(job.id)}
    troubles = [*detail["troubles"], *silent_agents(api, job)]
    missing = job_notes.metrics_lost(job, api.services.metrics.replaced_s())
    missing += [*_curves(api).elsewhere(job), *late]
    missing += job_notes.metrics_thinned(job, api.services.metrics.thinned(job.id))
    notes = [*detail["notes"], *kept["notes"], *missing]
    lost = sorted(named - points.keys())
    begins = [list(one) for one in resumption.lost_work(resources.all_attempts(job, attempts))]
    lost_work = {"lost_metrics": lost, "lost_work": begins, "own_counts": sorted(job.own_counts)}
    bad = diverged(api.services.metrics, job.id, points)
    told = {"notes": notes, "troubles": troubles, "diverged": bad, "children": children, "system": system}
    return bodies.Json({**detail, **kept, **told, **lost_work, **runs})


@router.get("/jobs/{ref}/spec", summary="The spec of a job", response_model=None, responses=described.answers(models.SpecOf))
def show_spec(request: Request, ref: Ref) -> bodies.Json:
    """What a spec file says that submits the job again. Credentials are replaced by `(hidden)`; `hidden` names the fields."""
    job = find(runtime.of(request), ref).job
    told = to_file(redaction.shown(job.spec, may_change(request, job)))
    hidden = list(_differing(to_file(job.spec), told))
    where = {"directory": job.origin.directory, "in_place": job.code.in_place}
    return bodies.Json({"id": job.id, "spec": told, "hidden": hidden, **where})


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The fields in which two mappings of the same form differ, as dotted names."""
    for name, value in one.items():
        if isinstance(value, Mapping):
            yield from _differing(value, other[name], f"{above}{name}.")
        elif value != other[name]:
            yield above + name


@router.get("/jobs/{ref}/why", summary="Why a job waits", response_model=None, responses=described.answers(Why))
def show_why(request: Request, ref: Ref) -> bodies.Json:
    """The reason, what would let the job start, its place in the queue, and when it will start."""
    api = runtime.of(request)
    found = find(api, ref)
    job, told = found.job, {**queue.NOT_WAITING, "reason": found.reason}
    if job.state is State.QUEUED:
        seen = queue.why_view(api, job)
        told = seen if found.reason == job.reason else {**told, "position": seen["position"], "ahead": seen["ahead"]}
    elif job.blocked and found.reason == job.reason:
        told = {**told, "reason": outlook(api, job)}
    elif job.state is State.STARTING and job.attempt is not None:
        told = {**told, "reason": resources.starting_text(job, found.reason, time.time())}
    troubles = [*resources.trouble_views(job), *silent_agents(api, job)]
    return bodies.Json({"id": job.id, "state": job.state.value, "text": told["reason"], **told, "troubles": troubles})


@router.get("/jobs/{ref}/metrics", summary="Metric series", response_model=None, responses=described.answers(Series))
def series(request: Request, ref: Ref, name: Annotated[list[Metric] | None, Query(max_length=NAMES_MAX)] = None) -> bodies.Json:
    """Values by step, evenly thinned, the more metrics the more. All metrics (at most 1000), or those in `name`.

    Without the points of lost work: of attempts from the step on at which a later one began. `/points` has them too. For those
    in `name`, `best` has the best of all points, where it is known whether smaller or larger is better.
    """
    api = runtime.of(request)
    job = find(api, ref).job
    curves = _curves(api)
    names = name or sorted(curves.last([job]).get(job.id, {}))
    if len(names) > NAMES_MAX:
        words = f"{job.id} has {len(names)} metrics; {NAMES_MAX} at most are told at once"
        raise UsageError(words, "say which: ?name=loss&name=acc")
    each = min(_SERIES_MAX, _POINTS_MAX // max(1, len(names)))
    best = {one: curves.best(job, one, mode is Mode.MAX) for one in name or () if (mode := mode_of([job], one)) is not None}
    return bodies.Json(
        {
            "series": {one: [list(point) for point in curves.series(job, one, each)] for one in names},
            "best": {one: point_view(found) for one, found in best.items()},
        }
    )


@router.get("/jobs/{ref}/points", summary="Metric points", response_model=None, responses=described.answers(PointPage))
def points(request: Request, ref: Ref, name: Metric, query: Annotated[PointQuery, Depends()]) -> bodies.Json:
    """All points of one metric in order of step, not thinned, in pages: `next` goes into `after` of the next request.

    As in `/metrics`, they are those of the lowest rank that has the metric.
    """
    api = runtime.of(request)
    job = find(api, ref).job
    metrics = api.services.metrics
    found = (metrics.stepless if query.stepless else metrics.points)(job.id, name, query.after, query.limit)
    told = {
        "points": [list(point) for point in found],
        "next": found[-1][0] if len(found) == query.limit else None,
        "stepless": query.stepless or bool(metrics.stepless(job.id, name, None, 1)),
    }
    return bodies.Json({"id": job.id, "name": name, **told})


@router.get("/jobs/{ref}/events", summary="What happened", response_model=None, responses=described.answers(models.EventList))
async def job_events(request: Request, ref: Ref, after: Number = 0, wait_s: Wait = 0) -> bodies.Json:
    """The job's events after sequence number `after`; with `wait_s` the response waits until there is one."""
    api = runtime.of(request)
    job = (await asyncio.to_thread(find, api, ref)).job
    deadline_s = time.monotonic() + wait_s
    with api.notifier.subscribe(job.id) as signal:
        while True:
            signal.clear()
            rows = await asyncio.to_thread(api.services.events.told, after, _EVENTS_MAX, job.id)
            left_s = deadline_s - time.monotonic()
            if rows or left_s <= 0 or api.notifier.closing:
                return bodies.Json({"events": [event_text.event_view(row, job.spec) for row in rows]})
            await api.notifier.wait(signal, min(left_s, _BEAT_S))


@router.get("/jobs/{ref}/watch", summary="Wait for a change", response_model=None, responses=described.answers(models.Watched))
async def watch(request: Request, ref: Ref, version: Number = 0, wait_s: Wait = 0) -> bodies.Json:
    """The job, as soon as it differs from the state that `version` identifies."""
    api = runtime.of(request)
    deadline_s = time.monotonic() + wait_s
    job_id = (await asyncio.to_thread(find, api, ref)).job.id
    with api.notifier.subscribe(job_id) as signal:
        while True:
            signal.clear()
            seen, view = await asyncio.to_thread(_versioned, api, job_id)
            left_s = deadline_s - time.monotonic()
            if seen != version or left_s <= 0 or api.notifier.closing:
                return bodies.Json({"version": seen, "job": view})
            await api.notifier.wait(signal, min(left_s, _WATCH_BEAT_S))


def _versioned(api: runtime.Runtime, job_id: str) -> tuple[int, dict[str, Any]]:
    """A job's view, and the number that identifies this state of it."""
    found = find(api, job_id)
    points = _curves(api).last([found.job]).get(job_id, {})
    (view,) = _stepped(api, [_view(api, found, points)])
    return zlib.crc32(json.dumps(view, sort_keys=True).encode()) or 1, view
