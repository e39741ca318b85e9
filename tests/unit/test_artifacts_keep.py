"""Artifacts are kept under their digest, files below directories too, and never what a link reaches outside."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launches import launch, tree, write

from trainmaster.agent.artifacts import keep
from trainmaster.agent.artifacts.keep import complain, keep_artifacts, keep_one
from trainmaster.wire.launch import Launch


def keep_all(orders: Launch, missed: Callable[[str, str], None] = complain) -> list[dict[str, Any]]:
    return [one for batch, _, _ in keep_artifacts(orders, missed) for one in batch]


def kept(path: str, text: str, kind: str = "file") -> dict[str, Any]:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"path": path, "digest": digest, "bytes": len(text), "artifact_kind": kind}


def test_globs_directories_and_links(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for name, text in {"out/a.png": "a", "out/b.png": "b", "out/deep/x/c.txt": "a", "model.bin": "m", "no.txt": "n"}.items():
        write(work / name, text)
    write(tmp_path / "outside.txt", "o")
    (work / "out" / "stolen.png").symlink_to(tmp_path / "outside.txt")
    (work / "out" / "same.png").symlink_to("a.png")
    (work / "away").symlink_to(tmp_path)
    orders = launch(tmp_path, artifacts=["out/*.png", "out/deep", "**/*.bin", "away/*.txt", "absent/*", "model.bin"])
    assert keep_all(orders) == [
        kept("model.bin", "m", "model"),
        kept("out/a.png", "a", "plot"),
        kept("out/b.png", "b", "plot"),
        kept("out/deep/x/c.txt", "a"),
        kept("out/same.png", "a", "plot"),
    ]
    store = Path(orders["artifact_store"])
    assert tree(store) == {hashlib.sha256(text.encode()).hexdigest(): text for text in "abm"}


def failing(number: int, end: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A system call that fails for paths with this end."""

    def called(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        if str(path).endswith(end):
            raise OSError(number, os.strerror(number), path)
        return call(path, *arguments, **named)

    return called


@pytest.mark.parametrize("pattern", ["res/*.pt", "res/in.pt", "**/*.pt"])
def test_a_directory_that_may_not_be_read_is_said_not_to_match_nothing(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "work" / "res" / "in.pt", "i")
    told: list[tuple[str, str]] = []
    orders = launch(tmp_path, artifacts=[pattern])
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing(errno.EACCES, "/res", os.scandir))
        patch.setattr(os, "lstat", failing(errno.EACCES, "/res/in.pt", os.lstat))
        assert list(keep_artifacts(orders, lambda name, why: told.append((name, why)), True)) == []
    assert told == [(pattern, "what matches it in res could not be listed: permission denied")]


def test_a_file_that_cannot_be_read_now_is_not_said_to_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "work" / "in.pt", "i")
    told: list[tuple[str, str]] = []
    missed = lambda name, why: told.append((name, why))  # noqa: E731
    why = f"[Errno 5] Input/output error: '{path}'"
    with monkeypatch.context() as patch:
        for call in ("stat", "lstat"):
            patch.setattr(os, call, failing(errno.EIO, "in.pt", getattr(os, call)))
        assert keep_one(launch(tmp_path), str(path), "in.pt", None, missed) is None
        assert list(keep_artifacts(launch(tmp_path, artifacts=["in.pt"]), missed, True)) == []
    assert told == [("in.pt", why), ("in.pt", f"what matches it could not be listed: {why}")]


@pytest.mark.parametrize("pattern", ["res/out.pt", "res/*", "res", "away/*.pt"])
def test_a_link_that_leads_out_is_said_to_do_so(tmp_path: Path, pattern: str) -> None:
    """Nothing matched it; or it was dropped without a word beside others that were kept."""
    work = tmp_path / "work"
    write(work / "res" / "in.pt", "i")
    write(tmp_path / "other" / "a.pt", "o")
    (work / "res" / "out.pt").symlink_to(tmp_path / "other" / "a.pt")
    (work / "res" / "out-too").symlink_to(tmp_path / "other")
    (work / "away").symlink_to(tmp_path / "other")
    told: list[tuple[str, str]] = []
    orders = launch(tmp_path, artifacts=[pattern])
    missed = lambda name, why: told.append((name, why))  # noqa: E731
    names = [one["path"] for batch, _, _ in keep_artifacts(orders, missed, True) for one in batch]
    assert names == (["res/in.pt"] if pattern in ("res/*", "res") else [])
    ((name, why),) = told
    assert name == {"res/*": "res/out-too", "away/*.pt": "away/a.pt"}.get(pattern, "res/out.pt")
    more = f"; likewise 1 more of {pattern}" if pattern == "res/*" else ""
    assert why == f"a link leads out of the work directory to it, and only what is inside is kept{more}"


def test_the_names_of_what_is_kept_are_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R24: every directory in which something new was made is synced, before it is told that anything is kept."""
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    path, orders = write(tmp_path / "a.txt", "text"), launch(tmp_path)
    store = Path(orders["artifact_store"])
    assert keep_one(orders, str(path), "a.txt") is not None
    made = [directory for directory in (store, *store.parents) if directory.is_relative_to(tmp_path)]
    assert set(synced) >= {str(directory) for directory in made}
    synced.clear()
    assert keep_one(orders, str(path), "b.txt") is not None
    assert str(tmp_path) not in synced


def test_many_are_told_batch_by_batch_and_their_names_made_durable_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 artifacts took minutes without a word, and half of it was the store's directory, synced for each."""
    for number in range(7):
        write(tmp_path / "work" / f"{number}.txt", str(number))
    orders = launch(tmp_path, artifacts=["*.txt"])
    assert len(list(keep_artifacts(orders))) == 1
    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), fsync(file)))
    monkeypatch.setattr(keep, "_BATCH", 3)
    found = [([one["path"] for one in batch], *far) for batch, *far in keep_artifacts(orders)]
    assert found == [(["0.txt", "1.txt", "2.txt"], 3, 7), (["3.txt", "4.txt", "5.txt"], 6, 7), (["6.txt"], 7, 7)]
    assert synced.count(orders["artifact_store"]) == 3
    (tmp_path / "work" / "6.txt").unlink()
    assert [(len(batch), done) for batch, done, _ in keep_artifacts(orders)] == [(3, 3), (3, 6)]


def test_one_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "elsewhere.txt", "text")
    assert keep_one(launch(tmp_path), str(path), "report/elsewhere.txt") == kept("report/elsewhere.txt", "text")
    assert keep_one(launch(tmp_path), str(tmp_path / "absent"), "absent") is None
    assert keep_all(launch(tmp_path)) == []


def test_a_store_that_cannot_be_written_is_said_not_raised(tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.txt", "text")
    blocked = write(tmp_path / "blocked", "a file where the store should be")
    assert keep_one(launch(tmp_path, artifact_store=str(blocked / "store")), str(path), "a.txt") is None
    assert "a.txt could not be kept" in capsys.readouterr().err


def test_a_name_that_is_not_utf_8_is_written_out(tmp_path: Path) -> None:
    """R5: what is told of it can be sent and stored."""
    write(tmp_path / "work" / os.fsdecode(b"caf\xe9.txt"), "latin")
    assert keep_all(launch(tmp_path, artifacts=["*.txt"])) == [kept("caf\\xe9.txt", "latin")]


def test_a_name_that_is_not_utf_8_replaces_no_file_of_the_name_that_is_written_out(tmp_path: Path) -> None:
    """One of the two was kept, and nothing said so."""
    for name, text in ((b"a\xff.txt", "bytes"), (rb"a\xff.txt", "escaped")):
        write(tmp_path / "work" / os.fsdecode(name), text)
    missed: list[tuple[str, str]] = []
    found = keep_all(launch(tmp_path, artifacts=["a*.txt"]), lambda name, why: missed.append((name, why)))
    assert found == [kept("a\\xff.txt", "escaped")]
    assert missed == [("a\\xff.txt", "it is no UTF-8, and another file has the name that it would be stored under")]


def test_an_artifact_that_cannot_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R20: a disk that answered EIO to a look at it made the artifact be left out without a word."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "result.txt").write_text("done")
    missed: list[tuple[str, str]] = []
    look = os.stat

    def failing(path: Any, *given: Any, **named: Any) -> os.stat_result:
        if str(path).endswith("result.txt"):
            raise OSError(errno.EIO, "Input/output error", path)
        return look(path, *given, **named)

    monkeypatch.setattr(os, "stat", failing)
    kept = keep_all(launch(tmp_path, artifacts=["result.txt"]), lambda name, why: missed.append((name, why)))
    assert (kept, [name for name, why in missed if "Input/output error" in why]) == ([], ["result.txt"])


def test_a_damaged_copy_in_the_store_is_replaced(tmp_path: Path) -> None:
    """It was "kept", and the store had no byte of it."""
    write(tmp_path / "work" / "model.bin", "m")
    orders = launch(tmp_path, artifacts=["model.bin"])
    assert keep_all(orders) == [kept("model.bin", "m", "model")]
    stored = Path(orders["artifact_store"]) / hashlib.sha256(b"m").hexdigest()
    stored.write_bytes(b"")
    assert keep_all(orders) == [kept("model.bin", "m", "model")]
    assert stored.read_bytes() == b"m"


def test_a_name_is_stored_in_its_shortest_form(tmp_path: Path) -> None:
    """MLflow takes no other."""
    path = tmp_path / "loss.png"
    write(path, "a")
    assert keep_one(launch(tmp_path), str(path), "./plots//loss.png") == kept("plots/loss.png", "a", "plot")
