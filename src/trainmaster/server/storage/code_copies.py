"""Upload of code copies: which objects of a tree are missing, and the objects themselves."""

from typing import Any

from fastapi import APIRouter, Request

from trainmaster.blobs import code
from trainmaster.ports.blobs import Blobs
from trainmaster.server.http import bodies
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.workers import STORES
from trainmaster.server.schemas import code_schemas, described
from trainmaster.wire.code import Tree, digest

router = APIRouter(tags=["code"])

_TREE = frozenset(("tree",))
_ZIP = {"requestBody": {"required": True, "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}}


@router.post(
    "/code/missing",
    summary="List missing objects of a tree",
    response_model=None,
    responses=described.answers(code_schemas.CodeMissing),
    openapi_extra=described.body(code_schemas.CodeTree),
)
async def missing(request: Request) -> bodies.Json:
    """An empty list means that the tree is stored and a job may refer to its digest."""
    body = await bodies.read_json(request, "the tree", _TREE)
    api = runtime.of(request)
    async with api.known_blobs.referring():
        found = await STORES.run(_missing, api.services.blobs, body.get("tree"))
        if not found["missing"]:
            api.known_blobs.found_tree(found["digest"])
    return bodies.Json(found)


@router.post(
    "/code",
    summary="Upload objects",
    response_model=None,
    responses=described.answers(code_schemas.CodeStored),
    openapi_extra=_ZIP,
)
async def store(request: Request) -> bodies.Json:
    """The body is a zip file whose members are named by the SHA-256 of their content."""
    api = runtime.of(request)
    with await bodies.spool(request, "the upload", api.services.home.root) as upload:
        async with api.known_blobs.referring():
            stored = await STORES.run(code.store_zip, api.services.blobs, upload)
    return bodies.Json({"stored": stored})


def _missing(blobs: Blobs, tree: Any) -> dict[str, Any]:
    """Raises: UsageError, TooLargeError, DiskFullError."""
    code.check_tree(tree)
    checked: Tree = tree
    lacking = code.missing(blobs, checked)
    return {"digest": digest(checked) if lacking else code.store_tree(blobs, checked), "missing": lacking}
