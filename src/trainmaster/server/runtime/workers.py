"""Thread pools of the api process, one per kind of blocking work, so that one kind cannot starve another.

Database reads use Starlette's own pool (`READERS` threads). Calls to the blob store and submits, which may have to call
it, have pools of their own: the store may be remote and slow.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, BinaryIO, ParamSpec, TypeVar

import anyio
import anyio.to_thread

_BLOCK_BYTES = 1024 * 1024
READERS = 8  # threads for database reads: more would only wait for each other

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """A fixed number of threads for one event loop at a time. (Tests run several loops, one after the other.)"""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._limits: dict[int, anyio.CapacityLimiter] = {}

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """Run `work(*given)` on a thread of this pool, as soon as one is free."""
        loop = id(anyio.lowlevel.current_token())
        limit = self._limits.get(loop)
        if limit is None:
            self._limits.clear()
            limit = self._limits[loop] = anyio.CapacityLimiter(self._threads)
        return await anyio.to_thread.run_sync(work, *given, limiter=limit)

    def runs(self, route: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Decorate a route so that it runs in this pool instead of the readers' pool."""

        @wraps(route)
        async def inside(*given: P.args, **named: P.kwargs) -> T:
            return await self.run(lambda: route(*given, **named))

        return inside


async def blocks(file: BinaryIO) -> AsyncIterator[bytes]:
    """Stream a blob; the `STORES` pool reads it."""
    with file:
        while data := await STORES.run(file.read, _BLOCK_BYTES):
            yield data


BODIES = Pool(2)  # decode large bodies
HEALTH = Pool(2)  # `/healthz` alone
JOBS = Pool(2)  # look up the job of an agent's or log reader's request
STORES = Pool(16)  # call the blob store, which may be remote
LONG = Pool(2)  # garbage collection and other work that takes minutes
NOTICES = Pool(4)  # deliver notifications, which may wait for other servers
SUBMITS = Pool(4)  # turn submitted jobs into inbox rows
