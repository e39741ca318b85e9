"""Artifacts are kept under their digest, files below directories too, and never what a link reaches outside."""

import hashlib
from pathlib import Path
from typing import Any

from launches import launch, tree, write

from trainmaster.agent.keep import keep_artifacts, keep_one


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
    assert keep_artifacts(orders) == [
        kept("model.bin", "m", "model"),
        kept("out/a.png", "a", "plot"),
        kept("out/b.png", "b", "plot"),
        kept("out/deep/x/c.txt", "a"),
        kept("out/same.png", "a", "plot"),
    ]
    store = Path(orders["artifact_store"])
    assert tree(store) == {hashlib.sha256(text.encode()).hexdigest(): text for text in "abm"}


def test_one_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "elsewhere.txt", "text")
    assert keep_one(launch(tmp_path), str(path), "report/elsewhere.txt") == kept("report/elsewhere.txt", "text")
    assert keep_one(launch(tmp_path), str(tmp_path / "absent"), "absent") is None
    assert keep_artifacts(launch(tmp_path)) == []


def test_a_store_that_cannot_be_written_is_said_not_raised(tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path / "a.txt", "text")
    blocked = write(tmp_path / "blocked", "a file where the store should be")
    assert keep_one(launch(tmp_path, artifact_store=str(blocked / "store")), str(path), "a.txt") is None
    assert "a.txt could not be kept" in capsys.readouterr().err
