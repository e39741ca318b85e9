"""Resource usage of the node's ranks as metric series `system/…`: sampled in a thread, sent with the other points.

The points have no step: their axis is time, and a restarted attempt continues the series of the one before.
"""

from __future__ import annotations

import threading
import time

from trainmaster.agent.processes.usage import io_of_process
from trainmaster.wire import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from trainmaster.agent.processes.usage import Devices, Usage
    from trainmaster.agent.transport.outbox import Outbox

FIRST_S = 5.0  # after the ranks' start
EVERY_S = 10.0


class System:
    """The sampler of one agent. `rank`: the node's first rank, to which the series belong."""

    def __init__(self, outbox: Outbox, usage: Usage, devices: Devices, rank: int) -> None:
        self._outbox = outbox
        self._usage = usage
        self._devices = devices
        self._rank = rank
        self._thread: Optional[threading.Thread] = None
        self._before = (time.monotonic(), 0.0, _Traffic())
        self._ended = threading.Event()
        self.pids: list[int] = []  # of the ranks' process trees, set by the main loop

    def start(self) -> None:
        """Start sampling, if not started yet."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="system", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """The ranks have ended."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            values = self._sample()
            if not self._ended.is_set():
                self._outbox.point(self._rank, None, values)
            self._ended.wait(EVERY_S)

    def _sample(self) -> dict[str, float]:
        """Rates since the previous sample; for the first sample, since the ranks' start."""
        now_s, cpu_s, traffic = time.monotonic(), self._usage.cpu_s, _Traffic.now(self.pids)
        then_s, cpu_before_s, before = self._before
        self._before = (now_s, cpu_s, traffic)
        took_s = max(now_s - then_s, 1e-3)
        values = {
            "cpu_percent": round(100.0 * max(0.0, cpu_s - cpu_before_s) / took_s, 2),
            "memory_bytes": float(self._usage.memory_bytes),
            **traffic.since(before, took_s),
        }
        for device in self._devices.read():
            values.update(of_device(device))
        return {names.SYSTEM + name: value for name, value in values.items()}


class _Traffic:
    """Byte counters: disk I/O of the ranks, and network I/O of the whole node."""

    NAMES = ("disk_read", "disk_written", "network_received", "network_sent")

    def __init__(self, counts: tuple[int, ...] = ()) -> None:
        self._counts = counts

    @classmethod
    def now(cls, pids: list[int]) -> _Traffic:
        """The current counters."""
        disk = [io_of_process(pid) for pid in pids]
        return cls((sum(read for read, _ in disk), sum(written for _, written in disk), *_network()))

    def since(self, before: _Traffic, took_s: float) -> dict[str, float]:
        """Bytes per second. A counter that went back, because a process ended, gives 0. Empty for the first sample."""
        pairs = zip(self.NAMES, self._counts, before._counts)  # noqa: B905 - Python 3.9
        return {f"{name}_bytes_per_s": round(max(0, now - then) / took_s, 1) for name, now, then in pairs}


def _network() -> tuple[int, int]:
    """(received, sent) of every interface but loopback, in bytes."""
    received = sent = 0
    try:
        with open("/proc/net/dev", "rb") as file:
            lines = file.readlines()[2:]
    except OSError:
        return 0, 0
    for line in lines:
        name, _, counts = line.partition(b":")
        fields = counts.split()
        if name.strip() != b"lo" and len(fields) >= 9:
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def of_device(device: dict[str, Any]) -> dict[str, float]:
    """The values that one accelerator reports (an entry of `Devices.read`), by name without the prefix `system/`."""
    told = {names.GPU_PERCENT: "utilization_percent", names.GPU_MEMORY: "memory_used_bytes", "celsius": "temperature_celsius"}
    return {f"gpu{device['index']}_{name}": float(device[key]) for name, key in told.items() if key in device}
