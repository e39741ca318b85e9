"""A shared/exclusive lock within the api process, between requests that reference blobs and garbage collection.

A request that checks that a blob exists and then records a reference to it does both under the shared lock. Garbage
collection takes the exclusive lock for one batch of deletions at a time.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

_LOOK_S = 0.005
_PATIENCE_S = 0.04  # how long an exclusive request waits for shared holders; new ones are blocked meanwhile
_REST_S = 0.25  # pause before its next try, so that shared holders get through


class BlobLock:
    """Many shared holders, or one exclusive holder."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shared = 0
        self._exclusive = False

    def _try_shared(self) -> bool:
        with self._changed:
            if self._exclusive:
                return False
            self._shared += 1
            return True

    def _release_shared(self) -> None:
        with self._changed:
            self._shared -= 1
            self._changed.notify_all()

    def _try_exclusive(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._exclusive = True
            if not self._changed.wait_for(lambda: not self._shared, _PATIENCE_S):
                self._exclusive = False
                self._changed.notify_all()
            return self._exclusive

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock shared; for the event loop, which is not blocked by waiting."""
        while not self._try_shared():
            await asyncio.sleep(_LOOK_S)
        try:
            yield
        finally:
            self._release_shared()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock exclusively; for the collector's thread. A long upload delays the collector and no other request."""
        while not self._try_exclusive():
            time.sleep(_REST_S)
        try:
            yield
        finally:
            with self._changed:
                self._exclusive = False
                self._changed.notify_all()
