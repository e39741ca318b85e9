"""Keeps those who make references to blobs and the one who removes blobs out of each other's way, within the api process.

Whoever checks that something is stored and then records that it is needed does both inside; the collection closes the gate
for one batch at a time, waits until all are out, and lets them in again.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

_LOOK_S = 0.005
_PATIENCE_S = 0.04  # for those who are inside to leave; meanwhile nobody enters
_REST_S = 0.25  # then everybody may enter, before the next try


class Gate:
    """Many inside, or one who has closed it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False

    def _try(self) -> bool:
        with self._changed:
            if self._closed:
                return False
            self._inside += 1
            return True

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def _try_to_close(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._closed = True
            if not self._changed.wait_for(lambda: not self._inside, _PATIENCE_S):
                self._closed = False
                self._changed.notify_all()
            return self._closed

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        """For the event loop: waits without holding it up."""
        while not self._try():
            await asyncio.sleep(_LOOK_S)
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """For the collection's thread. A long upload inside keeps it waiting, and nobody else."""
        while not self._try_to_close():
            time.sleep(_REST_S)
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()
