"""One line about a job's resource use: the system metrics of its first node. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from trainmaster.cli.render import human

_GPU = re.compile(r"gpu(\d+)_percent\Z")


def line(system: Mapping[str, Any]) -> str:
    """`CPU 97 %, memory 512 MiB, GPU 0 85 % 3.2 GiB, disk 0 B/s read, 1.2 MB/s written, …`; empty without metrics.

    The last values of a live job; of one that has ended, the highest of its memory and the mean of everything else.
    """
    ended = any("mean" in point for point in system.values())
    values = {name: _value(name, point) if ended else point["value"] for name, point in system.items()}
    told = {name: value for name, value in values.items() if not isinstance(value, str | None)}
    parts = []
    if "cpu_percent" in told:
        parts.append(f"CPU {told['cpu_percent']:.0f} %")
    if "memory_bytes" in told:
        parts.append(f"memory {human.memory(told['memory_bytes'])}")
    for index in sorted(int(found[1]) for found in map(_GPU.match, told) if found):
        held = told.get(f"gpu{index}_memory_bytes")
        memory = f" {human.memory(held)}" if held is not None else ""
        parts.append(f"GPU {index} {told[f'gpu{index}_percent']:.0f} %{memory}")
    for name, of, first, second in (("disk", "", "read", "written"), ("network", " of its node", "received", "sent")):
        one, other = (told.get(f"{name}_{way}_bytes_per_s") for way in (first, second))
        if one is not None and other is not None and one + other >= 1:
            parts.append(f"{name}{of} {human.size(one)}/s {first}, {human.size(other)}/s {second}")
    return ", ".join(parts) + (" (means; memory at its highest)" if ended and parts else "")


def _value(name: str, point: Mapping[str, Any]) -> Any:
    return point.get("highest" if name.endswith("memory_bytes") else "mean", point["value"])
