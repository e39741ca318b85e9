"""What each node of this machine has besides CPUs, memory and GPUs: its free disk, and what `server.toml` declares."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic_core import PydanticCustomError

from trainmaster.configuration import NodeSettings
from trainmaster.errors import UsageError
from trainmaster.model.spec import Counts, counts
from trainmaster.spec.quantities import amount, bandwidth_bps, count, counted_name, kind
from trainmaster.spec.values import size_bytes

_GIB = 2**30
T = TypeVar("T")


def counted(settings: NodeSettings, root: Path, nodes: int) -> Counts:
    """What is counted of each of `nodes` nodes that share this machine.

    Disk is what the file system of `root` has free when the server starts, in whole GiB, shared out among the nodes; what
    is declared holds for each node. Raises: UsageError naming the setting that means nothing.
    """
    if settings.disk is None:
        disk_bytes = shutil.disk_usage(root).free // nodes // _GIB * _GIB
    else:
        disk_bytes = _read("disk", size_bytes, settings.disk)
    amounts: dict[str, float] = {"disk_bytes": disk_bytes}
    if settings.network is not None:
        amounts["network_bps"] = _read("network", bandwidth_bps, settings.network)
    for name, number in settings.accelerators.items():
        where = f"accelerators.{name}"
        amounts[f"accelerators.{_read(where, kind, name)}"] = _read(where, count, number) if number else 0
    for name, much in settings.custom.items():
        where = f"custom.{name}"
        amounts[f"custom.{_read(where, counted_name, name)}"] = _read(where, amount, much) if much else 0
    return counts(amounts)


def _read(setting: str, read: Callable[[str], T] | Callable[[object], T], value: object) -> T:
    try:
        return read(value)  # type: ignore[arg-type]  # names are text: the file's reader saw to it
    except PydanticCustomError as error:
        raise UsageError(f"server.toml: [nodes] {setting}: {error.message()}", "correct it, then: tm up") from None
