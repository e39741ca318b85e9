"""Digests that are remembered from one submit to the next."""

import hashlib
import mmap
import os
import tempfile
import time
from pathlib import Path

import pytest

from trainmaster.client.code_copy import digests
from trainmaster.client.code_copy.digests import Digests

_MEMORY = "/dev/shm"  # a changed page is never written to a disk from there


@pytest.mark.parametrize(("place", "later_s"), [(None, 10), (_MEMORY, 1000)])
def test_a_change_through_a_memory_mapping_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, later_s: int
) -> None:
    """Data that was changed so was called equal: a store to a page that is changed already sets no time."""
    if place is not None and not os.path.ismount(place):
        pytest.skip("no file system in memory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(time, "time_ns", lambda now_ns=time.time_ns: now_ns() + later_s * 10**9)
    with tempfile.TemporaryDirectory(dir=place or tmp_path) as root:
        path = Path(root, "weights")
        path.write_bytes(b"1" * 4096)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
            mapped[0] = ord("2")
            assert digest_of(root) == hashlib.sha256(b"2" + b"1" * 4095).hexdigest()
            mapped[0] = ord("3")
            assert digest_of(root) == hashlib.sha256(b"3" + b"1" * 4095).hexdigest()


def test_a_digest_is_remembered_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(time, "time_ns", lambda now_ns=time.time_ns: now_ns() + 1000 * 10**9)
    monkeypatch.setattr(digests, "_in_memory", frozenset)
    root = tmp_path / "root"
    root.mkdir()
    (root / "weights").write_bytes(b"1")
    first = digest_of(str(root))
    again = Digests(str(root))
    again.ready()
    assert again.remembered("weights", (root / "weights").stat()) == first
    (root / "weights").write_bytes(b"2")
    assert again.remembered("weights", (root / "weights").stat()) is None


def digest_of(root: str) -> str:
    one = Digests(root)
    found, _ = one.of("weights")
    one.save()
    return found
