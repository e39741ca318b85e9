"""What the agent says of declared data when a job starts: as it was at the submit, changed, or not known."""

import os
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from trainmaster.agent.environment import data_changes
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.client import data as client_data
from trainmaster.client.data import versions
from trainmaster.wire import data as wire_data
from trainmaster.wire.launch import Launch
from trainmaster.wire.names import DATA_CHANGED


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def submitted(path: Path) -> dict[str, Any]:
    """As the client records it, and as the server passes it on."""
    (found,) = versions({"data": {"train": str(path)}}, path.parent)
    digest = found["digest"] if found["exact"] else ""
    return {"name": "train", "path": str(path), "stamp": found["stamp"], "digest": digest, "bytes": found["bytes"],
            "listing": found["listing"]}  # fmt: skip


def reported(tmp_path: Path, *data: dict[str, Any]) -> dict[str, Any]:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    data_changes.look(cast("Launch", {"attempt": 2, "data": list(data)}), outbox)
    assert outbox.batch()[0] == [outbox.warned[DATA_CHANGED]], "the exit record repeats it"
    return outbox.warned[DATA_CHANGED]


def said(tmp_path: Path, *data: dict[str, Any]) -> str:
    return str(reported(tmp_path, *data)["text"])


def declared(path: Path, name: str) -> dict[str, Any]:
    return {"name": name, "path": str(path), "stamp": wire_data.stamp(wire_data.find(str(path)).files)}


def test_data_as_it_was_is_not_warned_of_and_what_changed_is(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_text("1")
    data = [declared(tmp_path / name, name) for name in ("train", "valid")]
    assert said(tmp_path, *data) == ""
    (tmp_path / "train" / "part").write_text("22")
    told = reported(tmp_path, *data)
    assert told["text"] == "train has changed since the submit, as seen when attempt 2 began"
    assert told["data"] == {"train": wire_data.CHANGED, "valid": wire_data.SAME}


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
    told = reported(tmp_path, *data)
    assert told["data"] == {"train": wire_data.UNKNOWN, "valid": wire_data.CHANGED, "text": wire_data.CHANGED}
    assert told["text"] == (
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


@pytest.mark.parametrize("inside", [True, False])
def test_other_bytes_of_the_same_size_and_time_are_a_change(tmp_path: Path, inside: bool) -> None:
    """`touch -r` hid it: the recorded digest was that of other bytes."""
    file = tmp_path / "train" / "part"
    file.parent.mkdir()
    file.write_text("AAAA")
    os.utime(file, (1000, 1000))
    declared = submitted(file.parent if inside else file)
    assert said(tmp_path, declared) == ""
    file.write_text("BBBB")
    os.utime(file, (1000, 1000))
    assert said(tmp_path, declared).startswith("train has changed since the submit")


def test_a_new_directory_link_or_pipe_is_a_change_although_no_file_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train" / "a" / "part"
    file.parent.mkdir(parents=True)
    file.write_text("AAAA")
    exact = submitted(tmp_path / "train")
    monkeypatch.setattr(client_data, "BYTES_MAX", 3)
    large, older = submitted(tmp_path / "train"), declared(tmp_path / "train", "train")
    for change, known in (
        ((tmp_path / "train" / "b").mkdir, wire_data.SAME), (lambda: (tmp_path / "train" / "x").symlink_to("nowhere"), wire_data.SAME),
        (lambda: os.mkfifo(tmp_path / "train" / "pipe"), wire_data.UNKNOWN),
    ):  # fmt: skip
        before = submitted(tmp_path / "train")
        change()
        told = [reported(tmp_path, one)["data"]["train"] for one in (exact, large, before, older)]
        assert told == [wire_data.CHANGED, wire_data.CHANGED, wire_data.CHANGED, known]
    assert reported(tmp_path, submitted(tmp_path / "train"))["data"] == {"train": wire_data.SAME}, "the pipe was there before"


def test_of_data_that_is_not_seen_whole_a_stamp_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (tmp_path / "train" / str(number)).mkdir(parents=True)
        (tmp_path / "train" / str(number) / "part").write_text("1")
    exact = submitted(tmp_path / "train")
    monkeypatch.setattr(wire_data, "ENTRIES_MAX", 12)
    told = reported(tmp_path, submitted(tmp_path / "train"))
    assert (told["data"], told["text"]) == ({"train": wire_data.UNKNOWN}, ""), "the submit has said so"
    assert reported(tmp_path, exact)["data"] == {"train": wire_data.CHANGED}, "it was seen whole, so it has more entries now"


def test_what_touches_no_byte_is_no_change(tmp_path: Path) -> None:
    """Permissions, another link, a copy with its times kept, another time: the stamp differs, and the bytes are looked at."""
    file = tmp_path / "train" / "part"
    file.parent.mkdir()
    file.write_text("AAAA")
    declared = submitted(file.parent)
    file.chmod(0o600)
    os.link(file, tmp_path / "another")
    assert said(tmp_path, declared) == ""
    shutil.copy2(file, tmp_path / "copy")
    os.replace(tmp_path / "copy", file)
    os.utime(file, (1000, 1000))
    assert said(tmp_path, declared) == ""


def test_a_stamp_of_an_older_version_and_that_of_large_data_have_no_times_of_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "part"
    file.write_text("AAAA")
    older = declared(file, "train")
    monkeypatch.setattr(client_data, "BYTES_MAX", 3)
    large = submitted(file)
    file.chmod(0o600)
    assert said(tmp_path, older) == said(tmp_path, large) == ""


def test_a_file_that_cannot_be_read_to_compare_its_bytes_is_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "part"
    file.write_text("AAAA")
    known = submitted(file)
    file.chmod(0o640)

    def fails(path: str) -> str:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(wire_data, "sha256", fails)
    assert said(tmp_path, known).startswith("train could not be read")
