"""Determines what this machine has: its own node or declared virtual nodes, and their resources from `server.toml`."""

import contextlib
import os
import pwd
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pynvml  # type: ignore[import-untyped]
from pydantic_core import PydanticCustomError

from trainmaster.agent import pack
from trainmaster.configuration import NodeSettings
from trainmaster.engines.local.settings import LocalSettings, Site
from trainmaster.errors import UsageError
from trainmaster.home import Home
from trainmaster.model.nodes import Device, Node
from trainmaster.model.spec import Counts, counts
from trainmaster.spec.fields.quantities import amount, bandwidth_bps, count, counted_name
from trainmaster.spec.fields.quantities import kind as accelerator
from trainmaster.spec.fields.values import size_bytes
from trainmaster.wire import processes

_ENGINE = "local"
_LOOPBACK = "127.0.0.1"
_GIB = 2**30
_CGROUP = Path("/sys/fs/cgroup")
_DROPPED = {"nvidia", "tesla", "geforce", "quadro", "graphics", "device", "generation", "laptop", "gpu"}
_CUT = re.compile(r"(\d+(gb|mb)|sxm\d*|pcie|nvl|hbm\d*\w*)\Z")

T = TypeVar("T")


class Machine:
    """This machine, as the engine of a home uses it. Everything is determined once."""

    def __init__(self, home: Home, settings: LocalSettings, home_id: str) -> None:
        self._home, self._settings, self._home_id = home, settings, home_id
        self._nodes: list[Node] | None = None
        self._site: Site | None = None

    def nodes(self) -> list[Node]:
        """Its nodes, or the virtual ones. Raises: UsageError for an invalid declared amount."""
        if self._nodes is None:
            self._nodes = nodes(self._settings, self._home.root)
        return list(self._nodes)

    def site(self) -> Site:
        """What launches depend on."""
        if self._site is None:
            real = any(not device.stand_in for node in self.nodes() for device in node.devices)
            known = real or bool(real_devices())
            sdk = pack.lay_out_sdk(str(self._home.sdk))
            self._site = Site(self._home, self._settings, _basics(), self._home_id, known, sdk)
        return self._site


def _basics() -> dict[str, str]:
    """Basic environment variables of a program, from the server's user and not from its shell."""
    user = pwd.getpwuid(os.getuid()) if _known_user() else None
    home = user.pw_dir if user else os.environ.get("HOME", "/")
    name = user.pw_name if user else str(os.getuid())
    return {"HOME": home, "USER": name, "LOGNAME": name, "SHELL": (user and user.pw_shell) or "/bin/sh",
            "TMPDIR": tempfile.gettempdir()}  # fmt: skip


def _known_user() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def nodes(settings: LocalSettings, root: Path) -> list[Node]:
    """This machine as one node, or the declared number of virtual ones, in order. `root`: where jobs work.

    Raises: UsageError for an invalid declared amount.
    """
    host, boot = socket.gethostname(), processes.boot_id()
    cpus, memory = float(len(os.sched_getaffinity(0))), memory_bytes()
    if not settings.virtual:
        counted = _counted(settings.declared, root, 1)
        return [Node(host, _ENGINE, host, _LOOPBACK, cpus, memory, real_devices(), boot_id=boot, counted=counted)]
    number = settings.nodes or 1
    kinds, each_has = settings.gpu_kind.split(","), range(settings.gpus_per_node or 0)
    devices = [tuple(Device(index, kind, stand_in=True) for index in each_has) for kind in kinds]
    counted = _counted(settings.declared, root, number)
    # CPUs are declared per node, and may exceed the machine's. Memory is divided, because it can really run out.
    each = settings.cpus_per_node if settings.cpus_per_node is not None else cpus
    return [
        Node(
            f"node{index}", _ENGINE, host, _LOOPBACK, each, memory // number, devices[index % len(kinds)],
            virtual=True, boot_id=boot, counted=counted,
        )
        for index in range(number)
    ]  # fmt: skip


def _counted(settings: NodeSettings, root: Path, nodes: int) -> Counts:
    """Countable resources of each of `nodes` nodes that share this machine.

    Disk is the free space of the file system of `root` at the server's start, in whole GiB, divided by the number of nodes.
    A declared amount applies to each node. Raises: UsageError that names the invalid setting.
    """
    if settings.disk is None:
        disk_bytes = shutil.disk_usage(root).free // nodes // _GIB * _GIB
    else:
        disk_bytes = _declared("disk", size_bytes, settings.disk)
    amounts: dict[str, float] = {"disk_bytes": disk_bytes}
    if settings.network is not None:
        amounts["network_bps"] = _declared("network", bandwidth_bps, settings.network)
    for name, number in settings.accelerators.items():
        where = f"accelerators.{name}"
        amounts[f"accelerators.{_declared(where, accelerator, name)}"] = _declared(where, count, number) if number else 0
    for name, much in settings.custom.items():
        where = f"custom.{name}"
        amounts[f"custom.{_declared(where, counted_name, name)}"] = _declared(where, amount, much) if much else 0
    return counts(amounts)


def _declared(setting: str, read: Callable[[str], T] | Callable[[object], T], value: object) -> T:
    try:
        return read(value)  # type: ignore[arg-type]  # names are text: the file's reader has checked it
    except PydanticCustomError as error:
        raise UsageError(f"server.toml: [nodes] {setting}: {error.message()}", "correct it, then: tm up") from None


def memory_bytes() -> int:
    """The machine's memory, or the memory limit of this process if that is lower."""
    return min([int(psutil.virtual_memory().total), *_limits(_CGROUP, Path("/proc/self/cgroup"))])


def real_devices() -> tuple[Device, ...]:
    """The machine's GPUs in PCI order, empty without a driver; without GPUs that are hidden from the server."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = [_device(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(device for device, uuid in found if shown is None or _listed(device.index, uuid, shown))


def kind(name: str) -> str:
    """The short name of a GPU: `NVIDIA H100 80GB HBM3` -> `h100`, `NVIDIA GeForce RTX 4090` -> `rtx4090`."""
    kept = []
    for word in re.split(r"[\s_/-]+", name.lower()):
        if _CUT.match(word):
            break
        if word not in _DROPPED:
            kept.append(word)
    return re.sub(r"[^a-z0-9.]", "", "".join(kept)) or "gpu"


def _device(index: int) -> tuple[Device, str]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    device = Device(index, kind(_text(pynvml.nvmlDeviceGetName(handle))), memory)
    return device, _text(pynvml.nvmlDeviceGetUUID(handle))


def _listed(index: int, uuid: str, shown: str) -> bool:
    words = [word.strip() for word in shown.split(",")]
    return str(index) in words or any(word.startswith("GPU-") and uuid.startswith(word) for word in words)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _limits(root: Path, own: Path) -> Iterator[int]:
    """Every memory limit of the cgroups of this process and their parents, v2 and v1."""
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                base, name = (root, "memory.max") if controllers == "" else (root / "memory", "memory.limit_in_bytes")
                relative = Path(path.lstrip("/"))
                for directory in (relative, *relative.parents):
                    with contextlib.suppress(OSError, ValueError):
                        yield int((base / directory / name).read_text())
