"""What this process knows of the blobs in the store, and the lock that keeps it true while garbage is collected.

A request that checks that a blob exists and then records a reference to it does both under the shared lock. Garbage
collection takes the exclusive lock for one batch of deletions at a time.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from trainmaster.blobs.verification import Verification
from trainmaster.errors import ConflictError

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


class KnownBlobs:
    """Which blobs are known to be stored or damaged. Garbage collection makes it forget what may be removed."""

    def __init__(self) -> None:
        self._lock = BlobLock()
        self._collecting = False
        self._trees: set[str] = set()  # digests of code trees found during a garbage collection; cleared when one begins
        self.environments: set[str] = set()  # digests of environment records that are stored
        self.verification: Verification | None = None  # the newest one of the store

    def referring(self) -> AbstractAsyncContextManager[None]:
        """Blobs found in the block are still stored when it ends."""
        return self._lock.shared()

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Blobs may be removed in the block, so what is known to be stored is forgotten. For the collector's thread."""
        with self._lock.exclusive():
            self.environments.clear()
            yield

    def begin_collection(self) -> None:
        """Note that a garbage collection runs. Raises: ConflictError if one runs already."""
        if self._collecting:
            raise ConflictError("a garbage collection is already running", "wait for it to end")
        self._trees.clear()
        self._collecting = True

    def end_collection(self) -> None:
        """Note that it has ended."""
        self._collecting = False

    def found_tree(self, digest: str) -> None:
        """Note that a whole code tree is stored: a job may soon refer to it, so a running collection keeps it."""
        if self._collecting:
            self._trees.add(digest)

    def trees(self) -> set[str]:
        """The code trees that were found during this garbage collection."""
        return self._trees.copy()

    def damaged(self) -> set[str]:
        """Names of blobs that the newest verification found damaged or missing, and did not repair."""
        return {one.name for one in self.verification.damaged if not one.repaired} if self.verification is not None else set()
