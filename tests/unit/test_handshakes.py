"""A listener with TLS holds a bounded number of connections that say nothing, and lets others through meanwhile."""

import asyncio
import socket
from pathlib import Path

from trainmaster.home import Home
from trainmaster.server.process.public_listener import listen
from trainmaster.wire.tls import trusting

SILENT = 400


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def test_silent_connections_are_bounded_and_hold_up_nobody(tmp_path: Path) -> None:
    async def flood() -> int:
        public = listen(Home(tmp_path), {"listen": "127.0.0.1:0"})
        assert public is not None
        server = await public.serve(Echo)
        address = public.socket.getsockname()
        silent = [await asyncio.open_connection(*address) for _ in range(SILENT)]
        reader, writer = await asyncio.open_connection(*address, ssl=trusting(public.authority), server_hostname="x")
        writer.write(b"here")
        assert await asyncio.wait_for(reader.readexactly(4), 5.0) == b"here"
        ends = [asyncio.ensure_future(one.read(1)) for one, _ in silent]
        await asyncio.wait(ends, timeout=2.0)
        dropped = sum(end.done() for end in ends)
        server.close()
        await asyncio.wait_for(server.wait_closed(), 5.0)
        writer.write(b"on")
        assert await asyncio.wait_for(reader.readexactly(2), 5.0) == b"on", "who has come through stays"
        for _, one in (*silent, (reader, writer)):
            one.close()
        await asyncio.wait(ends)
        return dropped

    assert SILENT - 256 <= asyncio.run(flood()) < SILENT


def test_a_client_that_never_says_goodbye_is_let_go(tmp_path: Path) -> None:
    async def ended() -> None:
        public = listen(Home(tmp_path), {"listen": "127.0.0.1:0"})
        assert public is not None
        made: list[Echo] = []
        server = await public.serve(lambda: made.append(Echo()) or made[-1])
        await asyncio.to_thread(stubborn, public.socket.getsockname(), public.authority)
        gone = asyncio.Event()
        made[0].connection_lost = lambda error: gone.set()  # type: ignore[method-assign]
        made[0].transport.close()
        await asyncio.wait_for(gone.wait(), 5.0)
        server.close()

    held: list[socket.socket] = []

    def stubborn(address: tuple[str, int], authority: str) -> None:
        held.append(trusting(authority).wrap_socket(socket.create_connection(address)))

    asyncio.run(ended())
    held[0].close()
