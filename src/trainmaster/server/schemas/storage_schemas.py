"""What `/openapi.json` says of what takes room on the disk: documentation only, as in `models`."""

from typing import Any

from pydantic import BaseModel, Field


class StorageOfKind(BaseModel):
    """What one project keeps of one kind."""

    project: str
    kind: str = Field(examples=["checkpoints", "artifacts", "code", "provenance"])
    blobs: int
    bytes: int
    orphaned_bytes: int = Field(description="nothing refers to it")
    spare_bytes: int = Field(description="older checkpoints of jobs that are over, from which no other job starts")


class DiskOfKind(BaseModel):
    """What the home holds of one kind."""

    kind: str = Field(examples=["work", "set aside", "logs", "metrics.db"])
    files: int
    bytes: int = Field(description="of the disk: holes are not counted")


class StorageUse(BaseModel):
    """Everything in the store, and everything in the server's home, a store that lies there included."""

    store: str
    use: list[StorageOfKind]
    home: str
    free_bytes: int
    disk: list[DiskOfKind]
    largest: list[dict[str, Any]] = Field(description="the jobs that take most of the home: {job, bytes: {kind: n}}")
