"""Claims the rendezvous port of a gang (MASTER_PORT) and holds it with a lock file while the attempt lives.

The port lies below the range from which the kernel takes ports for outgoing connections. So no client socket of any
program can occupy it when the ranks bind it. A file lock decides between attempts on one machine.
"""

from __future__ import annotations

import _socket  # not `socket`: its import costs as much as the rest of the start
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_LOWEST = 10000
_TRIES = 2000
LOOPBACK = "127.0.0.1"
CLAIMS = "/tmp/trainmaster-ports-%d"  # one directory per machine and user; TMPDIR does not change it


class NoPortError(Exception):
    """No port is available; the text says what to do."""


class Claim:
    """A claimed port and its lock. `release` frees it, and so does the end of the process."""

    def __init__(self, port: int, lock: Optional[int]) -> None:
        self.port = port
        self._lock = lock

    def release(self) -> None:
        """Release the port."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def claim() -> Claim:
    """A free port for this attempt. Raises: NoPortError."""
    low, high = _range()
    directory = _claims_directory()
    for _ in range(_TRIES):
        port = low + int.from_bytes(os.urandom(4), "little") % (high - low)
        lock = None
        if directory is not None:
            try:
                lock = _lock(directory, port)
            except BlockingIOError:
                continue
            except OSError:  # a full disk, or no free descriptor: this says nothing about the port
                directory = None
        if _free(port):
            return Claim(port, lock)
        if lock is not None:
            os.close(lock)
    raise NoPortError(f"no free port from {low} to {high - 1} for the rendezvous; end what holds them, or widen the range "
                      "by raising net.ipv4.ip_local_port_range's lower end")  # fmt: skip


def _range() -> tuple[int, int]:
    """[low, high) outside the ephemeral range, at least 1,000 ports wide if there is such a range."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", "rb") as file:
            first, last = (int(field) for field in file.read().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    if first >= _LOWEST + 1000:
        return _LOWEST, first
    if last <= 64535:
        return last + 1, 65536
    return _LOWEST, 30000  # every port is ephemeral: rely on the bind test, and on a restart after "address in use"


def _claims_directory() -> Optional[str]:
    """The directory of claims, owned by this user only; None if it cannot be made (then only the bind test decides)."""
    directory = CLAIMS % os.getuid()
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return None
    try:
        status = os.lstat(directory)
    except OSError:
        return None
    return directory if status.st_uid == os.getuid() and status.st_mode & 0o170022 == 0o040000 else None


def _lock(directory: str, port: int) -> int:
    """The descriptor that holds the claim on `port`. Raises: BlockingIOError if another attempt holds it; OSError."""
    descriptor = os.open(f"{directory}/{port}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _free(port: int) -> bool:
    """Whether the port can be bound on every address."""
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        probe.bind(("", port))
    except OSError:
        return False
    finally:
        probe.close()
    return True
