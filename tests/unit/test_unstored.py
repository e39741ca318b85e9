"""Checkpoints that are not in the store: what is reported, and how a restart on the same node uses them."""

import errno
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, tree, write

from trainmaster.agent.checkpoints import observations, restore_files, sdk_parts, unstored
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.restore import Restored, restore
from trainmaster.agent.checkpoints.sdk_parts import SdkParts
from trainmaster.agent.checkpoints.unstored import Unstored
from trainmaster.agent.files import stage
from trainmaster.agent.files.globs import Glob
from trainmaster.wire import disks
from trainmaster.wire.launch import Launch


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits that law needs, shorter: the rules are the same."""
    monkeypatch.setattr(observations, "QUIET_S", 0.0)
    monkeypatch.setattr(observations, "_FRESH_NS", 0)
    monkeypatch.setattr(sdk_parts, "PAUSES_S", (0.001, 0.001))
    monkeypatch.setattr(restore_files, "PAUSES_S", (0.001,))


def failing(number: int, when: Callable[[str], bool] = lambda name: True) -> Any:
    """`stage.stage` that fails for some checkpoints."""
    real = stage.stage

    def staged(orders: Launch, identifier: str, content: stage.Content, check: stage.Check) -> dict[str, Any]:
        if any(when(source.name) for source in content.sources):
            raise OSError(number, os.strerror(number))
        return real(orders, identifier, content, check)

    return staged


def collector(orders: Launch) -> tuple[Collector, list[str]]:
    made, told = Collector(orders), list[str]()
    made.prime()
    made.unstored.tell = told.append
    return made, told


def look(made: Collector, times: int = 2, running: bool = True) -> list[tuple[str, int | None]]:
    found = [made.scan(lambda _: None, running, frozenset()) for _ in range(times)]
    return [(one["id"], one["step"]) for staged in found for one in staged]


def test_a_whole_checkpoint_that_could_not_be_stored_is_used_and_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: the disk of the store is full at step 20; the next attempt on this node goes on from there, not from step 10."""
    orders = launch(tmp_path, checkpoint_path="out/ck-*")
    made, told = collector(orders)
    write(tmp_path / "work" / "out" / "ck-10", "ten")
    first = [one for _ in range(2) for one in made.scan(lambda _: None, True, frozenset())]
    point = resume_point(orders["checkpoint_store"], first[0])
    with monkeypatch.context() as patch:
        patch.setattr(stage, "stage", failing(errno.ENOSPC, lambda name: name == "out/ck-20"))
        write(tmp_path / "work" / "out" / "ck-20", "twenty")
        assert look(made) == []
    text = "checkpoint out/ck-20 is not in the store: [Errno 28] No space left on device; a restart begins at step 20"
    assert told == [f"{text} if it is on this node again"]
    write(tmp_path / "work" / "out" / "ck-30", "torn by the crash")
    again = launch(tmp_path, checkpoint_path="out/ck-*", attempt=2, resume=[point])
    assert restore(again) == Restored("work:out/ck-20", 20, [], "out/ck-20", str(tmp_path / "work" / "out"))
    assert tree(tmp_path / "work") == {"out/ck-10": "ten", "out/ck-20": "twenty"}
    made, told = collector(again)
    assert (look(made), told) == ([("0002-00001", 20)], [""])
    assert Path(f"{orders['work']}.unstored.json").exists()  # until the report is durable: who was killed now has told nobody
    made.unstored.reported("0002-00001")
    assert not Path(f"{orders['work']}.unstored.json").exists()


def refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """The orders of an attempt whose `out/ck-20` is whole and not in the store."""
    orders = launch(root, checkpoint_path="out/ck-*")
    made, _ = collector(orders)
    write(root / "work" / "out" / "ck-20", "twenty")
    with monkeypatch.context() as patch:
        patch.setattr(stage, "stage", failing(errno.EIO))
        look(made)
    return orders


@pytest.mark.parametrize("step", [120, None])
def test_the_step_of_one_that_could_not_be_stored_stays_as_it_was_known(
    tmp_path: Path, step: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name has no step. The next attempt called the step exact, and then stored it without one."""
    orders = launch(tmp_path, checkpoint_path="out/last.bin")
    made, told = collector(orders)
    write(tmp_path / "work" / "out" / "last.bin", "weights")
    with monkeypatch.context() as patch:
        patch.setattr(stage, "stage", failing(errno.ENOSPC))
        for _ in range(2):
            assert made.scan(lambda _: step, True, frozenset()) == []
    place = "with out/last.bin" if step is None else "at about step 120"
    assert told[0].endswith(f"; a restart begins {place} if it is on this node again")
    again = launch(tmp_path, checkpoint_path="out/last.bin", attempt=2)
    found = restore(again)
    assert (found.step, found.marks()) == (step, {} if step is None else {"approximate": True})
    began_s = time.time()
    made, _ = collector(again)
    (stored,) = [one for _ in range(2) for one in made.scan(lambda _: None, True, frozenset())]
    assert (stored["step"], stored["approximate"], stored.get("saved_s", 0.0) < began_s) == (step, True, True)


def test_a_note_of_an_older_agent_does_not_make_a_step_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = refused(tmp_path, monkeypatch)
    assert not restore({**orders, "attempt": 2}).approximate
    note = Path(f"{orders['work']}.unstored.json")
    note.write_text(json.dumps({name: value for name, value in json.loads(note.read_text()).items() if name != "approximate"}))
    assert restore({**orders, "attempt": 2}).marks() == {"approximate": True}


def test_a_report_of_one_takes_back_nothing_that_was_said_of_a_later_one(tmp_path: Path) -> None:
    """A look finds step 10 and a cut-short step 20; the main loop reports step 10 after that."""
    made, told = collector(launch(tmp_path, checkpoint_path="out/ck-*"))
    write(tmp_path / "work" / "out" / "ck-10", "ten")
    look(made)
    made.unstored.missed("out/ck-20", "it is cut short")
    made.unstored.reported("0001-00001")
    assert told == ["checkpoint out/ck-20 is not in the store: it is cut short; a restart begins at step 10"]


@pytest.mark.parametrize("why", ["written to", "overtaken", "a later attempt", "another job", "a gang"])
def test_a_note_of_another_time_says_nothing(tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = refused(tmp_path, monkeypatch)
    again: dict[str, Any] = {**orders, "attempt": 2}
    if why == "written to":
        (tmp_path / "work" / "out" / "ck-20").write_text("torn")
    elif why in ("overtaken", "a later attempt"):
        root, id = orders["checkpoint_store"], "0001-00009" if why == "overtaken" else "0002-00001"
        again["attempt"] = 3
        again["resume"] = [{"id": id, "step": 21 if why == "overtaken" else None, "root": f"{root}/{id}"}]
    elif why == "another job":
        again["job"] = "other-1"
    else:
        again["nodes"] = 2
    assert unstored.find_unstored(again) is None  # type: ignore[arg-type]
    assert unstored.find_unstored({**orders, "attempt": 2}) is not None or why == "written to"


@pytest.mark.parametrize("what", ["out/ck-20", "work.unstored.json"])
@pytest.mark.parametrize("times", [1, 99])
def test_one_that_cannot_be_read_is_not_given_up(tmp_path: Path, what: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stale file handle: the restart moved step 20 away and began from the beginning, or took it for stored."""
    orders: Any = {**refused(tmp_path, monkeypatch), "attempt": 2}
    left, told = [times], list[str]()

    def stale(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(path: Any, *arguments: Any, **named: Any) -> Any:
            if str(path).endswith(what) and left[0]:
                left[0] -= 1
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
            return call(path, *arguments, **named)

        return called

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stale(os.stat))
        patch.setattr(os, "open", stale(os.open))
        if times == 1:
            restored, left[0] = restore(orders, tell=told.append).id, 1
            Collector(orders).prime()
            assert (restored, told[0].partition("'")[0]) == ("work:out/ck-20", "retries to restore its checkpoint: [Errno 116] Stale file handle: ")
        else:
            with pytest.raises(OSError, match="Stale file handle"):
                restore(orders)
            with pytest.raises(OSError, match="Stale file handle"):
                Collector(orders).prime()
    assert tree(tmp_path / "work") == {"out/ck-20": "twenty"}
    assert restore(orders).id == "work:out/ck-20"


def test_nothing_in_the_store_and_a_whole_one_in_the_work_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: no checkpoint fits into the store; what the program wrote is not set aside."""
    orders = refused(tmp_path, monkeypatch)
    assert restore({**orders, "attempt": 2}).step == 20
    assert tree(tmp_path / "work") == {"out/ck-20": "twenty"}


def test_one_that_never_holds_still_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: written in place repeatedly; after a while people should know that nothing was ever stored."""
    monkeypatch.setattr(unstored, "TELL_AFTER_S", 0.0)
    made, told = collector(launch(tmp_path, checkpoint_path="ckpt.bin"))
    for step in range(3):
        path = write(tmp_path / "work" / "ckpt.bin", f"{step}" * (step + 1))
        assert look(made, 1) == []
    assert told == [
        "checkpoint ckpt.bin is not in the store: it kept changing, or was not seen unchanged; write it under another name and "
        "rename it when it is done; a restart begins from the beginning"
    ]
    opened = frozenset({(path.stat().st_dev, path.stat().st_ino)})
    made.scan(lambda _: None, True, opened)
    assert "the program has it open all the time" in told[-1]
    assert look(made) == [("0001-00001", None)]
    assert told[-1] == ""


def test_a_database_stays_where_it_is_and_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of Optuna's in SQLite, named as the checkpoint: the restart moved it aside, and all trials were lost."""
    monkeypatch.setattr(unstored, "TELL_AFTER_S", 0.0)
    orders = launch(tmp_path, checkpoint_path="study.db*")
    made, told = collector(orders)
    (tmp_path / "work").mkdir(exist_ok=True)
    base = sqlite3.connect(tmp_path / "work" / "study.db")
    base.execute("pragma journal_mode=wal")
    base.execute("create table trials (n)")
    base.commit()
    assert look(made, 1) == []
    assert "it is a database, which its program writes all the time" in told[0]
    before = set(tree(tmp_path / "work"))
    assert restore({**orders, "attempt": 2}).step is None
    assert set(tree(tmp_path / "work")) == before
    base.close()


def test_what_was_left_unfinished_is_told_at_a_bad_end(tmp_path: Path) -> None:
    made, told = collector(launch(tmp_path, checkpoint_path="out/*.json"))
    write(tmp_path / "work" / "out" / "ck_1.json", "{}")
    look(made)
    write(tmp_path / "work" / "out" / "ck_2.json", '{"cut": }')
    assert look(made, 1, running=False) == []
    made.report_unfinished()
    assert told == ["checkpoint out/ck_2.json is not in the store: it is cut short, by its format; a restart begins at step 1"]


def test_a_pipe_in_the_place_of_the_note_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may write beside its work directory: the thread that looks for checkpoints waited for a reader, and a start for a writer."""
    for name in ("work.unstored.json.part", "work.unstored.json"):
        os.mkfifo(tmp_path / name)
    orders = launch(tmp_path, checkpoint_path="out/ck-*", attempt=2)
    found: list[object] = []
    both = threading.Thread(
        target=lambda: found.append((unstored.find_unstored(orders), refused(tmp_path, monkeypatch), unstored.find_unstored(orders))), daemon=True
    )
    both.start()
    both.join(10.0)
    assert not both.is_alive()
    before, _, after = found[0]  # type: ignore[misc]
    assert (before, after.step) == (None, 20)


def written(root: Path, step: int) -> str:
    return str(write(root / "ck" / f"one-{step}" / "w.bin", "x" * 100).parent)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENAMETOOLONG, errno.ENOTEMPTY])
def test_an_sdk_checkpoint_that_cannot_be_staged_does_not_keep_later_ones(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: it is told and passed over, and its files stay until a later one is stored."""
    orders, lost = launch(tmp_path), list[tuple[str, str]]()
    told = Unstored(orders)
    told.lost = lambda name, why: lost.append((name, why))
    parts = SdkParts(orders, lambda _: None, told)
    monkeypatch.setattr(stage, "stage", failing(number, lambda name: name == "bad"))
    staged = []
    for step in (1, 2, 3):
        directory = written(tmp_path, step)
        if step == 2:
            write(Path(directory) / "bad", "1")
        staged += [one["id"] for one in parts.written(0, step, directory, "one")]
        assert (tmp_path / "ck" / "one-2").exists() == (step == 2)
    assert staged == ["0001-s1", "0001-s3"]
    why = f"[Errno {number}] {os.strerror(number)}; its files stay in {tmp_path}/ck/one-2 at least until a later checkpoint is stored"
    assert lost == [("of step 2", why)]


@pytest.mark.parametrize("remote", [False, True])
def test_files_that_are_said_to_stay_do_until_a_later_checkpoint_is_stored(
    tmp_path: Path, remote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were removed when the next checkpoint could not be staged either, or was empty: the only copy was lost."""
    parts = SdkParts(launch(tmp_path, remote=remote), lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(stage, "stage", failing(errno.EACCES))
        for step in (1, 2):
            assert parts.written(0, step, written(tmp_path, step), "one") == []
        (tmp_path / "ck" / "one-3").mkdir()
        assert parts.written(0, 3, str(tmp_path / "ck" / "one-3"), "one") == []
        assert sorted(os.listdir(tmp_path / "ck")) == ["one-1", "one-2"]
    assert [one["step"] for one in parts.written(0, 4, written(tmp_path, 4), "one")] == [4]
    assert sorted(os.listdir(tmp_path / "ck")) == (["one-1", "one-2"] if remote else [])


def test_an_sdk_checkpoint_waits_for_room_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R8: a full disk is the one thing that only time mends; it is told meanwhile."""
    orders, told = launch(tmp_path), Unstored(launch(tmp_path))
    texts: list[str] = []
    told.tell = texts.append
    parts = SdkParts(orders, lambda _: None, told)
    with monkeypatch.context() as patch:
        patch.setattr(stage, "stage", failing(errno.EDQUOT))
        assert parts.written(0, 1, written(tmp_path, 1), "one") == []
    assert [one["id"] for one in parts.retry()] == ["0001-s1"]
    assert [text[:45] for text in texts] == ["checkpoint of step 1 is not in the store: [Er", ""]


def nested(root: Path, depth: int) -> Path:
    """A directory so deep that nothing which calls itself for each level comes to its end."""
    os.makedirs(root)
    directory = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=directory)
        below = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(os.open("w.bin", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory))
    os.close(directory)
    return root


def test_a_directory_nested_too_deep_is_told_and_keeps_no_other_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deeper than Python's recursion, and than a path may be long. A program can make both; it harms its own checkpoint alone."""
    monkeypatch.setattr(unstored, "TELL_AFTER_S", 0.0)
    made, told = collector(launch(tmp_path, checkpoint_path="**/ck-*"))
    places = [nested(tmp_path / "work" / name, depth) for name, depth in (("ck-1", 1100), ("ck-2", 2500), ("deep", 2500))]
    try:
        write(tmp_path / "work" / "ck-3" / "w.bin", "whole")
        made.observations.finished = True
        assert look(made) == [("0001-00001", 3)]
        made.report_unfinished()
        assert any("ck-1 is not in the store" in text and "nested more than 500 directories deep" in text for text in told)
        restore({**made._launch, "attempt": 2, "resume": []})
        assert sorted(os.listdir(tmp_path / "work")) == ["deep"]
    finally:
        for place in (*places, tmp_path / "work.aside"):
            disks.remove(place)


def test_the_files_of_an_sdk_checkpoint_nested_too_deep_are_removed(tmp_path: Path) -> None:
    lost: list[tuple[str, str]] = []
    unstored_ones = Unstored(launch(tmp_path))
    unstored_ones.lost = lambda name, why: lost.append((name, why))
    parts = SdkParts(launch(tmp_path), lambda _: None, unstored_ones)
    place = nested(tmp_path / "ck" / "one-1", 1100)
    try:
        assert parts.written(0, 1, str(place), "one") == []
        assert "nested more than 500 directories deep" in lost[0][1]
        assert [one["step"] for one in parts.written(0, 2, written(tmp_path, 2), "one")] == [2]
        assert not place.exists()
    finally:
        disks.remove(place)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_a_directory_of_which_not_all_can_be_read_is_no_checkpoint(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: without what is in it the rest looked like the whole, and was committed."""
    monkeypatch.setattr(unstored, "TELL_AFTER_S", 0.0)
    monkeypatch.setattr(observations, "_LACKING_QUIET_S", 0.0)
    made, told = collector(launch(tmp_path, checkpoint_path="ckpt-*"))
    write(tmp_path / "work" / "ckpt-1" / "model.bin", "weights")
    write(tmp_path / "work" / "ckpt-1" / "deep" / "optimizer.bin", "moments")
    real = os.scandir

    def scandir(path: str) -> Any:
        if str(path).endswith("deep"):
            raise OSError(number, os.strerror(number), path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        assert look(made, 3) == []
    assert os.strerror(number) in told[0]
    assert (look(made), told[-1]) == ([("0001-00001", 1)], "")
    monkeypatch.setattr(os, "scandir", scandir)
    if number != errno.EACCES:
        with pytest.raises(OSError, match=os.strerror(number)):
            Glob("deep/*", str(tmp_path / "work" / "ckpt-1")).expand()
