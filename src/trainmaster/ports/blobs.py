"""The blob store port: code objects, checkpoints, artifacts and provenance by name, in a directory, S3, or fsspec store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol


def environment_blob(digest: str) -> str:
    """The blob of an environment record."""
    return f"provenance/environments/{digest}.json"


def diff_blob(digest: str) -> str:
    """The blob of a patch."""
    return f"provenance/diffs/{digest}.patch"


@dataclass(frozen=True, slots=True)
class Stored:
    """One blob in a listing."""

    name: str
    bytes: int
    modified_s: float  # seconds since the epoch, by the store's clock


@dataclass(frozen=True, slots=True)
class Upload:
    """How an agent uploads one file directly to a store."""

    url: str | None = None  # PUT the whole file here; None: in parts
    id: str = ""  # of the multipart upload, for `Direct.sign_part`
    part_bytes: int = 0  # size of every part but the last
    crc32_header: str = ""  # header for each part's CRC-32 in base64; "": the store does not verify checksums

@dataclass(frozen=True, slots=True)
class Part:
    """An uploaded part: the store's ETag, and the checksum it was sent with."""

    etag: str
    crc32: str = ""  # base64


class Blobs(Protocol):
    """A flat store of immutable blobs under slash-separated names.

    Every verb may raise StoreUnavailableError (retry later) and StoreRefusedError (permanent).
    """

    def put(self, name: str, data: bytes) -> None:
        """Store durably and atomically. Storing the same bytes under the same name again is harmless. Raises: DiskFullError."""
        ...

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        """Store a stream durably and atomically, without holding it in memory. Returns its size in bytes."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a blob for reading. Raises: NotFoundError.

        Reads of a content-addressed blob (`blobs.names.digest_of`) that reach its end raise DamagedError if its bytes have
        another digest, or `open` does. Stores that are only used behind `CachedBlobs` leave that to it.
        """
        ...

    def exists(self, names: list[str]) -> list[bool]:
        """Which blobs exist, in one call. A content-addressed one that is known to be damaged does not: it is stored again."""
        ...

    def stat(self, name: str) -> Stored | None:
        """Size and time of one blob; None if it does not exist."""
        ...

    def walk(self, prefix: str) -> Iterator[Stored]:
        """The blobs below `prefix` ("" is everything), streamed: the listing is never in memory as a whole."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The last parts of the names directly below `prefix`, of blobs and of further prefixes."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove blobs. Missing ones are not an error."""
        ...

    def delete_tree(self, prefix: str) -> None:
        """Remove everything below `prefix`. A missing prefix is not an error."""
        ...

    def local_path(self, name: str) -> str | None:
        """The path of a blob or prefix, if the store is a directory that this machine sees; else None."""
        ...

    @property
    def direct(self) -> "Direct | None":
        """Direct access for agents; None if the store cannot sign URLs, and bytes pass through the server."""
        ...


class Direct(Protocol):
    """Direct access to a store by signed URLs. Each URL is a secret while it is valid: never log it."""

    def begin(self, name: str, size_bytes: int, crc32: bool = False) -> Upload:
        """Begin the upload of a blob of this size. A small blob is one PUT, a larger one has parts.

        `crc32`: the client can send the checksum of each part, and the store should verify it if it can.
        """
        ...

    def sign_parts(self, name: str, upload: str, parts: Mapping[int, str]) -> dict[int, str]:
        """URLs to PUT these parts, by number from 1. Each has its CRC-32 in base64 ("" if the upload has none)."""
        ...

    def complete(self, name: str, upload: str, parts: Mapping[int, Part]) -> bool:
        """Assemble the blob. Raises: NotFoundError for an unknown upload.

        False: there is a blob of this name, which is kept. It has these parts, by an earlier completion, or other bytes.
        """
        ...

    def abort(self, name: str, upload: str) -> None:
        """Abort an upload and delete its parts. An unknown upload is not an error."""
        ...

    def sign_get(self, name: str) -> str:
        """URL to GET a blob."""
        ...

    def uploads(self, prefix: str) -> Iterator[tuple[str, str, float]]:
        """(name, upload, begin in seconds since the epoch) of uploads that were neither completed nor aborted."""
        ...
