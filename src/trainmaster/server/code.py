"""Code copies: what of a tree the server lacks, and the objects themselves."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.blobs import code
from trainmaster.ports.blobs import Blobs
from trainmaster.server import bodies, runtime, schemas
from trainmaster.wire.code import Tree, digest

router = APIRouter(tags=["code"])

_TREE_MAX_BYTES = 32 * bodies.MIB
_ZIP_MAX_BYTES = 100 * bodies.MIB
_TREE = frozenset(("tree",))
_ZIP = {"requestBody": {"required": True, "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}}


@router.post(
    "/code/missing",
    summary="Which objects of a tree to send",
    response_model=None,
    responses=schemas.answers(schemas.CodeMissing),
    openapi_extra=schemas.body(schemas.CodeTree),
)
async def missing(request: Request) -> bodies.Json:
    """An empty list means that the tree is stored, and a job may name its digest."""
    body = await bodies.read_json(request, _TREE_MAX_BYTES, "the tree", _TREE)
    desk = runtime.of(request)
    async with desk.gate.inside():
        return bodies.Json(await run_in_threadpool(_missing, desk.services.blobs, body.get("tree")))


@router.post(
    "/code",
    summary="Send objects",
    response_model=None,
    responses=schemas.answers(schemas.CodeStored),
    openapi_extra=_ZIP,
)
async def store(request: Request) -> bodies.Json:
    """The body is a zip whose members are named by the SHA-256 of their bytes."""
    desk = runtime.of(request)
    with await bodies.spool(request, _ZIP_MAX_BYTES, "the upload", desk.services.home.root) as upload:
        async with desk.gate.inside():
            stored = await run_in_threadpool(code.store_zip, desk.services.blobs, upload)
    return bodies.Json({"stored": stored})


def _missing(blobs: Blobs, tree: Any) -> dict[str, Any]:
    """Raises: UsageError, TooLargeError, DiskFullError."""
    code.check_tree(tree)
    checked: Tree = tree
    lacking = code.missing(blobs, checked)
    return {"digest": digest(checked) if lacking else code.store_tree(blobs, checked), "missing": lacking}
