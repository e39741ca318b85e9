"""A remote store behind this machine's cache. Code copies are written through the cache, artifacts are read through it."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from trainmaster.blobs.cache import Cache
from trainmaster.blobs.names import digest_of
from trainmaster.blobs.verifying import Damage, damaged
from trainmaster.errors import DamagedError, NotFoundError
from trainmaster.ports.blobs import Blobs, Direct, Stored

_CHUNK = 1024 * 1024
_WRITTEN_THROUGH = ("code/", "provenance/")


class CachedBlobs:
    """`trainmaster.ports.blobs.Blobs`: `store`, with copies of content-addressed blobs in `cache`.

    A copy of a code object, a tree or a record exists here only after the store has it, and is deleted before the store's own.
    What arrived damaged counts as missing until it is stored again.
    """

    def __init__(self, store: Blobs, cache: Cache) -> None:
        self.store, self.cache = store, cache
        self.damage = Damage()

    @property
    def direct(self) -> Direct | None:
        """The direct access of the store."""
        return self.store.direct

    def put(self, name: str, data: bytes) -> None:
        """Store a blob; a code copy or a record also goes into the cache."""
        self.store.put(name, data)
        self.damage.gone(name)
        if name.startswith(_WRITTEN_THROUGH) and digest_of(name) is not None:
            self.cache.write(name, iter((data,)))

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        """Store a stream, without the cache."""
        size = self.store.put_stream(name, chunks)
        self.damage.gone(name)
        return size

    def open(self, name: str) -> BinaryIO:
        """Open a blob. A content-addressed one is read from the cache, verified on arrival. Raises: NotFoundError."""
        return self.store.open(name) if digest_of(name) is None else self.fetch(name).open("rb")

    def fetch(self, name: str) -> Path:
        """The cached copy of a content-addressed blob, downloaded if needed. Raises: NotFoundError, DamagedError."""
        wanted = digest_of(name)
        path = self.cache.path(name)
        if self.cache.has(name) and _digest(path) == wanted:
            return path
        try:
            with self.store.open(name) as source:
                found = self.cache.write(name, iter(lambda: source.read(_CHUNK), b""), lambda part: _digest(part) == wanted)
            if found is None:
                raise damaged(name)
        except DamagedError:
            self.damage.found(name)
            raise
        if not name.startswith(_WRITTEN_THROUGH):
            Path(f"{found}.stored").touch()
            self.cache.trim()
        return found

    def exists(self, names: list[str]) -> list[bool]:
        """A cached copy of code proves that the store has it. For everything else the store is asked."""
        known = [name.startswith(_WRITTEN_THROUGH) and self.cache.has(name) for name in names]
        asked = [name for name, here in zip(names, known, strict=True) if not here]
        found = iter(self.store.exists(asked) if asked else [])
        there = [here or next(found) for here in known]
        return [here and name not in self.damage for name, here in zip(names, there, strict=True)]

    def stat(self, name: str) -> Stored | None:
        """From the store."""
        return self.store.stat(name)

    def walk(self, prefix: str) -> Iterator[Stored]:
        """From the store."""
        return self.store.walk(prefix)

    def names(self, prefix: str) -> list[str]:
        """From the store."""
        return self.store.names(prefix)

    def delete(self, names: Sequence[str]) -> None:
        """Delete the copies first: a copy must not stand for a blob that is gone."""
        for name in names:
            self.cache.forget(name)
            self.damage.gone(name)
        self.store.delete(names)

    def delete_tree(self, prefix: str) -> None:
        """Delete the copies first, as in `delete`."""
        self.cache.forget(prefix)
        self.damage.gone(prefix)
        self.store.delete_tree(prefix)

    def local_path(self, name: str) -> str | None:
        """None: this machine has copies only."""
        return None

    def bring_code(self, names: Sequence[str]) -> None:
        """Cache all these objects and trees. Raises: NotFoundError for one that the store does not have, DamagedError."""
        for name in names:
            try:
                self.fetch(name)
            except NotFoundError as error:
                raise NotFoundError(f"the code copy is incomplete in the store: {error.message}") from error


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
