"""Accepts connections with TLS and bounds those whose handshake is not over, which asyncio's own server does not.

Each holds a descriptor and 256 KiB of buffers, and the bound on connections counts only those that have come through.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

_AT_ONCE = 256
_HANDSHAKE_S = 10.0  # a client that is silent for longer is dropped
_GOODBYE_S = 1.0  # how long a connection that we close waits for the client's own end
_PAUSE_S = 0.5  # after a failed accept: descriptors are used up


class Handshakes:
    """Accepts at one socket. At the limit, a new connection ends the oldest handshake. uvicorn takes it for a server."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext) -> None:
        self._listener, self._protocol, self._context = listener, protocol, context
        self._shaking: dict[asyncio.Task[None], None] = {}  # in order
        self._loop = asyncio.get_running_loop()
        self._accepting = self._loop.create_task(self._accept())

    def close(self) -> None:
        """Accept nothing more. Connections that have come through stay."""
        for task in (self._accepting, *self._shaking):
            task.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        await asyncio.wait((self._accepting, *self._shaking))

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(self._shaking) >= _AT_ONCE:
                oldest = next(iter(self._shaking))
                del self._shaking[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._shake(connection))
            self._shaking[task] = None
            task.add_done_callback(lambda over: self._shaking.pop(over, None))
            await asyncio.sleep(0)  # others have their turn, also in a flood

    async def _shake(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client's: it speaks no TLS, went away, or took too long
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_GOODBYE_S,
            )  # fmt: skip
