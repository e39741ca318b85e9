"""Worker threads, in pools by what they wait for: none of them can keep another from working.

Readers of the databases are Starlette's own pool (`READERS`). A store may be a network away, so its questions have threads
of their own, and so have submits, which may have to ask it.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any, BinaryIO, ParamSpec, TypeVar

import anyio
import anyio.to_thread

_BLOCK_BYTES = 1024 * 1024
READERS = 8  # threads that read the databases at a time: more would only wait for each other

P = ParamSpec("P")
T = TypeVar("T")


class Pool:
    """A number of threads. For one event loop at a time: tests have several, one after the other."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._limits: dict[int, anyio.CapacityLimiter] = {}

    async def run(self, work: Callable[..., T], *given: Any) -> T:
        """`work(*given)` on a thread of this pool, as soon as one is free."""
        loop = id(anyio.lowlevel.current_token())
        limit = self._limits.get(loop)
        if limit is None:
            self._limits.clear()
            limit = self._limits[loop] = anyio.CapacityLimiter(self._threads)
        return await anyio.to_thread.run_sync(work, *given, limiter=limit)

    def runs(self, route: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Decorate a route: it runs in this pool instead of the readers'."""

        @wraps(route)
        async def inside(*given: P.args, **named: P.kwargs) -> T:
            return await self.run(lambda: route(*given, **named))

        return inside


async def blocks(file: BinaryIO) -> AsyncIterator[bytes]:
    """The bytes of a blob, read by the store's threads."""
    with file:
        while data := await STORES.run(file.read, _BLOCK_BYTES):
            yield data


BODIES = Pool(2)  # decode large bodies
HEALTH = Pool(2)  # `/healthz` alone
JOBS = Pool(2)  # look up the one job that an agent or the reader of a log is about
STORES = Pool(16)  # ask the blob store, which may be far away, for agents and for people
LONG = Pool(2)  # garbage collection, and what else goes on for minutes
SUBMITS = Pool(4)  # make rows of what is submitted
