"""`tm rm` and `tm prune`: delete stored bytes of ended jobs. A dry run shows what would be deleted, and its size.

The record of a job stays: `tm show` still shows it, and that its bytes were removed.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import ConflictError, TrainmasterError, UsageError
from trainmaster.model.commands import GiveUpBytes
from trainmaster.model.job import Job, State
from trainmaster.model.storage_kinds import OF_ENDED, StorageKind
from trainmaster.ports.store import JobQuery, NewRow
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.http.parameters import GRACE_AGE_MAX_S, KINDS_MAX, NUMBER_MAX, REMOVED_MAX
from trainmaster.server.http.permissions import may_change, refusal
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.workers import LONG
from trainmaster.server.schemas import actions, described
from trainmaster.server.storage import disk_usage
from trainmaster.server.views.job_notes import still_going
from trainmaster.server.views.lookup import FoundJob, find_each
from trainmaster.wire.disks import Size

router = APIRouter(tags=["storage"])

_PAGE = 500
_NAMED = frozenset(("jobs", "kinds", "dry_run"))
_OLD = frozenset(("older_than_s", "keep", "kinds", "project", "dry_run"))
_ENDED = tuple(state for state in State if state.ended)
_PRUNED = (StorageKind.WORK, StorageKind.LOGS)


@dataclass(frozen=True, slots=True)
class _Removal:
    """What would be removed of a job.

    `kept_for`: jobs that need its checkpoints, which stay until those jobs end. `unread`: kinds that are there and could not be
    measured to the end. `going`: kinds that were given up before, and of which bytes still exist.
    """

    job: Job
    kinds: tuple[StorageKind, ...]
    bytes: Mapping[str, int]
    kept_for: tuple[str, ...] = ()
    unread: tuple[StorageKind, ...] = ()
    going: tuple[str, ...] = ()

    def view(self) -> dict[str, Any]:
        """As JSON, for the response."""
        return {
            "id": self.job.id,
            "ended_s": self.job.ended_s,
            "kinds": [kind.value for kind in self.kinds],
            "bytes": dict(self.bytes),
            "kept_for": list(self.kept_for),
            "unread": [kind.value for kind in self.unread],
            "going": list(self.going),
        }


@router.post("/jobs/remove", summary="Remove the bytes of jobs", **described.asking(actions.Remove, actions.Removed))
async def remove(request: Request) -> bodies.Json:
    """For ended jobs; others are rejected one by one. Repeating the request removes nothing more."""
    body = await bodies.read_json(request, "the request", _NAMED)
    kinds, dry_run, refs = _kinds(body, OF_ENDED), _switch(body, "dry_run"), body.get("jobs")
    if not isinstance(refs, list) or not 1 <= len(refs) <= REMOVED_MAX or not all(isinstance(ref, str) for ref in refs):
        raise UsageError(f"jobs must be a list of 1 to {REMOVED_MAX} strings")
    api = runtime.of(request)
    found = await run_in_threadpool(find_each, api, refs)
    answers, removals = [], list[_Removal]()
    for ref, one in zip(refs, found, strict=True):
        error = one if isinstance(one, TrainmasterError) else _refusal(request, one)
        if error is not None:
            answers.append({"ref": ref, **error.as_dict()})
            continue
        assert isinstance(one, FoundJob)
        removals.append(await LONG.run(_removal_of, api, one.job, kinds))
        answers.append(removals[-1].view())
    await _accept(request, [] if dry_run else removals)
    return bodies.Json({"dry_run": dry_run, "jobs": answers}, 202)


@router.post("/storage/prune", summary="Remove the bytes of old jobs", **described.asking(actions.Prune, actions.Pruned))
async def prune(request: Request) -> bodies.Json:
    """For jobs that ended long ago and that the caller may change. `more`: there are further ones."""
    body = await bodies.read_json(request, "the request", _OLD)
    kinds, dry_run = _kinds(body, _PRUNED), _switch(body, "dry_run")
    older_s, keep = _number(body, "older_than_s", GRACE_AGE_MAX_S), int(_number(body, "keep", NUMBER_MAX))
    api, query = runtime.of(request), JobQuery(_ENDED, bodies.text(body, "project"), None, _PAGE)

    def find() -> list[_Removal]:
        old = (
            job
            for job in islice(_jobs(api, query), min(keep, sys.maxsize), None)
            if (job.ended_s or 0.0) <= time.time() - older_s
        )
        mine = (_removal_of(api, job, kinds) for job in old if may_change(request, job))
        return list(islice((one for one in mine if one.kinds), REMOVED_MAX + 1))

    found = await LONG.run(find)
    removals = found[:REMOVED_MAX]
    await _accept(request, [] if dry_run else removals)
    return bodies.Json({"dry_run": dry_run, "jobs": [one.view() for one in removals], "more": len(found) > len(removals)}, 202)


def _removal_of(api: runtime.Runtime, job: Job, kinds: tuple[StorageKind, ...]) -> _Removal:
    """What exists of these kinds and was not removed before."""
    events, there = api.services.events, disk_usage.of_job(api.services.home, job.id)
    work, logs = there.get("work", Size()).plus(there.get("set aside", Size())), there.get("logs", Size())
    unread = {StorageKind.WORK: work.unread, StorageKind.LOGS: logs.unread}
    sizes = {
        StorageKind.WORK: work.bytes,
        StorageKind.LOGS: logs.bytes,
        StorageKind.CHECKPOINTS: sum(part.bytes for one in job.checkpoints for part in one.parts),
        StorageKind.ARTIFACTS: events.artifact_totals(job.id).bytes,
        StorageKind.METRICS: 0,  # database rows; their space is reused, not freed
    }
    here = {kind for kind in kinds if sizes[kind] or unread.get(kind) or kind is StorageKind.METRICS}
    removable = tuple(kind for kind in kinds if kind in here and kind not in job.removed)
    forks = tuple(_forks(api, job)) if StorageKind.CHECKPOINTS in removable else ()
    measured = {kind.value: sizes[kind] for kind in removable if sizes[kind]}
    going = tuple(kind for kind in still_going(job) if kind in kinds)
    return _Removal(job, removable, measured, forks, tuple(kind for kind in removable if unread.get(kind)), going)


def _forks(api: runtime.Runtime, job: Job) -> Iterator[str]:
    """Jobs that are not over and start from a checkpoint of the job. A reproduction of a fork is a child of that fork only."""
    events, open_ids = api.services.events, [job.id]
    while open_ids:
        for id in events.children(open_ids.pop()):
            child = events.job(id)
            lineage = None if child is None else child.lineage
            if child is None or lineage is None or lineage.checkpoint is None or (lineage.owner or lineage.job) != job.id:
                continue  # it has none of this job's to pass on
            open_ids.append(id)
            if not child.state.ended:
                yield id


def _jobs(api: runtime.Runtime, query: JobQuery) -> Iterator[Job]:
    """Newest first, read in pages."""
    before: int | None = None
    while page := api.services.events.jobs(JobQuery(query.states, query.project, None, query.limit, before)):
        yield from page
        before = page[-1].seq


def _refusal(request: Request, found: FoundJob) -> TrainmasterError | None:
    if not may_change(request, found.job):
        return refusal(request, found.job)
    if not found.job.state.ended:
        return ConflictError(f"{found.job.id} is {found.job.state.value}", f"end it first: tm cancel {found.job.id}")
    return None


async def _accept(request: Request, removals: list[_Removal]) -> None:
    """Record the orders before any byte is removed."""
    api, user, now_s = runtime.of(request), runtime.user(request), time.time()
    given = [one for one in removals if one.kinds]
    if given:
        key = idempotency_key(request)
        orders = [GiveUpBytes(one.job.id, user, tuple(kind.value for kind in one.kinds)) for one in given]
        await api.commands.accept([NewRow(f"GiveUpBytes:{one.job}:{user}:{key}", one, now_s) for one in orders])
        api.metric_writer.discarded_curves |= {one.job.id for one in given if StorageKind.METRICS in one.kinds}


def _kinds(body: Mapping[str, Any], default: tuple[StorageKind, ...]) -> tuple[StorageKind, ...]:
    """Raises: UsageError."""
    given = body.get("kinds")
    if given is None:
        return default
    known = {kind.value: kind for kind in OF_ENDED}
    if (
        not isinstance(given, list)
        or not 1 <= len(given) <= KINDS_MAX
        or any(not isinstance(kind, str) or kind not in known for kind in given)
    ):
        raise UsageError(f"kinds must be a list of {', '.join(known)}")
    return tuple(kind for name, kind in known.items() if name in given)


def _switch(body: Mapping[str, Any], name: str) -> bool:
    """Raises: UsageError."""
    found = body.get(name, False)
    if not isinstance(found, bool):
        raise UsageError(f"{name} must be true or false")
    return found


def _number(body: Mapping[str, Any], name: str, most: float) -> float:
    """Raises: UsageError."""
    found = body.get(name, 0)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= most:
        raise UsageError(f"{name} must be a number, at least 0")
    return found
