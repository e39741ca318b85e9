"""The process tree below this agent, from `/proc`: list descendants, find their open files, send signals.

The agent adopts orphans, and its only children are the ranks. So its descendants are the ranks' trees, daemons included.
"""

from __future__ import annotations

import os
import re
import stat

from trainmaster.wire.processes import start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import AbstractSet, Optional

    File = tuple[int, int]  # device and inode
    Process = tuple[int, Optional[int]]  # pid, and start ticks if it still ran


def children(pid: int) -> list[int]:
    """The children of every thread of `pid`."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(int(child) for child in file.read().split())
        except OSError:
            continue  # the thread ended meanwhile
    return found


def descendants(pid: int) -> list[int]:
    """All descendants of `pid` without itself, parents before their children."""
    if not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return _descendants_by_scan(pid)
    found: list[int] = []
    waiting = children(pid)
    seen = {pid}
    while waiting:
        child = waiting.pop(0)
        if child not in seen:
            seen.add(child)
            found.append(child)
            waiting.extend(children(child))
    return found


def _descendants_by_scan(pid: int) -> list[int]:
    """`descendants` by one pass over `/proc`, for kernels that do not list children."""
    below: dict[int, list[int]] = {}
    try:
        entries = os.listdir("/proc")
    except OSError:
        return []
    for entry in entries:
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rpartition(b") ")[2].split()
            except OSError:
                continue
            below.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    waiting = below.get(pid, [])
    while waiting:
        child = waiting.pop(0)
        found.append(child)
        waiting.extend(below.get(child, []))
    return found


def send(pid: int, number: int) -> bool:
    """Signal one process; False if it is gone or belongs to another user."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def open_for_writing(pids: list[int], ranks: AbstractSet[int] = frozenset()) -> dict[File, set[Process]]:
    """Every regular file that one of the processes has open or mapped for writing, with these processes.

    If one of them is in `ranks`, no process is given: how a rank ends is known.
    """
    found: dict[File, set[Process]] = {}
    for pid in pids:
        files = _described(pid) | _mapped(pid)
        process = (pid, start_ticks(pid)) if files else (pid, None)
        for file in files:
            found.setdefault(file, set()).add(process)
    return {file: writers if ranks.isdisjoint(pid for pid, _ in writers) else set() for file, writers in found.items()}


def _described(pid: int) -> set[File]:
    """Files that a process has open for writing by a descriptor."""
    found: set[File] = set()
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            status = os.stat(f"/proc/{pid}/fd/{descriptor}")
            if stat.S_ISREG(status.st_mode) and _writable(pid, descriptor):
                found.add((status.st_dev, status.st_ino))
        except OSError:
            continue
    return found


_SHARED = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ .w.s [0-9a-f]+ \S+ \d+ +(/.*)$", re.MULTILINE)


def _mapped(pid: int) -> set[File]:
    """Files that a process has mapped for writing: these need no descriptor."""
    found: set[File] = set()
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            paths = set(_SHARED.findall(file.read()))
    except OSError:
        return found
    for path in paths:
        try:
            status = os.stat(path.replace(rb"\012", b"\n"))
        except OSError:
            continue  # removed, or not a file
        if stat.S_ISREG(status.st_mode):
            found.add((status.st_dev, status.st_ino))
    return found


def writes_below(pid: int, directory: str) -> bool:
    """Whether a process has a file below `directory` (a real path) open for writing."""
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            if path.startswith(f"{directory}/") and _writable(pid, descriptor):
                return True
    except OSError:
        return False
    return False


def _writable(pid: int, descriptor: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{descriptor}", "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


class Recorder:
    """Appends "pid start_ticks" of every process seen to a file, so that the engine can clean up after a dead agent."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._present: set[int] = set()

    def note(self, pids: list[int]) -> None:
        """Record the processes that are new since the last call."""
        lines = []
        for pid in pids:
            if pid not in self._present:
                ticks = start_ticks(pid)
                if ticks is not None:
                    lines.append(f"{pid} {ticks}\n")
        self._present = set(pids)
        if lines:
            try:
                self._append("".join(lines).encode())
            except OSError:
                self._present.clear()  # full disk: retried at the next call

    def _append(self, data: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
