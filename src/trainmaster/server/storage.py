"""What the store holds, by project and kind, and its garbage collection."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.blobs import collecting
from trainmaster.errors import ConflictError, UsageError
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.commands import AgentReport, GiveUpCheckpoints, SubmitJob
from trainmaster.model.job import Attempt, Job
from trainmaster.ports.store import JobQuery, NewRow
from trainmaster.server import bodies, runtime, schemas
from trainmaster.server.services import Services

router = APIRouter(tags=["storage"])

_PAGE = 500
_SWITCHES = ("dry_run", "older_checkpoints", "unknown_jobs")
_KNOWN = frozenset(("grace_s", *_SWITCHES))
_BODY = {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/StorageCollect"}}}}}


class ServerRecords:
    """`collecting.Records` of a server's own stores."""

    def __init__(self, services: Services) -> None:
        self._events, self._inbox = services.events, services.inbox

    def waiting(self) -> Iterator[tuple[str, SubmitJob | AgentReport]]:
        """See `Records`; a page in memory."""
        taken = self._events.head().inbox_cursor
        while rows := self._inbox.drain(taken, _PAGE):
            yield from ((row.job, row.command) for row in rows if isinstance(row.command, SubmitJob | AgentReport))
            taken = rows[-1].seq

    def jobs(self) -> Iterator[Job]:
        """See `Records`; newest first, a page in memory."""
        before: int | None = None
        while page := self._events.jobs(JobQuery(limit=_PAGE, before_seq=before)):
            yield from page
            before = page[-1].seq

    def artifacts(self, job: str) -> Iterator[Artifact]:
        """See `Records`."""
        after = ""
        while page := self._events.artifacts(job, _PAGE, after):
            yield from page
            after = page[-1].path

    def attempts(self, job: str) -> Iterable[Attempt]:
        """See `Records`."""
        return self._events.attempts(job)


@router.get("/storage", summary="What the store holds", response_model=None, responses=schemas.answers(schemas.StorageUse))
async def use(
    request: Request, project: Annotated[str | None, Query(description="only of this project")] = None
) -> bodies.Json:
    """By project and kind; `orphaned_bytes` is what garbage collection would remove once it is old enough."""
    services = runtime.of(request).services
    found = await run_in_threadpool(collecting.use, services.blobs, ServerRecords(services))
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
    """Never what a job, a submit on its way or a fork refers to, nor what is younger than `grace_s`.

    With `older_checkpoints`, jobs that are over for that long give up all checkpoints but their last good one.
    """
    body = await bodies.read_json(request, bodies.MIB, "the collection", _KNOWN)
    grace_s = body.get("grace_s", collecting.GRACE_S)
    if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not 0 <= grace_s < 1e9:
        raise UsageError("grace_s must be a number of seconds of at least 0")
    dry_run, older_too, unknown = (_switch(body, name) for name in _SWITCHES)
    desk = runtime.of(request)
    if desk.collecting:
        raise ConflictError("a collection is under way already", "wait for it to end")
    rules = collecting.Collecting(float(grace_s), dry_run, lambda: _closed(desk), unknown=unknown)
    desk.collecting = True
    try:
        work = asyncio.to_thread(collecting.collect, desk.services.blobs, ServerRecords(desk.services), rules)
        done = await asyncio.shield(work)
        older = await _give_up(desk, runtime.user(request), rules) if older_too else []
    finally:
        desk.collecting = False
    return bodies.Json(
        {
            "dry_run": dry_run,
            "blobs": done.blobs,
            "bytes": done.bytes,
            "uploads": done.uploads,
            "young_bytes": done.young_bytes,
            "by_kind": done.by_kind,
            "given_up": sum(len(one.ids) for one in older),
            "given_up_bytes": sum(one.bytes for one in older),
        }
    )


async def _give_up(desk: runtime.Runtime, user: str, rules: collecting.Collecting) -> list[collecting.Older]:
    """Ask control for it: it records what a job keeps, and removes the bytes once no fork needs them."""
    found = await asyncio.to_thread(collecting.older, ServerRecords(desk.services), time.time() - rules.grace_s)
    if found and not rules.dry_run:
        now_s = time.time()
        await desk.accept(
            [
                NewRow(f"GiveUpCheckpoints:{one.job}:{','.join(one.ids)}", GiveUpCheckpoints(one.job, user, one.ids), now_s)
                for one in found
            ]
        )
    return found


@contextmanager
def _closed(desk: runtime.Runtime) -> Iterator[None]:
    """Nobody makes references; and what is removed meanwhile is no longer known to be there."""
    with desk.gate.closed():
        desk.environments.clear()
        yield


def _switch(body: dict[str, Any], name: str) -> bool:
    """Raises: UsageError."""
    found = body.get(name, False)
    if not isinstance(found, bool):
        raise UsageError(f"{name} must be true or false")
    return found


def _use(one: collecting.Use) -> dict[str, Any]:
    return {
        "project": one.project,
        "kind": one.kind,
        "blobs": one.blobs,
        "bytes": one.bytes,
        "orphaned_bytes": one.orphaned_bytes,
        "spare_bytes": one.spare_bytes,
    }
