"""Reads request bodies within limits, decodes JSON with clear errors, and encodes JSON responses."""

import asyncio
import errno
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response

from trainmaster.errors import DiskFullError, TooLargeError, TrainmasterError, UsageError
from trainmaster.model import redaction
from trainmaster.server.http import json_pieces
from trainmaster.server.http.parameters import LONG_MAX
from trainmaster.server.runtime import limits
from trainmaster.server.runtime.workers import BODIES, STORES
from trainmaster.wire import rest

T = TypeVar("T")
_MEMORY_MAX_BYTES = 2 * limits.MIB
_AT_ONCE_BYTES = 64 * 1024  # smaller bodies are decoded on the event loop, in a millisecond or two
LARGE = "trainmaster.large"
_MARKS = (b",", b":", b"[", b"{")


class _StalledError(UsageError):
    """The client stopped sending the body, or sends it too slowly."""

    http_status = 408


class Json(Response):
    """A JSON response from plain values."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers)

    def render(self, content: Any) -> bytes:
        """See `encode`."""
        return encode(content)


def encode(content: Any) -> bytes:
    """Compact JSON. A number that is not finite becomes a word (`wire.rest`), a lone surrogate '?'."""
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(rest.worded(content), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


async def whole(request: Request, what: str, use: Callable[[bytes], T]) -> T:
    """What `use` makes of the body, on a thread of the pool for the stores.

    Raises: TooLargeError, UsageError (it broke off or stalled), BusyError (too many bodies in memory), and errors of `use`.
    """
    async with _memory(request):
        return await STORES.run(use, b"".join([part async for part in _parts(request, what)]))


async def spool(request: Request, what: str, directory: Path) -> BinaryIO:
    """The whole body as a file, on disk if it is large. Raises: TooLargeError, UsageError, DiskFullError."""
    file = tempfile.SpooledTemporaryFile(_MEMORY_MAX_BYTES, dir=str(directory))  # noqa: SIM115  the caller closes it
    try:
        async for part in _parts(request, what):
            if file.tell() + len(part) <= _MEMORY_MAX_BYTES:
                file.write(part)
            else:
                await STORES.run(file.write, part)
        file.seek(0)
    except OSError as error:
        file.close()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"the disk is full: {what} was not stored", "free some space on the server") from error
        raise
    except TrainmasterError:
        file.close()
        raise
    return cast(BinaryIO, file)


async def _parts(request: Request, what: str) -> AsyncIterator[bytes]:
    """The body as it arrives. Raises: TooLargeError, UsageError (it broke off or stalled)."""
    limit_bytes = limits.of(request.scope)
    size, declared, began_s = 0, _declared(request), time.monotonic()
    while True:
        try:
            async with asyncio.timeout(limits.BODY_IDLE_S):
                message = await request.receive()
        except TimeoutError as error:
            raise _StalledError(f"{what} stopped coming after {size} bytes", "send it again") from error
        if message["type"] == "http.disconnect":
            raise UsageError(f"{what} broke off after {size} bytes")
        part = message.get("body", b"")
        size += len(part)
        if max(size, declared) > limit_bytes:
            raise TooLargeError(f"{what} is over {limits.in_words(limit_bytes)}")
        if time.monotonic() - began_s > limits.BODY_IDLE_S + size / limits.BODY_SLOWEST:
            raise _StalledError(f"{what} comes too slowly", "send it again, over a faster connection")
        if part:
            yield part
        if not message.get("more_body", False):
            return


def _declared(request: Request) -> int:
    """The declared length of the body in bytes; 0 without a valid Content-Length."""
    told = request.headers.get("content-length", "0")
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 20 else 0


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _refuse_halves(value: Any) -> Any:
    """`value`, if it holds no lone surrogate. Raises: UnicodeError."""
    (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()
    return value


def _replace_halves(value: Any) -> Any:
    """`value` with '?' for every lone surrogate."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder()


def parse(parts: list[bytes], what: str) -> dict[str, Any]:
    """Decode a JSON object of valid text and finite numbers. Raises: UsageError."""
    return _decoded(parts, what, _STRICT, _refuse_halves)


def parse_lenient(parts: list[bytes], what: str) -> dict[str, Any]:
    """Decode a JSON object from a program's output: NaN is allowed, lone surrogates become '?'. Raises: UsageError."""
    return _decoded(parts, what, _LENIENT, _replace_halves)


def _decoded(parts: list[bytes], what: str, decoder: json.JSONDecoder, settle: Callable[[Any], Any]) -> dict[str, Any]:
    try:
        value = json_pieces.decode(_taken(parts), "strict" if decoder is _STRICT else "replace", decoder, settle)
    except RecursionError as error:
        raise UsageError(f"{what} is nested too deep") from error
    except UnicodeError as error:
        raise UsageError(f"{what} is not valid UTF-8 text") from error
    except ValueError as error:
        raise UsageError(f"{what} is not JSON: {error}") from error
    return _object(value, what)


def _taken(parts: list[bytes]) -> Iterator[bytes]:
    """Yield each part and drop it, so that decoded text is not kept twice."""
    parts.reverse()
    while parts:
        yield parts.pop()


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object, not {type(value).__name__}")
    return value


async def read_json(request: Request, what: str, known: frozenset[str]) -> dict[str, Any]:
    """Read a JSON object with keys from `known` only; an empty body is an empty object. Raises: UsageError, TooLargeError."""
    value = await decoded(request, what, lambda parts: parse(parts, what) if any(map(bytes.strip, parts)) else {})
    reject_unknown(value, known, what)
    return value


async def decoded(request: Request, what: str, decode: Callable[[list[bytes]], T]) -> T:
    """The body, decoded by `decode`; a large body is decoded on another thread.

    Raises: TooLargeError (bytes or values), UsageError, BusyError (too many bodies in memory), and errors of `decode`.
    """
    async with _memory(request):
        return await _decode(request, what, decode)


def _memory(request: Request) -> AbstractAsyncContextManager[None]:
    """Hold the memory that the body takes, unless it is small."""
    limit_bytes = limits.of(request.scope)
    held_bytes = _declared(request) or (limit_bytes if "transfer-encoding" in request.headers else 0)
    held_bytes = min(held_bytes, limit_bytes) if held_bytes > _AT_ONCE_BYTES else 0
    held: AbstractAsyncContextManager[None] = request.app.state.body_memory.hold(held_bytes)
    return held


async def _decode(request: Request, what: str, decode: Callable[[list[bytes]], T]) -> T:
    most, values = limits.values_max(limits.of(request.scope)), 0
    parts: list[bytes] = []
    async for part in _parts(request, what):
        parts.append(part)
        values += sum(map(part.count, _MARKS))
        if values > most:
            raise TooLargeError(f"{what} holds over {most:,} values", "send it in several requests")
    if sum(map(len, parts)) <= _AT_ONCE_BYTES:
        return decode(parts)
    value = await BODIES.run(decode, parts)
    request.scope[LARGE] = value  # the middleware dismantles it after the response
    return value


def reject_unknown(value: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Raises: UsageError that names the unknown keys."""
    strange = sorted(str(key) for key in value if key not in known)
    if strange:
        raise UsageError(f"{what} has unknown keys: {', '.join(strange[:10])}", f"known are {', '.join(sorted(known))}")


def text(value: Mapping[str, Any], key: str, default: str | None = None, most: int = LONG_MAX) -> str | None:
    """A text field of at most `most` characters. Raises: UsageError."""
    found = value.get(key, default)
    if found is not None and not isinstance(found, str):
        raise UsageError(f"{key} must be text, not {type(found).__name__}")
    if found is not None and len(found) > most:
        raise UsageError(f"{key} has {len(found):,} characters; the limit is {most:,}")
    return found


def reason(value: Mapping[str, Any]) -> str:
    """The `reason` of what is asked, without credentials, because everyone who sees the job reads it. Raises: UsageError."""
    return redaction.prose(text(value, "reason") or "")
