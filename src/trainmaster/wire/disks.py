"""How much room files take on a disk, and removing trees of them, however deep a program has nested them."""

from __future__ import annotations

import contextlib
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

_BLOCK_BYTES = 512  # what `st_blocks` counts in, whatever the file system does


class Size(NamedTuple):
    """How many files, and the room that they take on the disk: of a sparse file only what is written."""

    files: int = 0
    bytes: int = 0

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.files + other.files, self.bytes + other.bytes)


def size(path: Path | str) -> Size:
    """Of a file or a tree. What cannot be read, or vanishes meanwhile, is left out."""
    files = found = 0
    for status in _statuses(os.fspath(path)):
        files += not stat.S_ISDIR(status.st_mode)
        found += status.st_blocks * _BLOCK_BYTES
    return Size(files, found)


def remove(path: Path | str) -> int:
    """Remove a file or a tree; how many bytes it was. What vanishes meanwhile is as good as removed, and so is what is absent.

    A directory that its owner may not write is made writable first. A program may nest directories deeper than a path may be
    long: each comes up to the top before it is emptied. Raises: OSError for whatever is still there.
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
    """Remove a file or a tree of ours. What cannot be removed stays: it is in nobody's way."""
    with contextlib.suppress(OSError):
        remove(path)


def _try(action: Callable[[str], Any], path: str) -> Any:
    """Do it, with the rights to if need be; None where there is nothing at that path. Raises: OSError."""
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
