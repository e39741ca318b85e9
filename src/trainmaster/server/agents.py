"""`POST /agent/sync`: reports up, orders down. The hottest path of the api, and the fence against older attempts."""

import time
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from trainmaster.errors import UsageError
from trainmaster.model.commands import AgentReport
from trainmaster.model.ids import AgentKey
from trainmaster.ports.store import HeartbeatRow, MetricPoint, NewRow
from trainmaster.server import auth, bodies, runtime
from trainmaster.server.orders import orders, over, superseded, version
from trainmaster.server.provenance import keep_environment
from trainmaster.wire.messages import Order, SyncResponse

_SYNC_MAX_BYTES = 8 * bodies.MIB
_WAIT_MAX_S = 30.0
_INT_MAX = 2**63 - 1
_KINDS = ("preparing", "started", "environment", "rendezvous", "staged", "kept", "not_kept", "run", "ended")
_KNOWN = frozenset(("key", "reports", "points", "heartbeat", "wait_s", "orders_seen"))


async def sync(request: Request) -> bodies.Json:
    """One call of an agent (`wire.messages.SyncRequest`): what it reports is durable when it is answered."""
    body = bodies.parse_lenient(await bodies.read(request, _SYNC_MAX_BYTES, "the sync"), "the sync")
    desk = runtime.of(request)
    key = _key(body)
    auth.check_credential(desk.secret, str(key), auth.bearer(request.headers.get("authorization")))
    bodies.reject_unknown(body, _KNOWN, "the sync")
    reports, now_s = _reports(body), time.time()
    job = desk.job(key.job)
    if job is not None and job.attempt is not None and key.attempt > job.attempt.number:
        desk.forget(key.job)
        job = desk.job(key.job)
    is_over = job is not None and over(job, key)
    taken = [report for report in reports if not is_over or report["kind"] == "ended"]
    if taken:
        rows = [NewRow(f"{key}:{report['n']}", AgentReport(str(key), report), now_s) for report in taken]
        if any(report.get("environment") is not None for report in taken):
            async with desk.gate.inside():  # a record that is found stored may not go before the row is in
                await _keep_environments(desk, taken)
                await desk.accept(rows)
        else:
            await desk.accept(rows)
    sample = runtime.Sample(_points(body, key, now_s), _heartbeat(body, str(key), now_s))
    fenced = job is not None and superseded(job, key)
    if (sample.points or sample.heartbeats) and not fenced:  # the last points of an attempt may come after its end
        await desk.samples.put([sample])
    wanted, is_stale = await _await_orders(desk, key, body)
    ack = max((int(report["n"]) for report in reports), default=0)
    return bodies.Json(SyncResponse(ack=ack, orders=wanted, version=version(wanted), stale=is_stale))


async def _keep_environments(desk: runtime.Runtime, reports: list[dict[str, Any]]) -> None:
    """Bring the records that agents name into the blob store, each at the first job that ran in it."""
    for report in reports:
        name = report.get("environment")
        new = isinstance(name, str) and name not in desk.environments
        if new and await run_in_threadpool(keep_environment, desk.services, str(name)):
            desk.environments.add(str(name))


async def _await_orders(desk: runtime.Runtime, key: AgentKey, body: Mapping[str, Any]) -> tuple[list[Order], bool]:
    """The orders as soon as they differ from those seen, at the latest when the agent's wait is over."""
    deadline_s = time.monotonic() + min(_number(body, "wait_s"), _WAIT_MAX_S)
    seen = body.get("orders_seen", 0)
    with desk.bells.listen(key.job) as bell:
        while True:
            bell.clear()
            job = desk.job(key.job)
            wanted = [*orders(job, key), *desk.execs.orders(key)] if job is not None else []
            left_s = deadline_s - time.monotonic()
            if version(wanted) != seen or left_s <= 0 or desk.bells.closing:
                return wanted, job is not None and superseded(job, key)
            await desk.bells.wait(bell, min(left_s, 5.0))


def _key(body: Mapping[str, Any]) -> AgentKey:
    """Raises: UsageError."""
    try:
        return AgentKey.parse(str(body.get("key")))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _number(value: Mapping[str, Any], field: str) -> float:
    """A finite number, 0 when absent. Raises: UsageError."""
    found = value.get(field, 0)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _INT_MAX:
        raise UsageError(f"{field} must be a number of at least 0")
    return float(found)


def _whole(value: Mapping[str, Any], field: str) -> int | None:
    """A whole number the store can hold, or None. Raises: UsageError."""
    found = value.get(field)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or abs(found) > _INT_MAX):
        raise UsageError(f"{field} must be a whole number")
    return found


def _objects(body: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """A list of objects, empty when absent. Raises: UsageError."""
    found = body.get(field)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UsageError(f"{field} must be a list of objects")
    return found


def _reports(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Raises: UsageError."""
    reports = _objects(body, "reports")
    for report in reports:
        if report.get("kind") not in _KINDS:
            raise UsageError(f"a report's kind must be one of {', '.join(_KINDS)}")
        if not _whole(report, "n"):
            raise UsageError("a report's n must be a whole number from 1")
    return reports


def _points(body: Mapping[str, Any], key: AgentKey, now_s: float) -> tuple[MetricPoint, ...]:
    """Raises: UsageError."""
    points = []
    for point in _objects(body, "points"):
        rank, step, values = _whole(point, "rank") or 0, _whole(point, "step"), point.get("values")
        if not isinstance(values, dict):
            raise UsageError("a point's values must be an object")
        time_s = now_s - _number(point, "age_s")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UsageError("a metric's value must be a number")
            if isinstance(value, int) and abs(value) > _INT_MAX:
                raise UsageError("a metric's value is too large a number")
            points.append(MetricPoint(key.job, key.attempt, rank, step, name, float(value), time_s))
    return tuple(points)


def _heartbeat(body: Mapping[str, Any], key: str, now_s: float) -> tuple[HeartbeatRow, ...]:
    """Raises: UsageError."""
    beat = body.get("heartbeat")
    if beat is None:
        return ()
    if not isinstance(beat, dict):
        raise UsageError("heartbeat must be an object")
    return (HeartbeatRow(key, now_s, _whole(beat, "step"), _whole(beat, "memory_bytes") or 0, _number(beat, "cpu_s")),)
