"""Routes of the blob store: usage by project and kind, and garbage collection."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from trainmaster.blobs import garbage_collection, usage
from trainmaster.blobs.verification import is_stored
from trainmaster.errors import UsageError
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.commands import AgentReport, GiveUpCheckpoints, SubmitJob
from trainmaster.model.job import Attempt, Job
from trainmaster.ports.store import JobQuery, NewRow
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import GRACE_AGE_MAX_S, TEXT_MAX
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.workers import LONG
from trainmaster.server.schemas import described, models, storage_schemas
from trainmaster.server.storage import disk_usage

router = APIRouter(tags=["storage"])

_PAGE = 500
_SWITCHES = ("dry_run", "older_checkpoints", "unknown_jobs")
_KNOWN = frozenset(("grace_s", *_SWITCHES))
_BODY = {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/StorageCollect"}}}}}


class ServerRecords:
    """Implements `garbage_collection.Records` on the server's own stores."""

    def __init__(self, services: Services) -> None:
        self._events, self._inbox, self._home = services.events, services.inbox, services.home

    def home(self) -> str:
        """See `Records`."""
        return self._home.identity()

    def waiting(self, after: int) -> Iterator[tuple[int, str, SubmitJob | AgentReport]]:
        """See `Records`; reads in pages."""
        after = max(after, self._events.head().inbox_cursor)
        while rows := self._inbox.drain(after, _PAGE):
            yield from ((row.seq, row.job, row.command) for row in rows if isinstance(row.command, SubmitJob | AgentReport))
            after = rows[-1].seq

    def position(self) -> int:
        """See `Records`."""
        return self._events.head().last_seq

    def jobs(self) -> Iterator[Job]:
        """See `Records`; newest first, in pages."""
        before: int | None = None
        while page := self._events.jobs(JobQuery(limit=_PAGE, before_seq=before)):
            yield from page
            before = page[-1].seq

    def changed(self, after: int) -> Iterable[Job]:
        """See `Records`."""
        return self._events.changed_since(after)

    def artifacts(self, job: str) -> Iterator[Artifact]:
        """See `Records`."""
        after = ""
        while page := self._events.artifacts(job, _PAGE, after):
            yield from page
            after = page[-1].path

    def attempts(self, job: str) -> Iterable[Attempt]:
        """See `Records`."""
        return self._events.attempts(job)


@router.get(
    "/storage", summary="Storage usage", response_model=None, responses=described.answers(storage_schemas.StorageUse)
)
async def use(
    request: Request, project: Annotated[str | None, Query(max_length=TEXT_MAX, description="this project only")] = None
) -> bodies.Json:
    """By project and kind. Garbage collection removes `orphaned_bytes` once they are old enough."""
    services = runtime.of(request).services
    found = await LONG.run(usage.use, services.blobs, ServerRecords(services))
    rows = [_use(one) for one in found if project in (None, one.project)]
    there = await LONG.run(disk_usage.use, services.home)
    return bodies.Json(
        {
            "store": services.configuration.storage.url or str(services.home.blobs),
            "use": rows,
            "home": str(services.home.root),
            "free_bytes": there.free_bytes,
            "disk": [{"kind": kind, **size._asdict()} for kind, size in sorted(there.kinds.items())],
            "largest": [{"job": job, "bytes": kinds} for job, kinds in there.largest()],
        }
    )


@router.post(
    "/storage/gc",
    summary="Collect garbage",
    response_model=None,
    responses=described.answers(models.StorageCollected),
    openapi_extra=_BODY,
)
async def gc(request: Request) -> bodies.Json:
    """Removes stored bytes that nothing refers to. It keeps everything that a job, a pending submit or a fork needs.

    Anything younger than `grace_s` stays. With `older_checkpoints`, it also removes checkpoints of jobs that ended longer ago
    than that; each job keeps its last good checkpoint.
    """
    body = await bodies.read_json(request, "the collection", _KNOWN)
    grace_s = body.get("grace_s", garbage_collection.GRACE_S)
    if isinstance(grace_s, bool) or not isinstance(grace_s, int | float) or not 0 <= grace_s <= GRACE_AGE_MAX_S:
        raise UsageError("grace_s must be a number of seconds, at least 0")
    dry_run, older_too, unknown = (_switch(body, name) for name in _SWITCHES)
    api = runtime.of(request)
    known = api.known_blobs
    rules = garbage_collection.Collecting(float(grace_s), dry_run, known.removing, known.trees, unknown=unknown)
    known.begin_collection()

    async def work() -> garbage_collection.Collected:
        try:
            return await LONG.run(garbage_collection.collect, api.services.blobs, ServerRecords(api.services), rules)
        finally:
            known.end_collection()  # only when the thread is done, even if the client has left

    done = await asyncio.shield(work())
    older, held = await _give_up(api, runtime.user(request), rules) if older_too else ([], 0)
    return bodies.Json(
        {
            "dry_run": dry_run,
            "blobs": done.blobs,
            "bytes": done.bytes,
            "uploads": done.uploads,
            "young_bytes": done.young_bytes,
            "by_kind": done.by_kind,
            "unread_trees": done.unread_trees,
            "given_up": sum(len(one.ids) for one in older),
            "given_up_bytes": sum(one.bytes for one in older),
            "held_jobs": held,
        }
    )


async def _give_up(
    api: runtime.Runtime, user: str, rules: garbage_collection.Collecting
) -> tuple[list[garbage_collection.Older], int]:
    """Ask control to discard checkpoints: it records what a job keeps, and removes the bytes once no fork needs them.

    Returns what was discarded, and how many jobs keep all, since the one that would stay is not whole in the store.
    """
    found, held = await LONG.run(_older, api.services, time.time() - rules.grace_s)
    if found and not rules.dry_run:
        now_s = time.time()
        await api.commands.accept(
            [
                NewRow(f"GiveUpCheckpoints:{one.job}:{','.join(one.ids)}", GiveUpCheckpoints(one.job, user, one.ids), now_s)
                for one in found
            ]
        )
    return found, held


def _older(services: Services, before_s: float) -> tuple[list[garbage_collection.Older], int]:
    found = garbage_collection.older(ServerRecords(services), before_s)
    sure = [one for one in found if _stays(services, one.job)]
    return sure, len(found) - len(sure)


def _stays(services: Services, id: str) -> bool:
    """Whether the last good checkpoint of a job is whole in the store; nothing stays of a job that has none."""
    job = services.events.job(id)
    return job is not None and (not job.good_checkpoints or is_stored(services.blobs, id, job.good_checkpoints[-1]))


def _switch(body: dict[str, Any], name: str) -> bool:
    """Raises: UsageError."""
    found = body.get(name, False)
    if not isinstance(found, bool):
        raise UsageError(f"{name} must be true or false")
    return found


def _use(one: usage.Use) -> dict[str, Any]:
    return {
        "project": one.project,
        "kind": one.kind,
        "blobs": one.blobs,
        "bytes": one.bytes,
        "orphaned_bytes": one.orphaned_bytes,
        "spare_bytes": one.spare_bytes,
    }
