"""The attempt directories of one home: the agents' orders, tombstones and records, and the index of the live ones.

Whatever is decided here is decided from files, so that a fresh engine object knows what the one before it did.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.home import Home, write_atomic
from trainmaster.model.ids import AgentKey
from trainmaster.wire import names, processes
from trainmaster.wire.launch import Launch


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that cannot be mistaken for a later one with its number."""

    pid: int
    ticks: int
    boot: str

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return processes.same_process(self.pid, self.ticks, self.boot)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A stop that was ordered: when, on this boot's monotonic clock, and how long the ranks may take."""

    grace_s: float
    since_s: float
    boot: str

    def due_s(self, now_s: float, boot: str) -> float:
        """Seconds until the grace is over, at most 0 when it is; a stop of an earlier boot is overdue."""
        return self.since_s + self.grace_s - now_s if boot == self.boot else 0.0


class Attempts:
    """Reads and writes attempt directories."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def directory(self, key: AgentKey) -> Path:
        """Where the agent of `key` lives."""
        return self._home.attempt(key.job, key.attempt, key.node_index)

    def create(self, key: AgentKey, launch: Launch) -> Path:
        """Write the orders, indexed as live first, so that an agent that runs is always found.

        Not synced: they outlive this process, and after the machine's own crash a launch is made again from its event.
        """
        directory = self._directory_made(key)
        self._home.live.mkdir(mode=0o700, exist_ok=True)
        (self._home.live / _marker(key)).touch(mode=0o600)
        part = directory / f"{names.LAUNCH}.{os.getpid()}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it holds a credential
        with open(descriptor, "wb") as file:
            file.write(json.dumps(launch).encode())  # ASCII: a path may hold any bytes
        part.replace(directory / names.LAUNCH)
        return directory

    def launched_s_ago(self, key: AgentKey) -> float | None:
        """Seconds since the orders were last written; None when they never were."""
        try:
            written_s = (self.directory(key) / names.LAUNCH).stat().st_mtime
        except OSError:
            return None
        return abs(time.time() - written_s)  # of a clock set back too it is long ago: a second agent would find the lock

    def identity(self, key: AgentKey) -> Identity | None:
        """The agent that took the lock; None when there is no record of one."""
        record = self._home.read_json(self.directory(key) / names.AGENT)
        try:
            return None if record is None else Identity(int(record["pid"]), int(record["start_ticks"]), str(record["boot_id"]))
        except (KeyError, TypeError, ValueError):
            return None

    def ended(self, key: AgentKey) -> dict[str, Any] | None:
        """The exit record; None while there is none."""
        return self._home.read_json(self.directory(key) / names.EXIT)

    def was_used(self, key: AgentKey) -> bool:
        """Whether an agent ever took this key, or it was stopped: nothing may start under it again."""
        directory = self.directory(key)
        return any((directory / name).exists() for name in (names.AGENT, names.EXIT, names.STOP))

    def tombstone(self, key: AgentKey) -> Tombstone | None:
        """The stop that was ordered, if any."""
        record = self._home.read_json(self.directory(key) / names.STOP)
        try:
            return None if record is None else Tombstone(
                float(record["grace_s"]), float(record["since_monotonic_s"]), str(record["boot_id"])
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return Tombstone(0.0, 0.0, "")  # it was ordered; how, is not known any more

    def bury(self, key: AgentKey, grace_s: float) -> tuple[Tombstone, bool]:
        """Order the stop durably, unless one as early is ordered already; returns it, and whether it is news."""
        now_s, boot = time.monotonic(), processes.boot_id()
        there = self.tombstone(key)
        if there is not None and there.due_s(now_s, boot) <= grace_s:
            return there, False
        stone = Tombstone(grace_s, now_s, boot)
        record = {"grace_s": grace_s, "reason": "stopped", "since_monotonic_s": now_s, "boot_id": boot}
        write_atomic(self._directory_made(key) / names.STOP, json.dumps(record).encode())
        return stone, True

    def lock_holder(self, key: AgentKey) -> int | None:
        """The pid that holds the agent's lock, asked without taking it: a probe must not turn an agent away."""
        path = self.directory(key) / names.LOCK
        try:
            inode = str(path.stat().st_ino)
            with open("/proc/locks") as file:
                rows = [line.split() for line in file]
        except OSError:
            return None
        for row in rows:
            if "FLOCK" in row and any(part.rpartition(":")[2] == inode for part in row if part.count(":") == 2):
                pid = int(row[row.index("FLOCK") + 3])
                if _has_open(pid, path):
                    return pid
        return None

    def tree(self, key: AgentKey) -> dict[int, int]:
        """pid -> start ticks of every process the agent ever saw in its ranks' trees (of its boot)."""
        try:
            lines = (self.directory(key) / names.TREE).read_bytes().splitlines()
        except OSError:
            return {}
        pairs = (line.split() for line in lines)
        return {int(pair[0]): int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit()}

    def spool(self, key: AgentKey) -> bytes:
        """The reports that the agent made durable while no server answered, as it wrote them."""
        try:
            return (self.directory(key) / names.SPOOL).read_bytes()
        except OSError:
            return b""

    def log(self, key: AgentKey) -> str:
        """What the agent itself said."""
        try:
            return (self.directory(key) / names.AGENT_LOG).read_text(errors="replace")
        except OSError:
            return ""

    def live(self) -> Iterator[AgentKey]:
        """Agents that were started and are not known to have ended: their cost is that of what lives, not of history."""
        try:
            markers = sorted(os.listdir(self._home.live))
        except OSError:
            return
        for marker in markers:
            try:
                yield AgentKey.parse(marker.replace("~", "/"))
            except ValueError:
                continue

    def forget(self, key: AgentKey) -> None:
        """The end of this agent is known: take it off the index."""
        (self._home.live / _marker(key)).unlink(missing_ok=True)

    def _directory_made(self, key: AgentKey) -> Path:
        directory = self.directory(key)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory


def _marker(key: AgentKey) -> str:
    return str(key).replace("/", "~")  # no name of ours holds a "~"


def _has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open: inode numbers alone repeat across file systems."""
    wanted = os.path.realpath(path)
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{number}") == wanted for number in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False
