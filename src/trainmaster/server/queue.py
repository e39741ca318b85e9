"""The queue as the scheduler sees it, for whoever asks about it: why a job waits, and what would become of another."""

import asyncio
import time

from fastapi import APIRouter, Request

from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job, State
from trainmaster.ports.store import InboxRow, JobQuery, NewRow
from trainmaster.scheduling.cycle import Carry, cycle, ordered
from trainmaster.scheduling.explain import why
from trainmaster.scheduling.nouns import allocation, task
from trainmaster.scheduling.nouns import snapshot as world
from trainmaster.scheduling.policy import chosen
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.server import bodies, runtime, schemas
from trainmaster.server.lookup import page
from trainmaster.server.rules import present
from trainmaster.server.submit import ONE, SPEC_MAX_BYTES, row_of
from trainmaster.server.views import View, pending_job
from trainmaster.spec.document import to_mapping

router = APIRouter(tags=["jobs"])

QUEUE_MAX = 20_000  # jobs that are looked at
_LIVE = tuple(state for state in State if state.live)


def snapshot(desk: runtime.Runtime, extra: tuple[Job, ...] = (), rules: Cluster | None = None) -> Snapshot:
    """What the scheduler would see now, were `extra` queued too, and under `rules` where some are given."""
    events = desk.services.events
    waiting = [found.job for found in page(desk, JobQuery(states=(State.QUEUED,), limit=QUEUE_MAX))]
    live = events.jobs(JobQuery(states=_LIVE, limit=QUEUE_MAX))
    return world(time.time(), events.nodes(), (*waiting, *extra), live, present(desk) if rules is None else rules)


def position(seen: Snapshot, job_id: str) -> int | None:
    """Where a job stands, counted from 1; None when it does not wait."""
    ids = [task.id for task in ordered(seen, chosen(seen.rules))]
    return 1 + ids.index(job_id) if job_id in ids else None


@router.post(
    "/plan",
    summary="What would become of a job",
    response_model=None,
    responses=schemas.answers(schemas.Planned),
    openapi_extra=schemas.body(schemas.Submit),
)
async def plan(request: Request) -> bodies.Json:
    """The very decision that submitting it now would lead to. Nothing is submitted, and no code need be here.

    `placement` is where it would start at once; without one `reason` says what it would wait for, at which `position`.
    """
    body = await bodies.read_json(request, SPEC_MAX_BYTES, "the job", ONE)
    desk = runtime.of(request)
    row = row_of(desk, body, "plan", runtime.user(request))
    return bodies.Json(await asyncio.to_thread(_foreseen, desk, row))


def _foreseen(desk: runtime.Runtime, row: NewRow) -> View:
    now_s, command = time.time(), row.command
    assert isinstance(command, SubmitJob)
    job = pending_job(InboxRow(2**62, row.key, "it", now_s, command))  # `it`, as sentences call it
    if job.state is State.HELD:
        found: View = {"placement": None, "reason": f"it would be held: {job.reason}", "position": None}
    else:
        seen = snapshot(desk, (job,))
        decided, _ = cycle(seen, chosen(seen.rules), Carry())
        grant = next((placed.grant for placed in decided.placements if placed.job == job.id), None)
        nodes = tuple(sorted(desk.services.events.nodes(), key=lambda node: node.name))
        shares = None if grant is None else allocation(grant, nodes).shares
        place = position(seen, job.id)
        found = {
            "placement": None if shares is None else [
                {"node": share.node, "cpus": share.cpus, "memory_bytes": share.memory_bytes, "devices": list(share.devices)}
                for share in shares
            ],
            "reason": None if shares is not None else why(task(job, seen.rules), seen, place or 1),
            "position": place,
        }  # fmt: skip
    return {**found, "spec": to_mapping(job.spec), "code": {"files": job.code.files, "bytes": job.code.bytes}}
