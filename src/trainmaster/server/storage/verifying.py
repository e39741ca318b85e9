"""Routes that verify the store: everything in it is read in the background, by one thread at a time."""

import asyncio
import os
import time
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request

from trainmaster.blobs.verification import Verification, verify
from trainmaster.errors import ConflictError, NotFoundError, TrainmasterError, UsageError
from trainmaster.model.commands import FoundDamaged
from trainmaster.ports.store import NewRow
from trainmaster.server.http import bodies
from trainmaster.server.record.provenance import replace_environment
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.workers import LONG
from trainmaster.server.schemas import described, storage_schemas
from trainmaster.server.storage.storage import ServerRecords

router = APIRouter(tags=["storage"])

_running: set[asyncio.Task[None]] = set()  # the loop itself keeps no reference to a task


@router.post(
    "/storage/verify",
    summary="Verify the store",
    status_code=202,
    response_model=None,
    responses=described.answers(storage_schemas.StorageVerification, 202),
    openapi_extra=described.body(storage_schemas.StorageVerify),
)
async def start(request: Request) -> bodies.Json:
    """Begin to read everything in the store, unless that is already going on. `GET` has the progress and the result."""
    body = await bodies.read_json(request, "the request", frozenset(("repair",)))
    repair = body.get("repair", False)
    if not isinstance(repair, bool):
        raise UsageError("repair must be true or false")
    api = runtime.of(request)
    newest = api.known_blobs.verification
    if newest is None or newest.ended:
        newest = api.known_blobs.verification = Verification(repair=repair)
        task = asyncio.create_task(_run(api, newest))
        _running.add(task)
        task.add_done_callback(_running.discard)
    elif repair and not newest.repair:
        raise ConflictError("a verification that repairs nothing is going on", "repeat the command when it has ended")
    return bodies.Json(_view(newest), 202)


@router.get(
    "/storage/verify",
    summary="Progress and result of a verification",
    response_model=None,
    responses=described.answers(storage_schemas.StorageVerification),
)
async def progress(request: Request) -> bodies.Json:
    """The newest verification since the server was started."""
    found = runtime.of(request).known_blobs.verification
    if found is None:
        raise NotFoundError("the store was not verified since the server was started", "to verify it: tm storage verify")
    return bodies.Json(_view(found))


async def _run(api: runtime.Runtime, into: Verification) -> None:
    """Verify, and have control record which checkpoints are damaged. A restart uses them only if no other is good."""
    try:
        await LONG.run(_verify, api.services, into)
        found = [FoundDamaged(job, tuple(sorted(ids))) for job, ids in into.checkpoints.items()]
        await api.commands.accept([NewRow(f"FoundDamaged:{os.urandom(12).hex()}", one, time.time()) for one in found])
    except TrainmasterError as error:
        into.error = str(error)
    finally:
        into.ended = True


def _verify(services: Services, into: Verification) -> None:
    into.error = "it failed: see the server's log"  # until it is over
    try:
        verify(services.blobs, ServerRecords(services), into, lambda name: replace_environment(services, name))
        into.error = ""
    except (OSError, TrainmasterError) as error:
        into.error = str(error)


def _view(found: Verification) -> dict[str, Any]:
    shown = {name: value for name, value in asdict(found).items() if name != "checkpoints"}
    return {**shown, "error": found.error if found.ended else ""}
