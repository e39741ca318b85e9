"""Bytes by name: code objects, checkpoints, artifacts; on any fsspec file system."""

from typing import BinaryIO, Protocol


class Blobs(Protocol):
    """A flat store of immutable blobs under slash-separated names."""

    def put(self, name: str, data: bytes) -> None:
        """Store durably and all at once; the same name twice with the same bytes is harmless. Raises: DiskFullError."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Raises: NotFoundError."""
        ...

    def exists(self, names: list[str]) -> list[bool]:
        """One call for many."""
        ...

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below `prefix`; absent is fine."""
        ...

    def local_path(self, name: str) -> str | None:
        """The path of a blob or prefix where the store is a directory this machine sees; None elsewhere."""
        ...
