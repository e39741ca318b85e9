"""Routes that make a job from another: requeue it, reproduce it, or fork it from a checkpoint. Each submits a new job."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import ConflictError, NotFoundError, UsageError
from trainmaster.model.checkpoints import Checkpoint, likeliest
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.options.placeholders import names_in, unread
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.store import NewRow
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key, request_digest
from trainmaster.server.http.parameters import Ref
from trainmaster.server.http.permissions import check_own
from trainmaster.server.jobs.admission import urgency
from trainmaster.server.jobs.data_versions import data_versions
from trainmaster.server.jobs.start_waits import of_spec
from trainmaster.server.jobs.submit import UPLOAD, Acknowledgement, answered, check_code, check_spec, notes, plain
from trainmaster.server.record import reproduction
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described, models
from trainmaster.server.views import resources
from trainmaster.server.views.lookup import find
from trainmaster.spec.changes import changed, only_known_params
from trainmaster.spec.default_names import default_name

router = APIRouter(tags=["jobs"])

_REPRODUCE = frozenset(("origin", "data", "hold", "urgent"))
_REQUEUE = _REPRODUCE | {"changes", "new_params", "code"}
_FORK = _REQUEUE | {"step", "checkpoint"}
_LISTED = 8


def _asking(summary: str, question: type[described.Described]) -> dict[str, Any]:
    extra = described.body(question, "Idempotency-Key")
    answers = described.answers(models.MadeFrom, 201)
    return {"summary": summary, "status_code": 201, "response_model": None, "responses": answers, "openapi_extra": extra}


@router.post("/jobs/{ref}/requeue", **_asking("Run an ended job again", models.Requeue))
async def requeue(request: Request, ref: Ref) -> Acknowledgement:
    """A new job with the same code and, apart from `changes`, the same spec. It starts where the original started."""
    body = await bodies.read_json(request, "the request", _REQUEUE)
    return await _make(request, ref, Relation.REQUEUE, body)


@router.post("/jobs/{ref}/reproduce", **_asking("Reproduce a job", models.Reproduce))
async def reproduce(request: Request, ref: Ref) -> Acknowledgement:
    """A new job with the same spec, code and start; `unequal` lists what cannot be kept the same."""
    body = await bodies.read_json(request, "the request", _REPRODUCE)
    return await _make(request, ref, Relation.REPRODUCTION, body)


@router.post("/jobs/{ref}/fork", **_asking("Fork a job from a checkpoint", models.Fork))
async def fork(request: Request, ref: Ref) -> Acknowledgement:
    """A new job that starts from a checkpoint of this one: the newest, or the one that `step` or `checkpoint` names."""
    body = await bodies.read_json(request, "the request", _FORK)
    return await _make(request, ref, Relation.FORK, body)


async def _make(request: Request, ref: str, relation: Relation, body: Mapping[str, Any]) -> Acknowledgement:
    """Accept the new job and answer with its lineage."""
    api = runtime.of(request)
    parent = (await run_in_threadpool(find, api, ref)).job
    key = f"{relation.value}:{parent.id}:{runtime.user(request)}:{idempotency_key(request)}"
    asked = request_digest(request, body)
    made = await answered(api, key, asked)
    if made is not None:
        return await _made_before(api, parent, made, relation)
    told: dict[str, Any] = {}
    async with api.known_blobs.referring():  # the checkpoint found now must still be stored when the row is committed
        parent = (await run_in_threadpool(find, api, ref)).job
        if relation is Relation.REQUEUE:  # it replaces the original and keeps its owner; the others belong to the caller
            check_own(request, parent)
        command = await run_in_threadpool(_command, api, parent, relation, body, runtime.user(request))
        reason = bodies.text(body, "urgent")
        urgent = await run_in_threadpool(urgency, api, command.spec.project, runtime.user(request), reason)
        command = replace(command, urgent=urgent, member=runtime.user(request))
        if relation is Relation.REPRODUCTION:
            told = await run_in_threadpool(reproduction.comparison, api, parent, command.data)
        row = NewRow(key, command, time.time(), command.spec.experiment, asked)
        (id,) = await api.commands.accept([row])
    said = await run_in_threadpool(notes, api, row)
    return Acknowledgement({"id": id, "notes": said, "lineage": resources.lineage_view(command.lineage), **told}, 201)


async def _made_before(api: runtime.Runtime, parent: Job, id: str, relation: Relation) -> Acknowledgement:
    """The answer to a repeated request."""
    job = (await run_in_threadpool(find, api, id)).job
    told: dict[str, Any] = {}
    if relation is Relation.REPRODUCTION:
        told = await run_in_threadpool(reproduction.comparison, api, parent, job.data)
    return Acknowledgement({"id": id, "notes": [], "lineage": resources.lineage_view(job.lineage), **told}, 201)


def _command(api: runtime.Runtime, parent: Job, relation: Relation, body: Mapping[str, Any], user: str) -> SubmitJob:
    """Raises: SpecError, ImpossibleError, UsageError, ConflictError, NotFoundError, PermissionDeniedError."""
    if relation is Relation.REQUEUE and not parent.state.ended:
        onward = f"   or go on from its checkpoint: tm rerun --continue {parent.id}" if parent.good_checkpoints else ""
        hint = f"end it first: tm cancel {parent.id}{onward}"
        raise ConflictError(f"{parent.id} is {parent.state.value}; only a job that has ended is run again", hint)
    spec = _spec(parent, body)
    check_spec(api, spec, user)
    own_code = body.get("code") is not None
    origin = plain(Origin, body.get("origin") if own_code else {**asdict(parent.origin), **_object(body, "origin")}, "origin")
    if not own_code and origin.reads_params is False and not _same_program(spec, parent.spec):
        origin = replace(origin, reads_params=None)  # it was found out about another program
    code = plain(CodeCopy, body["code"], "code") if own_code else parent.code
    _check_read(spec, origin, _object(body, "changes"), parent.id)
    if relation is Relation.FORK and code.in_place:
        message = f"{parent.id} ran in its directory itself, where a fork would get in its way"
        raise UsageError(message, f"give the fork a copy: --workdir {parent.origin.directory}")
    anew = f"take the code of its directory: tm rerun {parent.id} --workdir {parent.origin.directory}"
    check_code(api, origin, code, hint=UPLOAD if own_code else anew)
    lineage = _start(parent, relation, body)
    _check_stored(api, lineage)
    versions, start = data_versions(body.get("data"), spec), of_spec(spec)
    return SubmitJob("", spec, origin, code, bodies.text(body, "hold"), versions, lineage, start=start)


def _spec(parent: Job, body: Mapping[str, Any]) -> JobSpec:
    changes = _object(body, "changes")
    only_known_params(parent.spec, changes, parent.id)
    added = _object(body, "new_params")
    if added:
        given = changes.get("params")
        changes = {**changes, "params": {**(given if isinstance(given, dict) else {}), **added}}
    return changed(_without_lost_params(parent.spec, changes), changes)


def _same_program(one: JobSpec, other: JobSpec) -> bool:
    """Whether two commands run the same script."""
    if one.command == other.command:
        return True
    return bool(one.command and other.command) and default_name(one.command) == default_name(other.command)


def _without_lost_params(spec: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """The spec without parameters that only its command took, if that is replaced by one that does not take them."""
    command, given = changes.get("command"), changes.get("params")
    if not isinstance(command, str | list):
        return spec
    took, takes = names_in(spec.command), names_in(command if isinstance(command, str) else tuple(map(str, command)))
    lost = took - takes - (given.keys() if isinstance(given, dict) else set())
    return replace(spec, params={name: value for name, value in spec.params.items() if name not in lost})


def _check_read(spec: JobSpec, origin: Origin, changes: Mapping[str, Any], parent: str) -> None:
    """Raises: UsageError for a changed parameter that the program does not read."""
    given = changes.get("params")
    lost = [name for name in unread(spec, origin) if isinstance(given, dict) and name in given]
    if lost:
        hint = f"give a command that takes it: tm rerun {parent} --set {lost[0]}=… -- python train.py --{lost[0]} {{{lost[0]}}}"
        raise UsageError(f"nothing would read the parameter {lost[0]!r}: {spec.line}", hint)


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = body.get(name)
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{name} must be an object")
    return found or {}


def _start(parent: Job, relation: Relation, body: Mapping[str, Any]) -> Lineage:
    """The lineage: a fork's checkpoint, or the checkpoint that the parent started from. Raises: NotFoundError."""
    if relation is not Relation.FORK:
        first = parent.lineage or Lineage(relation, parent.id)
        return Lineage(relation, parent.id, first.checkpoint, first.owner)
    return Lineage(relation, parent.id, _checkpoint(parent, body), parent.id)


def _checkpoint(parent: Job, body: Mapping[str, Any]) -> Checkpoint:
    """The named checkpoint, or the newest. Raises: NotFoundError that lists them, ConflictError, UsageError."""
    good = parent.good_checkpoints
    if not good:
        hint = f"start it anew: tm rerun {parent.id}" if parent.state.ended else f"wait for one: tm show {parent.id}"
        raise ConflictError(f"{parent.id} has no checkpoint to go on from", hint)
    step, name = body.get("step"), bodies.text(body, "checkpoint")
    if step is None and name is None:
        return good[-1]
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise UsageError("step must be a whole number")
    found = [one for one in parent.checkpoints if (name is None or one.id == name) and (step is None or one.step == step)]
    if found and likeliest(found).good:
        return likeliest(found)
    which = f"checkpoint {name!r}" if name is not None else f"checkpoint of step {step}"
    kept = ", ".join((one.place.removeprefix("step ") or one.id) for one in good[-_LISTED:])
    hint = f"it has {kept}; each job keeps its newest {parent.spec.checkpoint.keep} (checkpoint.keep)"
    if found:
        raise ConflictError(f"the {which} of {parent.id} is corrupt", hint)
    raise NotFoundError(f"{parent.id} has no {which}", hint)


def _check_stored(api: runtime.Runtime, lineage: Lineage) -> None:
    """Raises: ConflictError if the checkpoint's bytes are gone."""
    if lineage.checkpoint is None:
        return
    parts = [f"checkpoints/{lineage.owner}/{lineage.checkpoint.id}/n{part.node_index}" for part in lineage.checkpoint.parts]
    if not all(api.services.blobs.exists([f"{part}/MANIFEST.json" for part in parts])):
        step = f" of {lineage.checkpoint.place}" if lineage.checkpoint.place else ""
        raise ConflictError(f"the checkpoint{step} of {lineage.owner} that it would start from has been deleted")
