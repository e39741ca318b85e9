"""Disk usage of files, stamps by which changes are seen, and removal of directory trees of any depth."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from functools import partial
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

_BLOCK_BYTES = 512  # the unit of `st_blocks` on every file system
_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a link to nothing, or a file that is gone meanwhile


class Size(NamedTuple):
    """Number of files and their disk usage; of a sparse file only the written blocks count."""

    files: int = 0
    bytes: int = 0

    def plus(self, other: Size) -> Size:
        """The sum of both."""
        return Size(self.files + other.files, self.bytes + other.bytes)


def size(path: Path | str) -> Size:
    """The size of a file or a tree. Entries that cannot be read, or vanish meanwhile, are left out."""
    files = found = 0
    for status in _statuses(os.fspath(path)):
        files += not stat.S_ISDIR(status.st_mode)
        found += status.st_blocks * _BLOCK_BYTES
    return Size(files, found)


def remove(path: Path | str) -> int:
    """Remove a file or a tree; returns its size in bytes. It is no error if it, or something in it, is already gone.

    A directory without write permission for its owner is made writable first. Directories may be nested deeper than the
    maximum length of a path, so each is moved to the top before it is emptied. Raises: OSError if something is left.
    """
    path, found = os.fspath(path), size(path).bytes
    if not _is_directory(path):
        _try(os.unlink, path)
        return found
    waiting, names = [path], map(".going-{}".format, itertools.count())
    while waiting:
        directory = waiting.pop()
        for name in _try(os.listdir, directory) or ():
            entry = os.path.join(directory, name)
            if not _is_directory(entry):
                _try(os.unlink, entry)
            elif directory == path:
                waiting.append(entry)
            else:
                waiting.append(next(up for name in names if not os.path.lexists(up := os.path.join(path, name))))
                _try(partial(os.rename, dst=waiting[-1]), entry)
        if directory != path:
            _try(os.rmdir, directory)
    _try(os.rmdir, path)
    return found


def discard(path: Path | str) -> None:
    """Remove a file or a tree of ours. Errors are ignored, because leftovers do no harm."""
    with contextlib.suppress(OSError):
        remove(path)


def _try(action: Callable[[str], Any], path: str) -> Any:
    """Call `action`, after a change of permissions if needed; None if nothing is at that path. Raises: OSError."""
    try:
        return action(path)
    except FileNotFoundError:
        return None
    except PermissionError:
        for directory in (os.path.dirname(path), path):
            if _is_directory(directory):
                os.chmod(directory, 0o700)
    with contextlib.suppress(FileNotFoundError):
        return action(path)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _statuses(path: str) -> Iterator[os.stat_result]:
    left = [path]
    while left:
        name = left.pop()
        try:
            status = os.lstat(name)
            if stat.S_ISDIR(status.st_mode):
                left.extend(os.path.join(name, entry) for entry in os.listdir(name))
        except OSError:
            continue
        yield status


FOLLOWED_MAX = 200_000  # files of one stamp


def regular_files(path: str, unread: list[str]) -> dict[str, os.stat_result]:
    """Relative paths of the files below a directory, sorted, at most `FOLLOWED_MAX`; of a file, its name. No pipes or sockets.

    Links are followed, but in no circle. `unread` gets the directories and files that cannot be read. Raises: OSError.
    """
    root = path if os.path.isdir(path) else os.path.dirname(path)
    names = sorted(_followed(root, unread)) if root == path else [os.path.basename(path)]
    statuses = {}
    for name in names:
        try:
            statuses[name] = os.stat(os.path.join(root, name))
        except OSError as error:
            if error.errno not in _LEADS_NOWHERE:
                unread.append(name)
    return {name: status for name, status in statuses.items() if stat.S_ISREG(status.st_mode)}


def stamp(files: dict[str, os.stat_result]) -> str:
    """A digest of names, sizes and times of modification. Equal files have equal ones, on one file system."""
    import hashlib  # noqa: PLC0415 - only for data

    lines = (f"{name}\0{status.st_size} {status.st_mtime_ns}\n" for name, status in files.items())
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _followed(root: str, unread: list[str]) -> Iterator[str]:
    seen, left = 0, [("", frozenset((_identity(root),)))]
    while left:
        inside, above = left.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, inside)), key=lambda entry: entry.name)
        except OSError:
            unread.append(inside)
            continue
        further = []
        for entry in entries:
            if seen == FOLLOWED_MAX:
                return
            seen += 1
            name = os.path.join(inside, entry.name)
            try:
                directory = entry.is_dir()
            except OSError:
                directory = False  # a link that cannot be followed
            if not directory:
                yield name
                continue
            identity = _identity(os.path.join(root, name))
            if identity not in above:
                further.append((name, above | {identity}))
        left += reversed(further)


def _identity(directory: str) -> tuple[int, int]:
    status = os.stat(directory)
    return status.st_dev, status.st_ino
