"""Bodies in and out: JSON read with a limit and refused in words, JSON written without a detour."""

import asyncio
import errno
import json
import math
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from trainmaster.errors import DiskFullError, TooLargeError, TrainmasterError, UsageError

MIB = 1024 * 1024
_MEMORY_MAX_BYTES = 2 * MIB
_DRAIN_S = 5.0  # how long a body over the limit is still swallowed, so that its sender can read the answer


class Json(Response):
    """A JSON response from plain values."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(content, status_code, headers)

    def render(self, content: Any) -> bytes:
        """See `encode`."""
        return encode(content)


def encode(content: Any) -> bytes:
    """Compact JSON; a number JSON does not know becomes null, half a character '?'."""
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(finite(content), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def finite(value: Any) -> Any:
    """`value` with null for what is not a finite number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


async def read(request: Request, limit_bytes: int, what: str) -> bytes:
    """The whole body. Raises: TooLargeError, UsageError (it broke off)."""
    return b"".join([part async for part in _parts(request, limit_bytes, what)])


async def spool(request: Request, limit_bytes: int, what: str, directory: Path) -> BinaryIO:
    """The whole body as a file, on disk when it is large. Raises: TooLargeError, UsageError, DiskFullError."""
    file = tempfile.SpooledTemporaryFile(_MEMORY_MAX_BYTES, dir=str(directory))  # noqa: SIM115  the caller closes it
    try:
        async for part in _parts(request, limit_bytes, what):
            file.write(part)
        file.seek(0)
    except OSError as error:
        file.close()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"the disk is full: {what} was not taken", "free some space on the server") from error
        raise
    except TrainmasterError:
        file.close()
        raise
    return cast(BinaryIO, file)


async def _parts(request: Request, limit_bytes: int, what: str) -> AsyncIterator[bytes]:
    """The body as it comes. Raises: TooLargeError, UsageError (it broke off)."""
    size, declared = 0, int(request.headers.get("content-length", "0"))
    try:
        async for part in request.stream():
            size += len(part)
            if max(size, declared) > limit_bytes:
                await _swallow(request)
                raise TooLargeError(f"{what} is over {limit_bytes // MIB} MiB")
            yield part
    except ClientDisconnect as error:
        raise UsageError(f"{what} broke off after {size} bytes") from error


async def _swallow(request: Request) -> None:
    """Read on without keeping anything: a connection closed under its sender loses the answer."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            message = await request.receive()
            while message["type"] == "http.request" and message.get("more_body", False):
                message = await request.receive()
    except TimeoutError:
        return


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def parse(body: bytes, what: str) -> dict[str, Any]:
    """A JSON object of storable text and finite numbers. Raises: UsageError."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise UsageError(f"{what} is nested too deep") from error
    except UnicodeError as error:
        raise UsageError(f"{what} is not valid UTF-8 text") from error
    except ValueError as error:
        raise UsageError(f"{what} is not JSON: {error}") from error
    return _object(value, what)


def parse_lenient(body: bytes, what: str) -> dict[str, Any]:
    """A JSON object from a program's output: NaN may be in it, and half characters become '?'. Raises: UsageError."""
    try:
        value = json.loads(body.decode(errors="replace"))
        if b"\\u" in body:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except RecursionError as error:
        raise UsageError(f"{what} is nested too deep") from error
    except ValueError as error:
        raise UsageError(f"{what} is not JSON: {error}") from error
    return _object(value, what)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{what} must be a JSON object, not {type(value).__name__}")
    return value


async def read_json(request: Request, limit_bytes: int, what: str, known: frozenset[str]) -> dict[str, Any]:
    """A JSON object with no other keys than `known`; an empty body is an empty object. Raises: UsageError, TooLargeError."""
    body = await read(request, limit_bytes, what)
    value = parse(body, what) if body.strip() else {}
    reject_unknown(value, known, what)
    return value


def reject_unknown(value: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Raises: UsageError naming the keys that mean nothing here."""
    strange = sorted(str(key) for key in value if key not in known)
    if strange:
        raise UsageError(f"{what} has unknown keys: {', '.join(strange[:10])}", f"known are {', '.join(sorted(known))}")


def text(value: Mapping[str, Any], key: str, default: str | None = None) -> str | None:
    """A text field. Raises: UsageError."""
    found = value.get(key, default)
    if found is not None and not isinstance(found, str):
        raise UsageError(f"{key} must be text, not {type(found).__name__}")
    return found
