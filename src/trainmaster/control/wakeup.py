"""Wakes processes by datagrams over Unix sockets. Never blocks; several wakeups may count as one."""

import contextlib
import os
import select
import socket
from pathlib import Path


class DatagramWaker:
    """`ports.clock.Waker` on a bound Unix datagram socket: any datagram to `path` wakes this process."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(path))

    def wait(self, timeout_s: float) -> bool:
        """Sleep until woken or until `timeout_s` has passed."""
        ready, _, _ = select.select([self._socket], [], [], max(0.0, timeout_s))
        with contextlib.suppress(BlockingIOError):
            while ready:
                self._socket.recv(16)
        return bool(ready)

    def wake(self) -> None:
        """Wake this process, from another thread."""
        poke(self._path)

    def close(self) -> None:
        """Close the socket. Its file stays; the next socket replaces it."""
        self._socket.close()


def poke(path: Path) -> None:
    """Wake the listener at `path`. No listener, or one with a full queue (it is awake anyway), is not an error."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)
    try:
        with contextlib.suppress(OSError):
            sender.sendto(b"w", str(path))
    finally:
        sender.close()
