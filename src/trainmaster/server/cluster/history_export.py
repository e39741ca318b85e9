"""`GET /history`: exports all jobs in the form that the simulator replays."""

import time
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from trainmaster.model.job import Job
from trainmaster.ports.store import JobQuery
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.services import EventReader
from trainmaster.spec import history

router = APIRouter(tags=["jobs"])

MEDIA_TYPE = "application/x-ndjson"
_PAGE = 500  # jobs in memory
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {}}, "description": "a header with the nodes, then one line per job, newest first"}
}


@router.get("/history", summary="Export the history", response_model=None, responses=_LINES)
def export(request: Request) -> StreamingResponse:
    """JSON lines: each job's owner, its request, and how long each attempt ran. Commands and parameters are left out."""
    return StreamingResponse(lines(runtime.of(request).services.events), media_type=MEDIA_TYPE)


def lines(events: EventReader) -> Iterator[bytes]:
    """The whole history, read in pages."""
    yield history.encode(history.heading(events.nodes(), events.rules(), time.time()))
    before: int | None = None
    while page := events.jobs(JobQuery(limit=_PAGE, before_seq=before)):
        yield b"".join(_line(events, job) for job in page)
        before = page[-1].seq


def _line(events: EventReader, job: Job) -> bytes:
    several = job.attempt is not None and job.attempt.number > 1
    attempts = events.attempts(job.id) if several else [job.attempt] if job.attempt is not None else []
    return history.encode(history.row(job, attempts))
