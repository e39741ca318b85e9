"""Turns every error of the api into one JSON shape: `{"error": {code, message, hint, details, request_id}}`."""

import logging
import secrets
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from trainmaster import __version__
from trainmaster.errors import NotFoundError, OperationError, TrainmasterError, UsageError
from trainmaster.server.http.bodies import Json
from trainmaster.server.http.permissions import REQUIRED
from trainmaster.wire import rest

log = logging.getLogger("trainmaster.api")

_DESCRIPTION = rest.address("/openapi.json")
_BESIDE = frozenset(("agent", "healthz", "metrics"))
_MOVED = frozenset(route.split("/")[1] for route in REQUIRED) - _BESIDE  # how the paths of the REST interface begin


class _MethodError(UsageError):
    """The path exists, but not for this method."""

    http_status = 405


class _MovedError(UsageError):
    """A path of an earlier version, before the REST interface had one."""

    http_status = 410


class _MachineError(OperationError):
    """The request is valid, but the server's machine failed."""

    http_status = 503


def answer(error: TrainmasterError, headers: dict[str, str] | None = None) -> Json:
    """The response for an error."""
    body: dict[str, Any] = error.as_dict()
    body["error"]["request_id"] = secrets.token_hex(6)
    more = dict(headers or {})
    if error.http_status == 401:
        more["WWW-Authenticate"] = "Bearer"
    if error.retryable:
        more["Retry-After"] = "1"
    return Json(body, error.http_status, more)


def install(app: FastAPI) -> None:
    """Register the error handlers."""
    app.add_exception_handler(TrainmasterError, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(OSError, _refused_by_machine)
    app.add_exception_handler(Exception, _internal)


async def _known(request: Request, error: Exception) -> Json:
    assert isinstance(error, TrainmasterError)
    return answer(error)


async def _invalid(request: Request, error: Exception) -> Json:
    """An invalid query parameter. The response does not repeat its value."""
    assert isinstance(error, RequestValidationError)
    faults = [{"field": ".".join(str(part) for part in e["loc"]), "expected": e["msg"]} for e in error.errors()]
    first = faults[0]
    return answer(UsageError(f"{first['field']}: {first['expected']}", f"see {_DESCRIPTION} for the parameters", faults))


async def _http(request: Request, error: Exception) -> Json:
    """An error raised by the router."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 405:
        return answer(_MethodError(f"{request.method} is not possible on {path}"), dict(error.headers or {}))
    if error.status_code == 404:
        if path[1:].partition("/")[0] in _MOVED:
            message = f"there is no {path}: this server, Trainmaster {__version__}, has its REST interface below {rest.ROOT}"
            return answer(_MovedError(message, f"use a tm of the server's version; a program asks for {rest.address(path)}"))
        return answer(NotFoundError(f"there is no {path}", f"see {_DESCRIPTION} for the paths"))
    return answer(UsageError(str(error.detail)))


async def _refused_by_machine(request: Request, error: Exception) -> Json:
    """An unusable file in the home, or a failing disk. The message names the file, so that an administrator can fix it."""
    hint = "have that file and its disk checked where the server runs: tm doctor"
    response = answer(_MachineError(f"the server could not do it: {error}", hint))
    log.error("failed: %s %s %s", request.method, request.scope["path"], bytes(response.body).decode(), exc_info=error)
    return response


async def _internal(request: Request, error: Exception) -> Json:
    """A bug of ours. The log has the details under the same request id."""
    response = answer(OperationError(f"the server failed on {request.method} {request.scope['path']}"))
    log.error("failed: %s %s %s", request.method, request.scope["path"], bytes(response.body).decode())
    return response
