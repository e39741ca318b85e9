"""The route that changes a job after its submission. The command is durable when answered; control carries it out."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.control.decide import time_left_s
from trainmaster.errors import ConflictError, NotFoundError, UsageError
from trainmaster.lifecycle.updating import WAITING
from trainmaster.model import redaction
from trainmaster.model.commands import Command, HoldJob, UpdateJob
from trainmaster.model.job import Job
from trainmaster.model.spec import JobSpec
from trainmaster.ports.store import NewRow
from trainmaster.scheduling.model.words import length
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.http.parameters import Ref
from trainmaster.server.http.permissions import check_own
from trainmaster.server.jobs.admission import check_class, current
from trainmaster.server.jobs.holding import state_text
from trainmaster.server.jobs.submit import check_tags
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import actions, described
from trainmaster.server.views.lookup import find
from trainmaster.spec.changes import changed

router = APIRouter(tags=["jobs"])

_FIELDS = ("priority", "time_limit", "class", "tags")  # of a spec
_ASKED = frozenset((*_FIELDS, "hold"))


@router.patch("/jobs/{ref}", summary="Change a job", **described.asking(actions.Update, actions.Updated))
async def update(request: Request, ref: Ref) -> bodies.Json:
    """Change priority, time limit, class or tags, or hold it. Of a job that runs, not its class; of an ended one, only tags."""
    body = await bodies.read_json(request, "the request", _ASKED)
    api, user = runtime.of(request), runtime.user(request)
    job = (await run_in_threadpool(find, api, ref)).job
    check_own(request, job)
    if not body:
        raise UsageError("the request changes nothing", f"give one of {', '.join(sorted(_ASKED))}")
    _check_state(job, body)
    hold = bodies.text(body, "hold")
    spec = await run_in_threadpool(_changed, api, job, body, user)
    commands: list[Command] = [_command(job.id, user, spec, body)] if body.keys() - {"hold"} else []
    commands += [] if hold is None else [HoldJob(job.id, user, hold)]
    key = f"{job.id}:{user}:{idempotency_key(request)}"
    await api.commands.accept([NewRow(f"{type(one).__name__}:{key}", one, time.time()) for one in commands])
    return bodies.Json({"id": job.id, "state": job.state.value, **_view(spec)}, 202)


def _check_state(job: Job, body: Mapping[str, Any]) -> None:
    """Raises: ConflictError for what the state of the job does not allow."""
    if job.state.ended and body.keys() - {"tags"}:
        raise ConflictError(f"{state_text(job)}; only its tags can still be changed")
    if job.state in WAITING:
        return
    if "class" in body:
        raise ConflictError(f"{state_text(job)}; only the class of a waiting job can be changed")
    if body.get("hold") is not None:
        raise ConflictError(f"{state_text(job)}; only a waiting job can be held")


def _changed(api: runtime.Runtime, job: Job, body: Mapping[str, Any], user: str) -> JobSpec:
    """The spec as it will be.

    Raises: SpecError, UsageError, PermissionDeniedError (a class), NotFoundError (a tag), ConflictError (a limit that is over).
    """
    tags = body.get("tags", {})
    if not isinstance(tags, dict):
        raise UsageError("tags must be an object", 'such as {"owner": "team-a"}; null removes a tag')
    removed = [name for name, value in tags.items() if value is None]
    for name in removed:
        if name not in job.spec.tags:
            had = f"it has {', '.join(job.spec.tags)}" if job.spec.tags else "it has none"
            raise NotFoundError(f"{job.id} has no tag {name!r}", had)
    given = {name: body[name] for name in _FIELDS if name in body and name != "tags"}
    unlimited = "time_limit" in given and given["time_limit"] is None
    if unlimited:
        del given["time_limit"]
    spec = changed(job.spec, {**given, "tags": {name: value for name, value in tags.items() if value is not None}})
    spec = replace(spec, tags={name: value for name, value in spec.tags.items() if name not in removed})
    spec = replace(spec, time_limit_s=None) if unlimited else spec
    if "class" in body:
        check_class(current(api), spec, user)
    if removed:
        check_tags(api, spec)
    if "time_limit" in body:
        _check_limit(job, spec)
    return spec


def _check_limit(job: Job, spec: JobSpec) -> None:
    """Raises: ConflictError if the job has run for longer already."""
    left_s = time_left_s(replace(job, spec=spec), time.time())
    left_s = spec.time_limit_s - job.ran_s if left_s is None and spec.time_limit_s is not None else left_s
    if left_s is not None and spec.time_limit_s is not None and left_s <= 0:
        ran, limit = length(spec.time_limit_s - left_s), length(spec.time_limit_s)
        message = f"{job.id} has run for {ran}: a limit of {limit} would end it at once"
        raise ConflictError(message, f"to end it: tm cancel {job.id}")


def _command(job: str, by: str, spec: JobSpec, body: Mapping[str, Any]) -> UpdateJob:
    return UpdateJob(
        job,
        by,
        spec.priority if "priority" in body else None,
        spec.time_limit_s if "time_limit" in body else None,
        "time_limit" in body and spec.time_limit_s is None,
        spec.work if "class" in body else None,
        {name: spec.tags.get(name) for name in body.get("tags", {})},
    )


def _view(spec: JobSpec) -> dict[str, Any]:
    tags = redaction.values(spec.tags)
    return {"priority": spec.priority, "time_limit_s": spec.time_limit_s, "class": spec.work, "tags": tags}
