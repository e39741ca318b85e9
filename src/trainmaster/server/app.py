"""The api assembled: routes, door, errors, and the runtime that serves them."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from starlette.routing import Route

from trainmaster import __version__
from trainmaster.blobs.transfers import trim
from trainmaster.model.nodes import NodeState
from trainmaster.server import (
    again,
    agents,
    artifacts,
    bodies,
    cancelling,
    cluster,
    code,
    commands,
    compare,
    errors,
    exec,
    foreseeing,
    gauges,
    history,
    idle,
    jobs,
    logs,
    nodes,
    notes,
    provenance,
    queue,
    schemas,
    storage,
    streams,
    submit,
    transfers,
    usage,
)
from trainmaster.server.door import Door
from trainmaster.server.runtime import Runtime
from trainmaster.server.services import Services

_READERS = 8  # threads that read the stores at a time: more would only wait for each other
_TRIM_S = 3600.0
_TRIM_CACHE_S = 30.0
_TAKE_UP_S = 5.0
_log = logging.getLogger("trainmaster.api")


def create_app(services: Services, control_ready: Callable[[], bool]) -> FastAPI:
    """The application. `control_ready` says whether control lives and has its inventory."""
    runtime = Runtime(services)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _READERS
        await runtime.start()
        tasks = [
            asyncio.create_task(doing)
            for doing in (_trim(runtime), _take_up(runtime), _trim_cache(services), foreseeing.go_on(runtime))
        ]
        if services.configuration.idle_stop_s:
            tasks.append(asyncio.create_task(idle.stop_when_idle(runtime, services.configuration.idle_stop_s)))
        yield
        for task in tasks:
            task.cancel()
        runtime.close()

    app = FastAPI(
        title="Trainmaster",
        version=__version__,
        description="REST interface of the Trainmaster server. Send `Authorization: Bearer <token>`.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.runtime = runtime
    app.add_middleware(Door, tokens=runtime.tokens, called=runtime.called)
    errors.install(app)
    app.router.routes.append(Route("/agent/sync", agents.sync, methods=["POST"]))
    app.router.routes.append(Route("/agent/store", transfers.store, methods=["POST"]))
    app.router.routes.append(Route("/agent/blob", transfers.put, methods=["PUT"]))
    app.router.routes.append(Route("/agent/blob", transfers.get, methods=["GET"]))
    app.router.routes.append(Route("/agent/exec/output", exec.agent_output, methods=["POST"]))
    app.router.routes.append(Route("/agent/exec/input", exec.agent_input, methods=["POST"]))
    rooms = (
        submit, queue, cluster, again, provenance, cancelling, exec, jobs, history, artifacts, logs, compare, notes, commands,
        nodes, code, storage, streams, gauges, usage,
    )  # fmt: skip
    for room in rooms:
        app.include_router(room.router)

    described: dict[str, Any] = {"response_model": None, "responses": schemas.answers(schemas.Health)}

    @app.get("/healthz", summary="Whether the server is up", tags=["server"], **described)
    def healthz() -> bodies.Json:
        """Needs no token. `control` is true once the control process lives and knows its nodes."""
        known = sum(node.state is not NodeState.GONE for node in services.events.nodes())
        return bodies.Json({"status": "ok", "version": __version__, "api": True, "control": control_ready(), "nodes": known})

    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Add to the OpenAPI document what FastAPI cannot know: the token, the bodies read by hand, the shape of errors."""
    generated = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generated()
            components = document.setdefault("components", {})
            components.setdefault("schemas", {}).update(schemas.components())
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            shape = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
            failed = {"description": "Any error", "content": shape}
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    operation["responses"]["default"] = failed
                    if path == "/healthz":
                        operation["security"] = []
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


async def _trim(runtime: Runtime) -> None:
    """Now and then forget what control has long taken up."""
    while True:
        await runtime.trim()
        await asyncio.sleep(_TRIM_S)


async def _take_up(runtime: Runtime) -> None:
    """At the start, and now and then: what agents that are gone had not sent."""
    while True:
        await runtime.take_up()
        await asyncio.sleep(_TAKE_UP_S)


async def _trim_cache(services: Services) -> None:
    """Keep the cache of a store elsewhere within its bound."""
    while True:
        await asyncio.sleep(_TRIM_CACHE_S)
        try:
            await asyncio.to_thread(trim, services.blobs)
        except OSError as error:  # a disk that is away: the next time
            _log.warning("the cache was not trimmed: %s", error)
