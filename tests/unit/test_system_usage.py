"""The resource usage of a job, in one line of `tm show`."""

from typing import Any

from trainmaster.cli.render.system_usage import line


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
