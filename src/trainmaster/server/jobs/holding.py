"""Routes that hold and release jobs. The command is durable when answered; control carries it out."""

import time

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import ConflictError
from trainmaster.model.commands import Command, HoldJob, ReleaseJob
from trainmaster.model.job import Job, State
from trainmaster.ports.store import NewRow
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.http.parameters import Ref
from trainmaster.server.http.permissions import check_own
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described, models
from trainmaster.server.views.lookup import FoundJob, find

router = APIRouter(tags=["jobs"])

ASKED = frozenset(("reason",))
_ASKING = described.asking(models.Asked, models.Taken)


@router.post("/jobs/{ref}/hold", summary="Hold a job", **_ASKING)
async def hold(request: Request, ref: Ref) -> bodies.Json:
    """Keep a waiting job from starting until it is released."""
    api, reason = runtime.of(request), await asked(request)
    found = await run_in_threadpool(find, api, ref)
    check_own(request, found.job)
    if found.job.state not in (State.QUEUED, State.HELD):
        raise ConflictError(f"{state_text(found.job)}; only a waiting job can be held")
    return await _take(request, found, HoldJob(found.job.id, runtime.user(request), reason))


@router.post("/jobs/{ref}/release", summary="Release a held job", **_ASKING)
async def release(request: Request, ref: Ref) -> bodies.Json:
    """Put a held job back into the queue."""
    api, _ = runtime.of(request), await asked(request)
    found = await run_in_threadpool(find, api, ref)
    check_own(request, found.job)
    holding = any(isinstance(row.command, HoldJob) for row in found.pending)
    if found.job.state is not State.HELD and not holding:
        raise ConflictError(f"{state_text(found.job)}, so it is not held")
    return await _take(request, found, ReleaseJob(found.job.id, runtime.user(request)))


def state_text(job: Job) -> str:
    """`digits-14 is running`, `digits-14 has succeeded`."""
    verb = {State.SUCCEEDED: "has", State.FAILED: "has", State.CANCELLED: "was"}.get(job.state, "is")
    return f"{job.id} {verb} {job.state.value}"


async def asked(request: Request) -> str:
    """The reason in the request body. Raises: UsageError."""
    body = await bodies.read_json(request, "the request", ASKED)
    return bodies.reason(body)


async def _take(request: Request, found: FoundJob, command: Command) -> bodies.Json:
    """Store the command durably. It is ordered after the job's own submit."""
    api = runtime.of(request)
    verb = type(command).__name__
    key = f"{verb}:{found.job.id}:{runtime.user(request)}:{idempotency_key(request)}"
    await api.commands.accept([NewRow(key, command, time.time())])
    return bodies.Json({"id": found.job.id, "state": found.job.state.value}, 202)
