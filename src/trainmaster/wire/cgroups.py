"""Control groups (Linux cgroups, versions 1 and 2) as directories: list the processes of a group, and kill all of them.

A process cannot leave the group in which it was started by changing its environment, session or parent. While the kernel
freezes or kills a group, no process in it can fork.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress

PROCESSES = "cgroup.procs"
_KILL, _FREEZE, _FREEZER = "cgroup.kill", "cgroup.freeze", "freezer.state"  # version 2, 2 before Linux 5.14, 1
_FREEZE_S = 0.2  # how long to wait until a whole group is frozen; the next call handles the rest
_LOOK_S = 0.002
_GONE = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)  # removed, or a threaded group
_COUNTERS = ("memory.events", "memory.oom_control")  # version 2, 1


def can_kill(directory: str) -> bool:
    """Whether all processes in this group can be killed at once."""
    return any(os.path.exists(os.path.join(directory, name)) for name in (_KILL, _FREEZE, _FREEZER))


def members(directory: str) -> frozenset[int]:
    """The processes in the group and its subgroups; none if it is gone. Raises: OSError if that is unknown."""
    found: set[int] = set()
    waiting = [directory]
    while waiting:
        place = waiting.pop()
        try:
            with open(os.path.join(place, PROCESSES), "rb") as file:
                found.update(int(pid) for pid in file.read().split())
            with os.scandir(place) as entries:
                waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno not in _GONE:
                raise
    return frozenset(found)


def kill(directory: str) -> None:
    """Kill every process in the group. If a process could not be frozen in time, call it again.

    It never leaves the group frozen, unless this process dies during the call. The next call thaws the group then.
    """
    if os.path.exists(os.path.join(directory, _KILL)):
        with suppress(OSError):
            _write(directory, _KILL, "1")
        return
    for name, freeze, thaw in ((_FREEZE, "1", "0"), (_FREEZER, "FROZEN", "THAWED")):
        if os.path.exists(os.path.join(directory, name)):
            try:
                with suppress(OSError):
                    _write(directory, name, freeze)
                    _await_frozen(directory, name)
                    _signal(directory)
            finally:
                with suppress(OSError):
                    _write(directory, name, thaw)


def remove(directory: str) -> None:
    """Remove the group and its subgroups, unless they contain processes. Does nothing if there is none."""
    with suppress(OSError):
        for place, _, _ in os.walk(directory, topdown=False):
            os.rmdir(place)


def killed_for_memory(directory: str) -> bool:
    """Whether the kernel's OOM killer has killed a process of this group."""
    for name in _COUNTERS:
        with suppress(OSError, ValueError), open(os.path.join(directory, name), "rb") as file:
            if any(line.startswith(b"oom_kill ") and int(line.split()[1]) > 0 for line in file):
                return True
    return False


def _await_frozen(directory: str, name: str) -> None:
    until_s = time.monotonic() + _FREEZE_S
    while time.monotonic() < until_s:
        frozen = _is(directory, name, "FROZEN") if name == _FREEZER else _says(directory, "cgroup.events", "frozen 1")
        if frozen:
            return
        time.sleep(_LOOK_S)


def _signal(directory: str) -> None:
    """Kill each process through a pidfd that was opened while it was in the group, because pids are reused."""
    opened: dict[int, int] = {}
    for pid in members(directory):
        with suppress(OSError):
            opened[pid] = os.pidfd_open(pid)
    try:
        for pid in members(directory) & set(opened):
            with suppress(OSError):
                signal.pidfd_send_signal(opened[pid], signal.SIGKILL)
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _is(directory: str, name: str, value: str) -> bool:
    with suppress(OSError), open(os.path.join(directory, name)) as file:
        return file.read().strip() == value
    return False


def _says(directory: str, name: str, line: str) -> bool:
    with suppress(OSError), open(os.path.join(directory, name)) as file:
        return line in file.read().splitlines()
    return False


def _write(directory: str, name: str, value: str) -> None:
    descriptor = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
