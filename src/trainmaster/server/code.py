"""Code copies: what of a tree the server lacks, and the objects themselves."""


from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.blobs import code
from trainmaster.errors import UsageError
from trainmaster.server import bodies, runtime, schemas

router = APIRouter(tags=["code"])

_TREE_MAX_BYTES = 32 * bodies.MIB
_ZIP_MAX_BYTES = 100 * bodies.MIB
_TREE = frozenset(("tree",))


@router.post(
    "/code/missing",
    summary="Which objects of a tree to send",
    response_model=None,
    responses=schemas.answers(schemas.CodeMissing),
    openapi_extra=schemas.body(schemas.CodeTree),
)
async def missing(request: Request) -> bodies.Json:
    """An empty list means that the tree is stored and a job may name its digest."""
    body = await bodies.read_json(request, _TREE_MAX_BYTES, "the tree", _TREE)
    tree = body.get("tree")
    if not isinstance(tree, dict) or not isinstance(tree.get("entries"), list):
        raise UsageError("tree must be an object with entries")
    return bodies.Json(await run_in_threadpool(code.missing, runtime.of(request), tree))
