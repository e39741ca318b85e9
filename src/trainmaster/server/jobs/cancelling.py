"""Routes that cancel jobs: one, several by reference, or all that match, in one transaction."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import ConflictError, TrainmasterError, UsageError
from trainmaster.model.commands import CancelJob
from trainmaster.model.job import Job, State
from trainmaster.ports.store import JobQuery, NewRow
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.http.parameters import GRACE_MAX_S, REFS_MAX, Ref
from trainmaster.server.http.permissions import check_own, may_change, refusal
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import actions, described, models
from trainmaster.server.views.lookup import FoundJob, find, find_each, page

router = APIRouter(tags=["jobs"])

_PAGE = 1000
_HOW = frozenset(("reason", "grace_s"))
_MANY = _HOW | {"jobs", "all", "project", "experiment", "states"}
_LIVE = tuple(state for state in State if not state.ended)


@router.post("/jobs/cancel", summary="Cancel many jobs", **described.asking(actions.CancelMany, actions.CancelledMany))
async def cancel_many(request: Request) -> bodies.Json:
    """The jobs in `jobs`, in order, or with `all` every unfinished job (for a member: its own jobs).

    Jobs that cannot be cancelled are listed with the reason.
    """
    body = await bodies.read_json(request, "the request", _MANY)
    api, refs = runtime.of(request), body.get("jobs")
    reason, grace_s = bodies.reason(body), _grace_s(body)
    if (refs is None) == (body.get("all") is not True):
        raise UsageError("name the jobs, or send all: true", '{"jobs": ["digits-14"]} or {"all": true}')
    if refs is None:
        every = await run_in_threadpool(_all, api, _query(body))
        found: Sequence[FoundJob | TrainmasterError] = [one for one in every if may_change(request, one.job)]
    else:
        if not isinstance(refs, list) or len(refs) > REFS_MAX or not all(isinstance(ref, str) for ref in refs):
            raise UsageError(f"jobs must be a list of at most {REFS_MAX} strings")
        found = await run_in_threadpool(find_each, api, refs)
    answers, commands = [], []
    for at, one in enumerate(found):
        error = one if isinstance(one, TrainmasterError) else _refused(request, one.job)
        if error is not None:
            answers.append({"ref": one.job.id if isinstance(one, FoundJob) else str(refs and refs[at]), **error.as_dict()})
            continue
        assert isinstance(one, FoundJob)
        answers.append({"id": one.job.id, "state": one.job.state.value})
        if not one.job.state.ended:
            commands.append(CancelJob(one.job.id, runtime.user(request), reason, grace_s))
    await _take(request, commands)
    return bodies.Json({"jobs": answers}, 202)


@router.post("/jobs/{ref}/cancel", summary="Cancel a job", **described.asking(actions.AskedToCancel, models.Taken))
async def cancel(request: Request, ref: Ref) -> bodies.Json:
    """End the job in any state. Cancelling it again changes nothing; a job that ended otherwise is a conflict."""
    api = runtime.of(request)
    body = await bodies.read_json(request, "the request", _HOW)
    reason, grace_s = bodies.reason(body), _grace_s(body)
    job = (await run_in_threadpool(find, api, ref)).job
    check_own(request, job)
    refused = _refusal(job)
    if refused is not None:
        raise refused
    if not job.state.ended:
        await _take(request, [CancelJob(job.id, runtime.user(request), reason, grace_s)])
    return bodies.Json({"id": job.id, "state": job.state.value}, 202)


def _refused(request: Request, job: Job) -> TrainmasterError | None:
    """Why the caller cannot cancel the job; None if the caller can."""
    return _refusal(job) if may_change(request, job) else refusal(request, job)


def _refusal(job: Job) -> ConflictError | None:
    """Why the job cannot be cancelled: it ended in another way."""
    if job.state not in (State.SUCCEEDED, State.FAILED):
        return None
    return ConflictError(f"{job.id} has already {job.state.value}", f"see how: tm show {job.id}")


def _all(api: runtime.Runtime, query: JobQuery) -> list[FoundJob]:
    """All jobs that match the query, newest first, read in pages."""
    found: list[FoundJob] = []
    while True:
        rows = page(api, query)
        found += rows
        if len(rows) < query.limit:
            return found
        query = JobQuery(query.states, query.project, query.experiment, query.limit, rows[-1].job.seq)


def _query(body: Mapping[str, Any]) -> JobQuery:
    """Raises: UsageError."""
    given = body.get("states") or [state.value for state in _LIVE]
    known = {state.value: state for state in _LIVE}
    if not isinstance(given, list) or any(not isinstance(state, str) or state not in known for state in given):
        raise UsageError(f"states must be a list of {', '.join(known)}")
    states = tuple(known[state] for state in given)
    return JobQuery(states, bodies.text(body, "project"), bodies.text(body, "experiment"), _PAGE)


def _grace_s(body: Mapping[str, Any]) -> float | None:
    """Raises: UsageError."""
    given = body.get("grace_s")
    if given is None:
        return None
    a_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not a_number or not 0 <= given <= GRACE_MAX_S:
        raise UsageError(f"grace_s must be a number of seconds from 0 to {GRACE_MAX_S:.0f}")
    return float(given)


async def _take(request: Request, commands: Sequence[CancelJob]) -> None:
    """Store the commands durably. Each is ordered after the job's own submit."""
    if commands:
        user, key, now_s = runtime.user(request), idempotency_key(request), time.time()
        await runtime.of(request).commands.accept([NewRow(f"CancelJob:{one.job}:{user}:{key}", one, now_s) for one in commands])
