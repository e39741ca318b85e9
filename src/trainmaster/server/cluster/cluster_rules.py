"""Routes of the cluster configuration: show it, apply another, or plan what another would do to the present queue."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from trainmaster.errors import UsageError
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import ConfigureCluster
from trainmaster.ports.store import NewRow
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.standing import ordered
from trainmaster.scheduling.model.jobs import Past
from trainmaster.scheduling.model.snapshot import Handover, Placement, Plan, Snapshot
from trainmaster.scheduling.policies.known import chosen
from trainmaster.scheduling.prediction import speeds
from trainmaster.scheduling.prediction.speeds import Speeds
from trainmaster.server.cluster.rule_warnings import warnings
from trainmaster.server.http import bodies
from trainmaster.server.http.idempotency import idempotency_key
from trainmaster.server.jobs import queue
from trainmaster.server.jobs.admission import present
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import cluster_schemas as schemas
from trainmaster.server.schemas import described
from trainmaster.server.views.resources import View
from trainmaster.spec.cluster.cluster_mapping import differences, to_mapping
from trainmaster.spec.cluster.document import from_mapping
from trainmaster.spec.cluster.summary import Paragraph, explain

router = APIRouter(tags=["cluster"])

_MEASURED_MAX = 20  # programs shown, the latest ones
_KNOWN = frozenset(("cluster",))


@router.get("/cluster", summary="Show the configuration", response_model=None, responses=described.answers(schemas.Rules))
def show(request: Request) -> bodies.Json:
    """Pools, projects, quotas and classes, as in cluster.yaml and as text."""
    api = runtime.of(request)
    rules = present(api)
    paragraphs = [*explain(rules, time.time()), *_measured(api.recorded.ended().pasts)]
    words = [{"about": one.about, "sentences": list(one.sentences)} for one in paragraphs]
    return bodies.Json({"cluster": to_mapping(rules), "told": words})


def _measured(ended: Sequence[Past]) -> Iterator[Paragraph]:
    """The measured speeds of the kinds of GPU."""
    known = Speeds()
    known.follow(ended)
    said = []
    for (project, member, command, _), found in known.every().items():
        said.append(f"{command} of {member or 'nobody'} ({project}): {speeds.told(found)}")
    if said:
        more = [f"and {len(said) - _MEASURED_MAX} more"] if len(said) > _MEASURED_MAX else []
        yield Paragraph("measured GPU speeds, for jobs with a choice of GPUs", (*said[-_MEASURED_MAX:], *more))


@router.put(
    "/cluster",
    summary="Apply a configuration",
    status_code=202,
    response_model=None,
    responses=described.answers(schemas.Applied, 202),
    openapi_extra=described.body(schemas.NewRules, "Idempotency-Key"),
)
async def apply(request: Request) -> bodies.Json:
    """It replaces the whole present configuration. If nothing differs, nothing happens."""
    api, user, rules = runtime.of(request), runtime.user(request), await _asked(request)
    changes, words = await run_in_threadpool(_compared, api, rules)
    if changes:
        key = f"cluster:{user}:{idempotency_key(request)}"
        await api.commands.accept([NewRow(key, ConfigureCluster(rules, user), time.time())])
    return bodies.Json({"changes": changes, "words": words}, 202)


@router.post(
    "/cluster/plan",
    summary="Plan a configuration",
    response_model=None,
    responses=described.answers(schemas.Foreseen),
    openapi_extra=described.body(schemas.NewRules),
)
async def plan(request: Request) -> bodies.Json:
    """Run the scheduler on the present queue under the present and the given configuration. Nothing is changed."""
    api, rules = runtime.of(request), await _asked(request)
    changes, words = await run_in_threadpool(_compared, api, rules)
    jobs = await asyncio.to_thread(_effects, api, rules)
    return bodies.Json({"changes": changes, "words": words, **jobs})


async def _asked(request: Request) -> Cluster:
    """Raises: SpecError, UsageError."""
    body = await bodies.read_json(request, "the request", _KNOWN)
    if not isinstance(body.get("cluster"), dict):
        raise UsageError("cluster must be an object as in cluster.yaml", "`tm schema cluster` prints what may be in it")
    return await run_in_threadpool(from_mapping, body["cluster"])


def _compared(api: runtime.Runtime, rules: Cluster) -> tuple[list[str], list[str]]:
    """The differences from the present configuration, and warnings about it. Raises: UsageError."""
    now = present(api)
    return differences(now, rules), list(warnings(api, now, rules))


def _effects(api: runtime.Runtime, rules: Cluster) -> dict[str, Any]:
    """For every waiting job whose outcome changes: its outcome now and then."""
    before = queue.snapshot(api)
    after = queue.snapshot(api, rules=rules)
    was, would = _standings(before), _standings(after)
    changed = [{"id": id, "now": was[id], "then": would[id]} for id in would if id in was and was[id] != would[id]]
    return {"waiting": len(would), "jobs": changed}


def _standings(seen: Snapshot) -> dict[str, View]:
    """For every waiting job: its position, and where it starts now or why it does not."""
    decided = cycle(seen, chosen(seen.rules))
    places = {task.id: place for place, task in enumerate(ordered(seen, chosen(seen.rules)), 1)}
    starts: dict[str, Placement | Handover] = {placed.job: placed for placed in decided.placements}
    starts |= {handed.job: handed for handed in decided.handovers}
    return {id: _standing(seen, decided, id, starts.get(id)) | {"position": place} for id, place in places.items()}


def _standing(seen: Snapshot, decided: Plan, id: str, start: Placement | Handover | None) -> View:
    if start is None:
        reason = decided.reason(seen.waiting[id], seen.now_s).text
        return {"starts": None, "stops": [], "gives_back": [], "reason": reason}
    victims, shrunk = (start.victims, start.shrunk) if isinstance(start, Handover) else ((), ())
    stops = [id for id in victims if id not in shrunk]
    starts = [seen.sites[node].name for node in start.grant.nodes]
    return {"starts": starts, "stops": stops, "gives_back": list(shrunk), "reason": None}
