"""`POST /jobs` and `POST /jobs/batch`: validate, assign the id, commit, and only then acknowledge."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from trainmaster.blobs.code import lacking
from trainmaster.errors import ConflictError, ImpossibleError, TrainmasterError, UsageError
from trainmaster.model.commands import SubmitJob
from trainmaster.model.redaction import without_credentials
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.store import NewRow
from trainmaster.scheduling.admission.feasible import grouped, never
from trainmaster.scheduling.admission.forbidden import Forbidden
from trainmaster.scheduling.model.convert import asks, choices, sites_of
from trainmaster.scheduling.model.jobs import kind_of, owner_of
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import digest, idempotency_key, request_digest
from trainmaster.server.http.parameters import JOBS_MAX, LONG_MAX
from trainmaster.server.jobs.admission import check_rules, current, remarks, urgency
from trainmaster.server.jobs.data_versions import data_versions
from trainmaster.server.jobs.start_waits import conditions
from trainmaster.server.record.provenance import check_diff
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.workers import SUBMITS
from trainmaster.server.schemas import described, models
from trainmaster.spec.document import from_mapping
from trainmaster.wire import rest
from trainmaster.wire.failpoint import passing

router = APIRouter(tags=["jobs"])

UPLOAD = f"upload it first: POST {rest.address('/code/missing')}, POST {rest.address('/code')}"
_BATCH_PATTERNS_MAX = 100  # distinct metric patterns per batch: compiling one takes milliseconds
_PAST_S = 60.0  # a start time that is so much earlier than the submit was not meant
ONE = frozenset(("spec", "origin", "code", "hold", "data", "urgent", "start"))
_OF_BATCH = ONE | {"key"}
_UMASK_MAX = 0o777
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_KINDS: dict[str, tuple[type, ...]] = {
    "user": (str,),
    "host": (str,),
    "directory": (str,),
    "python": (str,),
    "variables": (dict,),
    "git_commit": (str, type(None)),
    "git_dirty": (bool,),
    "git_remote": (str, type(None)),
    "git_diff": (str, type(None)),
    "git_diff_bytes": (int,),
    "git_diff_cut": (bool,),
    "umask": (int, type(None)),
    "editable": (dict,),
    "reads_params": (bool, type(None)),
    "digest": (str, type(None)),
    "files": (int,),
    "bytes": (int,),
    "linked": (int,),
    "in_place": (bool,),
}
T = TypeVar("T", Origin, CodeCopy)


class Acknowledgement(bodies.Json):
    """The response to a submit. When it is sent, the job is durable."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        passing("acknowledge.before")
        await super().__call__(scope, receive, send)
        passing("acknowledge.after")


@router.post(
    "/jobs",
    status_code=201,
    summary="Submit a job",
    response_model=None,
    responses=described.answers(models.Submitted, 201),
    openapi_extra=described.body(models.Submit, "Idempotency-Key"),
)
async def submit(request: Request) -> Acknowledgement:
    """The id is returned only once the job is durable. A retry with the same `Idempotency-Key` never makes a second job."""
    body = await bodies.read_json(request, "the job", ONE)
    api, user = runtime.of(request), runtime.user(request)
    key, asked = f"submit:{user}:{idempotency_key(request)}", request_digest(request, body)
    job, said = await answered(api, key, asked), list[str]()
    if job is None:
        async with api.known_blobs.referring():  # blobs found now must still be stored when the row is committed
            row, said = await SUBMITS.run(_made, api, body, key, user)
            (job,) = await api.commands.accept([replace(row, asked=asked)])
    return Acknowledgement({"id": job, "notes": said}, 201)


@router.post(
    "/jobs/batch",
    status_code=201,
    summary="Submit many jobs in one transaction",
    response_model=None,
    responses=described.answers(models.SubmittedBatch, 201),
    openapi_extra=described.body(models.SubmitBatch, "Idempotency-Key"),
)
async def submit_batch(request: Request) -> Acknowledgement:
    """All or none. A job without a `key` gets one from the batch's `Idempotency-Key` and its index."""
    body = await bodies.read_json(request, "the batch", frozenset(("jobs",)))
    jobs = body.get("jobs")
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise UsageError("jobs must be a list of objects")
    if not 1 <= len(jobs) <= JOBS_MAX:
        raise UsageError(f"a batch has 1 to {JOBS_MAX} jobs, not {len(jobs)}", "split it")
    patterns = {pattern for job in jobs if isinstance(pattern := _pattern(job), str)}
    if len(patterns) > _BATCH_PATTERNS_MAX:
            raise UsageError(f"a batch has at most {_BATCH_PATTERNS_MAX} different metric patterns", "split it")
    api, user, key = runtime.of(request), runtime.user(request), idempotency_key(request)
    async with api.known_blobs.referring():
        names = _names(jobs, user, key)
        rows, known = await SUBMITS.run(_rows, api, jobs, names, user)
        made = known | dict(zip([row.key for row in rows], await api.commands.accept(rows), strict=True))
    return Acknowledgement({"ids": [made[name] for name in names]}, 201)


def _names(jobs: Sequence[Mapping[str, Any]], user: str, key: str) -> list[str]:
    """The idempotency key of each job in a batch. Raises: UsageError."""
    own = [bodies.text(job, "key") for job in jobs]
    return [f"submit:{user}:{one}" if one else f"batch:{user}:{key}:{index}" for index, one in enumerate(own)]


def _rows(
    api: runtime.Runtime, jobs: list[Mapping[str, Any]], names: Sequence[str], user: str
) -> tuple[list[NewRow], dict[str, str]]:
    """The rows for new jobs, and the ids of jobs whose key was accepted before. Pops jobs from `jobs` as it goes.

    Raises: errors of `row_of`, with the index of the job; ConflictError.
    """
    digests = [digest(job) for job in jobs]
    rows, stored = list[NewRow](), set[str]()
    known = api.services.inbox.answered(dict(zip(names, digests, strict=True)))
    for index, job in enumerate(jobs):
        if names[index] in known:
            continue
        bodies.reject_unknown(job, _OF_BATCH, f"jobs[{index}]")
        try:
            rows.append(replace(row_of(api, job, names[index], user, stored), asked=digests[index]))
            jobs[index] = {}
        except TrainmasterError as error:
            error.message = f"jobs[{index}]: {error.message}"
            raise
    return rows, known


def _pattern(job: Mapping[str, Any]) -> object:
    """The metric pattern of a job in a batch, before validation."""
    found: object = job
    for name in ("spec", "metrics", "pattern"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


async def answered(api: runtime.Runtime, key: str, asked: bytes | None) -> str | None:
    """The job that was made under this key before, if any, even if things have changed since. Raises: ConflictError."""
    if asked is None:
        return None
    return (await run_in_threadpool(api.services.inbox.answered, {key: asked})).get(key)


def _made(api: runtime.Runtime, body: Mapping[str, Any], key: str, user: str) -> tuple[NewRow, list[str]]:
    row = row_of(api, body, key, user)
    return row, notes(api, row)


def row_of(api: runtime.Runtime, body: Mapping[str, Any], key: str, user: str, known: set[str] | None = None) -> NewRow:
    """The inbox row of a job that `user` submits. `known`: blobs already found in the store, for a batch.

    Raises: SpecError, ImpossibleError, UsageError, ConflictError, PermissionDeniedError.
    """
    mapping = body.get("spec")
    if not isinstance(mapping, dict):
        raise UsageError("spec must be an object as in a spec file", "`tm schema` prints what may be in it")
    spec = from_mapping(mapping)
    check_spec(api, spec, user)
    urgent = urgency(api, spec.project, user, bodies.text(body, "urgent"))
    origin, code = plain(Origin, body.get("origin"), "origin"), plain(CodeCopy, body.get("code"), "code")
    check_code(api, origin, code, known)
    held, versions = bodies.text(body, "hold"), data_versions(body.get("data"), spec)
    start = conditions(api, body.get("start"), user, spec)
    command = SubmitJob("", spec, origin, code, held, versions, urgent=urgent, member=user, start=start)
    return NewRow(key, command, time.time(), spec.experiment)


def check_spec(api: runtime.Runtime, spec: JobSpec, user: str) -> None:
    """Raises: UsageError for a missing tag that the project requires, an unknown project, class or pool; PermissionDeniedError
    for a class that `user` may not use there; ImpossibleError.
    """
    rules, nodes = check_rules(api, spec, user), api.recorded.nodes()
    check_tags(api, spec)
    lacking = never(asks(spec), grouped(sites_of(nodes, rules, time.time()))) if nodes else None
    if lacking is not None:
        raise ImpossibleError(f"the job {lacking}", "ask for less; `tm nodes` lists what there is")


def check_tags(api: runtime.Runtime, spec: JobSpec) -> None:
    """Raises: UsageError for a missing tag that the project requires."""
    required = api.services.configuration.project(spec.project).required_tags
    missing = [name for name in required if not spec.tags.get(name)]
    if missing:
        tags, flags = " and ".join(missing), " ".join(f"--tag {name}=…" for name in missing)
        raise UsageError(f"project {spec.project} requires the tag{'s' * (len(missing) > 1)} {tags}: add {flags}")


def notes(api: runtime.Runtime, row: NewRow) -> list[str]:
    """Notes for the submitter: that its project is not known, say, or that the present configuration never lets it start."""
    assert isinstance(row.command, SubmitJob)
    why = ruled_out(api, row)
    never = [] if why is None else [f"it cannot start under the present configuration (tm policy): {why}"]
    begin_s = row.command.start.begin_s if row.command.start is not None else None
    past = begin_s is not None and begin_s < row.received_s - _PAST_S
    late = ["the time before which it may not start is past: it starts as soon as it can"] if past else []
    return [*remarks(api, row.command.spec), *late, *never]


def ruled_out(api: runtime.Runtime, row: NewRow) -> str | None:
    """Why a job can never start under the present configuration; None if it can."""
    assert isinstance(row.command, SubmitJob)
    spec, nodes = row.command.spec, api.recorded.nodes()
    rules = current(api)
    owner = owner_of(rules, (spec.project, row.command.member, spec.work), spec.priority)
    kind = kind_of(choices(spec) or asks(spec)[0], owner, spec.time_limit_s)
    return Forbidden(rules, sites_of(nodes, rules, time.time())).why(kind) if nodes else None


def check_code(
    api: runtime.Runtime, origin: Origin, code: CodeCopy, known: set[str] | None = None, hint: str = UPLOAD
) -> None:
    """Raises: UsageError, ConflictError (the code copy or the patch is not on the server) with `hint`."""
    known = set() if known is None else known
    if origin.git_diff is not None and origin.git_diff not in known:
        check_diff(api.services, origin.git_diff)
        known.add(origin.git_diff)
    for name in ("variables", "editable"):
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in getattr(origin, name).items()):
            raise UsageError(f"origin.{name} must map text to text")
    if origin.umask is not None and origin.umask > _UMASK_MAX:
        raise UsageError("origin.umask is at most 0o777")
    if code.in_place and not origin.directory.startswith("/"):
        raise UsageError("code.in_place needs origin.directory, an absolute path")
    if code.digest is None:
        return
    if not _DIGEST.match(code.digest):
        raise UsageError("code.digest must be a SHA-256 in hexadecimal")
    if code.digest in known:
        return
    lacks = lacking(api.services.blobs, code.digest)
    if lacks is not None:
        raise ConflictError(f"the code copy {code.digest[:12]} is not whole on the server: {lacks} is missing or damaged", hint)
    known.add(code.digest)


def plain(cls: type[T], value: Any, what: str) -> T:
    """A flat dataclass from a JSON object. Raises: UsageError."""
    given = {} if value is None else value
    if not isinstance(given, dict):
        raise UsageError(f"{what} must be an object")
    bodies.reject_unknown(given, frozenset(f.name for f in fields(cls)), what)
    for name, item in given.items():
        fits = isinstance(item, _KINDS[name]) and (not isinstance(item, bool) or bool in _KINDS[name])
        if not fits or (isinstance(item, int) and not 0 <= item < 2**63) or (isinstance(item, str) and len(item) > LONG_MAX):
            raise UsageError(f"{what}.{name} is no {_KINDS[name][0].__name__}")
    if isinstance(given.get("git_remote"), str):
        given = {**given, "git_remote": without_credentials(given["git_remote"])}
    return cls(**given)
