"""Use and removal of the virtual environments of a node: locks, the disk limit, eviction.

An environment in use is never removed. Its agents hold a shared lock. If an agent was killed while its programs live on,
these programs are found by their environment variables.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time

from trainmaster.agent.files.fast_json import read_json
from trainmaster.agent.processes.process_tree import descendants, send
from trainmaster.wire import disks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Optional

_LAST_OUTPUT_S = 2.0


def locked(path: str, shared: bool) -> Optional[int]:
    """The descriptor that holds the lock of an environment; None if another process holds a conflicting lock."""
    name = f"{path}.lock"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == os.stat(name).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):  # it is held, or was removed with its environment meanwhile
        pass
    os.close(descriptor)
    return None


def make_room(root: str, max_bytes: int, newest: str) -> None:
    """Evict unused environments, least recently used first, until the total size is within the limit."""
    known = []
    for name in os.listdir(root):
        if name.endswith(".json"):
            record = os.path.join(root, name)
            try:
                known.append((os.stat(record).st_mtime, record[: -len(".json")], int(read_json(record)["bytes"])))
            except (OSError, ValueError, KeyError, TypeError):
                continue
    total = sum(size for _, _, size in known)
    for _, path, size in sorted(known):
        if total <= max_bytes:
            return
        if path != newest and _remove(path):
            total -= size


def _remove(path: str) -> bool:
    """Remove one environment, unless it is in use."""
    lock = locked(path, shared=False)
    if lock is None:
        return False
    try:
        if _in_use(path):
            return False
        discard(path)
        for suffix in (".log", ".failed", ".lock"):
            if os.path.exists(path + suffix):
                os.unlink(path + suffix)
        return True
    finally:
        os.close(lock)


def _in_use(path: str) -> bool:
    """Whether a live process was started in this environment, independent of the lock."""
    mark = b"\0VIRTUAL_ENV=" + os.fsencode(path) + b"\0"
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in b"\0" + file.read():
                        return True
            except OSError:
                continue
    return False


def discard(path: str) -> None:
    """Remove an environment: first its record of completeness, then its files. The caller holds the lock. Raises: OSError."""
    for suffix in (".json", ".json.part"):
        if os.path.exists(path + suffix):
            os.unlink(path + suffix)
    if os.path.lexists(path):
        gone = f"{path}.gone-{os.getpid()}-{time.monotonic_ns()}"
        os.rename(path, gone)
        disks.discard(gone)


def size_bytes(path: str) -> int:
    """Disk usage of an environment."""
    return disks.size(path).bytes


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that was started in its own session, with all its descendants, and wait for it."""
    below = {process.pid, *descendants(process.pid)} if process.poll() is None else set()
    for pid in descendants(os.getpid()):  # includes orphans, which this agent adopts
        if pid in below or _session(pid) == process.pid:
            send(pid, signal.SIGKILL)
    process.wait(_LAST_OUTPUT_S)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1
