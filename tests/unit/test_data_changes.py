"""What the agent says of declared data when a job starts: as it was at the submit, changed, or not known."""

import os
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.agent.environment import data_changes
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.wire import disks
from trainmaster.wire.launch import Launch
from trainmaster.wire.names import DATA_CHANGED


def said(tmp_path: Path, *data: dict[str, Any]) -> str:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    data_changes.look(cast("Launch", {"attempt": 2, "data": list(data)}), outbox)
    return str(outbox.warned[DATA_CHANGED]["text"]) if DATA_CHANGED in outbox.warned else ""


def declared(path: Path, name: str) -> dict[str, Any]:
    return {"name": name, "path": str(path), "stamp": disks.stamp(disks.regular_files(str(path), []))}


def test_data_as_it_was_is_not_spoken_of_and_what_changed_is(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("1")
    data = [declared(tmp_path / name, name) for name in ("train", "valid")]
    assert said(tmp_path, *data) == ""
    (tmp_path / "train" / "part").write_text("22")
    assert said(tmp_path, *data) == "train has changed since the submit, as seen when attempt 2 began"


def test_data_that_cannot_be_read_is_neither_changed_nor_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "valid", "text"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("1")
    data = [declared(tmp_path / name, name) for name in ("train", "valid", "text")]
    (tmp_path / "valid" / "part").write_text("22")
    scan = os.scandir

    def fails(path: str) -> Any:
        if str(path).startswith(str(tmp_path / "train")):
            raise OSError(5, "Input/output error")
        return scan(path)

    monkeypatch.setattr(os, "scandir", fails)
    (tmp_path / "text" / "part").unlink()
    (tmp_path / "text").rmdir()
    assert said(tmp_path, *data) == (
        "valid, text have changed since the submit, as seen when attempt 2 began; train could not be read when attempt 2 began, "
        "so it is not known whether it is as it was at the submit"
    )


def test_a_file_whose_status_cannot_be_read_is_in_doubt_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "part").write_text("1")
    (tmp_path / "train" / "circle").symlink_to("circle")
    data = declared(tmp_path / "train", "train")
    stat = os.stat

    def fails(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("part"):
            raise OSError(5, "Input/output error")
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fails)
    assert said(tmp_path, data).startswith("train could not be read when attempt 2 began")
