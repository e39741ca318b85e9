"""Bounds for connections to the api, which uvicorn lacks: their number over TCP, and the time to send a request."""

import asyncio
import itertools
from collections import Counter
from typing import ClassVar

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmaster.server.runtime import limits
from trainmaster.server.runtime.credentials import Caller

_KEEP_ALIVE_S = 75
_SHUTDOWN_S = 3  # how long a stop waits for responses in progress


def config_of(app: Starlette) -> uvicorn.Config:
    """The uvicorn configuration of the api."""
    return uvicorn.Config(
        app,
        http=bounded_protocol(limits.CONNECTIONS_MAX),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        h11_max_incomplete_event_size=limits.HEAD_MAX_BYTES,
    )


def bounded_protocol(most: int) -> type[H11Protocol]:
    """A protocol class for one server with at most `most` TCP connections.

    At the limit, a new connection closes another: the one that has been idle longest. See `BoundedConnection._evict_one`
    for the case that none is idle.
    """
    connections: dict[BoundedConnection, None] = {}  # open TCP connections, in order

    class Counted(BoundedConnection):
        """One connection of this server."""

        most_open = most
        open_connections = connections

    return Counted


class BoundedConnection(H11Protocol):
    """One connection. It is closed when the client takes too long to send the rest of a request."""

    most_open = limits.CONNECTIONS_MAX
    open_connections: ClassVar[dict["BoundedConnection", None]] = {}

    _timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0  # body bytes that came after the response
    _idle_since = 0

    _clock = itertools.count(1)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio callback: the connection was made."""
        super().connection_made(transport)
        if self.client is not None:
            if len(self.open_connections) >= self.most_open:
                self._evict_one()
            self.open_connections[self] = None
        self._idle_since = next(self._clock)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio callback: the connection was lost."""
        self.open_connections.pop(self, None)
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """asyncio callback: data came in."""
        if self._unread and not self._admitted:
            self._unread_bytes += len(data)
            if self._unread_bytes > limits.UNREAD_MAX_BYTES:
                self.transport.abort()
                return
            if self._is_long():
                return  # do not parse it: the connection is closed soon
        super().data_received(data)
        self._update_timer()

    def on_response_complete(self) -> None:
        """uvicorn callback: the response is complete."""
        super().on_response_complete()
        self._idle_since = next(self._clock)
        self._unread_bytes = 0
        self._update_timer()

    @property
    def _unread(self) -> bool:
        """Whether the response is complete, but the request's body still comes in."""
        return self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    def _is_long(self) -> bool:
        """Whether the body is too long to read it to its end for the sake of the connection."""
        told = dict(self.headers)
        length = told.get(b"content-length", b"0")
        return b"transfer-encoding" in told or int(length) > limits.HEAD_MAX_BYTES

    @property
    def _admitted(self) -> bool:
        """Whether the request was authenticated. If so, an error response must reach the client despite unread data."""
        return "trainmaster.caller" in self.scope or "trainmaster.agent" in self.scope

    @property
    def _busy(self) -> bool:
        """Whether a response is in progress."""
        return self.cycle is not None and not self.cycle.response_complete

    def _update_timer(self) -> None:
        """Start or stop the timer for the rest of a head, or for the rest of a body after the response."""
        begun = self.conn.their_state is h11.IDLE and (self.cycle is None or bool(self.conn.trailing_data[0]))
        if not self.transport.is_closing() and (begun or self._unread):
            if self._timer is None:
                self._timer = self.loop.call_later(self._time_allowed_s, self._end)
        else:
            self._cancel_timer()

    @property
    def _time_allowed_s(self) -> float:
        if not self._unread:
            return limits.HEAD_S
        return limits.BODY_IDLE_S if self._admitted else limits.UNREAD_S

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self.transport.close()

    @property
    def _user(self) -> str | None:
        """The authenticated user of the current request; None otherwise."""
        caller = self.scope.get("trainmaster.caller") if self.cycle is not None else None
        return caller.name if isinstance(caller, Caller) else None

    def _evict_one(self) -> None:
        """Close the connection that has been idle longest.

        If none is idle, close the oldest connection of the user with most connections: streams and unread responses may never
        end.
        """
        waiting = [one for one in self.open_connections if not one._busy]
        if not waiting:
            most = Counter(one._user for one in self.open_connections).most_common(1)[0][0]
            waiting = [one for one in self.open_connections if one._user == most]
        oldest = min(waiting, key=lambda one: one._idle_since)
        self.open_connections.pop(oldest, None)
        oldest.transport.abort()
