"""Blobs on any fsspec file system: a directory of this machine, or an object store by its URL.

On a local directory a put is a temporary file, fsync, rename and fsync of the directory, so that a blob is there whole or not
at all, whatever dies. An object store's own put is all at once.
"""

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from trainmaster.errors import DiskFullError, NotFoundError, UsageError

_NAME_MAX = 1024  # bytes
_PART_MAX = 255
_FULL = (errno.ENOSPC, errno.EDQUOT)
_serial = count()


class FsBlobs:
    """`trainmaster.ports.blobs.Blobs` below `root`, a path or an fsspec URL."""

    def __init__(self, root: str | Path) -> None:
        fs, path = url_to_fs(str(root))
        self._fs: Any = fs
        self._root = str(path).rstrip("/")
        self._local = isinstance(fs, LocalFileSystem)

    def put(self, name: str, data: bytes) -> None:
        """Store durably and all at once. Raises: DiskFullError, UsageError for a name that is none."""
        path = self._path(name)
        with telling_disk_full(name):
            if self._local:
                _put_local(path, data)
            else:
                self._fs.pipe_file(path, data)

    def open(self, name: str) -> BinaryIO:
        """The blob, open for reading. Raises: NotFoundError."""
        path = self._path(name)
        try:
            if self._local:
                return open(path, "rb")  # the caller closes it
            return cast(BinaryIO, self._fs.open(path, "rb"))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise NotFoundError(f"there is no blob {name}") from error

    def exists(self, names: list[str]) -> list[bool]:
        """Which of `names` are there, in one call."""
        test = os.path.isfile if self._local else self._fs.isfile
        return [bool(test(self._path(name))) for name in names]

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below `prefix` and itself; absent is fine."""
        path = self._path(prefix)
        if self._local:
            _remove(path)
            return
        try:
            self._fs.rm(path, recursive=True)
        except FileNotFoundError:
            return

    def local_path(self, name: str) -> str | None:
        """The path of a blob or prefix where the store is a directory of this machine."""
        return self._path(name) if self._local else None

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if not name or len(os.fsencode(name)) > _NAME_MAX or "\0" in name:
            raise UsageError(f"{name[:80]!r} is not a blob's name: empty, longer than {_NAME_MAX} bytes, or with a NUL")
        if any(part in ("", ".", "..") or len(os.fsencode(part)) > _PART_MAX for part in parts):
            raise UsageError(f"{name[:80]!r} is not a blob's name: slash-separated parts, none of them empty, '.' or '..'")
        return f"{self._root}/{name}"


@contextmanager
def telling_disk_full(name: str) -> Iterator[None]:
    """Raises: DiskFullError in place of the system's own error."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(f"the disk is full: {name} was not stored", "Free space where TRAINMASTER_HOME is.") from error
        raise


def _put_local(path: str, data: bytes) -> None:
    directory, name = os.path.split(path)
    make_directories(directory)
    part = f"{directory}/.{name[:120]}.{os.getpid()}-{threading.get_ident():x}-{next(_serial)}.part"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(part, path)
    except BaseException:
        _unlink(part)
        raise
    _sync_directory(directory)


def make_directories(directory: str) -> None:
    """Make `directory` and its ancestors, each durable in the one above."""
    if os.path.isdir(directory):
        return
    above = os.path.dirname(directory)
    make_directories(above)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return
    _sync_directory(above)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # never made, or the directory is gone: nothing is left either way


def _remove(path: str) -> None:
    """Remove a file or tree; what vanishes meanwhile is as good as removed."""
    if os.path.islink(path) or os.path.isfile(path):
        _unlink(path)
        return

    def on_error(_function: object, _path: str, info: tuple[Any, BaseException, Any]) -> None:
        if not isinstance(info[1], FileNotFoundError):
            raise info[1]

    shutil.rmtree(path, onerror=on_error)
