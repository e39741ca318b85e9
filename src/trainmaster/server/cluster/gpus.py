"""`GET /gpus`: every GPU of the cluster, who uses it, and how much it was used lately."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from trainmaster.model.job import Attempt
from trainmaster.model.ledger import Charge
from trainmaster.model.nodes import Node, NodeState
from trainmaster.ports.store import ChargeQuery
from trainmaster.server.http import bodies
from trainmaster.server.runtime import runtime
from trainmaster.server.runtime.services import EventReader, VersionedMetrics
from trainmaster.server.schemas import described
from trainmaster.wire.names import GPU_MEMORY, GPU_PERCENT, SYSTEM

router = APIRouter(tags=["nodes"])

PERIOD_MAX_S = 7 * 86400.0
_SAMPLES_MAX = 400  # newest samples per device and attempt: an hour, at one in ten seconds
_FRESH_S = 60.0  # an older sample says nothing of now

Period = Annotated[float, Query(ge=1, le=PERIOD_MAX_S, description="seconds before now that `held` and `busy` are about")]


class GpuUser(described.Described):
    """A job on a GPU."""

    job: str
    member: str
    share: float = Field(description="1: all of it")


class Gpu(described.Described):
    """One GPU. Percentages are null where nothing measured them."""

    node: str
    index: int
    kind: str
    stand_in: bool
    state: str = Field(description="of its node")
    users: list[GpuUser]
    busy_percent: float | None = Field(description="now")
    memory_bytes: float | None = Field(description="used now")
    held: float = Field(description="share of the period in which jobs held it, 0 to 1")
    busy: float | None = Field(description="how busy it was on average while jobs held it, in percent; the newest samples")


class GpuList(described.Described):
    """All GPUs, by node and index."""

    gpus: list[Gpu]
    now_s: float
    period_s: float


@dataclass(slots=True)
class Use:
    """What is known of one GPU in the period."""

    users: list[dict[str, Any]] = field(default_factory=list)
    held_s: float = 0.0
    live_s: float | None = None  # since when its present users hold it
    samples: list[tuple[float, float]] = field(default_factory=list)  # (time, percent)
    memory: list[tuple[float, float]] = field(default_factory=list)  # (time, bytes)


@dataclass(frozen=True, slots=True)
class Holding:
    """One attempt's share of one GPU."""

    node: str
    device: int
    share: float
    rank: int  # that reports about its node
    charge: Charge


@router.get("/gpus", summary="List GPUs", response_model=None, responses=described.answers(GpuList))
def list_gpus(request: Request, period_s: Period = 3600.0) -> bodies.Json:
    """Who uses each GPU and how busy it is, now and over the last hour."""
    services, now_s = runtime.of(request).services, time.time()
    uses = used(services.events, services.metrics, now_s, period_s)
    nodes = [node for node in services.events.nodes() if node.state is not NodeState.GONE]
    return bodies.Json({"gpus": listed(nodes, uses, now_s, period_s), "now_s": now_s, "period_s": period_s})


def used(events: EventReader, metrics: VersionedMetrics, now_s: float, period_s: float) -> dict[tuple[str, int], Use]:
    """The use of each GPU by (node, index). Linear in the attempts of the period."""
    found: dict[tuple[str, int], Use] = {}
    since_s = now_s - period_s
    for one in holdings(events, now_s, period_s):
        use, charge = found.setdefault((one.node, one.device), Use()), one.charge
        until_s = now_s if charge.until_ms is None else charge.until_ms / 1000
        use.held_s += one.share * max(0.0, min(until_s, now_s) - max(charge.from_ms / 1000, since_s))
        if charge.until_ms is None:
            use.users.append({"job": charge.job, "member": charge.payer.member, "share": one.share})
            use.live_s = min(charge.from_ms / 1000, math.inf if use.live_s is None else use.live_s)
        begun_s = max(since_s, charge.from_ms / 1000)
        for measured, samples in ((GPU_PERCENT, use.samples), (GPU_MEMORY, use.memory)):
            name = f"{SYSTEM}gpu{one.device}_{measured}"
            newest = metrics.recent(charge.job, name, one.rank, _SAMPLES_MAX)
            samples += [(time_s, value) for time_s, value in newest if begun_s < time_s <= until_s]
    return found


def holdings(events: EventReader, now_s: float, period_s: float) -> Iterator[Holding]:
    """What attempts held of GPUs in the period."""
    period = ChargeQuery(round((now_s - period_s) * 1000), round(now_s * 1000))
    charges = {(one.job, one.attempt): one for one in events.charges(period) if one.rate.gpu_milli}
    attempts: dict[str, Sequence[Attempt]] = {}
    for (job, number), charge in charges.items():
        if job not in attempts:
            attempts[job] = events.attempts(job)
        known = events.job(job)
        attempt = next((one for one in attempts[job] if one.number == number), known.attempt if known is not None else None)
        if known is None or attempt is None or attempt.number != number:
            continue
        ranks = known.spec.resources.chosen(attempt.allocation.choice).ranks
        for index, share in enumerate(attempt.allocation.shares):
            for device in share.devices:
                yield Holding(share.node, device, share.held(device), index * ranks, charge)


def listed(nodes: Sequence[Node], uses: dict[tuple[str, int], Use], now_s: float, period_s: float) -> list[dict[str, Any]]:
    """The GPUs as JSON, by node and index."""
    return [
        {
            "node": node.name,
            "index": device.index,
            "kind": device.kind,
            "stand_in": device.stand_in,
            "state": node.state.value,
            **_told(uses.get((node.name, device.index), Use()), now_s, period_s),
        }
        for node in sorted(nodes, key=lambda one: one.name)
        for device in sorted(node.devices, key=lambda one: one.index)
    ]


def _told(use: Use, now_s: float, period_s: float) -> dict[str, Any]:
    busy = [percent for _, percent in use.samples]
    return {
        "users": sorted(use.users, key=lambda one: str(one["job"])),
        "busy_percent": _now(use, use.samples, now_s),
        "memory_bytes": _now(use, use.memory, now_s),
        "held": min(1.0, use.held_s / period_s),
        "busy": sum(busy) / len(busy) if busy else None,
    }


def _now(use: Use, samples: list[tuple[float, float]], now_s: float) -> float | None:
    """The newest value, if it is fresh and of a job that holds the GPU now."""
    time_s, value = max(samples, default=(-math.inf, 0.0))
    return value if use.live_s is not None and time_s > max(use.live_s, now_s - _FRESH_S) else None
