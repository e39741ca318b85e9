"""Waking processes by datagrams over Unix sockets: cheap, lossy by nature (several count as one), and never blocking."""

import contextlib
import os
import select
import socket
from pathlib import Path


class DatagramWaker:
    """`ports.clock.Waker` on a bound Unix datagram socket: whoever sends to `path` wakes us."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(path))

    def wait(self, timeout_s: float) -> bool:
        """Sleep until woken or `timeout_s` passed."""
        ready, _, _ = select.select([self._socket], [], [], max(0.0, timeout_s))
        with contextlib.suppress(BlockingIOError):
            while ready:
                self._socket.recv(16)
        return bool(ready)

    def wake(self) -> None:
        """Wake ourselves, from another thread."""
        poke(self._path)

    def close(self) -> None:
        """Give the socket back; its name stays for the next one to replace."""
        self._socket.close()


def poke(path: Path) -> None:
    """Wake whoever listens at `path`; nobody listening, or one with a full queue (awake anyway), is fine."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)
    try:
        with contextlib.suppress(OSError):
            sender.sendto(b"w", str(path))
    finally:
        sender.close()
