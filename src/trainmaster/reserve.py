"""Disk space reserved for ending jobs: a file of the home that is truncated by one slice at a time when the disk is full.

A cancel, a stop order and an exit record need a few kilobytes. If the disk has none, a slice of the reserve is released and
the write is retried at once. Nothing else may use it. The reserve is refilled when the disk has space for it and the same
amount again. Standard library only.
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
_FEW_FILES, _NO_FILES = 1000, 20  # inodes left: a job needs some ten of them

T = TypeVar("T")


class Room(NamedTuple):
    """Free disk space. `free_bytes` excludes the reserve; `free_files` is None if the file system has no inode limit."""

    free_bytes: int
    reserved_bytes: int
    wanted_bytes: int
    free_files: int | None = None

    @property
    def short(self) -> bool:
        """Whether to warn a person: the reserve is not complete, or less space is free than the reserve holds."""
        return self.full or self.free_bytes < self.wanted_bytes or self.few_files

    @property
    def full(self) -> bool:
        """Whether the reserve was used, or soon will be."""
        needed = self.reserved_bytes < self.wanted_bytes or self.free_bytes < min(self.wanted_bytes, SLICE_BYTES)
        return needed or (self.free_files is not None and self.free_files < _NO_FILES)

    @property
    def few_files(self) -> bool:
        """Whether almost no more files can be created, even if bytes are free."""
        return self.free_files is not None and self.free_files < _FEW_FILES


class Reserve:
    """The reserve of one home, used by all server processes."""

    def __init__(self, home: Home, wanted_bytes: int = BYTES) -> None:
        self._path, self._wanted = home.reserve, wanted_bytes

    def keep(self) -> Room:
        """Refill it if there is space for that and as much again. Returns the free space. Raises: OSError."""
        with self._held() as descriptor:
            there = os.fstat(descriptor).st_size
            missing = self._wanted - there
            if missing < 0:
                os.ftruncate(descriptor, self._wanted)
            elif missing and _free(self._path) >= missing + self._wanted:
                with contextlib.suppress(OSError):  # the space was used meanwhile: retried next time
                    os.posix_fallocate(descriptor, 0, self._wanted)
            return Room(_free(self._path), os.fstat(descriptor).st_size, self._wanted, _free_files(self._path))

    def release(self) -> bool:
        """Release one slice to the disk; False if nothing of it is left."""
        try:
            with self._held() as descriptor:
                there = os.fstat(descriptor).st_size
                os.ftruncate(descriptor, max(0, there - SLICE_BYTES))
        except OSError:
            return False
        return there > 0

    def persistently(self, work: Callable[[], T]) -> T:
        """Call `work`. On a full disk, release a slice and retry, until none is left. Raises: DiskFullError."""
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
    """Call `work`, and retry while the disk is full and `release` frees space. Raises: DiskFullError."""
    while True:
        try:
            return work()
        except DiskFullError:
            if not release():
                raise


def nothing() -> bool:
    """The `release` function if there is no reserve."""
    return False


def _free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _free_files(path: Path) -> int | None:
    """Free inodes; None on a file system without an inode limit."""
    found = os.statvfs(path)
    return found.f_favail if found.f_files else None
