"""The provenance of a job: its code, patch, data, and the environments of its attempts, stored and shown.

Agents write environment records into the home (`agent.environment`). They are copied into the blob store when an agent first
reports them. Clients upload patches. Both are stored under the SHA-256 of their bytes.
"""

import hashlib
import json
import re
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from trainmaster.errors import (
    ConflictError,
    DamagedError,
    DiskFullError,
    NotFoundError,
    OperationError,
    StoreRefusedError,
    StoreUnavailableError,
    UsageError,
)
from trainmaster.model import redaction
from trainmaster.model.job import Attempt, Job
from trainmaster.ports.blobs import diff_blob, environment_blob
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import Ref
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.workers import STORES
from trainmaster.server.schemas import described, models
from trainmaster.server.views import resources
from trainmaster.server.views.lookup import find
from trainmaster.wire import rest
from trainmaster.wire.environment import EnvironmentRecord, digest

router = APIRouter(tags=["provenance"])

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_PATCH = {"requestBody": {"required": True, "content": {"text/x-diff": {"schema": {"type": "string", "format": "binary"}}}}}


def keep_environment(services: Services, name: str) -> bool:
    """Copy an environment record into the blob store; whether it is stored now.

    Raises: DiskFullError, OSError if it cannot be read, which does not prove that it is lost.
    """
    if not _DIGEST.match(name):
        return False
    if services.blobs.exists([environment_blob(name)])[0]:
        return True
    try:
        data = (services.home.environments / f"{name}.json").read_bytes()
    except FileNotFoundError:
        return False
    if digest(data) != name:
        return False
    services.blobs.put(environment_blob(name), data)
    return True


def replace_environment(services: Services, blob: str) -> bool:
    """Replace a damaged environment record by the one in the home. Whether there was one; False for any other blob."""
    name = blob.rpartition("/")[2].removesuffix(".json")
    try:
        return blob == environment_blob(name) and keep_environment(services, name)
    except OSError:
        return False


def environment(services: Services, name: str) -> EnvironmentRecord | None:
    """Read an environment record; None if it is lost, or damaged and not in the home any more. Raises: OSError."""
    if not keep_environment(services, name):
        return None
    try:
        with services.blobs.open(environment_blob(name)) as file:
            record: EnvironmentRecord = json.loads(file.read())
    except DamagedError:  # of a remote store: it is read again where it is asked for
        return None
    return record


def recorded(services: Services, name: str | None) -> EnvironmentRecord | str:
    """An environment record, or why there is none."""
    if name is None:
        return "nothing is recorded"
    try:
        record = environment(services, name)
        if record is not None:
            return record
        return "the record is lost" if services.blobs.stat(environment_blob(name)) is None else "the record is damaged"
    except OSError as error:
        return f"the record cannot be read now ({error.strerror or error})"
    except (StoreUnavailableError, StoreRefusedError, DiskFullError) as error:
        return f"the record cannot be read now ({error.message})"


def check_diff(services: Services, name: str | None) -> None:
    """Raises: UsageError for an invalid digest, ConflictError for a patch that was not uploaded."""
    if name is None:
        return
    if not _DIGEST.match(name):
        raise UsageError("origin.git_diff must be a SHA-256 in hexadecimal")
    if not services.blobs.exists([diff_blob(name)])[0]:
        hint = f"upload it first: PUT {rest.address('/provenance/diffs/' + name)}"
        raise ConflictError(f"the patch {name[:12]} is not on the server", hint)


@router.put(
    "/provenance/diffs/{sha256}",
    summary="Upload a patch",
    response_model=None,
    responses=described.answers(models.PatchStored),
    openapi_extra=_PATCH,
)
async def store_diff(request: Request, sha256: Annotated[str, Path(max_length=64)]) -> bodies.Json:
    """The patch from a commit to the work directory, named by the SHA-256 of its bytes."""
    size = await bodies.whole(request, "the patch", partial(_store_diff, runtime.of(request).services, sha256))
    return bodies.Json({"digest": sha256, "bytes": size})


def _store_diff(services: Services, sha256: str, data: bytes) -> int:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise UsageError("the patch's SHA-256 differs from its name", "name it by the digest of its bytes")
    services.blobs.put(diff_blob(sha256), data)
    return len(data)


@router.get(
    "/jobs/{ref}/provenance",
    summary="Show a job's provenance",
    response_model=None,
    responses=described.answers(models.Provenance),
)
@STORES.runs
def show_provenance(request: Request, ref: Ref) -> bodies.Json:
    """Commit, patch, code copy, data versions and lineage; packages, Python and machine for every attempt and node."""
    api = runtime.of(request)
    job = find(api, ref).job
    services = api.services
    attempts = resources.all_attempts(job, services.events.attempts(job.id))
    names = dict.fromkeys(name for attempt in attempts for name in _environments(attempt) if name)
    found = {name: recorded(services, name) for name in names}
    return bodies.Json(
        {
            "id": job.id,
            "spec": asdict(redaction.shown(job.spec)),
            "member": job.owner,
            "origin": asdict(redaction.shown_origin(job.origin)),
            "code": asdict(job.code),
            "data": resources.data_view(job),
            "lineage": resources.lineage_view(job.lineage),
            "children": services.events.children(job.id),
            "attempts": [_attempt(attempt) for attempt in attempts],
            "environments": {name: None if isinstance(record, str) else record for name, record in found.items()},
            "unshown": {name: why for name, why in found.items() if isinstance(why, str)},
        }
    )


@router.get("/jobs/{ref}/diff", summary="Download a job's patch", response_class=Response)
@STORES.runs
def show_diff(request: Request, ref: Ref) -> Response:
    """The difference from the commit at submit, for `git apply`. Untracked files are not in it."""
    api = runtime.of(request)
    job = find(api, ref).job
    return Response(read_diff(api.services, job), media_type="text/x-diff")


def read_diff(services: Services, job: Job) -> bytes:
    """Raises: NotFoundError with the reason if there is no patch."""
    origin = job.origin
    if origin.git_commit is None:
        raise NotFoundError(f"{job.id} was not submitted from a git repository with a commit, so there is no patch")
    if origin.git_diff is None:
        changed = "files differed from it, but there is no patch of them" if origin.git_dirty else "git saw no change"
        raise NotFoundError(f"{job.id} has no patch: it was run from commit {origin.git_commit[:12]}; {changed}")
    if origin.git_diff_cut:
        said = f"the patch of {job.id} was too large to be stored whole ({origin.git_diff_bytes:,} bytes)"
        raise NotFoundError(said, _elsewhere(job))
    try:
        with services.blobs.open(diff_blob(origin.git_diff)) as file:
            return file.read()
    except NotFoundError as error:
        raise OperationError(f"the patch of {job.id} is lost", _elsewhere(job)) from error


def _elsewhere(job: Job) -> str:
    """Where the files are that a patch would have described."""
    if job.code.in_place:
        return f"it ran in {job.origin.directory} itself, and nothing was copied"
    return "the code copy has those files that were copied: they are in its work directory"


def _environments(attempt: Attempt) -> list[str | None]:
    return [node.environment for node in attempt.nodes]


def _attempt(attempt: Attempt) -> dict[str, Any]:
    nodes = [
        {"node": share.node, "devices": list(share.devices), "environment": name}
        for share, name in zip(attempt.allocation.shares, _environments(attempt), strict=True)
    ]
    return {"number": attempt.number, "started_s": attempt.span[0], "nodes": nodes}
