"""What the store holds, by project and kind, and its garbage collection."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.blobs import collecting
from trainmaster.errors import ConflictError, UsageError
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job
from trainmaster.ports.store import JobQuery
from trainmaster.server import bodies, runtime, schemas
from trainmaster.server.services import Services

router = APIRouter(tags=["storage"])

_PAGE = 500
_KNOWN = frozenset(("dry_run", "grace_s"))
_BODY = {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/StorageCollect"}}}}}


def records(services: Services) -> collecting.StoreRecords:
    """What refers to blobs on this server."""
    events, inbox = services.events, services.inbox

    def waiting() -> list[tuple[str, SubmitJob]]:
        rows = inbox.pending(events.head().inbox_cursor)
        return [(row.job, row.command) for row in rows if isinstance(row.command, SubmitJob)]

    def page(before_seq: int | None) -> list[Job]:
        return events.jobs(JobQuery(limit=_PAGE, before_seq=before_seq))

    return collecting.StoreRecords(page, waiting, lambda job, after: events.artifacts(job, _PAGE, after))


@router.get("/storage", summary="What the store holds", response_model=None, responses=schemas.answers(schemas.StorageUse))
async def use(
    request: Request, project: Annotated[str | None, Query(description="only of this project")] = None
) -> bodies.Json:
    """By project and kind; `orphaned_bytes` is what garbage collection would remove once it is old enough."""
    services = runtime.of(request).services
    found = await run_in_threadpool(collecting.use, services.blobs, records(services))
    rows = [_use(one) for one in found if project in (None, one.project)]
    return bodies.Json({"store": services.configuration.storage.url or str(services.home.blobs), "use": rows})


@router.post(
    "/storage/gc",
    summary="Remove what nothing refers to",
    response_model=None,
    responses=schemas.answers(schemas.StorageCollected),
    openapi_extra=_BODY,
)
async def gc(request: Request) -> bodies.Json:
    """Never what a job, a submit on its way or a fork refers to, nor what is younger than `grace_s`."""
    body = await bodies.read_json(request, bodies.MIB, "the collection", _KNOWN)
    grace_s, dry_run = body.get("grace_s", collecting.GRACE_S), body.get("dry_run", False)
    if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not 0 <= grace_s < 1e9:
        raise UsageError("grace_s must be a number of seconds of at least 0")
    if not isinstance(dry_run, bool):
        raise UsageError("dry_run must be true or false")
    desk = runtime.of(request)
    if desk.collecting:
        raise ConflictError("a collection is under way already", "wait for it to end")
    rules = collecting.Collecting(float(grace_s), dry_run, desk.gate.closed)
    desk.collecting = True
    try:
        work = asyncio.to_thread(collecting.collect, desk.services.blobs, records(desk.services), rules)
        done = await asyncio.shield(work)
    finally:
        desk.collecting = False
    return bodies.Json({
        "dry_run": dry_run,
        "blobs": done.blobs,
        "bytes": done.bytes,
        "uploads": done.uploads,
        "young_bytes": done.young_bytes,
        "by_kind": done.by_kind,
    })


def _use(one: collecting.Use) -> dict[str, Any]:
    return {
        "project": one.project,
        "kind": one.kind,
        "blobs": one.blobs,
        "bytes": one.bytes,
        "orphaned_bytes": one.orphaned_bytes,
        "spare_bytes": one.spare_bytes,
    }
