"""Finds all processes that a dead agent left behind, and signals them without ever hitting an unrelated process.

A process belongs to a dead agent in these cases: its environment contains the agent's key and directory; the agent recorded
it (`tree.pids`); it is in the attempt's cgroup; it is a descendant of such a process; or it is in a session that such a
process began. A process is identified by pid and start time. It is signaled through a pidfd that is opened before the
identity is checked again, so a reused pid is never hit.
"""

import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster.wire import names, processes

_FEW = 64  # recorded processes that are checked one by one


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the process table."""

    pid: int
    parent: int
    session: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Tree:
    """What is known about the processes of a dead agent."""

    key: str
    directory: Path
    agent_pid: int | None
    recorded: Mapping[int, int]  # pid -> start ticks, of this boot
    members: frozenset[int] = frozenset()  # pids in its cgroup


def table() -> dict[int, Process]:
    """All processes except zombies and this one."""
    rows = (_row(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {row.pid: row for row in rows if row is not None and row.pid != os.getpid()}


def marks() -> dict[int, tuple[str, str]]:
    """pid -> (key, SDK path) of every readable process with these environment variables."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            mark = _mark(int(name))
            if mark is not None:
                found[int(name)] = mark
    return found


def find(trees: Iterable[Tree]) -> dict[str, list[Process]]:
    """Find the running processes of all trees with one scan of `/proc`. Returns key -> processes."""
    marked = marks()
    rows = table()  # after the marks: a child forked meanwhile is found through its parent
    children: dict[int, list[Process]] = {}
    for row in rows.values():
        children.setdefault(row.parent, []).append(row)
    return {tree.key: _grown(tree, marked, rows, children) for tree in trees}


def alive(recorded: Mapping[int, int], members: frozenset[int] = frozenset()) -> list[Process]:
    """The recorded processes and cgroup members that still run. Needs only a few reads, however many are recorded."""
    numbers = set(recorded)
    if len(recorded) > _FEW:  # most have ended long ago: only pids that exist are checked
        numbers &= {int(name) for name in os.listdir("/proc") if name.isdigit()}
    rows = (_row(pid) for pid in sorted(numbers | members))
    found = [row for row in rows if row is not None and (row.pid in members or row.ticks == recorded[row.pid])]
    gone = members - {row.pid for row in found}  # as in `_grown`
    return found + [Process(pid, parent=0, session=0, ticks=-1) for pid in sorted(gone)]


def send(pid: int, ticks: int, number: int) -> bool:
    """Signal exactly this process; False if it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return False
    try:
        if processes.start_ticks(pid) != ticks:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def _grown(
    tree: Tree, marked: Mapping[int, tuple[str, str]], rows: Mapping[int, Process], children: Mapping[int, list[Process]]
) -> list[Process]:
    directories = {str(tree.directory) + os.sep, os.path.realpath(tree.directory) + os.sep}
    seeds = {pid for pid, (key, sdk) in marked.items() if key == tree.key and sdk.startswith(tuple(directories))}
    seeds |= tree.members
    # Seen a moment ago, but missing in the table: it may have forked in between, so the next scan decides.
    found = {pid: Process(pid, parent=0, session=0, ticks=-1) for pid in seeds if pid not in rows}
    seeds |= {pid for pid, ticks in tree.recorded.items() if pid in rows and rows[pid].ticks == ticks}
    waiting = [rows[pid] for pid in seeds if pid in rows]
    while waiting:
        row = waiting.pop()
        if row.pid in found:
            continue
        found[row.pid] = row
        waiting.extend(children.get(row.pid, ()))
        if row.session in found or row.session == tree.agent_pid or row.session in tree.recorded:
            # A process of the tree began this session, and another is in it: the whole session belongs to the tree.
            waiting.extend(other for other in rows.values() if other.session == row.session)
    return sorted(found.values(), key=lambda row: row.pid)


def _row(pid: int) -> Process | None:
    """None if there is no such process. Raises: OSError if that is unknown, which does not prove that it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, parent=int(fields[1]), session=int(fields[3]), ticks=int(fields[19]))


def _mark(pid: int) -> tuple[str, str] | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = b"\0" + file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # a process of another user is not ours
        return None
    key = _value(data, names.ENV_KEY)
    return None if key is None else (key, _value(data, names.ENV_SDK) or "")


def _value(data: bytes, name: str) -> str | None:
    _, found, rest = data.partition(b"\0" + name.encode() + b"=")
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None
