"""Copies of files and of trees of files, durable and with their digests. Standard library only."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trainmaster.home import open_regular

_BLOCK_BYTES = 1024 * 1024

Fact = dict[str, Any]  # {"bytes", "sha256"} of a file


class Tree(NamedTuple):
    """What was copied of a tree, by path below its root."""

    files: dict[str, Fact]
    vanished: list[str]  # files and directories that were removed before they were copied

    @property
    def bytes(self) -> int:
        """The total size of its files."""
        return sum(fact["bytes"] for fact in self.files.values())

    def add(self, root: Path, target: Path) -> None:
        """Copy the files of `root` that are not in it yet, durably. What vanishes meanwhile is noted. Raises: OSError."""
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        changed = {target}
        for path in files_below(root, self.vanished):
            name = str(path.relative_to(root))
            if name in self.files:
                continue
            place = target / name
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self.files[name] = copy(path, place)
            except FileNotFoundError:
                self.vanished.append(name)
            changed.update(target / above for above in Path(name).parents)
        for directory in changed:
            sync(directory)


def files_below(root: Path, vanished: list[str]) -> Iterator[Path]:
    """The files of a tree. Directories that vanish while it is read are noted. Raises: OSError for one that is unreadable."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error
        vanished.append(os.path.relpath(error.filename, root))

    for directory, _, names in os.walk(root, onerror=failed, followlinks=True):
        for name in names:
            yield Path(directory, name)


def size_below(root: Path) -> int | None:
    """The total size of a tree's files; None if it cannot be read."""
    total = 0
    try:
        for path in files_below(root, []):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
    except OSError:
        return None
    return total


def copy(path: Path, target: Path) -> Fact:
    """Copy a file durably. Returns the fact of what was copied. Raises: OSError."""
    with open_regular(path) as source:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            fact = _read(source, file.write)
            file.flush()
            os.fsync(descriptor)
    return fact


def fact_of(path: Path) -> Fact:
    """The size and the digest of a file. Raises: OSError."""
    with open_regular(path) as file:
        return _read(file, lambda block: None)


def _read(file: BinaryIO, take: Callable[[bytes], object]) -> Fact:
    digest, size = hashlib.sha256(), 0
    while block := file.read(_BLOCK_BYTES):
        digest.update(block)
        size += len(block)
        take(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def sync(path: Path) -> None:
    """Make a file or a directory durable. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
