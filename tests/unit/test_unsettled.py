"""What is said of a checkpoint directory that does not come to rest."""

from pathlib import Path

import pytest
from launches import launch, write

from trainmaster.agent.checkpoints import observations, unstored
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.wire.launch import Launch


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstored, "TELL_AFTER_S", 0.0)
    monkeypatch.setattr(observations, "_LACKING_QUIET_S", 1000.0)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)


def collector(orders: Launch) -> tuple[Collector, list[str]]:
    made, told = Collector(orders), list[str]()
    made.prime()
    made.unstored.tell = told.append
    return made, told


def look(made: Collector, opened: Path | None = None) -> None:
    held = {(opened.stat().st_dev, opened.stat().st_ino)} if opened is not None else set[tuple[int, int]]()
    assert made.scan(lambda _: None, True, frozenset(held)) == []


def test_a_log_in_a_checkpoint_directory_is_named(tmp_path: Path) -> None:
    """A run's directory is taken as its checkpoint, and a log in it is written all the time."""
    made, told = collector(launch(tmp_path, checkpoint_path="runs/*"))
    write(tmp_path / "work" / "runs" / "a" / "last.pt", "weights")
    for step in range(3):
        log = write(tmp_path / "work" / "runs" / "a" / "train.out", "step" * (step + 1))
        look(made)
    advice = "if that is a log and no part of it, write --checkpoint runs/a/last.pt; a restart begins from the beginning"
    begin = "checkpoint runs/a is not in the store: "
    assert told[1:] == [f"{begin}it kept changing, or was not seen unchanged: runs/a/train.out is its newest file; {advice}"]
    look(made, log)
    assert told[-1] == f"{begin}the program has it open all the time: runs/a/train.out is open; {advice}"


def test_what_is_no_log_is_not_called_one(tmp_path: Path) -> None:
    """Killed in its first save: the advised pattern would have taken one file of the checkpoint, and lost the rest."""
    zipped, array = b"PK\x03\x04" + b"weights", b"\x01\x02\x03"
    for case, files in {"saved": (array, array), "grows": (array, zipped), "open": (array, zipped)}.items():
        made, told = collector(launch(tmp_path / case, checkpoint_path="out/*"))
        place = tmp_path / case / "work" / "out" / "step0"
        for name, data in zip(("model", "optim"), files, strict=True):
            path = write(place / name, data)
            look(made)
        if case == "grows":
            write(path, zipped * 2)
        look(made, path if case == "open" else None)
        why = "the program has it open all the time" if case == "open" else "it kept changing, or was not seen unchanged"
        assert told[-1] == (
            f"checkpoint out/step0 is not in the store: {why}; write it under another name and rename it when it is done; a restart "
            "begins from the beginning"
        )


def test_what_was_not_finished_by_the_end_did_not_keep_changing(tmp_path: Path) -> None:
    """Tacotron 2: its rank was killed while it wrote the file, which had never changed but this once."""
    made, told = collector(launch(tmp_path, checkpoint_path="out/checkpoint_*"))
    look(made, write(tmp_path / "work" / "out" / "checkpoint_10", b"PK\x03\x04half"))
    assert made.scan(lambda _: None, False, frozenset()) == []
    made.report_unfinished()
    assert told[-1] == (
        "checkpoint out/checkpoint_10 is not in the store: it was still being written, or not yet seen unchanged, when the attempt "
        "ended; write it under another name and rename it when it is done; a restart begins from the beginning"
    )
