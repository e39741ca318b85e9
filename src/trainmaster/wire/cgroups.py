"""Control groups as directories of the kernel's (Linux, version 1 and 2): who is in one, and ending all of them at once.

A process cannot leave the group that it was born in, whatever it does to its environment, its session or its parents, and
while a group is frozen or killed by the kernel nothing in it can fork.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress

PROCESSES = "cgroup.procs"
_KILL, _FREEZE, _FREEZER = "cgroup.kill", "cgroup.freeze", "freezer.state"  # version 2, 2 before Linux 5.14, 1
_FREEZE_S = 0.2  # how long to wait until all of a group is frozen; what is not is found by the next call
_LOOK_S = 0.002
_GONE = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)  # removed, or a group of threads alone
_COUNTERS = ("memory.events", "memory.oom_control")  # version 2, 1


def can_kill(directory: str) -> bool:
    """Whether everything in this group can be ended at once."""
    return any(os.path.exists(os.path.join(directory, name)) for name in (_KILL, _FREEZE, _FREEZER))


def members(directory: str) -> frozenset[int]:
    """The processes in the group and in those below it; none where it is gone. Raises: OSError where nobody can say now."""
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
    """KILL every process in the group; one call more is needed where a process could not be frozen in time.

    It never leaves the group frozen, unless this process dies in it: then the next call ends that.
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
    """Remove the group and those below it, unless something is in one; harmless where there is none."""
    with suppress(OSError):
        for place, _, _ in os.walk(directory, topdown=False):
            os.rmdir(place)


def killed_for_memory(directory: str) -> bool:
    """Whether the kernel counted a kill of this group for want of memory."""
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
    """KILL to each, by a descriptor that was opened while it was in the group: a number may be given out again."""
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
