"""`GET /metrics`: the server's state in Prometheus' text format, computed per request."""

import time
from collections.abc import Iterator

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.responses import Response

from trainmaster import __version__
from trainmaster.model.job import State
from trainmaster.model.nodes import NodeState
from trainmaster.ports.store import JobQuery
from trainmaster.scheduling.explanation.why import occupied
from trainmaster.scheduling.model.convert import snapshot
from trainmaster.scheduling.placement.fragmentation import capacities, typical
from trainmaster.server.runtime import runtime
from trainmaster.server.views import resources

router = APIRouter(tags=["server"])

_LIVE = tuple(state for state in State if state.live)
_LIVE_MAX = 20_000
_POOL = {  # field of `Capacity` -> help text
    "gpus": "GPUs of nodes that accept work",
    "free_gpus": "Free GPUs, including fractions",
    "whole_gpus": "Entirely free GPUs",
    "largest_gang_gpus": "GPUs of the largest gang of equal parts that fits now",
    "fragmented_gpus": "Free GPUs that an average request of the waiting and running jobs cannot use",
}


@router.get(
    "/metrics",
    summary="The server's state, for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}},
)
def metrics(request: Request) -> Response:
    """Needs a token: `authorization: {credentials_file: …}` in the Prometheus configuration."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Gauges(runtime.of(request)))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Gauges:
    """A Prometheus collector; a new one for each scrape, so no state is kept."""

    def __init__(self, api: runtime.Runtime) -> None:
        self._api = api

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        api, events = self._api, self._api.services.events
        yield _labelled("trainmaster_info", "The server's version", "version", {__version__: 1.0})
        counts = {state.value: float(count) for state, count in events.live_counts().items()}
        yield _labelled("trainmaster_jobs", "Unfinished jobs by state", "state", counts)
        yield _one("trainmaster_queue_oldest_wait_seconds", "Longest waiting time in the queue", self._oldest_s())
        pending = float(len(api.commands.pending()))
        yield _one("trainmaster_inbox_waiting", "Commands not processed by control yet", pending)
        yield CounterMetricFamily("trainmaster_events", "Events recorded", value=float(events.head().last_seq))
        written = float(api.metric_writer.points_written)
        yield CounterMetricFamily("trainmaster_metric_points", "Metric points since the start", value=written)
        yield _one("trainmaster_log_followers", "Clients that follow a log", float(api.activity.log_followers))
        yield from self._nodes()

    def _oldest_s(self) -> float:
        """The longest waiting time in seconds; 0 if nothing waits."""
        queued = self._api.services.events.jobs(JobQuery(states=(State.QUEUED,), limit=_LIVE_MAX))
        return max((time.time() - job.queued_s for job in queued), default=0.0)

    def _nodes(self) -> Iterator[Metric]:
        events = self._api.services.events
        nodes = [node for node in events.nodes() if node.state is not NodeState.GONE]
        live = events.jobs(JobQuery(states=_LIVE, limit=_LIVE_MAX))
        queued = events.jobs(JobQuery(states=(State.QUEUED,), limit=_LIVE_MAX))
        seen = snapshot(time.time(), nodes, queued, live)
        space = occupied(seen)
        free = {site.name: space.cells.values[space.of[i]] for i, site in enumerate(space.sites) if site.open}  # accept work
        open_nodes = {n.name: float(n.state is NodeState.UP) for n in nodes}
        yield _labelled("trainmaster_node_up", "1: accepts work", "node", open_nodes)
        stalled = {job.id: 1.0 for job in live if resources.stalled(job) is not None}
        yield _labelled("trainmaster_job_stalled", "1 for a job that may hang; absent for all others", "job", stalled)
        whole = {"cpus": {n.name: n.cpus for n in nodes}, "gpus": {n.name: float(len(n.devices)) for n in nodes}}
        whole["memory_bytes"] = {n.name: float(n.memory_bytes) for n in nodes}
        left = {"cpus": {name: cell.cpus / 1000 for name, cell in free.items()}}
        left["gpus"] = {name: cell.gpu_milli / 1000 for name, cell in free.items()}
        left["memory_bytes"] = {name: float(cell.memory) for name, cell in free.items()}
        for what, values in whole.items():
            yield _labelled(f"trainmaster_node_{what}", f"Total {what}", "node", values)
            yield _labelled(f"trainmaster_node_free_{what}", f"{what} free for new work", "node", left[what])
        pools = capacities(space, typical(seen, {}))
        for name, told in _POOL.items():
            values = {pool: float(getattr(found, name)) for pool, found in pools.items()}
            yield _labelled(f"trainmaster_pool_{name}", told, "pool", values)


def _one(name: str, told: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, told, value=value)


def _labelled(name: str, told: str, label: str, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, told, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
