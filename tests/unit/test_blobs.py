"""The blob store: atomic writes, safe names, and verified code copies."""

import hashlib
import io
import os
import threading
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from trainmaster.blobs.checkpoints import checkpoint_name, delete_checkpoint, resume_point
from trainmaster.blobs.code import ZipLimits, check_tree, missing, object_name, store_tree, store_zip, tree_name
from trainmaster.blobs.fs import FsBlobs, disk_full_translated
from trainmaster.errors import ConflictError, DiskFullError, NotFoundError, OperationError, TooLargeError, UsageError
from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.wire.code import Entry, Tree, canonical, digest


@pytest.fixture(params=["local", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> FsBlobs:
    return FsBlobs(tmp_path / "blobs" if request.param == "local" else f"memory://{tmp_path}/blobs")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_below(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return packed.getvalue()


def test_put_open_exists_delete(blobs: FsBlobs) -> None:
    blobs.put("a/b/c", b"one")
    blobs.put("a/b/c", b"one")
    blobs.put("a/d", b"")
    with blobs.open("a/b/c") as file:
        assert file.read() == b"one"
    assert blobs.exists(["a/b/c", "a/b", "a/d", "x"]) == [True, False, True, False]
    blobs.delete_tree("a/b")
    blobs.delete_tree("a/b")
    blobs.delete_tree("a/d")
    assert blobs.exists(["a/b/c", "a/d"]) == [False, False]
    for name in ("a/b/c", "never"):
        with pytest.raises(NotFoundError, match=name):
            blobs.open(name)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", ".", "a\0b", "a" * 300, "a/" * 600 + "b"])
def test_names_stay_inside(tmp_path: Path, name: str) -> None:
    blobs = FsBlobs(tmp_path)
    for act in (lambda: blobs.put(name, b""), lambda: blobs.open(name), lambda: blobs.delete_tree(name),
        lambda: blobs.exists([name])):
        with pytest.raises(UsageError, match="is not a blob's name"):
            act()


def test_local_path(tmp_path: Path) -> None:
    assert FsBlobs(tmp_path).local_path("a/b") == f"{tmp_path}/a/b"
    assert FsBlobs("memory://x").local_path("a/b") is None


def test_many_writers_of_one_name(tmp_path: Path) -> None:
    blobs = FsBlobs(tmp_path)
    data = [bytes([n]) * 100_000 for n in range(8)]
    threads = [threading.Thread(target=blobs.put, args=("x/y", each)) for each in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with blobs.open("x/y") as file:
        assert file.read() in data
    assert files_below(tmp_path) == ["x/y"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the device that is always full is Linux's")
def test_a_full_disk_is_told() -> None:
    with (
        pytest.raises(DiskFullError, match="x was not stored") as caught,
        disk_full_translated("x"),
        open("/dev/full", "wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert (caught.value.http_status, caught.value.retryable) == (507, True)


def test_a_put_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "in the way").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        FsBlobs(tmp_path).put("a/b", b"x")
    assert files_below(tmp_path) == []


def test_delete_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    blobs = FsBlobs(tmp_path / "blobs")
    blobs.put("a/b", b"")
    (tmp_path / "blobs" / "a" / "link").symlink_to(outside)
    (tmp_path / "blobs" / "link").symlink_to(outside)
    blobs.delete_tree("link")
    blobs.delete_tree("a")
    assert (files_below(outside), files_below(tmp_path / "blobs")) == (["kept"], [])


def tree(*entries: Entry) -> Tree:
    return Tree(entries=list(entries))


def a_file(path: str, data: bytes = b"x") -> Entry:
    return Entry(path=path, type="file", sha256=sha(data), mode=0o644, bytes=len(data))


def test_a_code_copy_is_stored_in_three_steps(blobs: FsBlobs) -> None:
    copy = tree(Entry(path="data", type="link"), a_file("src/a.py", b"a"), a_file("src/b.py", b"b"), a_file("src/c.py", b"a"))
    assert missing(blobs, copy) == sorted([sha(b"a"), sha(b"b")])
    with pytest.raises(ConflictError, match="2 objects"):
        store_tree(blobs, copy)
    assert store_zip(blobs, zipped((sha(b"a"), b"a"), (sha(b"b"), b"b"), compression=zipfile.ZIP_DEFLATED)) == 2
    assert missing(blobs, copy) == []
    assert store_tree(blobs, copy) == store_tree(blobs, copy) == digest(copy)
    with blobs.open(tree_name(digest(copy))) as file:
        assert file.read() == canonical(copy)
    with blobs.open(object_name(sha(b"a"))) as file:
        assert file.read() == b"a"


def test_a_zip_may_be_a_file(tmp_path: Path) -> None:
    assert store_zip(FsBlobs(tmp_path), io.BytesIO(zipped((sha(b"x"), b"x")))) == 1


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", UsageError, "not a readable zip"),
        (b"PK\x03\x04 nonsense", UsageError, "not a readable zip"),
        (zipped((sha(b"x"), b"y")), UsageError, "a different SHA-256 than its name"),
        (zipped(("../../etc/passwd", b"y")), UsageError, "not named by a SHA-256"),
        (zipped((sha(b"x").upper(), b"x")), UsageError, "not named by a SHA-256"),
        (zipped((sha(b"x"), b"x")).replace(b"x" + b"PK", b"z" + b"PK"), UsageError, "not a readable zip"),
        (zipped((sha(b"1"), b"1"), (sha(b"2"), b"2"), (sha(b"3"), b"3")), TooLargeError, "3 members"),
        (zipped((sha(b"0" * 2000), b"0" * 2000), compression=zipfile.ZIP_DEFLATED), TooLargeError, "2,000 bytes"),
        (zipped((sha(b"0" * 900), b"0" * 900), (sha(b"1" * 900), b"1" * 900)), TooLargeError, "1,800 bytes"),
    ],
)
def test_uploads_that_are_refused(tmp_path: Path, data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        store_zip(FsBlobs(tmp_path), data, ZipLimits(members=2, member_bytes=1000, bytes=1700))
    assert files_below(tmp_path) == []


def test_an_upload_takes_little_memory_whatever_it_unpacks_to(tmp_path: Path) -> None:
    """S9: a zip of 522 KB used 1 GB of memory, since its one member was held twice."""
    data = b"\0" * 100_000_000
    packed, name = zipped((sha(data), data), compression=zipfile.ZIP_DEFLATED), object_name(sha(data))
    del data
    tracemalloc.start()
    assert store_zip(FsBlobs(tmp_path), packed) == 1
    assert tracemalloc.get_traced_memory()[1] < 24 * 2**20
    tracemalloc.stop()
    assert (tmp_path / name).stat().st_size == 100_000_000


def test_a_large_member_is_kept_only_if_it_is_what_its_name_says(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a different SHA-256 than its name"):
        store_zip(FsBlobs(tmp_path), zipped((sha(b"x"), b"y" * 5_000_000)))
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_upload_is_stored_or_deflated(tmp_path: Path, compression: int) -> None:
    """S9: the others unpack a chunk to whatever it holds at once."""
    with pytest.raises(UsageError, match="stored or deflated"):
        store_zip(FsBlobs(tmp_path), zipped((sha(b"x"), b"x"), compression=compression))


def test_an_upload_s_list_of_members_is_bounded_before_it_is_read(tmp_path: Path) -> None:
    """S9: two million members took a gigabyte before they were counted."""
    one = zipped((sha(b"x"), b"x"))
    start, end = one.index(b"PK\x01\x02"), one.index(b"PK\x05\x06")
    members = one[start:end] * (9_000_000 // (end - start))
    listed = one[end : end + 12] + len(members).to_bytes(4, "little") + one[end + 16 :]
    with pytest.raises(TooLargeError, match="list of members"):
        store_zip(FsBlobs(tmp_path), one[:start] + members + listed)


def test_a_zip_that_lies_about_its_size(tmp_path: Path) -> None:
    data = b"0" * 100_000
    honest = zipped((sha(data), data), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(UsageError):
        store_zip(FsBlobs(tmp_path), honest.replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    "bad",
    [
        None, {}, {"entries": {}}, {"entries": [], "x": 1}, {"entries": [1]}, {"entries": [{"path": "a", "type": "device"}]},
        {"entries": [{"path": "a", "type": ["link"]}]}, {"entries": [{"path": "a", "type": "link", "target": "b"}]},
        *({"entries": [{"path": path, "type": "link"}]} for path in
          ("", "/a", "a/", "../a", "a/../b", "./a", "a//b", "a\0", "\ud800", 7, None, ".git", "x/.git/config", "a" * 256,
          "a/" * 2048 + "b")),
        {"entries": [{"path": "b", "type": "link"}, {"path": "a", "type": "link"}]},
        {"entries": [{"path": "a", "type": "link"}, {"path": "a", "type": "link"}]},
        {"entries": [{"path": "a", "type": "symlink", "target": "/etc"}, {"path": "a-", "type": "link"}, {"path": "a/b",
        "type": "link"}]},
        {"entries": [{"path": "a", "type": "symlink", "target": ""}]}, {"entries": [{**a_file("a"), "mode": 0o4755}]},
        {"entries": [{**a_file("a"), "bytes": -1}]}, {"entries": [{**a_file("a"), "bytes": True}]}, {"entries": [{**a_file("a"),
        "sha256": "../x"}]},
    ],
)  # fmt: skip
def test_trees_that_are_refused(bad: object) -> None:
    with pytest.raises(UsageError):
        check_tree(bad)


def test_checkpoints(tmp_path: Path) -> None:
    blobs = FsBlobs(tmp_path)
    checkpoint = Checkpoint("s7", 7, 2, (Part(0, "d0", 1, 5), Part(1, "d1", 1, 5)), 2, approximate=True)
    for part in ("n0", "n1"):
        blobs.put(f"{checkpoint_name('digits-1', 's7')}/{part}/MANIFEST.json", b"{}")
    assert resume_point(blobs, "digits-1", checkpoint) == {
        "id": "s7", "step": 7, "approximate": True, "root": f"{tmp_path}/checkpoints/digits-1/s7", "digests": {"n0": "d0",
        "n1": "d1"},
    }  # fmt: skip
    delete_checkpoint(blobs, "digits-1", "s7")
    delete_checkpoint(blobs, "digits-1", "s7")
    assert files_below(tmp_path) == []
    with pytest.raises(OperationError):
        resume_point(FsBlobs("memory://x"), "digits-1", checkpoint)
