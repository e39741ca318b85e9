"""One cgroup per attempt and node on this machine, if the kernel and the server's permissions allow it.

Everything that an agent starts is born in the cgroup and cannot leave it. So all of it can be found and killed, even if the
agent is gone: with `cgroup.kill` (version 2) or the freezer (version 1). Version 2 with the memory controller also enforces
the memory limit (`memory.max`, `memory.oom.group`: all ranks of a node are killed together). Otherwise the agent checks it.
If the kernel counts memory, its counter shows whether a process was killed by the OOM killer. `words` describes what is
available.

    <own cgroup>/trainmaster/<home>.<key>
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from trainmaster.model.ids import AgentKey
from trainmaster.wire import cgroups as kernel

_ROOT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")
_SUBTREE = "trainmaster"
_STALE_S = 86400.0  # an empty cgroup of this age is unused: a start takes less time


def _new(path: Path) -> None:
    path.mkdir(exist_ok=True)


@dataclass(frozen=True, slots=True)
class AttemptCgroups:
    """The cgroups of one attempt on one node."""

    limited: str | None = None  # the directory with the memory limit; None: the agent checks the memory
    contained: tuple[str, ...] = ()  # cgroups for all processes of the attempt; empty if none is available


class Cgroups:
    """The cgroup subtrees of one server. Without them, `make` returns none and the other methods do nothing."""

    def __init__(self, home: Path, root: Path = _ROOT, own: Path = _SELF, new: Callable[[Path], None] = _new) -> None:
        groups = _own_groups(own)
        self._home = _name_of(home)
        self._new = new  # creates a cgroup if it does not exist; the kernel fills it with its files
        self._killing, self._no_killing = _for_killing(root, groups, new)
        self._limiting, self._no_limit = _for_limits(root, groups)
        self._counting = None
        if self._limiting is None:
            self._counting = _version_1(root, groups, ("memory", "memory.oom_control"), new)

    def words(self) -> tuple[str, str]:
        """One sentence each: how stray processes are killed, and how memory limits are enforced on this machine."""
        stray = "Everything an attempt starts is held in a cgroup of its own and can be ended at once."
        if self._killing is None:
            stray = (
                "No cgroup is available for attempts: a process that leaves its session and clears its environment may outlive "
                f"an agent that is killed ({self._no_killing})."
            )
        limit = "Memory limits are enforced by the kernel (cgroup v2)."
        if self._limiting is None:
            limit = f"Memory limits are watched by the agent, not enforced by the kernel: {self._no_limit}."
        return stray, limit

    @property
    def contains(self) -> bool:
        """Whether each attempt gets a cgroup in which all its processes can be killed."""
        return self._killing is not None

    @property
    def limits(self) -> bool:
        """Whether the kernel can enforce memory limits."""
        return self._limiting is not None

    def make(self, key: AgentKey, memory_bytes: int | None) -> AttemptCgroups:
        """Create the cgroups of this key. If one cannot be created, the attempt runs without it."""
        limited = None if memory_bytes is None else self._limit(key, memory_bytes)
        found = []
        for path in self._paths(key):
            if path.parent in (self._killing, self._counting) or str(path) == limited:
                with contextlib.suppress(OSError):
                    self._new(path)
                    found.append(str(path))
        return AttemptCgroups(limited, tuple(found))

    def members(self, key: AgentKey) -> frozenset[int]:
        """The processes in its cgroups; the agent itself is in none of them."""
        found: frozenset[int] = frozenset()
        for path in self._paths(key):
            found |= kernel.members(str(path))
        return found

    def kill(self, key: AgentKey) -> None:
        """Kill everything in them at once."""
        for path in self._paths(key):
            kernel.kill(str(path))

    def remove(self, key: AgentKey) -> None:
        """Remove them if they are empty; otherwise do nothing."""
        for path in self._paths(key):
            kernel.remove(str(path))

    def tidy(self) -> None:
        """Remove empty cgroups that earlier servers and deleted homes have left."""
        for base in self._bases():
            with contextlib.suppress(OSError):
                for path in list(base.iterdir()):
                    if path.is_dir() and time.time() - path.stat().st_mtime > _STALE_S:
                        kernel.remove(str(path))  # fails if it contains a process

    def _limit(self, key: AgentKey, memory_bytes: int) -> str | None:
        if self._limiting is None:
            return None
        path = self._limiting / self._name(key)
        try:
            self._new(path)
            (path / "memory.max").write_text(str(memory_bytes))
            (path / "memory.oom.group").write_text("1")
        except OSError:
            kernel.remove(str(path))
            return None
        with contextlib.suppress(OSError):  # swap would bypass the limit; the file may be missing
            (path / "memory.swap.max").write_text("0")
        return str(path)

    def _bases(self) -> list[Path]:
        return [base for base in dict.fromkeys((self._killing, self._limiting, self._counting)) if base is not None]

    def _paths(self, key: AgentKey) -> list[Path]:
        return [base / self._name(key) for base in self._bases()]

    def _name(self, key: AgentKey) -> str:
        return f"{self._home}.{key.job}.{key.attempt}.n{key.node_index}"


def _name_of(home: Path) -> str:
    """A name for the home's cgroups. Another home, or a new one at the same path, gets other cgroups for the same keys."""
    with contextlib.suppress(OSError):
        return sha256(f"{home.resolve()}:{home.stat().st_ino}".encode()).hexdigest()[:8]
    return sha256(str(home).encode()).hexdigest()[:8]


def _own_groups(own: Path) -> dict[str, str]:
    """controller -> path of this process's cgroup; the key "" is version 2."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return {}
    return {name: parts[2] for parts in lines if len(parts) == 3 for name in parts[1].split(",")}


def _for_killing(root: Path, groups: dict[str, str], new: Callable[[Path], None]) -> tuple[Path | None, str]:
    """The directory for cgroups that can be killed as a whole; or None and the reason."""
    for mount in (root, root / "unified"):
        for directory in _candidates(mount, groups) if (mount / "cgroup.controllers").exists() else ():
            base = _base(directory, ("cgroup.kill", "cgroup.freeze"), new)
            if base is not None:
                return base, ""
    base = _version_1(root, groups, ("freezer", "freezer.state"), new)
    if base is not None:
        return base, ""
    if not groups:
        return None, "this process's cgroup is not known"
    return None, "neither a cgroup v2 nor a v1 freezer may be written by this server"


def _version_1(root: Path, groups: dict[str, str], what: tuple[str, str], new: Callable[[Path], None]) -> Path | None:
    """The directory for cgroups of a version 1 controller that have the given file."""
    controller, file = what
    mount = root / controller
    if controller not in groups or not mount.is_dir():
        return None
    mine = mount / groups[controller].lstrip("/")
    return _base(mine if mine.is_dir() else mount, (file,), new)  # a container sees its own cgroup as the root


def _base(directory: Path, wanted: tuple[str, ...], new: Callable[[Path], None]) -> Path | None:
    """Our directory below this one, if cgroups created in it have one of the wanted files."""
    base, probe = directory / _SUBTREE, directory / _SUBTREE / f"probe.{os.getpid()}"
    if not os.access(directory, os.W_OK):
        return None
    try:
        base.mkdir(exist_ok=True)
        new(probe)
        found = any((probe / name).exists() for name in wanted)
    except OSError:
        return None
    finally:
        kernel.remove(str(probe))
    return base if found else None


def _candidates(mount: Path, groups: dict[str, str]) -> list[Path]:
    """Our own version 2 cgroup, then its parent if that is delegated to us."""
    relative = groups.get("")
    if relative is None:
        return []
    mine = mount / relative.lstrip("/")
    return [mine, mine.parent] if mine != mount and _is_delegated(mine.parent) else [mine]


def _for_limits(root: Path, groups: dict[str, str]) -> tuple[Path | None, str]:
    """The directory for version 2 cgroups with the memory controller enabled; or None and the reason."""
    if not (root / "cgroup.controllers").exists():
        return None, "this machine has no cgroup v2 with controllers"
    if "" not in groups:
        return None, "this process is in no cgroup v2"
    why = "the server's cgroup is not delegated to it"
    for directory in _candidates(root, groups):
        if not os.access(directory, os.W_OK) or "memory" not in _words(directory / "cgroup.controllers"):
            continue
        base = directory / _SUBTREE
        try:
            for enabling in (directory, base):
                enabling.mkdir(exist_ok=True)
                if "memory" not in _words(enabling / "cgroup.subtree_control"):
                    (enabling / "cgroup.subtree_control").write_text("+memory")
        except OSError as error:
            why = f"the memory controller cannot be passed on ({error.strerror})"
            continue
        return base, ""
    return None, why


def _is_delegated(directory: Path) -> bool:
    """Whether the service manager has delegated the directory: we own it, or systemd has marked it."""
    with contextlib.suppress(OSError):
        if os.getuid() != 0 and directory.stat().st_uid == os.getuid():
            return True
        for attribute in ("trusted.delegate", "user.delegate"):
            with contextlib.suppress(OSError):
                return os.getxattr(directory, attribute) == b"1"
    return False


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
