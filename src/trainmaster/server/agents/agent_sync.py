"""`POST /agent/sync`: an agent sends reports and gets orders. The busiest route of the api; it fences off older attempts."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from trainmaster.model.commands import AgentReport
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.ports.store import NewRow
from trainmaster.server.agents.orders import orders, over, superseded, version
from trainmaster.server.http import bodies, json_pieces
from trainmaster.server.record.provenance import keep_environment
from trainmaster.server.runtime import agent_reports, runtime
from trainmaster.server.runtime.unsent_points import has_ended, is_gone
from trainmaster.wire.messages import Order, SyncResponse

_WAIT_MAX_S = 30.0
_POINTS_FIRST_S = 1.0  # the report of an end waits so long for its points; a slow store of metrics must not hold devices
_MANY = 5000  # points; larger lists are freed on the worker thread

_log = logging.getLogger("trainmaster.api")


async def sync(request: Request) -> bodies.Json:
    """Handle one sync (`wire.messages.SyncRequest`). Reports are durable before the response is sent."""
    api = runtime.of(request)
    key, content, body = await bodies.decoded(request, "the sync", lambda parts: _parsed(request, parts))
    job = await api.recorded.job_of(key)
    is_over = job is not None and over(job, key)
    is_silent = is_over and await _is_silent(api, job, key)
    storing = asyncio.ensure_future(_store_samples(api, content, is_silent))
    try:
        await _store_reports(api, content, is_over, storing)
    finally:
        await storing
    wanted, is_stale = await _await_orders(api, key, body)
    step = await _gang_step(api, key) if content.heartbeats else None
    answer = SyncResponse(ack=content.ack, orders=wanted, version=version(wanted), stale=is_stale, gang_step=step)
    return bodies.Json(answer)


async def _store_samples(api: runtime.Runtime, content: agent_reports.SyncContent, is_silent: bool) -> None:
    """Store the points and heartbeats."""
    if (content.points or content.heartbeats) and not is_silent:
        await api.metric_writer.put(content.points, content.heartbeats)


async def _store_reports(
    api: runtime.Runtime, content: agent_reports.SyncContent, is_over: bool, points: asyncio.Future[None]
) -> None:
    """Store the reports; of an attempt that is over, only that of its end.

    The points of the message are stored before an end is: a user who waits for the end then reads the metrics.
    """
    taken = [report for report in content.reports if not is_over or report["kind"] == "ended"]
    rows = [NewRow(f"{content.key}:{report['n']}", AgentReport(str(content.key), report), content.now_s) for report in taken]
    rows += api.fault_warnings.due(content, time.monotonic()) if not is_over else []
    if any(report["kind"] == "ended" for report in taken):
        await asyncio.wait({points}, timeout=_POINTS_FIRST_S)
    if any(report.get("environment") is not None for report in taken):
        async with api.known_blobs.referring():  # garbage collection must not remove a record before the row refers to it
            await _store_environments(api, taken)
            await api.commands.accept(rows)
    elif rows:
        await api.commands.accept(rows)


async def _gang_step(api: runtime.Runtime, key: AgentKey) -> int | None:
    """The highest step of a gang of several nodes: a node that names no steps itself learns that the others go on."""
    job = await api.recorded.job(key.job)
    if job is None or job.attempt is None or len(job.attempt.allocation.shares) < 2:
        return None
    beats = await run_in_threadpool(api.services.metrics.heartbeats, key.job)
    return max((beat.step for beat in beats if beat.step is not None), default=None)


async def _is_silent(api: runtime.Runtime, job: Job | None, key: AgentKey) -> bool:
    """Whether nothing more can come from the agent of an ended attempt.

    The last points of an attempt may arrive after its end, as long as the agent holds its lock. Points that a dead agent had
    not sent are in its file (see `unsent_points`). A later attempt may exist by then; its first sample raises the fence.
    Nothing is accepted from an agent that is superseded and has not recorded its end.
    """
    if job is None or (superseded(job, key) and not await run_in_threadpool(has_ended, api.services.home, key)):
        return True
    return await run_in_threadpool(is_gone, api.services.home, key)


async def _store_environments(api: runtime.Runtime, reports: list[dict[str, Any]]) -> None:
    """Copy the environment records that agents report into the blob store, once each."""
    for report in reports:
        name = report.get("environment")
        new = isinstance(name, str) and name not in api.known_blobs.environments
        try:
            if new and await run_in_threadpool(keep_environment, api.services, str(name)):
                api.known_blobs.environments.add(str(name))
        except OSError as error:  # it stays in the home, and is copied when it is read
            _log.warning("the environment record %s cannot be copied now: %s", name, error)


async def _await_orders(api: runtime.Runtime, key: AgentKey, body: Mapping[str, Any]) -> tuple[list[Order], bool]:
    """Return the orders as soon as they differ from those the agent has seen, or when its waiting time is over."""
    deadline_s = time.monotonic() + min(agent_reports.number_of(body.get("wait_s")), _WAIT_MAX_S)
    seen = body.get("orders_seen", 0)
    with api.notifier.subscribe(key.job) as signal:
        while True:
            signal.clear()
            job = await api.recorded.job(key.job)
            wanted = [*orders(job, key), *api.execs.orders(key)] if job is not None else []
            left_s = deadline_s - time.monotonic()
            if version(wanted) != seen or left_s <= 0 or api.notifier.closing:
                return wanted, job is not None and superseded(job, key)
            await api.notifier.wait(signal, min(left_s, 5.0))


def _parsed(request: Request, parts: list[bytes]) -> tuple[AgentKey, agent_reports.SyncContent, dict[str, Any]]:
    """Decode and check a sync message; large ones on another thread. Raises: UsageError, AuthenticationError."""
    body = bodies.parse_lenient(parts, "the sync")
    key = runtime.agent(request, body.get("key"))
    content = agent_reports.read(body, key, time.time())
    points = body.pop("points", ())
    if len(content.points) > _MANY:
        json_pieces.dismantle(points)
    return key, content, body
