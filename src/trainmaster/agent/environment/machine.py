"""Describes the node for a run's record: host, kernel, processor, accelerators and their driver."""

from __future__ import annotations

import ctypes
import os

from trainmaster.wire.environment import UNNAMED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional

    from trainmaster.wire.environment import Accelerator, Machine

_NVML = "libnvidia-ml.so.1"
_LOADED, _CARDS = "/proc/driver/nvidia/version", "/proc/driver/nvidia/gpus"  # the driver, and its devices by PCI address
_PCI = "/sys/bus/pci/devices"
_TEXT_BYTES = 96
_CPUINFO_BYTES = 8192  # covers the first processor; the kernel generates the rest, which takes time
_MODELS = ("model name", "Model", "cpu model", "uarch")


def describe() -> Machine:
    """The description of this machine. Takes milliseconds with an NVIDIA driver."""
    system = os.uname()
    driver = _Driver()
    return {
        "host": system.nodename,
        "system": _of_file("/etc/os-release", "PRETTY_NAME") or system.sysname,
        "kernel": system.release,
        "architecture": system.machine,
        "libc": _libc(),
        "cpu": _cpu() or system.machine,
        "cpus": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "driver": driver.text("nvmlSystemGetDriverVersion"),
        "driver_cuda": driver.cuda(),
        "devices": driver.devices(),
    }


def fingerprint() -> List[object]:
    """Changes with what `describe` tells and what can change without a restart. The driver itself is not asked.

    It would take long to answer where it is loaded on demand, and every agent of the node needs this.
    """
    system = os.uname()
    cards = [[card, _line(f"{_PCI}/{card}/device")] for card in _names(_CARDS)]
    return [system.nodename, system.release, os.cpu_count(), os.sysconf("SC_PHYS_PAGES"), _line(_LOADED), cards]


def _names(directory: str) -> List[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _line(path: str) -> str:
    """The first line of a file of the kernel; empty if it has none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _libc() -> Optional[str]:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def _cpu() -> Optional[str]:
    """The model of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(_CPUINFO_BYTES).splitlines()
    except OSError:
        return None
    found = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    return next((found[name] for name in _MODELS if found.get(name)), None)


def _of_file(path: str, name: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            pairs = dict(line.rstrip("\n").partition("=")[::2] for line in file)
    except OSError:
        return None
    return pairs.get(name, "").strip("\"'") or None


class _Driver:
    """NVML. Without it, every method returns None or an empty list."""

    def __init__(self) -> None:
        self._library: Any = None
        try:
            library = ctypes.CDLL(_NVML)
            self._library = library if library.nvmlInit_v2() == 0 else None
        except (OSError, AttributeError):
            self._library = None

    def text(self, function: str, *arguments: Any) -> Optional[str]:
        """The text that an NVML function writes into a buffer."""
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        asked = getattr(self._library, function, None) if self._library is not None else None
        if asked is None or asked(*arguments, buffer, ctypes.c_uint(_TEXT_BYTES)) != 0:
            return None
        return buffer.value.decode(errors="replace")

    def cuda(self) -> Optional[str]:
        """The CUDA version of the driver, such as `12.4`."""
        number = ctypes.c_int()
        asked = getattr(self._library, "nvmlSystemGetCudaDriverVersion_v2", None) if self._library is not None else None
        if asked is None or asked(ctypes.byref(number)) != 0:
            return None
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def devices(self) -> List[Accelerator]:
        """All devices of the machine, by index."""
        count = ctypes.c_uint()
        if self._library is None or self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        found: List[Accelerator] = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
                name, uuid = self.text("nvmlDeviceGetName", handle), self.text("nvmlDeviceGetUUID", handle)
                found.append({"index": index, "name": name or UNNAMED, "uuid": uuid or ""})
        return found
