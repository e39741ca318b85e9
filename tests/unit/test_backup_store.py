"""The store's files in a backup: complete for its log, verified, and what is not in it is told."""

import errno
import hashlib
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from control_server import Server

from trainmaster import backup as copies
from trainmaster import copied_files
from trainmaster.cli.app import run
from trainmaster.errors import OperationError
from trainmaster.home import Home, open_regular
from trainmaster.store.migrate import migrate


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(Home(tmp_path / "home"))
    made.saved()
    checkpoints_on_record(made.home.events_db, ["0001-5"])
    return made


def checkpoints_on_record(log: Path, change: list[str] | None = None) -> list[str]:
    """The ids of the job's checkpoints in a log, after they were changed if `change` names others."""
    with sqlite3.connect(log) as raw:
        job = json.loads(raw.execute("SELECT data FROM job").fetchone()[0])
        if change is not None:
            parts = [[{**job["checkpoints"][0]["parts"][0], "digest": sha(manifest(id))}] for id in change]
            job["checkpoints"] = [{**job["checkpoints"][0], "id": id, "parts": of} for id, of in zip(change, parts, strict=True)]
            raw.execute("UPDATE job SET data = ?", (json.dumps(job),))
    raw.close()
    return [one["id"] for one in job["checkpoints"]]


def store_checkpoint(home: Home, id: str) -> Path:
    part = home.blobs / "checkpoints" / "train-1" / id / "n0"
    part.mkdir(parents=True)
    (part / "MANIFEST.json").write_text(manifest(id))
    (part / "weights").write_text(id)
    return part


def manifest(id: str) -> str:
    """Of a checkpoint with one file, whose content is the id."""
    return json.dumps({"files": [{"path": "weights", "sha256": sha(id), "bytes": len(id)}]})


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("steady", [True, False])
def test_a_copy_has_the_checkpoints_that_its_log_names(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steady: bool
) -> None:
    """The store was copied after the log: what retention removed meanwhile was named in the log, and not in the copy."""
    home, original, saved = server.home, copies._copy_database, iter(range(6, 100))
    current = store_checkpoint(home, "0001-5")

    def moving_on(path: Path, target: Path) -> None:
        nonlocal current
        newer = f"0001-{next(saved)}"
        if path == home.events_db and not steady:  # one more is saved and removed just before and just after the log is copied
            store_checkpoint(home, newer)
            checkpoints_on_record(home.events_db, [newer])
        original(path, target)
        if path == home.events_db and int(newer[5:]) < 11:
            shutil.rmtree(current)
            current = store_checkpoint(home, f"{newer}0")
            checkpoints_on_record(home.events_db, [current.parent.name])
            shutil.rmtree(home.blobs / "checkpoints" / "train-1" / newer, ignore_errors=True)

    monkeypatch.setattr(copies, "_copy_database", moving_on)
    made = copies.backup(home, tmp_path / "copy", blobs=True)
    (id,) = checkpoints_on_record(tmp_path / "copy" / "events.db")
    assert (tmp_path / "copy" / "blobs" / "checkpoints" / "train-1" / id / "n0" / "weights").read_text() == id
    assert made.missing == ()


def test_a_checkpoint_that_the_store_lacks_is_named(server: Server, tmp_path: Path) -> None:
    made = copies.backup(server.home, tmp_path / "copy", blobs=True)
    assert made.missing == ("checkpoints/train-1/0001-5/n0",)
    assert copies.restore(Home(tmp_path / "other"), tmp_path / "copy").missing == made.missing


@pytest.mark.parametrize("spoiled", ["weights", "MANIFEST.json"])
@pytest.mark.parametrize("content", [None, "0001-6"])
def test_a_checkpoint_that_the_store_does_not_have_whole_is_named(
    server: Server, tmp_path: Path, spoiled: str, content: str | None
) -> None:
    """Only the manifest's presence was looked at: a file that was gone from the store, or had other bytes, counted as copied."""
    part = store_checkpoint(server.home, "0001-5")
    assert copies.backup(server.home, tmp_path / "whole", blobs=True).missing == ()
    (part / spoiled).unlink()
    if content is not None:
        (part / spoiled).write_text(content)
    assert copies.backup(server.home, tmp_path / "copy", blobs=True).missing == ("checkpoints/train-1/0001-5/n0",)


def test_a_directory_of_the_store_that_cannot_be_read_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was left out, and nothing was said; later it ended the backup, without a copy of the log."""
    part, scan = store_checkpoint(server.home, "0001-5"), os.scandir

    def failing(path: str) -> Any:
        if Path(path) == part:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", failing)
    root = "checkpoints/train-1/0001-5/n0"
    made = copies.backup(server.home, tmp_path / "copy", blobs=True)
    assert (made.unread, made.missing) == ((root,), (root,))
    assert copies.backup(server.home, tmp_path / "without", blobs=False).left_bytes is None
    restored = copies.restore(Home(tmp_path / "other"), tmp_path / "copy")
    assert (restored.unread, restored.missing, restored.damaged) == ((root,), (root,), ())


@pytest.mark.parametrize("when", ["opened", "read"])
def test_a_file_of_the_store_that_cannot_be_read_stops_neither_backup_nor_restore(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    """One bad sector ended the backup before the log was copied, and the folder of the copy was blamed."""
    part = store_checkpoint(server.home, "0001-5")
    name, copy = "checkpoints/train-1/0001-5/n0/weights", tmp_path / "copy"
    monkeypatch.setattr(copied_files, "open_regular", unreadable(part / "weights", when))
    monkeypatch.setenv("TRAINMASTER_HOME", str(server.home.root))
    assert run(["backup", str(copy), "--blobs"]) == 0
    assert f"left out of the backup: 1 path of the store that could not be read: {name}\n" in capsys.readouterr().err
    assert (not (copy / "blobs" / name).exists(), (copy / "blobs" / f"{name[:-7]}MANIFEST.json").exists()) == (True, True)
    monkeypatch.setattr(copied_files, "open_regular", open_regular)
    whole = tmp_path / "whole"
    assert copies.backup(server.home, whole, blobs=True).unread == ()
    monkeypatch.setattr(copied_files, "open_regular", unreadable(whole / "blobs" / name, when))
    made = copies.restore(Home(tmp_path / "other"), whole)
    assert (made.damaged, made.unread) == ((name,), ())
    assert not (tmp_path / "other" / "blobs" / name).exists()


def test_a_setting_that_cannot_be_read_is_blamed_itself(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.home.token_file.write_text("secret")
    monkeypatch.setattr(copied_files, "open_regular", unreadable(server.home.token_file, "read"))
    with pytest.raises(OperationError, match=r"the backup is incomplete: .*Input/output error: '.*/token'") as refused:
        copies.backup(server.home, tmp_path / "copy", blobs=True)
    assert refused.value.hint == "check the disk of this file, and begin anew"


def unreadable(bad: Path, when: str) -> Callable[[Path], BinaryIO]:
    """`open_regular` on a disk with one bad file."""

    class BadSector(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def opened(path: Path) -> BinaryIO:
        if path != bad:
            return open_regular(path)
        if when == "opened":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return BadSector()

    return opened


def test_damage_of_the_store_in_a_backup_is_named_and_the_rest_restored(server: Server, tmp_path: Path) -> None:
    """The manifest did not list the store's files: what was gone or changed in the backup was said to be restored."""
    part = store_checkpoint(server.home, "0001-5")
    other, copy = Home(tmp_path / "other"), tmp_path / "copy"
    copies.backup(server.home, copy, blobs=True)
    copies.restore(Home(tmp_path / "whole"), copy)
    kept = copy / "blobs" / part.relative_to(server.home.blobs)
    (kept / "weights").write_text("0001-6")
    (kept / "MANIFEST.json").unlink()
    made = copies.restore(other, copy)
    root = "checkpoints/train-1/0001-5/n0"
    assert (made.verified, made.damaged) == (True, (f"{root}/MANIFEST.json", f"{root}/weights"))
    assert (other.blobs / root / "weights").exists()


def test_a_backup_of_an_earlier_version_is_restored_and_said_to_be_unverified(server: Server, tmp_path: Path) -> None:
    store_checkpoint(server.home, "0001-5")
    other, copy = Home(tmp_path / "other"), tmp_path / "copy"
    copies.backup(server.home, copy, blobs=True)
    taken = json.loads((copy / "backup.json").read_text())
    for added in ("store", "missing"):
        del taken[added]
    del taken["files"]["blobs.json"]
    (copy / "backup.json").write_text(json.dumps(taken))
    made = copies.restore(other, copy)
    assert (made.blobs, made.verified, made.damaged, made.missing) == (True, False, (), ())
    assert (other.blobs / "checkpoints" / "train-1" / "0001-5" / "n0" / "weights").read_text() == "0001-5"


def test_a_store_elsewhere_is_named_and_not_counted_as_copied(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (server.home.root / "server.toml").write_text('[storage]\nurl = "s3://bucket/prefix"\n')
    monkeypatch.setenv("TRAINMASTER_HOME", str(server.home.root))
    assert run(["backup", str(tmp_path / "copy"), "--blobs"]) == 0
    assert "left out: checkpoints, artifacts and code, which are in s3://bucket/prefix" in capsys.readouterr().err
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "other"))
    assert run(["restore", str(tmp_path / "copy")]) == 0
    assert "not included: they were in s3://bucket/prefix" in capsys.readouterr().err


def test_a_damaged_log_says_what_to_do(server: Server) -> None:
    server.events.close()
    server.home.events_db.write_bytes(b"no database" * 1000)
    with pytest.raises(OperationError, match="is damaged") as refused:
        migrate(server.home)
    assert "tm restore" in refused.value.hint
