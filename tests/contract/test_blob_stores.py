"""The laws of the blob store, on a directory and on another file system of fsspec, and what is damaged in any of them."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from trainmaster.blobs.cache import Cache
from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.fs import FsBlobs
from trainmaster.errors import DamagedError, NotFoundError
from trainmaster.ports.blobs import Blobs
from trainmaster.testing.blobs_contract import BlobsContract, read


class TestDirectory(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> FsBlobs:
        return FsBlobs(tmp_path / "blobs")


class TestMemory(BlobsContract):
    @pytest.fixture
    def blobs(self, tmp_path: Path) -> FsBlobs:
        return FsBlobs(f"memory://{tmp_path}/blobs")


GOOD = b"print(1)\n"
SHA256 = hashlib.sha256(GOOD).hexdigest()
NAMES = (f"code/objects/{SHA256[:2]}/{SHA256[2:]}", f"provenance/diffs/{SHA256}.patch", f"artifacts/job-1/{SHA256}")


@pytest.fixture(params=["directory", "fsspec", "cached"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "directory":
        return FsBlobs(tmp_path / "blobs")
    memory = FsBlobs(f"memory://{tmp_path}/blobs")
    return memory if request.param == "fsspec" else CachedBlobs(memory, Cache(tmp_path / "cache", 1 << 30))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [b"print(2)\n", GOOD[:-1], GOOD + b"\n", b""])
def test_other_bytes_than_the_name_says_are_never_read_as_the_blob(store: Blobs, name: str, bad: bytes) -> None:
    """T2, T9: a byte was changed in the store, and what was there was run, printed and believed."""
    inner = store.store if isinstance(store, CachedBlobs) else store
    inner.put(name, bad)
    for _ in range(2):
        with pytest.raises(DamagedError, match="is damaged in the store"), store.open(name) as file:
            file.read()
    assert store.exists([name]) == [not (isinstance(store, CachedBlobs) or inner.local_path(name))]  # known where it was read
    store.put(name, GOOD)
    assert (read(store, name), store.exists([name])) == (GOOD, [True])


def test_what_was_proven_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    blobs = FsBlobs(tmp_path / "blobs")
    blobs.put(NAMES[0], GOOD)
    assert blobs.exists([NAMES[0]]) == [True]
    place = tmp_path / "blobs" / NAMES[0]
    times = place.stat()
    place.write_bytes(b"print(2)\n")
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))  # size and time as before
    assert blobs.exists([NAMES[0]]) == [False]


def test_what_is_no_file_or_cannot_be_read_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe in a blob's place held up every submit."""
    blobs = FsBlobs(tmp_path / "blobs")
    place = tmp_path / "blobs" / NAMES[0]
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    assert blobs.exists([NAMES[0]]) == [False]
    with pytest.raises(NotFoundError):
        blobs.open(NAMES[0])
    blobs.put(NAMES[0], GOOD)
    monkeypatch.setattr("trainmaster.blobs.fs._open_local", _refused)
    assert blobs.exists([NAMES[0]]) == [True]  # doubt is not proof


def _refused(path: str) -> None:
    raise PermissionError(errno.EACCES, "no permission", path)
