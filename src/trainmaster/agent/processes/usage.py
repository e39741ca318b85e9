"""Measures usage of the ranks: memory and CPU time from `/proc` and cgroups, devices from NVML if available."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Sequence

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NVML_LIBRARY = "libnvidia-ml.so.1"


def of_process(pid: int) -> tuple[int, float]:
    """(resident bytes, CPU seconds including ended children) of one process; zeros if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return 0, 0.0
    return int(fields[21]) * _PAGE_BYTES, sum(int(field) for field in fields[11:15]) / _TICKS_PER_S


def io_of_process(pid: int) -> tuple[int, int]:
    """(read, written) bytes that reached a disk, of one process and its ended children; zeros if not available."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file)
    except (OSError, ValueError):
        return 0, 0
    return int(fields.get(b"read_bytes", 0)), int(fields.get(b"write_bytes", 0))


def written_by_processes(pids: Sequence[int]) -> int:
    """Bytes that the processes have passed to `write` so far, to any target. A process that is gone counts as 0."""
    written = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", "rb") as file:
                written += next(int(line.split()[1]) for line in file if line.startswith(b"wchar:"))
        except (OSError, ValueError, StopIteration):
            continue
    return written


def proportional_bytes(pid: int) -> int:
    """Resident bytes, with shared pages divided among their processes (Pss). Slow, so used only near the limit."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return of_process(pid)[0]


def cgroup_peak_bytes(cgroup: str) -> int:
    """The peak memory of the cgroup; 0 if not available."""
    try:
        with open(os.path.join(cgroup, "memory.peak"), "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


class Usage:
    """Sampled memory and CPU time of a node's ranks."""

    def __init__(self, limit_bytes: Optional[int]) -> None:
        self._limit_bytes = limit_bytes
        self.memory_bytes = 0
        self.peak_bytes = 0
        self.cpu_s = 0.0

    def sample(self, trees: list[list[int]]) -> list[tuple[int, float]]:
        """Sample each process tree; returns the memory of each in bytes and its CPU time in seconds.

        Shared pages count fully for each process, unless the sum reaches the limit: then they are divided.
        """
        sizes, times_s = [], []
        for pids in trees:
            used = [of_process(pid) for pid in pids]
            sizes.append(sum(memory for memory, _ in used))
            times_s.append(sum(cpu_s for _, cpu_s in used))
        if self._limit_bytes is not None and sum(sizes) > self._limit_bytes:
            sizes = [sum(proportional_bytes(pid) for pid in pids) for pids in trees]
        self.memory_bytes = sum(sizes)
        self.peak_bytes = max(self.peak_bytes, self.memory_bytes)
        self.cpu_s = max(self.cpu_s, sum(times_s))
        return list(zip(sizes, times_s))  # noqa: B905 - Python 3.9

    @property
    def over(self) -> bool:
        """Whether the last sample is over the limit."""
        return self._limit_bytes is not None and self.memory_bytes > self._limit_bytes

    @property
    def near(self) -> bool:
        """Whether the next sample should come soon."""
        return self._limit_bytes is not None and self.memory_bytes > self._limit_bytes * 0.6


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Devices:
    """The node's NVIDIA devices; NVML is loaded by the first `read`."""

    def __init__(self, indices: Optional[list[int]]) -> None:
        self._indices = indices
        self._library: Any = None
        self._looked = False

    def read(self) -> list[dict[str, Any]]:
        """One entry per device of this attempt; empty without a driver."""
        if self._indices == []:
            return []
        if not self._looked:
            self._looked = True
            try:
                library = ctypes.CDLL(_NVML_LIBRARY)
                self._library = library if library.nvmlInit_v2() == 0 else None
            except (OSError, AttributeError):
                self._library = None
        if self._library is None:
            return []
        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        indices = range(count.value) if self._indices is None else self._indices
        return [entry for entry in (self._device(index) for index in indices) if entry is not None]

    def busy(self) -> bool:
        """Whether one of them works."""
        return any(device.get("utilization_percent") for device in self.read())

    def _device(self, index: int) -> Optional[dict[str, Any]]:
        handle = ctypes.c_void_p()
        if self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
            return None
        entry: dict[str, Any] = {"index": index}
        memory, utilization, temperature = _Memory(), _Utilization(), ctypes.c_uint()
        if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
            entry.update(memory_used_bytes=int(memory.used), memory_total_bytes=int(memory.total))
        if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(utilization)) == 0:
            entry["utilization_percent"] = int(utilization.gpu)
        if self._library.nvmlDeviceGetTemperature(handle, ctypes.c_uint(0), ctypes.byref(temperature)) == 0:
            entry["temperature_celsius"] = int(temperature.value)
        return entry
