"""What a start finds: the best checkpoint that verifies, what is known good, and the rest set aside."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from launches import launch, resume_point, tree, write
from waiting import deadline

from trainmaster.agent.collect import Collector
from trainmaster.agent.restore import Restored, restore
from trainmaster.wire.launch import Launch, ResumePoint


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
    assert restore(second(tmp_path, "out/*.pkl", [])) == Restored()
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
    assert restore(second(tmp_path, "ckpt.pkl", points)) == Restored("0001-00001", 7, [], "ckpt.pkl", str(tmp_path / "work"))
    assert contents(tmp_path / "work") == {"ckpt.pkl": 25}
    assert list(tree(tmp_path / "work.aside")) == ["2/ckpt.pkl"]


def damage(points: list[ResumePoint], how: str) -> None:
    part = Path(points[0]["root"]) / "n0"
    stored = next(part.rglob("*.pkl"))
    if how == "flipped":
        stored.write_bytes(bytes(255 - byte for byte in stored.read_bytes()))
    elif how == "cut":
        os.truncate(stored, 3)
    elif how == "missing":
        stored.unlink()
    elif how == "manifest":
        (part / "MANIFEST.json").write_text("{}")
    elif how == "part":
        part.rename(part.with_name("gone"))


@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "manifest", "part"])
def test_a_corrupt_one_falls_back_to_the_one_before(tmp_path: Path, how: str) -> None:
    points = committed(tmp_path, "out/step_*.pkl", STEPS)
    damage(points, how)
    orders = second(tmp_path, "out/step_*.pkl", points, work=str(tmp_path / "elsewhere"))
    assert restore(orders) == Restored(
        "0001-00002", 50, ["0001-00003"], "out/step_50.pkl", str(tmp_path / "elsewhere" / "out")
    )
    assert contents(tmp_path / "elsewhere") == {"out/step_50.pkl": 50}
    if how in ("manifest", "part"):  # on its own node too: what cannot be verified goes aside
        assert restore({**orders, "work": str(tmp_path / "work")}).id == "0001-00002"
        assert contents(tmp_path / "work") == {"out/step_25.pkl": 25, "out/step_50.pkl": 50}


def test_when_all_are_corrupt_it_begins_anew(tmp_path: Path) -> None:
    points = committed(tmp_path, "ckpt.pkl", {"ckpt.pkl": pickle.dumps(25)})
    damage(points, "manifest")
    assert restore(second(tmp_path, "ckpt.pkl", points)) == Restored(bad=["0001-00001"])
    assert contents(tmp_path / "work") == {}


def test_a_store_out_of_reach_says_nothing_about_checkpoints(tmp_path: Path) -> None:
    points = committed(tmp_path, "ckpt.pkl", {"ckpt.pkl": pickle.dumps(25)})
    (tmp_path / "blobs").rename(tmp_path / "unmounted")
    with pytest.raises(FileNotFoundError, match="cannot be reached"):
        restore(second(tmp_path, "ckpt.pkl", points))
    assert contents(tmp_path / "work") == {"ckpt.pkl": 25}


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
    expected = Restored("0001-00001", 40, [], "out/ckpt-40", str(work / "out" / "ckpt-40"))
    write(work / "out" / "ckpt-40" / "more.bin", "written after")
    assert restore(second(tmp_path, "out/ckpt-*", points)) == expected
    assert tree(work) == whole
    assert (work / "out" / "ckpt-40" / "model.bin").stat().st_mode & 0o777 == 0o600
    inode = (work / "out" / "ckpt-40").stat().st_ino
    assert restore(second(tmp_path, "out/ckpt-*", points)) == expected
    assert (work / "out" / "ckpt-40").stat().st_ino == inode


def test_sdk_checkpoints_get_a_directory_of_their_own(tmp_path: Path) -> None:
    orders = launch(tmp_path, checkpoint_path="ckpt.pkl")
    write(tmp_path / "staging" / "deep" / "model.pt", "m")
    staged = Collector(orders).sdk_checkpoint(0, 5, str(tmp_path / "staging"), "one")
    write(tmp_path / "work" / "ckpt.pkl", "not committed")
    points = [resume_point(orders["checkpoint_store"], staged[0])]
    place = tmp_path / "work.resume" / "0001-s5"
    for _ in range(2):
        assert restore(second(tmp_path, "ckpt.pkl", points)) == Restored("0001-s5", 5, [], str(place), str(place))
        assert tree(place) == {"deep/model.pt": "m"}
        assert tree(tmp_path / "work") == {}
        (place / "deep" / "model.pt").write_text("changed by the program")
