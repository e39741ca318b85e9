"""Routes of notes and the logbook. A note is durable when answered, and visible at once, even while control is down."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import UsageError
from trainmaster.model import redaction
from trainmaster.model.commands import SubmitJob, TakeNote
from trainmaster.model.events import Noted
from trainmaster.model.job import Job
from trainmaster.model.spec import Mode
from trainmaster.ports.store import JobQuery, NewRow, Note, NoteQuery
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.http.parameters import TEXT_MAX, Text
from trainmaster.server.http.permissions import check_own
from trainmaster.server.record.curves import Curves
from trainmaster.server.record.logbook import (
    TEXT_MAX_BYTES,
    Entry,
    best_entries,
    job_entries,
    mentioned,
    note_entry,
    storable_text,
)
from trainmaster.server.record.ranking import mode_of, primary_of, unrecorded
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described, record_schemas
from trainmaster.server.views.lookup import find, page

router = APIRouter(tags=["logbook"])

_KNOWN = frozenset(("text", "job", "project", "experiment"))
_JOBS = 200  # newest jobs shown in the logbook of an experiment or a project
_NAME_MAX = 200


@dataclass(slots=True)
class LogbookQuery:
    """Which logbook to read, and how much of it."""

    job: Annotated[str | None, Query(max_length=TEXT_MAX, description="a reference to a job")] = None
    project: Text = None
    experiment: Text = None
    limit: Annotated[int, Query(ge=1, le=1000, description="the newest entries, at most this many")] = 50
    notes: Annotated[bool, Query(description="only notes that users wrote")] = False


@router.post(
    "/notes",
    summary="Write a note",
    status_code=202,
    response_model=None,
    responses=described.answers(record_schemas.NoteTaken, 202),
    openapi_extra=described.body(record_schemas.NewNote, "Idempotency-Key"),
)
async def write_note(request: Request) -> bodies.Json:
    """A note about a job, an experiment or a project. Job ids in the text become links."""
    api, user = runtime.of(request), runtime.user(request)
    body = await bodies.read_json(request, "the note", _KNOWN)
    text = redaction.prose(storable_text(bodies.text(body, "text", most=2 * TEXT_MAX_BYTES) or ""))
    if not text:
        raise UsageError("the note is empty", 'write something: tm note JOB "what I saw"')
    if len(text.encode()) > TEXT_MAX_BYTES:
        raise UsageError(f"the note is over {TEXT_MAX_BYTES // 1024} KiB", "store a file: tm run --artifact, sdk.artifact")
    ref, project, experiment = (bodies.text(body, name) for name in ("job", "project", "experiment"))
    if ref is not None:
        job = (await run_in_threadpool(find, api, ref)).job
        check_own(request, job)
        project, experiment, about = job.spec.project, job.spec.experiment, job.id
    elif project is None and experiment is None:
        raise UsageError("a note is about a job, an experiment or a project", "name one: tm note JOB TEXT")
    else:
        about = ""
    for name in (project, experiment):
        if name is not None and not (name.isprintable() and 1 <= len(name) <= _NAME_MAX):
            raise UsageError(f"{name[:40]!r} is not a valid name of a project or an experiment")
    found = await run_in_threadpool(api.services.events.jobs, JobQuery(project=project, experiment=experiment, limit=1))
    if project is None:  # that of the experiment's newest job
        project = found[0].spec.project if found else "default"
    command = TakeNote(about, user, text, project, experiment)
    await api.commands.accept([NewRow(f"note:{user}:{idempotency_key(request)}", command, time.time())])
    told = {"job": about or None, "project": project, "experiment": experiment, "by": user, "jobless": not found}
    return bodies.Json(told, 202)


@router.get("/logbook", summary="Read the logbook", response_model=None, responses=described.answers(record_schemas.Logbook))
def read_logbook(request: Request, query: Annotated[LogbookQuery, Depends()]) -> bodies.Json:
    """The newest entries, in order of time: notes and events."""
    api = runtime.of(request)
    job = find(api, query.job).job if query.job is not None else None
    entries = [] if query.notes else list(_happened(api, query, job))
    entries += _notes(api, query, job)
    entries.sort(key=lambda entry: entry.at_s)
    return bodies.Json({"entries": [{**asdict(entry), "links": list(entry.links)} for entry in entries[-query.limit :]]})


def _happened(api: runtime.Runtime, query: LogbookQuery, job: Job | None) -> Iterator[Entry]:
    """Events of one job, or of the newest jobs of an experiment or a project."""
    if job is not None:
        jobs = [job]
    else:
        asked = JobQuery(project=query.project, experiment=query.experiment, limit=_JOBS)
        jobs = [found.job for found in page(api, asked)]
    for one in jobs:
        yield from job_entries(one, api.services.events.attempts(one.id))
    for project, experiment in dict.fromkeys((one.spec.project, one.spec.experiment) for one in jobs):
        found = _bests(api, project, experiment)
        yield from (entry for entry in found if job is None or entry.job == job.id)


def _bests(api: runtime.Runtime, project: str, experiment: str) -> list[Entry]:
    """New best values in an experiment of a project, among its newest jobs. None if it is not known which values are better."""
    jobs = api.services.events.jobs(JobQuery(project=project, experiment=experiment, limit=_JOBS))[::-1]
    curves = Curves(api.services.events, api.services.metrics)
    last = curves.last(jobs)
    primary = primary_of(jobs[::-1], sorted({name for mine in last.values() for name in mine}))
    mode = mode_of(jobs[::-1], primary) if primary is not None else None
    if primary is None or mode is None:
        return []
    have = [job for job in jobs if primary in last.get(job.id, {})]
    replaced_s = api.services.metrics.replaced_s()
    whole = [job for job in have if not unrecorded(job, replaced_s) and not curves.elsewhere(job)]
    best = {job.id: found for job in whole if (found := curves.best(job, primary, mode is Mode.MAX)) is not None}
    among = f", among its newest {_JOBS} jobs" if len(jobs) == _JOBS else ""
    among += ", among those whose points are all on record" if len(whole) < len(have) else ""
    return best_entries(jobs, primary, mode, best, among)


def _notes(api: runtime.Runtime, query: LogbookQuery, job: Job | None) -> list[Entry]:
    """Notes, including those that control has not processed yet."""
    about = job.id if job is not None else None
    taken = api.services.events.notes(NoteQuery(about, query.project, query.experiment, query.limit))
    waiting = [note for note in _waiting(api) if _asked_for(note, about, query)]
    known = {(note.noted.at_s, note.noted.text) for note in taken}
    notes = [*taken, *(note for note in waiting if (note.noted.at_s, note.noted.text) not in known)]
    there = _existing(api, list(dict.fromkeys(id for note in notes for id in mentioned(note.noted.text))))
    return [note_entry(note, there) for note in notes]


def _waiting(api: runtime.Runtime) -> Iterator[Note]:
    for row in api.commands.pending():
        match row.command:
            case TakeNote(job, by, text, project, experiment):
                yield Note(row.seq, job or None, Noted(by, text, row.received_s, project, experiment))


def _asked_for(note: Note, job: str | None, query: LogbookQuery) -> bool:
    return (
        job in (None, note.job)
        and query.project in (None, note.noted.project)
        and query.experiment in (None, note.noted.experiment)
    )


def _existing(api: runtime.Runtime, ids: Sequence[str]) -> set[str]:
    """Which of these are full ids of jobs."""
    submits = {row.job for row in api.commands.pending() if isinstance(row.command, SubmitJob)}
    return submits.intersection(ids) | api.services.events.known(ids)
