"""Identifies a process by boot id, pid and start time together (Linux `/proc`), because pids are reused."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing `typing` is too slow before an agent's ranks are started
if TYPE_CHECKING:
    from typing import Optional


_boot: list[str] = []  # read once: it cannot change while this process lives


def boot_id() -> str:
    """The kernel's id of this boot; empty if there is none. Raises: OSError if it cannot be read now."""
    if not _boot:
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                _boot.append(file.read().strip())
        except FileNotFoundError:
            return ""
    return _boot[0]


def start_ticks(pid: int) -> Optional[int]:
    """When `pid` started, in clock ticks since boot; None if no such process runs, or it is unknown."""
    try:
        return proven_ticks(pid)
    except OSError:
        return None


def proven_ticks(pid: int) -> Optional[int]:
    """Like `start_ticks`, but None proves that the process is gone. Raises: OSError if that cannot be known now."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19])


def cpu_s(pid: int) -> float:
    """Processor time that `pid` has used, in seconds; 0 if no such process runs, or it is unknown."""
    try:
        fields = _stat(pid)
    except OSError:
        return 0.0
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> Optional[list[bytes]]:
    """The fields of `stat` after the name. Raises: OSError if they cannot be read now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat[stat.rindex(b")") + 2 :].split()


def same_process(pid: int, ticks: int, boot: str) -> bool:
    """Whether the process recorded as (pid, start ticks, boot id) is still alive."""
    return boot == boot_id() and start_ticks(pid) == ticks


def own_identity() -> dict[str, object]:
    """The identity of this process, for a record."""
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": boot_id()}
