"""Who uses each GPU, and how much: on the stores of a control that a test drives."""

from pathlib import Path

import pytest
from control_server import Server

from trainmaster.agent.metrics.system_metrics import of_device
from trainmaster.engines.simulated.scripts import Script, always
from trainmaster.home import Home
from trainmaster.model.commands import CancelJob
from trainmaster.model.spec import Resources
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.server.cluster.gpus import listed, used
from trainmaster.store.metrics.points import SqlMetricStore

HOUR_S = 3600.0


def gpus(server: Server, metrics: SqlMetricStore) -> dict[tuple[str, int], tuple[list[str], float | None, float, float | None]]:
    """By node and index: jobs, busy now, held, busy in the last hour; of those that were used."""
    now_s = server.clock.time_s
    told = listed(server.events.nodes(), used(server.events, metrics, now_s, HOUR_S), now_s, HOUR_S)
    assert len(told) == 16
    return {
        (one["node"], one["index"]): ([user["job"] for user in one["users"]], one["busy_percent"], round(one["held"], 2), one["busy"])
        for one in told
        if one["held"]
    }


@pytest.mark.parametrize("nodes", [1, 2])
def test_use_now_and_in_the_last_hour(tmp_path: Path, nodes: int) -> None:
    server, metrics = Server(Home(tmp_path)), SqlMetricStore(Home(tmp_path).metrics_db)
    server.engine._script = always(Script(runs_s=1e6))
    server.clock.time_s = 1_700_000_000.0
    server.submit(resources=Resources(nodes=nodes, gpus=2, ranks=2), start_limit_s=1e6)
    server.tick()
    attempt = server.job().attempt
    assert attempt is not None
    places = [(share.node, device) for share in attempt.allocation.shares for device in share.devices]
    points = []
    for at in range(6):  # a sample in ten minutes; the second node's agent reports as the first rank there
        server.tick(600.0)
        for index, share in enumerate(attempt.allocation.shares):
            for n, device in enumerate(share.devices):
                read = {"index": device, "utilization_percent": 10 * at + n + 5 * index, "memory_used_bytes": at << 30}
                for name, value in of_device(read).items():  # as the agent names them
                    points.append(MetricPoint("train-1", 1, 2 * index, None, f"system/{name}", value, server.clock.time_s))
    metrics.write(points, [])
    seen = gpus(server, metrics)
    assert seen == {
        place: (["train-1"], 50.0 + n % 2 + 5 * (n // 2), 1.0, 25.0 + n % 2 + 5 * (n // 2)) for n, place in enumerate(places)
    }
    told = listed(server.events.nodes(), used(server.events, metrics, server.clock.time_s, HOUR_S), server.clock.time_s, HOUR_S)
    assert {one["memory_bytes"] for one in told if one["held"]} == {5 << 30}
    server.ask(CancelJob("train-1", "ann"))
    while not server.job().state.ended:
        server.tick()
    assert {one for _, one, *_ in gpus(server, metrics).values()} == {None}  # what it used is not used now
    server.tick(1800.0)
    later = gpus(server, metrics)
    assert {place: (jobs, now, held) for place, (jobs, now, held, _) in later.items()} == dict.fromkeys(places, ([], None, 0.5))
    assert round(next(iter(later.values()))[3] or 0.0) == 40  # of the samples of the last hour
    server.tick(HOUR_S)
    assert gpus(server, metrics) == {}


def test_a_share_of_a_gpu(tmp_path: Path) -> None:
    server, metrics = Server(Home(tmp_path)), SqlMetricStore(Home(tmp_path).metrics_db)
    server.engine._script = always(Script(runs_s=1e6))
    for _ in range(2):
        server.submit(resources=Resources(gpu_share=0.25))
    server.tick()
    server.tick(HOUR_S)
    ((jobs, now, held, busy),) = gpus(server, metrics).values()
    assert (jobs, now, held, busy) == (["train-1", "train-2"], None, 0.5, None)
