"""Code copies: what of a tree the server lacks, and the objects themselves."""

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.blobs import code
from trainmaster.server import bodies, runtime, schemas

router = APIRouter(tags=["code"])

_TREE_MAX_BYTES = 32 * bodies.MIB
_ZIP_MAX_BYTES = 100 * bodies.MIB
