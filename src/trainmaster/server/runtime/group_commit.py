"""Group commit: items that arrive during one transaction are committed together in the next one.

Each store has one writer thread, so a commit never blocks the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from trainmaster.errors import ConflictError, DiskFullError, TrainmasterError

T = TypeVar("T")
R = TypeVar("R")


class _Batch(NamedTuple, Generic[T, R]):
    """Items that are not written yet, and the future of their caller."""

    items: Sequence[T]
    done: asyncio.Future[list[R]]


_GROUP_MAX = 5000  # items per transaction; bounds the waiting time of the last one


class GroupWriter(Generic[T, R]):
    """Writes items in groups. Law: a caller gets its result only after the transaction with its items is durable.

    `write` gets the items of a group in order of arrival and returns one result per item. It runs on this writer's own
    thread. `after` runs on the event loop once per written group.
    """

    def __init__(self, write: Callable[[list[T]], Sequence[R]], after: Callable[[], None]) -> None:
        self._write = write
        self._after = after
        self._waiting: list[_Batch[T, R]] = []
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._draining: asyncio.Task[None] | None = None

    async def put(self, items: Sequence[T]) -> list[R]:
        """Write `items` in one transaction, possibly together with items of other callers.

        Raises: DiskFullError and any error of `write`. Then none of `items` was written.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[R]] = loop.create_future()
        self._waiting.append(_Batch(items, done))
        if self._draining is None:
            self._draining = loop.create_task(self._drain())
        return await done

    def close(self) -> None:
        """Finish the current write. Nothing may be put afterwards."""
        self._thread.shutdown(wait=True)

    async def _drain(self) -> None:
        """Write one group after another until nothing waits."""
        while self._waiting:
            group = self._take()
            error = await self._commit(group)
            if error is None:
                continue
            # Also on a full disk, retry each batch alone: a cancel may still fit where a submit does not.
            final = isinstance(error, TrainmasterError) and not isinstance(error, DiskFullError | ConflictError)
            if final or len(group) == 1:
                _fail(group, error)
                continue
            for alone in group:  # one batch that cannot be stored must not fail the others
                error = await self._commit([alone])
                if error is not None:
                    _fail([alone], error)
        self._draining = None

    def _take(self) -> list[_Batch[T, R]]:
        taken, size = 0, 0
        for items, _ in self._waiting:
            if taken and size + len(items) > _GROUP_MAX:
                break
            taken, size = taken + 1, size + len(items)
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group

    async def _commit(self, group: list[_Batch[T, R]]) -> BaseException | None:
        """Commit one group. Sets the callers' results and returns None, or returns the error."""
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


def _fail(group: list[_Batch[T, R]], error: BaseException) -> None:
    """Give the error to every caller in the group."""
    for _, done in group:
        if not done.done():
            done.set_exception(error)
