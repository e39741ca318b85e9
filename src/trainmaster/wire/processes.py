"""Telling a process from another with its number: boot id, pid and start time together (Linux `/proc`)."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, whose import is too dear before an agent's ranks start
if TYPE_CHECKING:
    from typing import Optional


_boot: list[str] = []  # read once: it cannot change while this process lives


def boot_id() -> str:
    """The kernel's id of this boot; empty where there is none. Raises: OSError where it cannot be read now."""
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot.append(file.read().strip())
        except FileNotFoundError:
            return ""
    return _boot[0]


def start_ticks(pid: int) -> Optional[int]:
    """When `pid` started, in clock ticks since boot; None when no such process runs, or nobody can say."""
    try:
        return proven_ticks(pid)
    except OSError:
        return None


def proven_ticks(pid: int) -> Optional[int]:
    """The same as proof: None says that there is no such process any more. Raises: OSError where that cannot be known now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def same_process(pid: int, ticks: int, boot: str) -> bool:
    """Whether the process recorded as (pid, start ticks, boot id) is still alive."""
    return boot == boot_id() and start_ticks(pid) == ticks


def own_identity() -> dict[str, object]:
    """This process as others may record it."""
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": boot_id()}
