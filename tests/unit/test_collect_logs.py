"""A directory as a checkpoint, with a log in it that the program appends to all the time."""

from pathlib import Path

import pytest
from launches import launch, manifest, write
from test_collect import _quick, collector, inode, look, wait_quiet

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.files import stage
from trainmaster.agent.files.globs import signature

__all__ = ["_quick"]  # a fixture that holds for every test here


@pytest.mark.parametrize("name", ["main.log", "train_log.txt", "events.out.tfevents.1.host.2"])
def test_a_log_in_a_directory_does_not_keep_it_from_the_store(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run directory with its log in it was never complete: nothing was stored, and a restart began from the beginning."""
    monkeypatch.setattr(observations, "_LACKING_QUIET_S", observations.QUIET_S)
    orders = launch(tmp_path, checkpoint_path="run")
    made, log = collector(orders), write(tmp_path / "work" / "run" / name, "1\n")
    write(tmp_path / "work" / "run" / "model.bin", "weights")
    staged: list[tuple[object, ...]] = []
    while not staged and log.stat().st_size < 10:
        with log.open("a") as file:
            file.write("1\n")
        staged = look(made, opened=inode(log))
        wait_quiet()
    assert staged == [("0001-00001", 7, True, 2, 7 + log.stat().st_size)]
    listed = manifest(orders["checkpoint_store"], "0001-00001", "n0")
    assert {file["path"] for file in listed["files"]} == {f"run/{name}", "run/model.bin"}
    with log.open("a") as file:
        file.write("more\n")
    assert look(made, opened=inode(log)) == [], "a longer log is no new checkpoint"
    write(tmp_path / "work" / "run" / "model.bin", "weights2")
    look(made)
    wait_quiet()
    assert [one[0] for one in look(made)] == ["0001-00002"]


def test_a_directory_of_such_files_alone_and_one_that_the_pattern_names_are_as_before(tmp_path: Path) -> None:
    for pattern, path in (("run", "run/a.csv"), ("run", "run/only.log"), ("*.log", "a.log"), ("run", "run/logistic.txt")):
        root = tmp_path / path
        write(root / "work" / "run" / "_EMPTY", "")
        made, file = collector(launch(root, checkpoint_path=pattern)), write(root / "work" / path, "1\n")
        for _ in range(3):
            assert look(made, opened=inode(file)) == [], "it is open"
            wait_quiet()


def test_of_a_file_that_grows_what_was_there_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may grow, or be cut, between the look at its size and the last byte read."""
    path, real = write(tmp_path / "main.log", "12345678"), stage._copy
    for content, size in (("12345678 and more", 8), ("123", 3)):
        part = tmp_path / f"part{size}"
        part.mkdir()
        path.write_text("12345678")

        def copied(reading: int, target: str, bytes: int, content: str = content) -> str:
            path.write_text(content)
            return real(reading, target, bytes)

        monkeypatch.setattr(stage, "_copy", copied)
        entry = stage._take(stage.Source(str(path), "main.log", None), str(part), False, stage.Check())
        assert (entry["bytes"], (part / "main.log").read_text()) == (size, content[:size])
    with pytest.raises(stage.Raced):
        stage._take(stage.Source(str(path), "a.log", signature(tmp_path.stat())), str(tmp_path / "part8"), False, stage.Check())
