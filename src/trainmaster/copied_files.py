"""Copies of files and of trees of files, durable and with their digests. Standard library only."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from trainmaster.home import open_regular

_BLOCK_BYTES = 1024 * 1024

Fact = dict[str, Any]  # {"bytes", "sha256"} of a file


class UnreadableError(OSError):
    """What was to be copied cannot be read now. The place of the copy is not at fault."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What was copied of a tree, by path below its root."""

    files: dict[str, Fact] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)  # files and directories that could not be read at the last try

    @property
    def bytes(self) -> int:
        """The total size of its files."""
        return sum(fact["bytes"] for fact in self.files.values())

    def digest(self, name: str) -> str | None:
        """The SHA-256 of a copied file."""
        return self.files[name]["sha256"] if name in self.files else None

    def add(self, root: Path, target: Path) -> None:
        """Copy the files of `root` that are not in it yet, durably, except those that vanish meanwhile.

        What cannot be read is noted. Raises: OSError of the target.
        """

        def failed(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                self.unread.add(os.path.relpath(error.filename, root))

        self.unread.clear()
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        changed = {target}
        for path in files_below(root, failed):
            name = str(path.relative_to(root))
            if name in self.files:
                continue
            place = target / name
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self.files[name] = copy(path, place)
            except (FileNotFoundError, UnreadableError) as error:
                failed(error)
            changed.update(target / above for above in Path(name).parents)
        for directory in changed:
            sync(directory)


def files_below(root: Path, failed: Callable[[OSError], None]) -> Iterator[Path]:
    """The files of a tree. `failed` is told of each directory that cannot be listed."""
    for directory, _, names in os.walk(root, onerror=failed, followlinks=True):
        for name in names:
            yield Path(directory, name)


def size_below(root: Path) -> int | None:
    """The total size of a tree's files; None if it cannot be read."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    total = 0
    try:
        for path in files_below(root, failed):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
    except OSError:
        return None
    return total


def copy(path: Path, target: Path) -> Fact:
    """Copy a file durably. Returns the fact of what was copied.

    Raises: FileNotFoundError, UnreadableError, OSError of the target.
    """
    with _opened(path) as source:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                fact = _read(source, path, file.write)
                file.flush()
                os.fsync(descriptor)
        except UnreadableError:
            target.unlink()
            raise
    return fact


def fact_of(path: Path) -> Fact:
    """The size and the digest of a file. Raises: FileNotFoundError, UnreadableError."""
    with _opened(path) as file:
        return _read(file, path, lambda block: None)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableError(error.errno, error.strerror, str(path)) from error


def _read(file: BinaryIO, path: Path, take: Callable[[bytes], object]) -> Fact:
    digest, size = hashlib.sha256(), 0
    while block := _block(file, path):
        digest.update(block)
        size += len(block)
        take(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _block(file: BinaryIO, path: Path) -> bytes:
    try:
        return file.read(_BLOCK_BYTES)
    except OSError as error:
        raise UnreadableError(error.errno, error.strerror, str(path)) from error


def sync(path: Path) -> None:
    """Make a file or a directory durable. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
