"""Disk usage of files, and removal of directory trees of any depth."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from functools import partial
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

_BLOCK_BYTES = 512  # the unit of `st_blocks` on every file system


class Size(NamedTuple):
    """Number of files and their disk usage; of a sparse file only the written blocks count.

    `unread`: files and directories that could not be read, so that there may be more.
    """

    files: int = 0
    bytes: int = 0
    unread: int = 0

    def plus(self, other: Size) -> Size:
        """The sum of both."""
        return Size(self.files + other.files, self.bytes + other.bytes, self.unread + other.unread)


def size(path: Path | str) -> Size:
    """The size of a file or a tree. Entries that vanish meanwhile are left out."""
    files = found = unread = 0
    left = [os.fspath(path)]
    while left:
        name = left.pop()
        try:
            status = os.lstat(name)
            files += not stat.S_ISDIR(status.st_mode)
            found += status.st_blocks * _BLOCK_BYTES
            if stat.S_ISDIR(status.st_mode):
                left.extend(os.path.join(name, entry) for entry in os.listdir(name))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            unread += 1
    return Size(files, found, unread)


def remove(path: Path | str) -> int:
    """Remove a file or a tree; returns its size in bytes. It is no error if it, or something in it, is already gone.

    A directory without write permission for its owner is made writable first. Directories may be nested deeper than the
    maximum length of a path, so each is moved to the top before it is emptied. Raises: OSError if something is left.
    """
    path = os.fspath(path)
    found = _bytes(path)
    if not _is_directory(path):
        _try(os.unlink, path)
        return found
    waiting, names = [path], map(".going-{}".format, itertools.count())
    while waiting:
        directory = waiting.pop()
        for name in _try(os.listdir, directory) or ():
            entry = os.path.join(directory, name)
            found += _bytes(entry)  # here, where a directory that nobody could read has been made readable
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


def _bytes(path: str) -> int:
    status = _try(os.lstat, path)
    return 0 if status is None else int(status.st_blocks * _BLOCK_BYTES)


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
