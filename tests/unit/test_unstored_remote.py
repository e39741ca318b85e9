"""With a remote store, a checkpoint counts when its upload has ended; until then, a restart on the node uses its file."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, write

from trainmaster.agent.checkpoints import observations, unstored
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.restore import restore
from trainmaster.agent.files import stage
from trainmaster.wire.launch import Launch


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits that law needs, shorter: the rules are the same."""
    monkeypatch.setattr(observations, "QUIET_S", 0.0)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)


def full(*arguments: Any) -> Any:
    """`stage.stage` on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def collector(orders: Launch) -> tuple[Collector, list[str]]:
    made, told = Collector(orders), list[str]()
    made.unstored.tell = told.append
    return made, told


def look(made: Collector, times: int = 2) -> list[tuple[str, int | None]]:
    return [(one["id"], one["step"]) for _ in range(times) for one in made.scan(lambda _: None, True, frozenset())]


@pytest.mark.parametrize("error", [None, OSError("the store refused it")])
def test_with_a_remote_store_the_end_of_the_upload_decides(tmp_path: Path, error: OSError | None) -> None:
    """"A restart begins at step 10" of one that only this node's cache had; after the refusal no restart used its file."""
    orders = launch(tmp_path, checkpoint_path="out/ck-*", remote=True)
    made, told = collector(orders)
    write(tmp_path / "work" / "out" / "ck-10", "ten")
    assert look(made) == [("0001-00001", 10)]
    made.unstored.missed("out/ck-20", "it is cut short")
    text = "checkpoint out/ck-20 is not in the store: it is cut short; a restart begins at step 10"
    assert told == [f"{text} if it is on this node again"]
    again = {**orders, "attempt": 2}
    left = unstored.find_unstored(again)  # type: ignore[arg-type]
    assert left is not None
    assert left.key == "out/ck-10"
    if error is None:
        made.unstored.reported("0001-00001")
    else:
        made.unstored.not_uploaded("0001-00001", error)
    if error is None:
        assert told[1:] == [text]  # said anew, because a restart now begins there on every node
    made.unstored.missed("out/ck-20", "it is cut short")
    if error is None:
        assert told[1:] == [text]
        assert unstored.find_unstored(again) is None  # type: ignore[arg-type]
        return
    refused = f"checkpoint out/ck-10 is not in the store: {error}; a restart begins at step 10 if it is on this node again"
    assert told[1:] == [refused, f"{text} if it is on this node again"]
    assert restore(again).id == "work:out/ck-10"  # type: ignore[arg-type]


def test_an_upload_that_ends_says_nothing_of_a_later_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 20 waits, and step 30 does not fit onto this node's disk: that step 10 is in the store ends neither."""
    orders = launch(tmp_path, checkpoint_path="out/ck-*", remote=True)
    made, told = collector(orders)
    for step in (10, 20):
        write(tmp_path / "work" / "out" / f"ck-{step}", "some")
        look(made)
    with monkeypatch.context() as patch:
        patch.setattr(stage, "stage", full)
        write(tmp_path / "work" / "out" / "ck-30", "some")
        look(made)
    for id in ("0001-00001", "0001-00002"):
        made.unstored.reported(id)
    text = "checkpoint out/ck-30 is not in the store: [Errno 28] No space left on device; a restart begins at step 30"
    assert told == [f"{text} if it is on this node again"]
    assert unstored.find_unstored({**orders, "attempt": 2}).key == "out/ck-30"  # type: ignore[union-attr,typeddict-item]
    assert look(made, 1) == [("0001-00003", 30)]
    made.unstored.reported("0001-00003")
    assert (told[1:], made.unstored.begins) == ([""], "at step 30")
    assert unstored.find_unstored({**orders, "attempt": 2}) is None  # type: ignore[typeddict-item]


def test_what_is_said_follows_where_a_restart_begins(tmp_path: Path) -> None:
    """Step 30 is missing. What was said of it kept "at step 10" when step 20 had been uploaded."""
    told, made = list[str](), unstored.Unstored(launch(tmp_path, remote=True, nodes=2))
    made.tell = told.append
    made.staged("0001-s10", "of step 10", 10)
    made.reported("0001-s10")
    made.staged("0001-s20", "of step 20", 20)
    made.missed("of step 30", "[Errno 28] No space left on device")
    made.reported("0001-s20")
    missing = "checkpoint of step 30 is not in the store: [Errno 28] No space left on device; a restart begins at step"
    assert told == [f"{missing} 10", f"{missing} 20"]
    made.staged("0001-s40", "of step 40", 40)
    made.reported("0001-s40")
    assert told[2:] == [""]


def test_what_is_said_follows_a_note(tmp_path: Path) -> None:
    orders = launch(tmp_path, checkpoint_path="out/ck-*", remote=True)
    made, told = collector(orders)
    made.unstored.missed("out/ck-10", "it is cut short")
    write(tmp_path / "work" / "out" / "ck-20", "some")
    look(made)
    text = "checkpoint out/ck-10 is not in the store: it is cut short; a restart begins"
    assert told == [f"{text} from the beginning", f"{text} at step 20 if it is on this node again"]


def test_a_note_of_one_that_is_in_the_store_is_not_used(tmp_path: Path) -> None:
    """The agent was killed when the upload had just ended."""
    orders = launch(tmp_path, checkpoint_path="out/last.bin", remote=True)
    made, _ = collector(orders)
    write(tmp_path / "work" / "out" / "last.bin", "weights")
    (staged,) = [one for _ in range(2) for one in made.scan(lambda _: None, True, frozenset())]
    assert unstored.find_unstored({**orders, "attempt": 2}) is not None  # type: ignore[typeddict-item]
    resume = [resume_point(orders["checkpoint_store"], staged)]
    assert unstored.find_unstored({**orders, "attempt": 2, "resume": resume}) is None  # type: ignore[typeddict-item]
