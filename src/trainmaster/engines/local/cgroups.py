"""Memory limits by the kernel, where this server was given a cgroup v2 subtree with the memory controller.

`<own cgroup>/trainmaster/<key>` with `memory.max` and `memory.oom.group`, so that all ranks of a node die together and are
known to have died of memory. Where there is none the agent watches the ranks' memory itself; `words()` says so.
"""

import contextlib
import os
from pathlib import Path

from trainmaster.model.ids import AgentKey

_ROOT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")
_SUBTREE = "trainmaster"


class Cgroups:
    """The subtree of one server; without one, `make` returns None and everything else does nothing."""

    def __init__(self, root: Path = _ROOT, own: Path = _SELF) -> None:
        self._base, self._why = _delegated(root, own)

    @property
    def available(self) -> bool:
        """Whether the kernel can be asked to limit memory."""
        return self._base is not None

    def words(self) -> str:
        """How memory limits are kept on this machine, in a sentence."""
        if self._base is not None:
            return "Memory limits are enforced by the kernel (cgroup v2)."
        return f"Memory limits are watched by the agent, not enforced by the kernel: {self._why}."

    def make(self, key: AgentKey, memory_bytes: int | None) -> str | None:
        """A cgroup with this limit; None when no limit is asked for or none can be set."""
        path = self._path(key)
        if path is None or memory_bytes is None:
            return None
        try:
            path.mkdir(exist_ok=True)
            (path / "memory.max").write_text(str(memory_bytes))
            (path / "memory.oom.group").write_text("1")
        except OSError:
            self.remove(key)
            return None
        with contextlib.suppress(OSError):  # swap would only hide the limit; absent where the kernel counts none
            (path / "memory.swap.max").write_text("0")
        return str(path)

    def members(self, key: AgentKey) -> frozenset[int]:
        """The pids in the cgroup."""
        path = self._path(key)
        try:
            return frozenset() if path is None else frozenset(int(pid) for pid in (path / "cgroup.procs").read_text().split())
        except (OSError, ValueError):
            return frozenset()

    def kill(self, key: AgentKey) -> None:
        """KILL everything in it at once."""
        path = self._path(key)
        if path is not None:
            # Absent: nothing is in it, or the kernel is too old; then the tree is ended pid by pid.
            with contextlib.suppress(OSError), open(path / "cgroup.kill", "r+") as file:
                file.write("1")

    def remove(self, key: AgentKey) -> None:
        """Remove it once it is empty; harmless otherwise."""
        path = self._path(key)
        if path is not None:
            with contextlib.suppress(OSError):
                path.rmdir()

    def _path(self, key: AgentKey) -> Path | None:
        return None if self._base is None else self._base / f"{key.job}.{key.attempt}.n{key.node_index}"


def _delegated(root: Path, own: Path) -> tuple[Path | None, str]:
    """The directory for the agents' cgroups, the memory controller enabled in it; or None and why."""
    if not (root / "cgroup.controllers").exists():
        return None, "this machine has no cgroup v2"
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None, "this process's cgroup is not known"
    relative = next((line[3:] for line in lines if line.startswith("0::")), None)
    if relative is None:
        return None, "this process is in no cgroup v2"
    mine = root / relative.strip().lstrip("/")
    parent = [mine.parent] if mine != root and _is_delegated(mine.parent) else []
    why = "the server's cgroup is not delegated to it"
    for directory in [mine, *parent]:
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
            with contextlib.suppress(OSError):
                base.rmdir()
            continue
        return base, ""
    return None, why


def _is_delegated(directory: Path) -> bool:
    """Whether the service manager gave the directory away: ours by owner, or marked by systemd."""
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
