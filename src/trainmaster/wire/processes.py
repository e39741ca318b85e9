"""Telling a process from another with its number: boot id, pid and start time together (Linux `/proc`)."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, whose import is too dear before an agent's ranks start
if TYPE_CHECKING:
    from typing import Optional


def boot_id() -> str:
    """The kernel's id of this boot; empty where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> Optional[int]:
    """When `pid` started, in clock ticks since boot; None when there is no such process or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def same_process(pid: int, ticks: int, boot: str) -> bool:
    """Whether the process recorded as (pid, start ticks, boot id) is still alive."""
    return boot == boot_id() and start_ticks(pid) == ticks


def own_identity() -> dict[str, object]:
    """This process as others may record it."""
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": boot_id()}
