"""The resource usage of a job, in one line of `tm show`."""

import math
from pathlib import Path
from typing import Any

import pytest
from contract_answers import DETAIL

from trainmaster.cli.inspect import show
from trainmaster.cli.render.system_usage import line
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.server.views.resources import system_view
from trainmaster.store.metrics.points import SqlMetricStore


def told(**values: float | None) -> dict[str, Any]:
    return {name: {"step": None, "value": value, "time_s": 1.0} for name, value in values.items()}


def test_nothing_told_is_nothing_said() -> None:
    assert line({}) == ""
    assert line(told(cpu_percent=None)) == ""


def test_everything() -> None:
    system = told(
        cpu_percent=97.4, memory_bytes=512 * 2**20, gpu10_percent=80.0, gpu2_percent=5.0, gpu2_memory_bytes=2.0 * 2**30,
        disk_read_bytes_per_s=0.0, disk_written_bytes_per_s=1.2e6, network_received_bytes_per_s=0.0, network_sent_bytes_per_s=0.0,
    )  # fmt: skip
    assert line(system) == "CPU 97 %, memory 512 MiB, GPU 2 5 % 2 GiB, GPU 10 80 %, disk 0 B/s read, 1.2 MB/s written"


def test_the_network_is_that_of_the_node() -> None:
    """Beside a download of another program, a job that used no network was said to receive 4 MB/s."""
    system = told(network_received_bytes_per_s=4.02e6, network_sent_bytes_per_s=5360.0)
    assert line(system) == "network of its node 4.02 MB/s received, 5.36 kB/s sent"


def test_of_an_ended_job_the_mean_and_the_highest_memory() -> None:
    system = told(cpu_percent=1.0, memory_bytes=1.0, gpu0_percent=0.0, gpu0_memory_bytes=2.0)
    averages = {
        "system/cpu_percent": (70.4, 99.0), "system/memory_bytes": (5.0, 2.0**30),
        "system/gpu0_percent": (63.0, 100.0), "system/gpu0_memory_bytes": (7.0, 1.5 * 2**30),
    }  # fmt: skip
    assert line(system_view(system, averages)) == "CPU 70 %, memory 1 GiB, GPU 0 63 % 1.5 GiB (means; memory at its highest)"
    assert line(system_view(system, {})) == "CPU 1 %, memory 1 B, GPU 0 0 % 2 B"


def test_averages_of_the_lowest_rank(tmp_path: Path) -> None:
    metrics = SqlMetricStore(tmp_path / "metrics.db")
    names = ("system/a", "system/a_b", "systems", "loss")
    points = [
        MetricPoint("j-1", 1, rank, None, name, 10.0 * at + rank, float(at)) for at in range(4) for rank in (2, 4) for name in names
    ]
    metrics.write([*points, MetricPoint("j-1", 1, 2, None, "system/a", math.nan, 9.0)], [])
    assert metrics.averages("j-1", "system/") == {"system/a": (17.0, 32.0), "system/a_b": (17.0, 32.0)}
    assert metrics.averages("j-2", "system/") == {}


@pytest.mark.parametrize(
    ("state", "uses"),
    [("running", "CPU 90 %, GPU 3 80 %"), ("stopping", "CPU 90 %, GPU 3 80 %"), ("queued", None), ("starting", None)],
)
def test_a_live_job_uses_what_its_running_attempt_does(state: str, uses: str | None) -> None:
    system = {**told(cpu_percent=90.0, gpu3_percent=80.0), "gpu0_percent": {"step": None, "value": 95.0, "time_s": 1000.0}}
    system["cpu_percent"]["time_s"] = system["gpu3_percent"]["time_s"] = 1010.0
    lines = show.head({**DETAIL, "state": state, "ended_s": None, "system": system}, 1020.0)
    assert [text.split(maxsplit=1)[1] for text in lines if text.split()[0] in ("uses", "used")] == ([uses] if uses else [])


@pytest.mark.parametrize("largest", [False, True])
def test_neither_nan_nor_infinity_is_the_best(tmp_path: Path, largest: bool) -> None:
    metrics = SqlMetricStore(tmp_path / "metrics.db")
    values = [math.inf, 2.0, -math.inf, 3.0, math.nan]
    metrics.write([MetricPoint("j-1", 1, 0, step, "psnr", value, 1.0) for step, value in enumerate(values)], [])
    metrics.write([MetricPoint("j-2", 1, 0, 1, "psnr", math.inf, 1.0)], [])
    assert metrics.best("j-1", "psnr", largest) == ((3, 3.0, 1.0) if largest else (1, 2.0, 1.0))
    assert metrics.best("j-2", "psnr", largest) is None
