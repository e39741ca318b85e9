"""What a job was run from and in: its patch and the environments of its attempts, as they are stored and as they are told.

Records of environments are made by agents in the home (`agent.environment`) and brought into the blob store when they are
first heard of; patches are sent by whoever submits. Both lie under the SHA-256 of their bytes.
"""

import hashlib
import json
import re
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from trainmaster.errors import ConflictError, NotFoundError, OperationError, UsageError
from trainmaster.model import credentials
from trainmaster.model.job import Attempt, Job
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import Ref
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.workers import STORES
from trainmaster.server.schemas import models
from trainmaster.server.views import resources
from trainmaster.server.views.lookup import find
from trainmaster.wire.environment import EnvironmentRecord, digest

router = APIRouter(tags=["provenance"])

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_PATCH = {"requestBody": {"required": True, "content": {"text/x-diff": {"schema": {"type": "string", "format": "binary"}}}}}


def environment_blob(name: str) -> str:
    """Where the record of an environment lies."""
    return f"provenance/environments/{name}.json"


def diff_blob(name: str) -> str:
    """Where a patch lies."""
    return f"provenance/diffs/{name}.patch"


def keep_environment(services: Services, name: str) -> bool:
    """Bring a record that an agent made into the blob store; whether it is there now. Raises: DiskFullError."""
    if not _DIGEST.match(name):
        return False
    if services.blobs.exists([environment_blob(name)])[0]:
        return True
    try:
        data = (services.home.environments / f"{name}.json").read_bytes()
    except OSError:
        return False
    if digest(data) != name:
        return False
    services.blobs.put(environment_blob(name), data)
    return True


def environment(services: Services, name: str) -> EnvironmentRecord | None:
    """A record; None where it is lost."""
    if not keep_environment(services, name):
        return None
    with services.blobs.open(environment_blob(name)) as file:
        record: EnvironmentRecord = json.loads(file.read())
    return record


def check_diff(services: Services, name: str | None) -> None:
    """Raises: UsageError for no digest, ConflictError for a patch that was not sent."""
    if name is None:
        return
    if not _DIGEST.match(name):
        raise UsageError("origin.git_diff must be a SHA-256 in hexadecimal")
    if not services.blobs.exists([diff_blob(name)])[0]:
        raise ConflictError(f"the patch {name[:12]} is not on the server", f"send it first: PUT /provenance/diffs/{name}")


@router.put(
    "/provenance/diffs/{sha256}",
    summary="Send a patch",
    response_model=None,
    responses=models.answers(models.PatchStored),
    openapi_extra=_PATCH,
)
async def store_diff(request: Request, sha256: Annotated[str, Path(max_length=64)]) -> bodies.Json:
    """The patch from a commit to a work directory as it is, named by the SHA-256 of its bytes."""
    data = b"".join(await bodies.read(request, "the patch"))
    if hashlib.sha256(data).hexdigest() != sha256:
        raise UsageError("the patch's SHA-256 is another one than its name", "name it by the digest of its bytes")
    await STORES.run(runtime.of(request).services.blobs.put, diff_blob(sha256), data)
    return bodies.Json({"digest": sha256, "bytes": len(data)})


@router.get(
    "/jobs/{ref}/provenance",
    summary="What a job was run from and in",
    response_model=None,
    responses=models.answers(models.Provenance),
)
@STORES.runs
def show_provenance(request: Request, ref: Ref) -> bodies.Json:
    """Commit, patch, code copy, data versions, lineage; and for every attempt and node the packages, Python and machine."""
    desk = runtime.of(request)
    job = find(desk, ref).job
    services = desk.services
    attempts = {one.number: one for one in services.events.attempts(job.id)}
    if job.attempt is not None:
        attempts[job.attempt.number] = job.attempt
    names = dict.fromkeys(name for number in sorted(attempts) for name in _environments(attempts[number]) if name)
    return bodies.Json(
        {
            "id": job.id,
            "spec": asdict(credentials.shown(job.spec)),
            "member": job.owner,
            "origin": asdict(credentials.shown_origin(job.origin)),
            "code": asdict(job.code),
            "data": resources.data_view(job),
            "lineage": resources.lineage_view(job.lineage),
            "children": services.events.children(job.id),
            "attempts": [_attempt(attempts[number]) for number in sorted(attempts)],
            "environments": {name: environment(services, name) for name in names},
        }
    )


@router.get("/jobs/{ref}/diff", summary="The patch a job was run with", response_class=Response)
@STORES.runs
def show_diff(request: Request, ref: Ref) -> Response:
    """What differed from the commit at submit, as `git apply` takes it. Files that git did not know are in the code copy."""
    desk = runtime.of(request)
    job = find(desk, ref).job
    return Response(read_diff(desk.services, job), media_type="text/x-diff")


def read_diff(services: Services, job: Job) -> bytes:
    """Raises: NotFoundError saying why there is none."""
    origin = job.origin
    if origin.git_commit is None:
        raise NotFoundError(f"{job.id} was not submitted from a git repository with a commit, so there is no patch")
    if origin.git_diff is None:
        changed = "files that git did not know are in the code copy" if origin.git_dirty else "nothing differed"
        raise NotFoundError(f"{job.id} has no patch: it was run from commit {origin.git_commit[:12]}; {changed}")
    try:
        with services.blobs.open(diff_blob(origin.git_diff)) as file:
            return file.read()
    except NotFoundError as error:
        raise OperationError(f"the patch of {job.id} is lost", "the code copy has the files themselves") from error


def _environments(attempt: Attempt) -> list[str | None]:
    return [node.environment for node in attempt.nodes]


def _attempt(attempt: Attempt) -> dict[str, Any]:
    nodes = [
        {"node": share.node, "devices": list(share.devices), "environment": name}
        for share, name in zip(attempt.allocation.shares, _environments(attempt), strict=True)
    ]
    return {"number": attempt.number, "started_s": attempt.started_s, "nodes": nodes}
