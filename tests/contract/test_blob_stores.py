"""The laws of the blob store, on a directory and on another file system of fsspec."""

from pathlib import Path

import pytest

from trainmaster.blobs.fs import FsBlobs
from trainmaster.testing.blobs_contract import BlobsContract


class TestDirectory(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> FsBlobs:
        return FsBlobs(tmp_path / "blobs")


class TestMemory(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> FsBlobs:
        return FsBlobs(f"memory://{tmp_path}/blobs")
