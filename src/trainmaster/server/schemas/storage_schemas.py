"""OpenAPI models for storage usage. Documentation only, as in `models`."""

from typing import Any

from pydantic import Field

from trainmaster.server.schemas.described import Described


class StorageOfKind(Described):
    """Blobs of one kind in one project."""

    project: str
    kind: str = Field(examples=["checkpoints", "artifacts", "code", "provenance"])
    blobs: int
    bytes: int
    orphaned_bytes: int = Field(description="nothing refers to it")
    spare_bytes: int = Field(description="older checkpoints of ended jobs that no other job starts from")


class StorageVerify(Described):
    """How to verify the store."""

    repair: bool = Field(False, description="replace what is damaged where a good copy is known")


class DamagedBlob(Described):
    """A blob whose bytes do not have their digest."""

    name: str
    what: str = Field(examples=["code train.py", "checkpoint 0001-00002 of step 8: out/ckpt.pt"])
    jobs: list[str] = Field(description="the newest jobs that it belongs to")
    repaired: bool


class StorageVerification(Described):
    """Progress and result of a verification."""

    repair: bool
    blobs: int = Field(description="read so far")
    bytes: int
    unreadable: int = Field(description="could not be read now, and may be whole")
    damaged: list[DamagedBlob]
    damaged_total: int
    ended: bool
    error: str = Field(description="why it ended early; else empty")


class DiskOfKind(Described):
    """Files of one kind in the home."""

    kind: str = Field(examples=["work", "set aside", "logs", "metrics.db"])
    files: int
    bytes: int = Field(description="space on disk, without holes")
    unread: int = Field(description="files and directories that could not be read: there may be more")


class StorageUse(Described):
    """Usage of the blob store, and of the server's home (including a store inside it)."""

    store: str
    use: list[StorageOfKind]
    home: str
    free_bytes: int
    disk: list[DiskOfKind]
    largest: list[dict[str, Any]] = Field(description="the jobs with the largest usage: {job, bytes: {kind: n}}")
