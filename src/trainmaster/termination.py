"""Ends server processes: SIGTERM, then SIGKILL; the spawner is asked over its socket.

Standard library only.
"""

import contextlib
import json
import os
import signal
import socket
from pathlib import Path

from trainmaster.home import Home
from trainmaster.locks import holder, inode, wait_for
from trainmaster.wire.processes import start_ticks

STOP_TIMEOUT_S = 10.0  # from SIGTERM to SIGKILL
_SPAWNER_ENDS_S = 10.0


def end(living: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    """Send SIGTERM, then SIGKILL to those that are left; returns the latter. `living`: name -> (pid, start ticks).

    The leader of a process group is signaled together with its group.
    """
    leaders = {pid for pid, _ in living.values() if _leads(pid)}

    def runs(pid: int, ticks: int) -> bool:
        return start_ticks(pid) == ticks or (pid in leaders and _group_lives(pid))

    def left() -> dict[str, int]:
        return {which: pid for which, (pid, ticks) in living.items() if runs(pid, ticks)}

    stubborn: tuple[str, ...] = ()
    for number in (signal.SIGTERM, signal.SIGKILL):
        stubborn = tuple(left())
        for pid in left().values():
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if pid in leaders else os.kill)(pid, number)
        wait_for(lambda: not left(), STOP_TIMEOUT_S)
    return stubborn


def end_group(group: int) -> None:
    """Kill what is left of a process group whose leader is gone."""
    if _group_lives(group):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        wait_for(lambda: not _group_lives(group), STOP_TIMEOUT_S)


def stop_spawner(home: Home) -> tuple[str, ...]:
    """Ask the spawner to exit; no agent depends on it. One that is still starting exits when its lock file is gone."""
    lock = home.lock("spawner")
    number = inode(lock)
    with contextlib.suppress(OSError):  # a disk that accepts no writes
        lock.unlink(missing_ok=True)
    asked: list[int] = []

    def answered() -> bool:
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError, ValueError, KeyError), unix as connection:
            connection.settimeout(2.0)
            connection.connect(os.fspath(home.socket("spawner")))
            connection.sendall(b'{"exit": true}\n')
            asked.append(int(json.loads(connection.makefile("rb").readline())["pid"]))
        return bool(asked) or holder(lock, number) is None

    wait_for(answered, _SPAWNER_ENDS_S)
    if not asked:
        return ()
    ticks = start_ticks(asked[0])
    wait_for(lambda: ticks is None or start_ticks(asked[0]) != ticks, STOP_TIMEOUT_S)
    return ("spawner",)


def _leads(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.getpgid(pid) == pid
    return False


def _group_lives(group: int) -> bool:
    """Whether a process group has a process that is not a zombie. A zombie waits until its parent reaps it."""
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
                return True
    return False
