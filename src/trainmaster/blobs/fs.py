"""Blobs on any fsspec file system: a local directory, or another store by its URL.

On a local directory, a put is a temporary file, fsync, rename, and fsync of the directory, so that a blob is complete or absent
after any crash. Elsewhere, a put of bytes is one request of the store, and a stream is written to a temporary name and moved.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from trainmaster.blobs.names import PART, check_name, digest_of
from trainmaster.blobs.verifying import Damage, verified
from trainmaster.errors import DamagedError, DiskFullError, NotFoundError, StoreRefusedError, StoreUnavailableError
from trainmaster.ports.blobs import Direct, Stored
from trainmaster.wire import disks

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_BYTES = 1024 * 1024
_PROVEN_MAX = 200_000  # blobs
_serial = count()


class FsBlobs:
    """`trainmaster.ports.blobs.Blobs` below `root`, a path or an fsspec URL; `options` are passed to the file system."""

    def __init__(self, root: str | Path, **options: Any) -> None:
        fs, path = url_to_fs(str(root), **options)
        self._fs: Any = fs
        self._root = str(path).rstrip("/")
        self._local = isinstance(fs, LocalFileSystem)
        self.damage = Damage()
        self._proven: dict[str, tuple[int, ...]] = {}  # names of blobs that were read whole, and the state of their files

    @property
    def direct(self) -> Direct | None:
        """None: these stores cannot sign URLs."""
        return None

    def put(self, name: str, data: bytes) -> None:
        """Store durably and atomically. Raises: DiskFullError, UsageError for an invalid name."""
        path = self._path(name)
        with self._translated(name):
            if self._local:
                _put_local(path, (data,))
            else:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(path, data)
        self.damage.gone(name)

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        """Store a stream atomically. Returns its size in bytes. Raises: DiskFullError, and any error of `chunks`."""
        path = self._path(name)
        with self._translated(name):
            size = _put_local(path, chunks) if self._local else self._put_elsewhere(path, chunks)
        self.damage.gone(name)
        return size

    def _put_elsewhere(self, path: str, chunks: Iterable[bytes]) -> int:
        part, size = f"{path}.{os.getpid()}-{threading.get_ident():x}-{next(_serial)}{PART}", 0
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            with self._fs.open(part, "wb") as file:
                for chunk in chunks:
                    size += len(chunk)
                    file.write(chunk)
            self._fs.mv(part, path)
        except BaseException:
            with suppress(OSError):
                self._fs.rm_file(part)
            raise
        return size

    def open(self, name: str) -> BinaryIO:
        """Open a blob for reading. Raises: NotFoundError; the read at the end DamagedError, as the port says."""
        path, digest = self._path(name), digest_of(name)
        try:
            with self._translated(name):
                file = _open_local(path) if self._local else cast(BinaryIO, self._fs.open(path, "rb"))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise NotFoundError(f"there is no blob {name}") from error
        return file if digest is None else verified(file, name, digest, self.damage)

    def exists(self, names: list[str]) -> list[bool]:
        """Which of `names` exist, in one call. A content-addressed one is read once, and again when its file has changed."""
        if not self._local:
            return [bool(self._fs.isfile(self._path(name))) for name in names]
        return [os.path.isfile(self._path(name)) if digest_of(name) is None else self._sound(name) for name in names]

    def _sound(self, name: str) -> bool:
        """Whether the bytes of a content-addressed blob are there and have their digest."""
        try:
            status = os.stat(self._path(name))
            if not stat.S_ISREG(status.st_mode):
                return False
            state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if self._proven.get(name) == state:
                return True
            with self.open(name) as file:
                while file.read(_READ_BYTES):
                    pass
        except (NotFoundError, FileNotFoundError, NotADirectoryError, DamagedError):
            return False
        except (OSError, StoreRefusedError, StoreUnavailableError):
            return True  # that it cannot be read now proves nothing
        while len(self._proven) >= _PROVEN_MAX:
            del self._proven[next(iter(self._proven))]
        self._proven[name] = state
        return True

    def stat(self, name: str) -> Stored | None:
        """Size and time; None if it does not exist."""
        path = self._path(name)
        try:
            if not self._local:
                info = self._fs.info(path)
                return Stored(name, int(info["size"]), _modified_s(info)) if info["type"] == "file" else None
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stored(name, status.st_size, status.st_mtime) if stat.S_ISREG(status.st_mode) else None

    def walk(self, prefix: str) -> Iterator[Stored]:
        """The blobs below `prefix`, with one directory in memory at a time. Also what a put that was killed left behind."""
        left = [self._path(prefix) if prefix else self._root]
        while left:
            for path, found in self._below(left.pop()):
                if found is None:
                    left.append(path)
                else:
                    yield Stored(path[len(self._root) + 1 :], *found)

    def names(self, prefix: str) -> list[str]:
        """The last parts of the names directly below `prefix`."""
        return [path.rpartition("/")[2] for path, _ in self._below(self._path(prefix)) if not path.endswith(PART)]

    def _below(self, directory: str) -> Iterator[tuple[str, tuple[int, float] | None]]:
        """(path, (bytes, modified)) of each file, (path, None) of each directory. Entries that vanish are left out."""
        try:
            if not self._local:
                for info in self._fs.ls(directory, detail=True):
                    path = str(info["name"])
                    yield path, (int(info["size"]), _modified_s(info)) if info["type"] == "file" else None
                return
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        yield entry.path, None
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):
                            status = entry.stat(follow_symlinks=False)
                            yield entry.path, (status.st_size, status.st_mtime)
        except (FileNotFoundError, NotADirectoryError):
            return

    def delete(self, names: Sequence[str]) -> None:
        """Remove blobs. Missing ones are not an error."""
        for name in names:
            path = self._path(name)
            try:
                if self._local:
                    os.unlink(path)
                else:
                    self._fs.rm_file(path)
            except FileNotFoundError:
                pass
            self.damage.gone(name)

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below `prefix`, and the prefix itself. A missing prefix is not an error."""
        path = self._path(prefix)
        try:
            if self._local:
                disks.remove(path)
            else:
                self._fs.rm(path, recursive=True)
        except FileNotFoundError:
            pass
        self.damage.gone(prefix)

    def local_path(self, name: str) -> str | None:
        """The path of a blob or prefix, if the store is a local directory."""
        return self._path(name) if self._local else None

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Raises: DiskFullError, StoreRefusedError and StoreUnavailableError instead of the file system's own errors."""
        with disk_full_translated(name):
            try:
                yield
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise
            except PermissionError as error:
                if self._local:
                    raise
                raise StoreRefusedError(f"the store refused {name}: {error}", "Check the server's permissions.") from error
            except (ConnectionError, TimeoutError) as error:
                raise StoreUnavailableError(f"the store does not answer: {error}", "It is retried later.") from error


def _modified_s(info: dict[str, Any]) -> float:
    """Modification time under any of the names that file systems use; now if there is none, so that the blob counts as new."""
    for key in ("mtime", "modified", "LastModified", "last_modified", "created"):
        found = info.get(key)
        if isinstance(found, int | float):
            return float(found)
        if isinstance(found, datetime):
            return found.timestamp() if found.tzinfo else found.replace(tzinfo=UTC).timestamp()
    return time.time()


@contextmanager
def disk_full_translated(name: str) -> Iterator[None]:
    """Raises: DiskFullError instead of the system's own error."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(f"the disk is full: {name} was not stored", "Free space where TRAINMASTER_HOME is.") from error
        raise


def _open_local(path: str) -> BinaryIO:
    """Open a file for reading; a pipe or a directory in its place is no blob. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "it is no regular file", path)
    return os.fdopen(descriptor, "rb")


def _put_local(path: str, chunks: Iterable[bytes]) -> int:
    directory, name = os.path.split(path)
    make_directories(directory)
    part = f"{directory}/.{name[:120]}.{os.getpid()}-{threading.get_ident():x}-{next(_serial)}{PART}"
    size = 0
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for data in chunks:
                left = memoryview(data)
                size += len(left)
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
    return size


def make_directories(directory: str) -> None:
    """Create `directory` and its ancestors, each made durable by a sync of its parent."""
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
        return  # never created, or its directory is gone: nothing is left
