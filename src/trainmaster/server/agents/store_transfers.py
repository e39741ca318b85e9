"""`/agent/store` and `/agent/blob`: file transfers between agents and a remote blob store. Every write is fenced.

Calls to the store may be slow, so they run in a pool of their own. Further calls wait for a free thread of that pool and
never block the threads that read the databases.
"""

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from trainmaster.blobs import transfers
from trainmaster.errors import NotFoundError, StaleAttemptError, StoreUnavailableError, UsageError
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.server.agents.orders import over
from trainmaster.server.http import bodies
from trainmaster.server.runtime import limits, runtime
from trainmaster.server.runtime.workers import STORES, blocks
from trainmaster.wire.names import code_archive

_CHUNK_BYTES = limits.MIB
_STREAM_CHUNKS = 4  # buffered per stream
_STALLED_S = 120.0
_IN_WORDS = {str: "texts", int: "whole numbers", dict: "objects"}
T = TypeVar("T")


async def store(request: Request) -> bodies.Json:
    """Handle one request of an agent to the store (`agent.transport.remote_store`)."""
    body = await bodies.decoded(request, "the question", lambda parts: bodies.parse(parts, "the question"))
    api = runtime.of(request)
    job, key = await _authenticated(request, api, body.get("key"))
    answer = await STORES.run(lambda: _answer(api, job, key, body))
    return bodies.Json(answer, headers={"Cache-Control": "no-store"})


def _answer(api: runtime.Runtime, job: Job, key: AgentKey, body: Mapping[str, Any]) -> dict[str, Any]:
    """Raises: UsageError, AuthenticationError, StaleAttemptError, NotFoundError and what the store raises."""
    blobs, what = api.services.blobs, body.get("do")
    if what == "get":
        names = [transfers.check_reads(job, key, name) for name in _list(body, "names", str)]
        return {"urls": transfers.addresses(blobs, names)}
    if what == "code":
        transfers.bring_code(blobs, [job.code.digest] if job.code.digest is not None else [])
        return {}
    _fence(api, job.id, key)
    if what == "begin":
        files = [_file(job, key, one) for one in _list(body, "files", dict)]
        return {"uploads": transfers.begin(blobs, files, body.get("crc32") is True)}
    if what == "commit":
        part = bodies.text(body, "part", "") or ""
        transfers.check_writes(job, key, f"{part}/x")
        uploads = _mapping(body, "uploads")
        for name in uploads:
            transfers.check_writes(job, key, name)
        manifest = bodies.text(body, "manifest", "", limits.body_max_bytes("POST", "/agent/store")) or ""
        there = transfers.commit(blobs, part, manifest, uploads, body.get("compares") is True)
        _fence(api, job.id, key)
        return {"there": there}
    name = transfers.check_writes(job, key, bodies.text(body, "name", "") or "")
    if what == "sign":
        upload = bodies.text(body, "upload", "") or ""
        return {"urls": transfers.sign(blobs, name, upload, _list(body, "numbers", int), _mapping(body, "crc32"))}
    if what == "keep":
        _, size = _file(job, key, body)
        there = transfers.complete(blobs, _mapping(body, "uploads"), {name: size})
        found = blobs.stat(name)
        if found is None or found.bytes != size:
            raise NotFoundError(f"{name} is not in the store as it was sent; send it again")
        return {"there": there}
    if what == "abort":
        if blobs.direct is not None:
            blobs.direct.abort(name, bodies.text(body, "upload", "") or "")
        return {}
    raise UsageError(f"there is nothing like {what!r} to be done", "begin, sign, commit, keep, abort, get or code")


async def put(request: Request) -> Response:
    """Pass an upload through the server, for a store without signed URLs. Only a few chunks are in memory at a time."""
    api = runtime.of(request)
    job, key = await _authenticated(request, api)
    await STORES.run(_fence, api, job.id, key)
    name = transfers.check_writes(job, key, request.query_params.get("name", ""))
    wanted = int(request.headers.get("content-length", "-1"))
    pieces: queue.Queue[bytes | None] = queue.Queue(_STREAM_CHUNKS)
    broken = False

    def coming() -> Iterator[bytes]:
        size = 0
        while (piece := pieces.get(timeout=_STALLED_S)) is not None:
            size += len(piece)
            yield piece
        if broken or (wanted >= 0 and size != wanted):
            raise UsageError(f"{name} broke off after {size} bytes")

    storing = asyncio.create_task(STORES.run(lambda: api.services.blobs.put_stream(name, coming())))
    try:
        async for piece in _blocks(request.stream()):
            while not storing.done():
                try:
                    pieces.put_nowait(piece)
                    break
                except queue.Full:
                    await asyncio.wait([storing], timeout=0.005)
            if storing.done():
                break
    except ClientDisconnect:
        broken = True
    while not storing.done():
        try:
            pieces.put_nowait(None)
            break
        except queue.Full:
            await asyncio.wait([storing], timeout=0.01)
    try:
        await storing
    except queue.Empty as error:
        raise StoreUnavailableError(f"{name} stalled", "send it again") from error
    return Response(status_code=201)


async def get(request: Request) -> Response:
    """Pass a download through the server."""
    api = runtime.of(request)
    job, key = await _authenticated(request, api)
    name = request.query_params.get("name", "")
    if job.code.digest is not None and name == code_archive(job.code.digest):
        pieces = await STORES.run(transfers.code_pieces, api.services.blobs, job.code.digest)
        return StreamingResponse(_off_the_loop(pieces), media_type="application/x-tar")
    name = transfers.check_reads(job, key, name)
    file = await STORES.run(lambda: api.services.blobs.open(name))
    return StreamingResponse(blocks(file), media_type="application/octet-stream")


async def _off_the_loop(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same pieces, made by the pool of the stores."""
    while (piece := await STORES.run(next, pieces, None)) is not None:
        yield piece


async def _blocks(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in larger chunks, so that fewer are handed from thread to thread."""
    held = bytearray()
    async for piece in stream:
        held += piece
        if len(held) >= _CHUNK_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


async def _authenticated(request: Request, api: runtime.Runtime, claimed: object = None) -> tuple[Job, AgentKey]:
    """Raises: UsageError, AuthenticationError, NotFoundError."""
    key = runtime.agent(request, claimed)
    job = await api.recorded.job(key.job)
    if job is None:
        raise NotFoundError(f"there is no job {key.job!r}")
    return job, key


def _fence(api: runtime.Runtime, job_id: str, key: AgentKey) -> None:
    """Raises: StaleAttemptError unless the event log says that this attempt is the live one. Runs on a worker thread."""
    job = api.services.events.job(job_id)
    if job is None or over(job, key):
        raise StaleAttemptError(f"{key} is over: nothing of it is stored any more")


def _file(job: Job, key: AgentKey, told: Mapping[str, Any]) -> tuple[str, int]:
    """Raises: UsageError, AuthenticationError."""
    name, size = told.get("name"), told.get("bytes")
    if not isinstance(name, str) or not isinstance(size, int) or isinstance(size, bool):
        raise UsageError("a file has a name and a number of bytes")
    return transfers.check_writes(job, key, name), size


def _list(body: Mapping[str, Any], field: str, of: type[T]) -> list[T]:
    """A list whose items all have one type. Raises: UsageError."""
    found = body.get(field)
    if not isinstance(found, list) or not all(type(one) is of for one in found):
        raise UsageError(f"{field} must be a list of {_IN_WORDS[of]}")
    return found


def _mapping(body: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Raises: UsageError."""
    found = body.get(field) or {}
    if not isinstance(found, dict):
        raise UsageError(f"{field} must be an object")
    return found
