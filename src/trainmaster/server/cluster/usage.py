"""`GET /usage`: resource usage and cost, summed up from the ledger."""

import time
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field

from trainmaster.errors import UsageError
from trainmaster.model.ledger import US_PER_HOUR
from trainmaster.ports.store import ChargeQuery
from trainmaster.server.cluster.accounting import BY, LINES_MAX, Calendar, Line, Period, tally
from trainmaster.server.http import bodies
from trainmaster.server.http.parameters import TEXT_MAX, TIME_MAX_S
from trainmaster.server.runtime import runtime
from trainmaster.server.schemas import described
from trainmaster.spec.cluster.zones import zone_of

_HABITS = {  # words of other systems
    **dict.fromkeys(("user", "owner"), "member"), **dict.fromkeys(("account", "team"), "project"), "partition": "pool",
}  # fmt: skip

router = APIRouter(tags=["usage"])


class Used(described.Described):
    """Usage under one heading. The exact amounts are device microseconds; hours are rounded."""

    gpu_us: int
    cpu_us: int = Field(description="of jobs without GPUs")
    gpu_hours: float
    cpu_hours: float
    lost_gpu_hours: float = Field(description="work that a later attempt repeated")
    lost_cpu_hours: float
    share: float = Field(description="of all GPU time; without GPU time, of all CPU time")
    jobs: int
    attempts: int
    running: int = Field(description="attempts still running; they are charged up to now")
    cost: dict[str, str] = Field(description="by currency, decimal; at the price when the attempt was placed")


class UsageAnswer(described.Described):
    """Usage in a period."""

    by: list[str]
    since_s: float
    until_s: float
    zone: str
    lines: list[dict[str, Any]] = Field(description="the headings and `Used`; largest usage first, days in order")
    left_out: int = Field(description="lines beyond `limit`")
    total: Used


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Query parameters. Times are seconds since the epoch."""

    by: Annotated[str, Query(max_length=TEXT_MAX, description=f"headings, comma-separated: {', '.join(BY)}")] = "project"
    since_s: Annotated[float, Query(ge=0, le=TIME_MAX_S)] = 0.0
    until_s: Annotated[float | None, Query(ge=0, le=TIME_MAX_S, description="now, if omitted or in the future")] = None
    project: Annotated[str | None, Query(max_length=TEXT_MAX, description="only of this project")] = None
    zone: Annotated[str, Query(max_length=TEXT_MAX, description="time zone of the days: UTC, Europe/Berlin, +05:30")] = "UTC"
    limit: Annotated[int, Query(ge=1, le=LINES_MAX)] = 1000


@router.get("/usage", summary="Usage and cost", response_model=None, responses=described.answers(UsageAnswer))
def usage(request: Request, query: Annotated[UsageQuery, Depends()]) -> bodies.Json:
    """Every attempt counts from its placement until its nodes are free; running attempts count up to now."""
    by, zone = _headings(query.by), zone_of(query.zone)
    period = _period(query, time.time())
    wanted = ChargeQuery(period.from_ms, period.until_ms, query.project)
    found = tally(runtime.of(request).services.events.charges(wanted), period, by, Calendar(zone))
    lines = found.ordered(by)
    whole, weight = found.total, runtime.of(request).recorded.rules().cpu_weight
    return bodies.Json(
        {
            "by": list(by),
            "since_s": period.from_ms / 1000,
            "until_s": period.until_ms / 1000,
            "zone": query.zone,
            "lines": [{**dict(zip(by, key, strict=True)), **_used(line, whole, weight)} for key, line in lines[: query.limit]],
            "left_out": max(0, len(lines) - query.limit),
            "total": _used(whole, whole, weight),
        }
    )


def _headings(text: str) -> tuple[str, ...]:
    """Raises: UsageError."""
    by = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for name in by:
        if name not in BY:
            near = [_HABITS[name]] if name in _HABITS else get_close_matches(name, BY, n=1)
            message = f"there is no heading {name[:40]!r}" if name else "by is empty"
            raise UsageError(message, f"did you mean {near[0]}?" if near else f"one or more of {', '.join(BY)}")
    return by


def _period(query: UsageQuery, now_s: float) -> Period:
    """Raises: UsageError."""
    until_s = now_s if query.until_s is None else query.until_s
    if query.since_s >= now_s:
        raise UsageError("the period is in the future", "let since be earlier than now")
    if query.since_s >= until_s:
        raise UsageError("the period ends before it begins", "let since be earlier than until")
    return Period(round(query.since_s * 1000), round(min(until_s, now_s) * 1000))


def _used(line: Line, whole: Line, cpu_weight: float) -> dict[str, Any]:
    """`share` is counted as fair share counts it."""
    all_us = whole.gpu_us + cpu_weight * whole.cpu_us
    share = (line.gpu_us + cpu_weight * line.cpu_us) / all_us if all_us else 0.0
    return {
        "gpu_us": line.gpu_us,
        "cpu_us": line.cpu_us,
        "gpu_hours": line.gpu_us / US_PER_HOUR,
        "cpu_hours": line.cpu_us / US_PER_HOUR,
        "lost_gpu_hours": line.lost_gpu_us / US_PER_HOUR,
        "lost_cpu_hours": line.lost_cpu_us / US_PER_HOUR,
        "share": share,
        "jobs": len(line.jobs),
        "attempts": len(line.attempts),
        "running": len(line.running),
        "cost": {currency: f"{amount:f}" for currency, amount in line.cost().items()},
    }
