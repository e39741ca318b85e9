"""Routes of nodes: list them with their free capacity, drain or resume one, declare one lost."""

import time
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import NotFoundError
from trainmaster.model.commands import SetNodeState
from trainmaster.model.job import State
from trainmaster.model.nodes import NodeState
from trainmaster.ports.store import JobQuery, NewRow
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.jobs.admission import present
from trainmaster.server.jobs.holding import asked
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described, models
from trainmaster.server.views import resources

router = APIRouter(tags=["nodes"])

Name = Annotated[str, Path(max_length=200)]
_LIVE = tuple(state for state in State if state.live)
_LIVE_MAX = 20_000
_ASKING = described.asking(models.Asked, models.NodeTaken)


@router.get("/nodes", summary="List nodes", response_model=None, responses=described.answers(models.NodeList))
def list_nodes(request: Request) -> bodies.Json:
    """Every node with its free capacity, jobs and labels. A node that is gone is listed as long as it has jobs."""
    api = runtime.of(request)
    events, rules = api.services.events, present(api)
    live = events.jobs(JobQuery(states=_LIVE, limit=_LIVE_MAX))
    seen = [
        {**resources.node_view(node, live), "labels": dict(rules.pool_of(node.name, node.pool).labels_of(node.name))}
        for node in events.nodes()
    ]
    return bodies.Json({"nodes": [node for node in seen if node["jobs"] or node["state"] != NodeState.GONE.value]})


@router.post("/nodes/{name}/drain", summary="Drain a node", **_ASKING)
async def drain(request: Request, name: Name) -> bodies.Json:
    """It finishes its running jobs and gets no new ones."""
    return await _set(request, name, NodeState.DRAINED)


@router.post("/nodes/{name}/resume", summary="Resume a node", **_ASKING)
async def resume(request: Request, name: Name) -> bodies.Json:
    """After a drain, or after the node was declared lost."""
    return await _set(request, name, NodeState.UP)


@router.post("/nodes/{name}/lost", summary="Declare a node lost", **_ASKING)
async def lost(request: Request, name: Name) -> bodies.Json:
    """Declare that nothing runs on the node any more. Its jobs may then start elsewhere."""
    return await _set(request, name, NodeState.LOST)


async def _set(request: Request, name: str, state: NodeState) -> bodies.Json:
    api, reason = runtime.of(request), await asked(request)
    nodes = await run_in_threadpool(api.services.events.nodes)
    if all(node.name != name for node in nodes):
        known = ", ".join(node.name for node in nodes[:20])
        raise NotFoundError(f"there is no node {name!r}", f"known: {known}" if known else "control has not listed nodes yet")
    user = runtime.user(request)
    key = f"node:{name}:{state.value}:{user}:{idempotency_key(request)}"
    await api.commands.accept([NewRow(key, SetNodeState(name, state, user, reason), time.time())])
    return bodies.Json({"name": name, "state": state.value}, 202)
