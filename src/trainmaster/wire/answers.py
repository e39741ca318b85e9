"""HTTP answers with a minimum speed: one that trickles, or never ends, times out like one that does not come."""

from __future__ import annotations

import http.client
import io
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Optional

SLOWEST = 1024  # bytes per second, in addition to the socket's timeout


class Answer(http.client.HTTPResponse):
    """Set it as `HTTPConnection.response_class`.

    The head must arrive within the socket's timeout, however many `100 Continue` precede it. The body must arrive within the
    same time plus its size at `SLOWEST`. Raises: TimeoutError if it does not, or if nothing arrives within the timeout.
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
    """Reads from a socket with one time limit for everything."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._raw = sock, sock.makefile("rb", buffering=0)
        self._timeout_s: Optional[float] = sock.gettimeout()
        self._began_s, self._bytes, self._slowest = time.monotonic(), 0, float("inf")

    def begin_body(self) -> None:
        """The head has arrived: start the time limit of the body."""
        self._began_s, self._bytes, self._slowest = time.monotonic(), 0, SLOWEST

    def readable(self) -> bool:
        """True."""
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
        """Close the socket's file."""
        self._raw.close()
        super().close()
