"""Group commit: whatever waits while one transaction commits goes into the next one, and is acknowledged together.

One thread per store, so that each store has one writer and a commit never blocks the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from trainmaster.errors import ConflictError, DiskFullError, TrainmasterError

T = TypeVar("T")
R = TypeVar("R")


class _Waiting(NamedTuple, Generic[T, R]):
    """Items not written yet, and who waits for them."""

    items: Sequence[T]
    done: asyncio.Future[list[R]]


_GROUP_MAX = 5000  # items of one transaction: bounds how long the last of them waits


class GroupWriter(Generic[T, R]):
    """Law: the result of an item is given only after the transaction that holds it is durable.

    `write` is called with the items of a group, in order of arrival, and returns one result per item; it runs on this
    writer's own thread. `after` runs on the event loop once per group that was written.
    """

    def __init__(self, write: Callable[[list[T]], Sequence[R]], after: Callable[[], None]) -> None:
        self._write = write
        self._after = after
        self._waiting: list[_Waiting[T, R]] = []
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._draining: asyncio.Task[None] | None = None

    async def put(self, items: Sequence[T]) -> list[R]:
        """Write `items` in one transaction, with whatever else waits.

        Raises: DiskFullError and what else `write` raises; then none of `items` was written.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[R]] = loop.create_future()
        self._waiting.append(_Waiting(items, done))
        if self._draining is None:
            self._draining = loop.create_task(self._drain())
        return await done

    def close(self) -> None:
        """Finish what is being written; nothing may be put afterwards."""
        self._thread.shutdown(wait=True)

    async def _drain(self) -> None:
        """Write group after group until nothing waits."""
        while self._waiting:
            group = self._take()
            error = await self._commit(group)
            if error is None:
                continue
            # On a full disk too each goes alone: what ends something has room where a submit has none.
            final = isinstance(error, TrainmasterError) and not isinstance(error, DiskFullError | ConflictError)
            if final or len(group) == 1:
                _refuse(group, error)
                continue
            for alone in group:  # one item that cannot be stored must not take the others with it
                error = await self._commit([alone])
                if error is not None:
                    _refuse([alone], error)
        self._draining = None

    def _take(self) -> list[_Waiting[T, R]]:
        taken, size = 0, 0
        for items, _ in self._waiting:
            if taken and size + len(items) > _GROUP_MAX:
                break
            taken, size = taken + 1, size + len(items)
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group

    async def _commit(self, group: list[_Waiting[T, R]]) -> BaseException | None:
        """One transaction; its results are set, its error is returned."""
        flat = [item for items, _ in group for item in items]
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, flat)
        await asyncio.wait([writing])
        error = writing.exception()
        if error is not None:
            return error
        results, start = list(writing.result()), 0
        for items, done in group:
            if not done.done():
                done.set_result(results[start : start + len(items)])
            start += len(items)
        self._after()
        return None


def _refuse(group: list[_Waiting[T, R]], error: BaseException) -> None:
    """Tell those whose group was not written."""
    for _, done in group:
        if not done.done():
            done.set_exception(error)
