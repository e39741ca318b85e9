"""A start restores the best checkpoint that verifies, keeps known good files, and sets the rest aside."""

import builtins
import errno
import os
import pickle
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, tree, write
from waiting import deadline

from trainmaster.agent.checkpoints import restore_files
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.agent.checkpoints.restore import Restored, restore
from trainmaster.wire.launch import Launch, ResumePoint


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between the tries, shorter: there are as many."""
    monkeypatch.setattr(restore_files, "PAUSES_S", (0.001,) * len(restore_files.PAUSES_S))


def committed(root: Path, path: str, files: dict[str, bytes]) -> list[ResumePoint]:
    """Write files one after the other as a program would, committed each; points newest first, the work directory kept."""
    orders = launch(root, checkpoint_path=path)
    made = Collector(orders)
    made.prime()
    points: list[ResumePoint] = []
    for name, data in files.items():
        os.utime(write(root / "work" / name, data), (1000 + len(points), 1000 + len(points)))
        staged = made.scan(lambda _: 7, True, frozenset())
        assert [one["files"] for one in staged] == [1]
        points.insert(0, resume_point(orders["checkpoint_store"], staged[0]))
    return points


def second(root: Path, path: str | None, points: list[ResumePoint], **changes: Any) -> Launch:
    return launch(root, checkpoint_path=path, resume=points, attempt=2, **changes)


def from_store(*fields: Any, approximate: bool = False) -> Restored:
    """A checkpoint of which all bytes were read from the store."""
    restored = Restored(*fields)
    restored.read, restored.approximate = True, approximate
    return restored


STEPS = {f"out/step_{step}.pkl": pickle.dumps(step) for step in (25, 50, 75)}


def contents(work: Path) -> dict[str, Any]:
    return {str(path.relative_to(work)): pickle.loads(path.read_bytes()) for path in sorted(work.rglob("*.pkl"))}


def test_a_first_start_touches_nothing(tmp_path: Path) -> None:
    write(tmp_path / "work" / "ckpt.pt", "x")
    assert restore(launch(tmp_path, checkpoint_path="ckpt.pt")) == Restored()
    assert restore(launch(tmp_path, checkpoint_path="ckpt.pt", in_place=True, attempt=2)) == Restored()
    assert tree(tmp_path) == {"work/ckpt.pt": "x"}


def test_without_a_checkpoint_a_restart_begins_honestly(tmp_path: Path) -> None:
    write(tmp_path / "work" / "out" / "step_3.pkl", "torn")
    write(tmp_path / "work" / "other.txt", "kept")
    restored = restore(second(tmp_path, "out/*.pkl", []))
    told = f"what matches --checkpoint was not known to be complete and was moved to {tmp_path}/work.aside/2: out/step_3.pkl"
    assert (restored.id, restored.aside) == (None, told), "it may be all that there is, and nothing said where it was"
    assert tree(tmp_path / "work") == {"other.txt": "kept", "out": "/"}
    assert tree(tmp_path / "work.aside") == {"2/out/step_3.pkl": "torn"}


def test_on_the_same_node_the_good_stays_and_the_torn_goes_aside(tmp_path: Path) -> None:
    points = committed(tmp_path, "out/step_*.pkl", STEPS)
    work = tmp_path / "work"
    write(work / "out" / "step_100.pkl", "torn")
    write(work / "out" / "step_25.pkl", "written over")
    (work / "out" / "step_latest.pkl").symlink_to("step_75.pkl")
    (work / "out" / "step_next.pkl").symlink_to("step_100.pkl")
    inode = (work / "out" / "step_75.pkl").stat().st_ino
    assert restore(second(tmp_path, "out/step_*.pkl", points)) == Restored(
        "0001-00003", 75, [], "out/step_75.pkl", str(work / "out")
    )
    assert contents(work) == {"out/step_50.pkl": 50, "out/step_75.pkl": 75, "out/step_latest.pkl": 75}
    assert (work / "out" / "step_75.pkl").stat().st_ino == inode
    aside = tree(tmp_path / "work.aside")
    assert aside == {
        "2/out/step_100.pkl": "torn",
        "2/out/step_25.pkl": "written over",
        "2/out/step_next.pkl": "-> step_100.pkl",
    }


def test_on_another_node_it_is_put_back_where_it_was(tmp_path: Path) -> None:
    points = committed(tmp_path, "out/step_*.pkl", STEPS)
    orders = second(tmp_path, "out/step_*.pkl", points, work=str(tmp_path / "elsewhere"), node_index=1)
    assert restore(orders).path == "out/step_75.pkl"
    assert contents(tmp_path / "elsewhere") == {"out/step_75.pkl": 75}
    assert [path.name for path in (tmp_path / "elsewhere" / "out").iterdir()] == ["step_75.pkl"]


def test_a_file_saved_over_itself(tmp_path: Path) -> None:
    points = committed(tmp_path, "ckpt.pkl", {"ckpt.pkl": pickle.dumps(25)})
    (tmp_path / "work" / "ckpt.pkl").write_bytes(pickle.dumps(50)[:-1])
    expected = from_store("0001-00001", 7, [], "ckpt.pkl", str(tmp_path / "work"), approximate=True)  # its name has no step
    assert restore(second(tmp_path, "ckpt.pkl", points)) == expected
    assert contents(tmp_path / "work") == {"ckpt.pkl": 25}
    assert list(tree(tmp_path / "work.aside")) == ["2/ckpt.pkl"]


def damage(points: list[ResumePoint], how: str) -> None:
    part = Path(points[0]["root"]) / "n0"
    stored = next(part.rglob("*.pkl"))
    if how == "flipped":
        stored.write_bytes(bytes(255 - byte for byte in stored.read_bytes()))
    elif how == "cut":
        os.truncate(stored, 3)
    elif how == "manifest":
        (part / "MANIFEST.json").write_text("{}")


@pytest.mark.parametrize("how", ["flipped", "cut", "manifest"])
def test_a_corrupt_one_falls_back_to_the_one_before(tmp_path: Path, how: str) -> None:
    points = committed(tmp_path, "out/step_*.pkl", STEPS)
    damage(points, how)
    orders = second(tmp_path, "out/step_*.pkl", points, work=str(tmp_path / "elsewhere"))
    assert restore(orders) == from_store(
        "0001-00002", 50, ["0001-00003"], "out/step_50.pkl", str(tmp_path / "elsewhere" / "out")
    )
    assert contents(tmp_path / "elsewhere") == {"out/step_50.pkl": 50}
    if how == "manifest":  # on its own node too: what cannot be verified goes aside
        assert restore({**orders, "work": str(tmp_path / "work")}).id == "0001-00002"
        assert contents(tmp_path / "work") == {"out/step_25.pkl": 25, "out/step_50.pkl": 50}


def test_files_that_are_still_in_place_say_nothing_of_the_store(tmp_path: Path) -> None:
    """The only checkpoint was damaged in the store, and called good again after a restart that had read no byte of it."""
    points = committed(tmp_path, "ckpt.pkl", {"ckpt.pkl": pickle.dumps(25)})
    damage(points, "flipped")
    found = restore(second(tmp_path, "ckpt.pkl", points))
    assert (found.id, found.bad, found.marks()) == ("0001-00001", [], {"approximate": True})
    remote = second(tmp_path, "ckpt.pkl", points, remote=True)
    assert restore({**remote, "work": str(tmp_path / "work")}).marks() == {"approximate": True}  # this node's cache has it


def test_when_all_are_corrupt_it_does_not_begin_anew(tmp_path: Path) -> None:
    """R1: with checkpoints on record only a person's word starts a job from the beginning."""
    points = committed(tmp_path, "ckpt.pkl", {"ckpt.pkl": pickle.dumps(25)})
    damage(points, "manifest")
    found = Restored()
    with pytest.raises(ValueError, match=r"every checkpoint on record is corrupt.*0001-00001.*tm rerun digits-1"):
        restore(second(tmp_path, "ckpt.pkl", points), found)
    assert found == Restored(bad=["0001-00001"])
    assert contents(tmp_path / "work") == {"ckpt.pkl": 25}


def test_a_pipe_where_the_checkpoint_was_is_set_aside(tmp_path: Path) -> None:
    """Opened to be compared with the store, a pipe would hold the start for ever."""
    points = committed(tmp_path, "out/step_*.pkl", STEPS)
    place = tmp_path / "work" / "out" / "step_75.pkl"
    place.unlink()
    os.mkfifo(place)
    assert restore(second(tmp_path, "out/step_*.pkl", points)).step == 75
    assert pickle.loads(place.read_bytes()) == 75
    assert stat.S_ISFIFO((tmp_path / "work.aside" / "2" / "out" / "step_75.pkl").lstat().st_mode)


def test_a_database_stays_and_what_may_be_one_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study in SQLite was moved away and lost. A disk that fails to say what a file is decides nothing."""
    work = tmp_path / "work"
    with closing(sqlite3.connect(write(work / "study.db", ""))) as database, database:
        database.execute("CREATE TABLE trial (value)")
    write(work / "study.db-wal", "log")
    write(work / "study.pt", "torn")
    orders = second(tmp_path, "study.*", [])
    with monkeypatch.context() as disk:
        disk.setattr(builtins, "open", failing(str(work / "study.db"), errno.EIO, 1, []))
        with pytest.raises(OSError, match="Input/output error"):
            restore(orders)
    assert restore(orders).id is None
    assert set(tree(work)) == {"study.db", "study.db-wal"}
    assert tree(tmp_path / "work.aside") == {"2/study.pt": "torn"}


def test_links_in_a_checkpoint_come_back(tmp_path: Path) -> None:
    """A `latest` link within a directory, and a broken link: restored as they were, and not followed."""
    orders, work = launch(tmp_path, checkpoint_path="run-*"), tmp_path / "work"
    work.mkdir()
    made = Collector(orders)
    made.prime()
    made.scan(lambda _: None, True, frozenset())
    write(work / "new" / "step-10" / "model.bin", "weights")
    for name, target in (("latest", "step-10"), ("away", "/nowhere/at/all"), ("step-10/model", "model.bin")):
        (work / "new" / name).symlink_to(target)
    os.utime(work / "new", (1, 1))
    (work / "new").rename(work / "run-1")
    staged = deadline(lambda: made.scan(lambda _: None, True, frozenset()) or None, "the directory renamed into place")
    again = launch(tmp_path, attempt=2, checkpoint_path="run-*", resume=[resume_point(orders["checkpoint_store"], staged[0])])
    for spoil in (lambda: shutil.rmtree(work), (work / "run-1" / "latest").unlink):
        spoil()
        found = restore(again)
        assert (found.path, found.step) == ("run-1", None)
        assert (work / "run-1" / "latest" / "model.bin").read_text() == "weights"
        links = {name: os.readlink(work / "run-1" / name) for name in ("latest", "away")}
        assert links == {"latest": "step-10", "away": "/nowhere/at/all"}
        assert (work / "run-1" / "step-10" / "model").read_text() == "weights"


def unmount(root: Path, points: list[ResumePoint]) -> None:
    (root / "blobs").rename(root / "unmounted")


def lose_part(root: Path, points: list[ResumePoint]) -> None:
    part = Path(points[0]["root"]) / "n0"
    part.rename(part.with_name("gone"))


def lose_file(root: Path, points: list[ResumePoint]) -> None:
    next((Path(points[0]["root"]) / "n0").rglob("*.pkl")).unlink()


@pytest.mark.parametrize("fault", [unmount, lose_part, lose_file])
def test_what_cannot_be_read_is_not_corrupt(tmp_path: Path, fault: Any) -> None:
    """R1: nothing is called bad, nothing older or from the beginning is taken, nothing in the work directory is touched."""
    points = committed(tmp_path, "out/step_*.pkl", STEPS)
    write(tmp_path / "work" / "out" / "step_75.pkl", "written over")
    fault(tmp_path, points)
    before, found, told = tree(tmp_path), Restored(), list[str]()
    with pytest.raises(restore_files.Unreadable, match=r"checkpoint 0001-00003 of step 75 could not be read: .*No such file") as failed:
        restore(second(tmp_path, "out/step_*.pkl", points), found, told.append)
    assert (failed.value.errno, found.bad, found.doubted, found.id) == (errno.ENOENT, [], ["0001-00003"], None)
    assert [text[:33] for text in told] == ["retries to restore its checkpoint"]
    assert tree(tmp_path) == before


def failing(store: str, number: int, times: int, calls: list[str]) -> Any:
    """`open` that fails for what lies in the store, the first `times` calls."""
    real = builtins.open

    def opened(path: Any, *more: Any, **named: Any) -> Any:
        if str(path).startswith(store):
            calls.append(str(path))
            if len(calls) <= times:
                raise OSError(number, os.strerror(number), str(path))
        return real(path, *more, **named)

    return opened


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
def test_a_store_in_trouble_for_a_moment_costs_nothing(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: an error of the store is tried again; the newest checkpoint is put back once it can be read."""
    points = committed(tmp_path, "out/step_*.pkl", STEPS)
    orders = second(tmp_path, "out/step_*.pkl", points, work=str(tmp_path / "elsewhere"))
    monkeypatch.setattr(builtins, "open", failing(orders["checkpoint_store"], number, 5, []))
    assert restore(orders) == from_store("0001-00003", 75, [], "out/step_75.pkl", str(tmp_path / "elsewhere" / "out"))
    monkeypatch.setattr(builtins, "open", failing(orders["checkpoint_store"], number, 10**6, []))
    with pytest.raises(restore_files.Unreadable):
        restore({**orders, "work": str(tmp_path / "third")})


def test_all_good_checkpoints_are_tried(tmp_path: Path) -> None:
    """R7: the newest three of five are corrupt; the two before are whole."""
    steps = {f"out/step_{step}.pkl": pickle.dumps(step) for step in range(1, 6)}
    points = committed(tmp_path, "out/step_*.pkl", steps)
    for at in range(3):
        damage(points[at:], "flipped")
    found = restore(second(tmp_path, "out/step_*.pkl", points, work=str(tmp_path / "elsewhere")))
    assert (found.id, found.step, found.bad) == ("0001-00002", 2, ["0001-00005", "0001-00004", "0001-00003"])


def test_a_name_that_is_not_utf_8_comes_back(tmp_path: Path) -> None:
    """R5: its bytes survive the manifest and the store."""
    orders, work = launch(tmp_path, checkpoint_path="out/*-*"), tmp_path / "work"
    made, name = Collector(orders), os.fsdecode(b"caf\xe9\xff.bin")
    (work / "out").mkdir(parents=True)
    made.prime()
    made.scan(lambda _: None, True, frozenset())
    write(work / "part" / name, "latin")
    os.utime(work / "part", (1, 1))
    (work / "part").rename(work / "out" / "ck-5")
    staged = deadline(lambda: made.scan(lambda _: None, True, frozenset()) or None, "the directory renamed into place")
    elsewhere = tmp_path / "elsewhere"
    points = [resume_point(orders["checkpoint_store"], staged[0])]
    found = restore(second(tmp_path, "out/*-*", points, work=str(elsewhere)))
    assert (found.step, found.path, tree(elsewhere)) == (5, "out/ck-5", {f"out/ck-5/{name}": "latin"})


def test_directories_are_put_back_whole(tmp_path: Path) -> None:
    orders = launch(tmp_path, checkpoint_path="out/ckpt-*")
    work, made = tmp_path / "work", Collector(orders)
    (work / "out").mkdir(parents=True)
    made.prime()
    made.scan(lambda _: None, True, frozenset())
    write(work / "part" / "model.bin", "weights")
    write(work / "part" / "deep" / "rng.bin", "rng")
    (work / "part" / "none").mkdir()
    os.chmod(work / "part" / "model.bin", 0o600)
    os.utime(work / "part", (1, 1))
    (work / "part").rename(work / "out" / "ckpt-40")
    staged = deadline(lambda: made.scan(lambda _: None, True, frozenset()) or None, "the directory renamed into place")
    points = [resume_point(orders["checkpoint_store"], staged[0])]
    whole = {"out/ckpt-40/deep/rng.bin": "rng", "out/ckpt-40/model.bin": "weights", "out/ckpt-40/none": "/"}
    expected = ("0001-00001", 40, [], "out/ckpt-40", str(work / "out" / "ckpt-40"))
    write(work / "out" / "ckpt-40" / "more.bin", "written after")
    assert restore(second(tmp_path, "out/ckpt-*", points)) == from_store(*expected)
    assert tree(work) == whole
    assert (work / "out" / "ckpt-40" / "model.bin").stat().st_mode & 0o777 == 0o600
    inode = (work / "out" / "ckpt-40").stat().st_ino
    assert restore(second(tmp_path, "out/ckpt-*", points)) == Restored(*expected)  # type: ignore[arg-type]
    assert (work / "out" / "ckpt-40").stat().st_ino == inode


def test_sdk_checkpoints_get_a_directory_of_their_own(tmp_path: Path) -> None:
    orders = launch(tmp_path, checkpoint_path="ckpt.pkl")
    write(tmp_path / "staging" / "deep" / "model.pt", "m")
    (tmp_path / "staging" / "last").symlink_to("deep")  # as frameworks name the newest of several
    staged = Collector(orders).sdk_checkpoint(0, 5, str(tmp_path / "staging"), "one")
    write(tmp_path / "work" / "ckpt.pkl", "not committed")
    points = [resume_point(orders["checkpoint_store"], staged[0])]
    place = tmp_path / "work.resume" / "0001-s5"
    for _ in range(2):
        assert restore(second(tmp_path, "ckpt.pkl", points)) == from_store("0001-s5", 5, [], str(place), str(place))
        assert tree(place) == {"deep/model.pt": "m", "last": "-> deep"}
        assert tree(tmp_path / "work") == {}
        (place / "deep" / "model.pt").write_text("changed by the program")


def test_a_sparse_file_stays_sparse(tmp_path: Path) -> None:
    """R24: 64 MiB with nothing in them take no room in the store, nor when they are put back."""
    path = write(tmp_path / "work" / "out" / "step-1.bin.tmp", "head")
    with path.open("r+b") as file:
        file.truncate(64 << 20)
        file.seek(33 << 20)
        file.write(b"middle")
    if path.stat().st_blocks * 512 > 2 << 20:
        pytest.skip("this file system has no sparse files")
    orders = launch(tmp_path, checkpoint_path="out/*.bin")
    made = Collector(orders)
    made.prime()
    made.scan(lambda _: None, True, frozenset())
    path.rename(path.with_suffix(""))
    staged = deadline(lambda: made.scan(lambda _: None, True, frozenset()) or None, "the file renamed into place")
    elsewhere = tmp_path / "elsewhere"
    points = [resume_point(orders["checkpoint_store"], staged[0])]
    assert restore(second(tmp_path, "out/*.bin", points, work=str(elsewhere))).step == 1
    stored = next((tmp_path / "blobs").rglob("step-1.bin"))
    for copy in (stored, elsewhere / "out" / "step-1.bin"):
        assert (copy.stat().st_size, copy.stat().st_blocks * 512 < 4 << 20) == (64 << 20, True)
        assert copy.read_bytes() == (tmp_path / "work" / "out" / "step-1.bin").read_bytes()


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("path", ["out/step_*.pkl", "out/deep/step_*.pkl"])
def test_what_is_in_the_way_of_a_checkpoint_is_a_persons_to_move(tmp_path: Path, path: str, linked: bool) -> None:
    """It stays where it is, and people are told what it is and what to do; the next try then succeeds."""
    points = committed(tmp_path, path, {path.replace("*", "7"): pickle.dumps(7)})
    place, told = tmp_path / "work" / "out", list[str]()
    shutil.rmtree(place)
    if linked:
        place.symlink_to(tmp_path / "away")
        what = "is a link that leads to no directory: mount what it leads to, or move the link away, and the next try continues"
    else:
        write(place, "a file")
        what = "is not a directory, but must be one: move it away, and the next try continues"
    with pytest.raises(restore_files.PathBlocked) as raised:
        restore(second(tmp_path, path, points), tell=told.append)
    assert (str(raised.value), told) == (f"{place} {what}", [f"retries to restore its checkpoint: {place} {what}"])
    assert tree(tmp_path / "work")["out"] == (f"-> {tmp_path}/away" if linked else "a file")
    place.rename(tmp_path / "work" / "out.old")
    assert restore(second(tmp_path, path, points)).id == points[0]["id"]
