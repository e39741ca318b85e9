"""Bytes by name: code objects, checkpoints, artifacts, provenance; in a directory, on S3, on any fsspec file system."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class Stored:
    """One blob as a listing shows it."""

    name: str
    bytes: int
    modified_s: float  # seconds since the epoch, by the store's clock


@dataclass(frozen=True, slots=True)
class Upload:
    """How an agent brings one file into a store that it talks to itself."""

    url: str | None = None  # PUT the whole file here; None: in parts
    id: str = ""  # of the multi-part upload, for `Direct.sign_part`
    part_bytes: int = 0  # of every part but the last
    crc32_header: str = ""  # the header that each part comes with, its CRC-32 in base64; "": the store compares none


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of a part that was sent: what the store answered, and the checksum it was sent with."""

    etag: str
    crc32: str = ""  # base64


class Blobs(Protocol):
    """A flat store of immutable blobs under slash-separated names.

    Every verb may raise StoreUnavailableError (try again later) and StoreRefusedError (do not: it will refuse again).
    """

    def put(self, name: str, data: bytes) -> None:
        """Store durably and all at once; the same name twice with the same bytes is harmless. Raises: DiskFullError."""
        ...

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        """Store durably what comes, whole or not at all, never held in memory at once; how many bytes it was."""
        ...

    def open(self, name: str) -> BinaryIO:
        """The blob to be read piece by piece. Raises: NotFoundError."""
        ...

    def exists(self, names: list[str]) -> list[bool]:
        """One call for many."""
        ...

    def stat(self, name: str) -> Stored | None:
        """Size and time of one blob; None when there is none."""
        ...

    def walk(self, prefix: str) -> Iterator[Stored]:
        """What lies below `prefix` ("" is everything), as the store says it: never the whole listing in memory."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove blobs; absent ones are fine."""
        ...

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below `prefix`; absent is fine."""
        ...

    def local_path(self, name: str) -> str | None:
        """The path of a blob or prefix where the store is a directory this machine sees; None elsewhere."""
        ...

    @property
    def direct(self) -> "Direct | None":
        """How agents reach the store themselves; None where it cannot sign, and bytes pass through the server."""
        ...


class Direct(Protocol):
    """A store that lets others in by signed addresses. Each is a secret for as long as it holds: never to be logged."""

    def begin(self, name: str, size_bytes: int, crc32: bool = False) -> Upload:
        """Begin the upload of a blob of that size; a small one is one PUT, a larger one has parts.

        `crc32`: whoever sends can tell the checksum of each part, and the store shall compare it where it can.
        """
        ...

    def sign_parts(self, name: str, upload: str, parts: Mapping[int, str]) -> dict[int, str]:
        """Where to PUT these parts, numbered from 1, each with its CRC-32 in base64 ("" where the upload has none)."""
        ...

    def complete(self, name: str, upload: str, parts: Mapping[int, Part]) -> None:
        """Make the blob of its parts; one completed already is fine. Raises: NotFoundError for an upload unknown."""
        ...

    def abort(self, name: str, upload: str) -> None:
        """Give an upload up, parts and all; one unknown is fine."""
        ...

    def sign_get(self, name: str) -> str:
        """Where to GET a blob."""
        ...

    def uploads(self, prefix: str) -> Iterator[tuple[str, str, float]]:
        """(name, upload, begun at, seconds since the epoch) of what was begun and neither completed nor aborted."""
        ...
