"""Assembles the api: routes, middleware, error handlers and background loops."""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio.to_thread
from fastapi import Depends, FastAPI
from starlette.routing import Route

from trainmaster import __version__, troubles
from trainmaster.blobs.transfers import refusal, trim
from trainmaster.model.nodes import NodeState
from trainmaster.server.agents import agent_sync, exec, file_copies, store_transfers
from trainmaster.server.cluster import (
    cluster_rules,
    gpus,
    history_export,
    nodes,
    prometheus,
    server_troubles,
    sign_in,
    tokens,
    usage,
)
from trainmaster.server.http import bodies, errors, permissions
from trainmaster.server.http.authentication import AuthenticationMiddleware
from trainmaster.server.http.body_memory import MemoryBudget
from trainmaster.server.http.unchanged import Answers
from trainmaster.server.jobs import (
    cancelling,
    forecast_records,
    holding,
    job_reads,
    notifications,
    queue,
    resubmit,
    submit,
    updating,
)
from trainmaster.server.jobs.start_estimates import StartEstimates
from trainmaster.server.process import idle_stop
from trainmaster.server.process.background import supervised
from trainmaster.server.record import artifacts, comparison, notes, provenance
from trainmaster.server.runtime import limits, workers
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.runtime.services import Services
from trainmaster.server.schemas import described, models
from trainmaster.server.storage import code_copies, removal, retention, storage, verifying
from trainmaster.server.streams import event_streams, logs
from trainmaster.wire import rest

_TRIM_S = 3600.0
_TRIM_CACHE_S = 30.0
_ASK_STORE_S = 60.0
_IMPORT_S = 5.0
_COLLECT_S = 60.0
_COLLECT_REST = 3000.0  # pause after a collection as a multiple of its duration: it stops everything else


def create_app(services: Services, control_ready: Callable[[], bool]) -> FastAPI:
    """Create the application. `control_ready` says whether control runs and knows the nodes."""
    runtime = Runtime(services)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = workers.READERS
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(workers.READERS))
        await runtime.start()
        loops = await asyncio.to_thread(_loops, runtime)  # one of them looks where the log ends
        tasks = [asyncio.create_task(doing) for doing in loops]
        yield
        for task in tasks:
            task.cancel()
        runtime.close()

    app = FastAPI(
        title="Trainmaster",
        version=__version__,
        description="REST interface of the Trainmaster server. Send `Authorization: Bearer <token>`.",
        lifespan=lifespan,
        openapi_url=rest.address("/openapi.json"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.runtime = runtime
    app.state.body_memory = MemoryBudget(limits.ALL_BODIES_BYTES, limits.BUSY_S)
    app.state.answers, app.state.start_estimates = Answers(), StartEstimates()
    called = runtime.activity.note_request
    app.add_middleware(AuthenticationMiddleware, tokens=runtime.tokens, secret=services.secret, called=called)
    errors.install(app)
    app.router.routes.append(Route("/agent/sync", agent_sync.sync, methods=["POST"]))
    app.router.routes.append(Route("/agent/store", store_transfers.store, methods=["POST"]))
    app.router.routes.append(Route("/agent/blob", store_transfers.put, methods=["PUT"]))
    app.router.routes.append(Route("/agent/blob", store_transfers.get, methods=["GET"]))
    app.router.routes.append(Route("/agent/file", file_copies.put, methods=["PUT"]))
    app.router.routes.append(Route("/agent/exec/output", exec.agent_output, methods=["POST"]))
    app.router.routes.append(Route("/agent/exec/input", exec.agent_input, methods=["POST"]))
    rooms = (
        submit, queue, cluster_rules, resubmit, provenance, cancelling, exec, job_reads, history_export, artifacts, logs,
        comparison, notes, holding, updating, nodes, gpus, code_copies, storage, verifying, event_streams, usage, tokens,
        server_troubles, sign_in, removal,
    )  # fmt: skip
    allowed = [Depends(permissions.permitted)]
    for room in rooms:
        app.include_router(room.router, prefix=rest.ROOT, dependencies=allowed)
    app.include_router(prometheus.router, dependencies=allowed)
    app.include_router(sign_in.unversioned)

    health: dict[str, Any] = {"response_model": None, "responses": described.answers(models.Health)}

    @app.get("/healthz", summary="Whether the server is up", tags=["server"], **health)
    @workers.HEALTH.runs
    def healthz() -> bodies.Json:
        """Needs no token. `control` is true once the control process runs and knows its nodes."""
        known = sum(node.state is not NodeState.GONE for node in services.events.nodes())
        wrong = [one.topic for one in troubles.everywhere(services.home)]
        state = {"status": "ok", "version": __version__, "api": True, "control": control_ready()}
        return bodies.Json({**state, "nodes": known, "troubles": wrong})

    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Complete the OpenAPI document: the token, hand-parsed bodies, the shape of errors."""
    generated = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generated()
            components = document.setdefault("components", {})
            components.setdefault("schemas", {}).update(described.components())
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            shape = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
            failed = {"description": "Any error", "content": shape}
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    operation["x-trainmaster-needs"] = permissions.requirement_text(method, path)
                    if "requestBody" in operation:
                        operation["x-body-max-bytes"] = limits.body_max_bytes(method.upper(), path)
                    operation["responses"].pop("422", None)
                    operation["responses"]["default"] = failed
                    if path in ("/healthz", "/authority"):
                        operation["security"] = []
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _loops(runtime: Runtime) -> list[Coroutine[Any, Any, None]]:
    """The background loops of the api."""
    services = runtime.services

    async def trim_inbox() -> float:
        await runtime.commands.trim()
        return _TRIM_S

    async def import_unsent() -> float:
        """Import metric points that dead agents had not sent."""
        await runtime.metric_writer.import_unsent()
        return _IMPORT_S

    async def trim_cache() -> float:
        """Keep the local cache of a remote store within its limit."""
        await workers.STORES.run(trim, services.blobs)
        return _TRIM_CACHE_S

    async def ask_store() -> float:
        """Ask a remote store now and then: one that was removed is known before a job needs it."""
        why = await workers.STORES.run(refusal, services.blobs)
        if why:
            troubles.own.say("store", why)
        else:
            troubles.own.clear("store")
        return _ASK_STORE_S

    async def collect() -> float:
        """Collect reference cycles; the collector's own thresholds are set high, see `serving`."""
        began_s = time.monotonic()
        gc.collect()
        return max(_COLLECT_S, _COLLECT_REST * (time.monotonic() - began_s))

    loops = [
        supervised("collecting garbage", collect, _COLLECT_S),
        supervised("retention", retention.RetentionLoop(runtime).step, retention.LOOK_S),
        supervised("trimming the inbox", trim_inbox),
        supervised("taking up metrics that agents left", import_unsent),
        supervised("trimming the cache of the store", trim_cache, _TRIM_CACHE_S),
        supervised("asking the store", ask_store, _ASK_STORE_S),
        supervised("recording forecasts", forecast_records.recording(runtime), forecast_records.BEAT_S),
        supervised("sending notifications", notifications.notifying(runtime)),
    ]
    if services.configuration.idle_stop_s:
        look = idle_stop.idle_check(runtime, services.configuration.idle_stop_s)
        loops.append(supervised("looking whether the server is needed", look))
    return loops
