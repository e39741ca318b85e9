"""Room on the disk that is kept for ending things: a file of the home that is cut, a slice at a time, when the disk is full.

A cancel, the order to stop and the record of an end need a few kilobytes. Where the disk has none, a slice of the reserve is
released and the write is tried again at once; nothing else may ask for it. The reserve is made whole again when there is
room for it and for as much besides. Standard library only.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from trainmaster.errors import DiskFullError
from trainmaster.home import Home

BYTES = 16 * 1024 * 1024
SLICE_BYTES = 1024 * 1024
_FEW_FILES, _NO_FILES = 1000, 20  # that can still be made: a job makes some ten of ours

T = TypeVar("T")


class Room(NamedTuple):
    """What a disk has left. `free_bytes` is without the reserve; `free_files` is None where files are not counted."""

    free_bytes: int
    reserved_bytes: int
    wanted_bytes: int
    free_files: int | None = None

    @property
    def short(self) -> bool:
        """Whether a person should be told: the reserve is not whole, or less is free than it holds."""
        return self.full or self.free_bytes < self.wanted_bytes or self.few_files

    @property
    def full(self) -> bool:
        """Whether the reserve was needed, or soon will be."""
        needed = self.reserved_bytes < self.wanted_bytes or self.free_bytes < min(self.wanted_bytes, SLICE_BYTES)
        return needed or (self.free_files is not None and self.free_files < _NO_FILES)

    @property
    def few_files(self) -> bool:
        """Whether hardly a file more can be made, however many bytes are free."""
        return self.free_files is not None and self.free_files < _FEW_FILES


class Reserve:
    """The reserve of one home, used by each of the server's processes."""

    def __init__(self, home: Home, wanted_bytes: int = BYTES) -> None:
        self._path, self._wanted = home.reserve, wanted_bytes

    def keep(self) -> Room:
        """Make it whole where there is room for that and for as much besides; what there is. Raises: OSError."""
        with self._held() as descriptor:
            there = os.fstat(descriptor).st_size
            missing = self._wanted - there
            if missing < 0:
                os.ftruncate(descriptor, self._wanted)
            elif missing and _free(self._path) >= missing + self._wanted:
                with contextlib.suppress(OSError):  # others were faster: the next time
                    os.posix_fallocate(descriptor, 0, self._wanted)
            return Room(_free(self._path), os.fstat(descriptor).st_size, self._wanted, _free_files(self._path))

    def release(self) -> bool:
        """Give a slice of it back to the disk; False when nothing of it is left."""
        try:
            with self._held() as descriptor:
                there = os.fstat(descriptor).st_size
                os.ftruncate(descriptor, max(0, there - SLICE_BYTES))
        except OSError:
            return False
        return there > 0

    def persistently(self, work: Callable[[], T]) -> T:
        """`work()`; on a full disk again, a slice at a time, for as long as there is any. Raises: DiskFullError."""
        return persistently(work, self.release)

    @contextlib.contextmanager
    def _held(self) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def persistently(work: Callable[[], T], release: Callable[[], bool]) -> T:
    """`work()`, again for as long as the disk is full and `release` makes some room. Raises: DiskFullError."""
    while True:
        try:
            return work()
        except DiskFullError:
            if not release():
                raise


def nothing() -> bool:
    """The release of who has no reserve."""
    return False


def _free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _free_files(path: Path) -> int | None:
    """How many files can still be made there; None on a file system that makes room for them as they come."""
    found = os.statvfs(path)
    return found.f_favail if found.f_files else None
