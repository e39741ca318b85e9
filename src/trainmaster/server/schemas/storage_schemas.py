"""OpenAPI models for storage usage. Documentation only, as in `models`."""

from typing import Any

from pydantic import BaseModel, Field


class StorageOfKind(BaseModel):
    """Blobs of one kind in one project."""

    project: str
    kind: str = Field(examples=["checkpoints", "artifacts", "code", "provenance"])
    blobs: int
    bytes: int
    orphaned_bytes: int = Field(description="nothing refers to it")
    spare_bytes: int = Field(description="older checkpoints of ended jobs that no other job starts from")


class DiskOfKind(BaseModel):
    """Files of one kind in the home."""

    kind: str = Field(examples=["work", "set aside", "logs", "metrics.db"])
    files: int
    bytes: int = Field(description="space on disk, without holes")


class StorageUse(BaseModel):
    """Usage of the blob store, and of the server's home (including a store inside it)."""

    store: str
    use: list[StorageOfKind]
    home: str
    free_bytes: int
    disk: list[DiskOfKind]
    largest: list[dict[str, Any]] = Field(description="the jobs with the largest usage: {job, bytes: {kind: n}}")
