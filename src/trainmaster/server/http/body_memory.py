"""A memory budget for request bodies. A request that does not fit waits in a queue."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainmaster.errors import BusyError


class MemoryBudget:
    """A number of bytes to share. A body larger than the whole budget is admitted when nothing else is held."""

    def __init__(self, most_bytes: int, wait_s: float) -> None:
        self._most_bytes = most_bytes
        self._wait_s = wait_s
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold `size_bytes` for the duration of the block, in order of arrival. Raises: BusyError after the time limit."""
        if size_bytes and (self._waiting or not self._fits(size_bytes)):
            await self._wait(size_bytes)
        else:
            self.held_bytes += size_bytes
        try:
            yield
        finally:
            self.held_bytes -= size_bytes
            self._grant_waiting()

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self._most_bytes or not self.held_bytes

    async def _wait(self, size_bytes: int) -> None:
        """Wait until `_grant_waiting` has granted these bytes."""
        mine = (size_bytes, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        try:
            await asyncio.wait_for(asyncio.shield(mine[1]), self._wait_s)
        except BaseException as error:
            if mine[1].done():
                self.held_bytes -= size_bytes
            else:
                self._waiting.remove(mine)
            self._grant_waiting()
            if isinstance(error, TimeoutError):
                raise BusyError("the server is busy with other large requests", "try again in a few seconds") from error
            raise

    def _grant_waiting(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            self.held_bytes += size_bytes
            turn.set_result(None)
