"""Routes of artifacts: list them in pages, and download one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from trainmaster.blobs import transfers
from trainmaster.errors import NotFoundError
from trainmaster.model.checkpoints import Artifact, ArtifactKind
from trainmaster.model.job import Job
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import PATH_MAX, Ref
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.workers import STORES, blocks
from trainmaster.server.schemas import described, record_schemas
from trainmaster.server.views.lookup import find
from trainmaster.server.views.resources import View


class _AnyName(PathConvertor):
    """The rest of the path, including line breaks: a program may have put them into a file name."""

    regex = "(?s:.*)"


register_url_convertor("anyname", _AnyName())
router = APIRouter(tags=["artifacts"])

SHOWN = 100  # artifacts shown with the job itself; the others are listed by page
_LISTED_MAX = 1000
_NAMED = 20  # artifacts listed in an error
_NAMED_PICKLES = 3
_GONE = "the store was changed, or the file was removed from it; an administrator looks: tm storage verify"
_PROVEN_BYTES = 256 * 1024 * 1024  # up to this size, its digest is checked before anything is sent


@dataclass(slots=True)
class ArtifactsQuery:
    """Which artifacts to list."""

    after: Annotated[str, Query(max_length=PATH_MAX, description="only paths after this one: the next page")] = ""
    limit: Annotated[int, Query(ge=1, le=_LISTED_MAX)] = _LISTED_MAX
    kind: ArtifactKind | None = None
    path: Annotated[str | None, Query(max_length=PATH_MAX, description="this path only")] = None


@router.get(
    "/jobs/{ref}/artifacts",
    summary="List artifacts",
    response_model=None,
    responses=described.answers(record_schemas.ArtifactList),
)
def list_artifacts(
    request: Request,
    ref: Ref,
    query: Annotated[ArtifactsQuery, Depends()],
) -> bodies.Json:
    """Sorted by path; for each path the file from the newest attempt that stored it."""
    api = runtime.of(request)
    job, events = find(api, ref).job, api.services.events
    totals = events.artifact_totals(job.id)
    if query.path is not None:
        one = events.artifact(job.id, query.path)
        found = [one] if one is not None else []
    else:
        found = events.artifacts(job.id, query.limit, query.after, query.kind)
    shown = [artifact_view(one) for one in found]
    removed = StorageKind.ARTIFACTS in job.removed
    return bodies.Json(
        {"id": job.id, "artifacts": shown, "total": totals.files, "bytes": totals.bytes, "removed": removed}
    )


@router.get("/jobs/{ref}/artifacts/{path:anyname}", summary="Download an artifact", response_class=Response)
@STORES.runs
def artifact(request: Request, ref: Ref, path: Annotated[str, Path(max_length=PATH_MAX)]) -> Response:
    """The file's content; `ETag` is its SHA-256."""
    api = runtime.of(request)
    job = find(api, ref).job
    kept = api.services.events.artifact(job.id, path)
    if kept is None:
        names = ", ".join(one.path for one in api.services.events.artifacts(job.id, _NAMED))
        raise NotFoundError(f"{job.id} has no artifact {path!r}", f"it has {names}" if names else "it has none so far")
    if StorageKind.ARTIFACTS in job.removed:
        raise NotFoundError(f"the artifacts of {job.id} were removed to free space", f"see its record: tm show {job.id}")
    name, blobs = f"artifacts/{job.id}/{kept.digest}", api.services.blobs
    try:
        if kept.bytes <= _PROVEN_BYTES:  # of a larger one that is damaged, the connection is closed before its end
            transfers.prove(blobs, name)
        content = blobs.open(name)
    except NotFoundError as error:
        raise NotFoundError(f"the store does not have the artifact {path!r} of {job.id}", _GONE) from error
    headers = {"ETag": f'"{kept.digest}"', "Content-Length": str(kept.bytes)}
    return StreamingResponse(blocks(content), media_type="application/octet-stream", headers=headers)


def artifact_view(kept: Artifact) -> View:
    """One artifact as JSON."""
    return {
        "path": kept.path,
        "kind": kept.kind.value,
        "bytes": kept.bytes,
        "digest": kept.digest,
        "attempt": kept.attempt,
    }


def kept_by(api: runtime.Runtime, job: Job) -> dict[str, Any]:
    """The part of a job's view about artifacts: the first of them, their number, and notes about pickles and lost ones."""
    events = api.services.events
    shown = events.artifacts(job.id, SHOWN)
    total = len(shown) if len(shown) < SHOWN else events.artifact_totals(job.id).files
    pickles = events.artifacts(job.id, _NAMED_PICKLES + 1, kind=ArtifactKind.PICKLE) if shown else []
    notes = [*pickle_notes(job, pickles), *_rival_notes(api, job), *_lost_notes(api, job, shown)]
    return {"artifacts": [artifact_view(one) for one in shown], "artifacts_total": total, "notes": notes}


def _rival_notes(api: runtime.Runtime, job: Job) -> list[str]:
    """Names under which nodes of the last attempt stored different files: each node has a work directory of its own."""
    if job.attempt is None or len(job.attempt.nodes) == 1:
        return []
    names = api.services.events.rival_artifacts(job.id, job.attempt.number, _LISTED_MAX)
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    told = f"of which the last that came is kept: {', '.join(names[:_NAMED])}{more}"
    return [f"nodes stored different files under one name, {told}; give the file of each node a name of its own"]


def _lost_notes(api: runtime.Runtime, job: Job, kept: Sequence[Artifact]) -> list[str]:
    """Which of these, and of the checkpoints, the newest verification of the store found damaged or missing."""
    wrong = api.known_blobs.damaged()
    broken = {name.split("/")[2] for name in wrong if name.startswith(f"checkpoints/{job.id}/")}
    lost = {
        "artifacts": [one.path for one in kept if f"artifacts/{job.id}/{one.digest}" in wrong],
        "checkpoints": [one.place or one.id for one in job.checkpoints if one.id in broken],
    }
    told = "that the last tm storage verify found damaged or missing in the store, if not stored again since"
    return [
        f"{what} {told}: {', '.join(names[:_NAMED])}" + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        for what, names in lost.items()
        if names
    ]


def pickle_notes(job: Job, pickles: Sequence[Artifact]) -> list[str]:
    """Why these files were not stored as models, and what to do."""
    if not pickles:
        return []
    names = ", ".join(one.path for one in pickles[:_NAMED_PICKLES]) + (" and others" if len(pickles) > _NAMED_PICKLES else "")
    verb = "is a pickle: kept as a file" if len(pickles) == 1 else "are pickles: kept as files"
    return [
        f"{names} {verb}, not as a model, since loading a pickle runs whatever code is in it; save weights as safetensors, "
        "or a whole model as ONNX or skops (torch.load(…, weights_only=True) reads weights alone); "
        f"to allow it: pickle_models = true under [projects.{job.spec.project}] in server.toml"
    ]
