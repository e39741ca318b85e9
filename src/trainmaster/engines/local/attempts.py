"""The attempt directories of a home: launch files, tombstones and exit records of agents, and the index of live agents.

All state is read from files, so that a new engine object knows what an earlier one did.
"""

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.home import Home, open_regular, write_atomic
from trainmaster.model.ids import AgentKey
from trainmaster.wire import names, processes
from trainmaster.wire.launch import Launch

_RECORDS = (names.LAUNCH, names.AGENT, names.STOP, names.EXIT, names.TREE, names.SPOOL)
_ID_MAX = 64  # characters of an id that become part of a name


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies a process, even if its pid is reused later."""

    pid: int
    ticks: int
    boot: str

    @property
    def alive(self) -> bool:
        """Whether this process still runs. Raises: OSError if that cannot be known now."""
        return self.boot == processes.boot_id() and processes.proven_ticks(self.pid) == self.ticks


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A stop order: its time on this boot's monotonic clock, and the grace period of the ranks."""

    grace_s: float
    since_s: float
    boot: str

    def due_s(self, now_s: float, boot: str) -> float:
        """Seconds until the grace period is over, 0 or less if it is. A stop from an earlier boot is overdue."""
        return self.since_s + self.grace_s - now_s if boot == self.boot else 0.0


class Attempts:
    """Reads and writes attempt directories.

    Law: a file is absent only if it does not exist. If it cannot be read (no free descriptor, a disk error), an OSError is
    raised.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self.home_id = home.identity()

    def directory(self, key: AgentKey) -> Path:
        """The directory of the agent of `key`."""
        return self._home.attempt(key.job, key.attempt, key.node_index)

    def create(self, key: AgentKey, launch: Launch) -> Path:
        """Write the launch file. The index entry comes first, so that a running agent is always found.

        Not synced: the files survive this process, and after a crash of the machine the launch is repeated from its event.
        """
        self._set_aside(key)
        directory = self._directory_made(key)
        self._home.live.mkdir(mode=0o700, exist_ok=True)
        (self._home.live / _marker(key)).touch(mode=0o600)
        part = directory / f"{names.LAUNCH}.{os.getpid()}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it holds a credential
        with open(descriptor, "wb") as file:
            file.write(json.dumps(launch).encode())  # ASCII: a path may hold any bytes
        part.replace(directory / names.LAUNCH)
        return directory

    def written_s_ago(self, key: AgentKey, name: str) -> float | None:
        """Seconds since the launch file or the exit record was written; None if there is none. Raises: OSError."""
        try:
            written_s = (self.directory(key) / name).stat().st_mtime
        except FileNotFoundError:
            return None
        return abs(time.time() - written_s)  # with a clock set back it is old too: a second agent would find the lock taken

    def identity(self, key: AgentKey) -> Identity | None:
        """The agent that took the lock; None if none is recorded."""
        return _identity(self._own(key, names.AGENT))

    def ended(self, key: AgentKey) -> dict[str, Any] | None:
        """The exit record; None if this home has none."""
        return self._own(key, names.EXIT)

    def was_used(self, key: AgentKey) -> bool:
        """Whether an agent ever took this key, or it was stopped. Then nothing may start under it again."""
        if self.is_foreign(key):
            return False
        directory = self.directory(key)
        return any((directory / name).exists() for name in (names.AGENT, names.EXIT, names.STOP))

    def tombstone(self, key: AgentKey) -> Tombstone | None:
        """The stop order, if there is one."""
        record = self._own(key, names.STOP)
        try:
            return None if record is None else Tombstone(
                float(record["grace_s"]), float(record["since_monotonic_s"]), str(record["boot_id"])
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return Tombstone(0.0, 0.0, "")  # a stop was ordered, but its details are lost

    def order_stop(self, key: AgentKey, grace_s: float) -> tuple[Tombstone, bool]:
        """Order the stop durably, unless an earlier deadline is already ordered. Returns it, and whether it is new."""
        now_s, boot = time.monotonic(), processes.boot_id()
        for name in _RECORDS:
            _set_aside_unless_regular(self.directory(key) / name)
        there = self.tombstone(key)
        if there is not None and there.due_s(now_s, boot) <= grace_s:
            return there, False
        stone = Tombstone(grace_s, now_s, boot)
        record = {"home": self.home_id, "grace_s": grace_s, "reason": "stopped", "since_monotonic_s": now_s, "boot_id": boot}
        write_atomic(self._directory_made(key) / names.STOP, json.dumps(record).encode())
        return stone, True

    def lock_holder(self, key: AgentKey) -> int | None:
        """The pid that holds the agent's lock. It is found without taking the lock, which would make a new agent exit."""
        path = self.directory(key) / names.LOCK
        try:
            inode = str(path.stat().st_ino)
            with open("/proc/locks") as file:
                rows = [line.split() for line in file]
        except FileNotFoundError:
            return None
        for row in rows:
            if "FLOCK" in row and any(part.rpartition(":")[2] == inode for part in row if part.count(":") == 2):
                pid = int(row[row.index("FLOCK") + 3])
                if _has_open(pid, path):
                    return pid
        return None

    def tree(self, key: AgentKey) -> dict[int, int]:
        """pid -> start ticks of every process the agent ever saw in its ranks' trees (of its boot)."""
        pairs = (line.split() for line in _content(self.directory(key) / names.TREE).splitlines())
        return {int(pair[0]): int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit()}

    def spool(self, key: AgentKey) -> bytes:
        """The reports that the agent has written to disk while no server answered."""
        return _content(self.directory(key) / names.SPOOL)

    def log(self, key: AgentKey) -> str:
        """The agent's own log."""
        try:
            return _content(self.directory(key) / names.AGENT_LOG).decode(errors="replace")
        except OSError:
            return ""

    def live(self) -> Iterator[AgentKey]:
        """Agents that were started and are not known to have ended. The cost depends on live agents, not on history."""
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
        """Remove an agent from the index, because its end is known."""
        (self._home.live / _marker(key)).unlink(missing_ok=True)

    def is_foreign(self, key: AgentKey) -> bool:
        """Whether the directory belongs to another home or a lost log, so that it is no evidence. Raises: OSError."""
        return bool(self.home_id) and self.home_of(key) not in ("", self.home_id)

    def home_of(self, key: AgentKey) -> str:
        """The id of the home that launched the agent there; empty if there is none, or if an old version wrote none."""
        return str((_record(self.directory(key) / names.LAUNCH) or {}).get("home") or "")

    def foreign(self) -> dict[AgentKey, Identity]:
        """Running agents in the index that belong to another home or a lost log. The devices that they use are not tracked."""
        found = {}
        for key in self.live():
            with contextlib.suppress(OSError):  # retried next time
                agent = _identity(_record(self.directory(key) / names.AGENT)) if self.is_foreign(key) else None
                if agent is not None and agent.alive:
                    found[key] = agent
        return found

    def _own(self, key: AgentKey, name: str) -> dict[str, Any] | None:
        """A record of the agent; None if there is none, or if it belongs to another home."""
        record = _record(self.directory(key) / name)
        if record is None or (self.home_id and str(record.get("home") or self.home_id) != self.home_id):
            return None
        return None if not record.get("home") and self.is_foreign(key) else record

    def _set_aside(self, key: AgentKey) -> None:
        """Move another home's directory aside. Raises: OSError while an agent runs in it."""
        if not self.is_foreign(key):
            return
        directory, agent = self.directory(key), _identity(_record(self.directory(key) / names.AGENT))
        if agent is not None and agent.alive:
            raise OSError(errno.EBUSY, f"an agent of another home ({self.home_of(key)}) runs in it", str(directory))
        directory.rename(directory.with_name(f"{directory.name}.of-{self.home_of(key)[:_ID_MAX]}"))

    def _directory_made(self, key: AgentKey) -> Path:
        directory = self.directory(key)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory


def _identity(record: dict[str, Any] | None) -> Identity | None:
    try:
        return None if record is None else Identity(int(record["pid"]), int(record["start_ticks"]), str(record["boot_id"]))
    except (KeyError, TypeError, ValueError):
        return None


def _marker(key: AgentKey) -> str:
    return str(key).replace("/", "~")  # our names never contain "~"


def _set_aside_unless_regular(path: Path) -> None:
    """Move a path aside if it is not a regular file. A program may put something there, which must not prevent a stop.

    Records are always regular files. Raises: OSError.
    """
    try:
        regular = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not regular:
        path.rename(path.with_name(f"{path.name}.{time.time_ns()}.aside"))


def _content(path: Path) -> bytes:
    """The content of a file; empty if it does not exist. Raises: OSError."""
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _record(path: Path) -> dict[str, Any] | None:
    """A record; None if it does not exist or is half-written. Raises: OSError."""
    try:
        value = json.loads(_content(path))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _has_open(pid: int, path: Path) -> bool:
    """Whether the process has the file open. Inode numbers are not enough, because they repeat across file systems."""
    wanted = os.path.realpath(path)
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{number}") == wanted for number in os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
