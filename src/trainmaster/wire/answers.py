"""Answers over HTTP that have to come on: one that trickles, or is announced without end, ends like one that does not come."""

from __future__ import annotations

import http.client
import io
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Optional

SLOWEST = 1024  # bytes a second, beyond the socket's timeout


class Answer(http.client.HTTPResponse):
    """What `HTTPConnection.response_class` is to be.

    Its head comes within the socket's timeout, however often `100 Continue` stands before it; its body within as much again and
    what it takes at `SLOWEST`. Raises: TimeoutError where it does not, as where nothing comes for the socket's timeout.
    """

    def __init__(self, sock: socket.socket, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp.close()
        self._coming = _Coming(sock)
        self.fp = io.BufferedReader(self._coming)

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        self._coming.begin_body()


class _Coming(io.RawIOBase):
    """What comes through a socket, with one limit for all of it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._raw = sock, sock.makefile("rb", buffering=0)
        self._timeout_s: Optional[float] = sock.gettimeout()
        self._began_s, self._bytes, self._slowest = time.monotonic(), 0, float("inf")

    def begin_body(self) -> None:
        """From now on what comes is worth waiting for."""
        self._began_s, self._bytes, self._slowest = time.monotonic(), 0, SLOWEST

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, into: Any) -> Optional[int]:
        """Raises: TimeoutError, OSError."""
        if self._timeout_s is None:
            return self._raw.readinto(into)
        left_s = self._began_s + self._timeout_s + self._bytes / self._slowest - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer comes too slowly")
        self._sock.settimeout(min(left_s, self._timeout_s))
        try:
            count = self._raw.readinto(into)
        finally:
            self._sock.settimeout(self._timeout_s)
        self._bytes += count or 0
        return count

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()
