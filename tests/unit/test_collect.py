"""When a checkpoint counts as complete, by which evidence, and what is staged of it; `look` is one scan of the agent."""

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launches import launch, manifest, tree, write

from trainmaster.agent.checkpoints import observations
from trainmaster.agent.checkpoints.collect import Collector
from trainmaster.wire.launch import Launch


class _Clock:
    """The collector's clock: only `wait_quiet` lets its time pass."""

    now_s = 0.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits that law needs, without waiting: the rules are the same."""
    monkeypatch.setattr(observations, "time", SimpleNamespace(monotonic=lambda: _Clock.now_s, time_ns=time.time_ns))
    monkeypatch.setattr(observations, "_FRESH_NS", 0)


def collector(orders: Launch) -> Collector:
    made = Collector(orders)
    made.prime()
    made.scan(lambda _: None, True, frozenset())  # from here on the kernel's notices are taken
    return made


def brief(staged: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(one["id"], one["step"], one["approximate"], one["files"], one["bytes"]) for one in staged]


def look(made: Collector, running: bool = True, opened: frozenset[Any] = frozenset()) -> list[tuple[Any, ...]]:
    return brief(made.scan(lambda _: 7, running, opened))


def wait_quiet() -> None:
    """Let the time pass that must lie between two looks."""
    _Clock.now_s += observations.QUIET_S
    time.sleep(0.005)  # the times of files are coarse


def inode(path: Path) -> frozenset[Any]:
    status = path.stat()
    return frozenset({(status.st_dev, status.st_ino)})


def test_a_file_proven_by_its_format_counts_at_once_and_once(tmp_path: Path) -> None:
    orders = launch(tmp_path, checkpoint_path="out/step_*.pkl")
    made = collector(orders)
    data = pickle.dumps({"step": 25})
    path = write(tmp_path / "work" / "out" / "step_00000025.pkl", data)
    staged = made.scan(lambda _: 24, True, frozenset())
    assert brief(staged) == [("0001-00001", 25, False, 1, len(data))]
    assert (staged[0]["parts_expected"], len(staged[0]["digest"])) == (1, 64)
    assert manifest(orders["checkpoint_store"], "0001-00001") == {
        "id": "0001-00001",
        "job": "digits-1",
        "attempt": 1,
        "node_index": 0,
        "step": 25,
        "approximate": False,
        "kind": "glob",
        "directories": [],
        "files": [
            {
                "path": "out/step_00000025.pkl",
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "mode": 0o644,
            }
        ],
    }
    assert look(made) == look(made, running=False) == []
    os.utime(path, (1, 1))
    assert [one[0] for one in look(made)] == ["0001-00002"]


def test_a_torn_file_never_counts(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="out/*"))
    data = pickle.dumps(list(range(1000)))
    write(tmp_path / "work" / "out" / "step_1.pkl", data[:-10])
    write(tmp_path / "work" / "out" / "b_2.json", '{"a": [1, 2')
    write(tmp_path / "work" / "out" / "empty_3.txt", "")
    for _ in range(3):
        assert look(made) == []
        wait_quiet()
    assert look(made, running=False) == []
    assert tree(tmp_path / "blobs") == {"checkpoints/digits-1": "/"}


def test_an_unknown_format_counts_when_seen_twice_and_closed(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="model_*.txt"))
    path = write(tmp_path / "work" / "model_40.txt", "40")
    assert look(made, opened=inode(path)) == []
    wait_quiet()
    assert look(made, opened=inode(path)) == []
    assert look(made) == [("0001-00001", 40, False, 1, 2)]
    path.write_text("41")
    assert look(made) == []
    path.write_text("4")
    wait_quiet()
    assert look(made) == []
    wait_quiet()
    assert look(made) == [("0001-00002", 40, False, 1, 1)]


def test_after_the_end_nothing_is_seen_for_the_first_time(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="model_*.txt"))
    write(tmp_path / "work" / "model_1.txt", "twice before the end")
    assert look(made) == look(made) == []
    write(tmp_path / "work" / "model_2.txt", "first seen at the end")
    assert look(made, running=False) == [("0001-00001", 1, False, 1, 20)]
    wait_quiet()
    assert look(made, running=False) == []


def test_after_a_good_end_what_lies_there_is_whole(tmp_path: Path) -> None:
    """Written within the last half second: all writers have ended, so nothing can be incomplete."""
    made = collector(launch(tmp_path, checkpoint_path="model_*"))
    told: list[str] = []
    made.unstored.tell = told.append
    write(tmp_path / "work" / "model_1.txt", "first seen at the end")
    write(tmp_path / "work" / "model_2.json", '{"torn": ')
    made.observations.finished = True
    assert look(made, running=False) == [("0001-00001", 1, False, 1, 21)]
    made.report_unfinished()
    assert told[-1].startswith("checkpoint model_2.json is not in the store: it is cut short, by its format;")


def test_after_a_good_end_one_that_lacks_files_is_told(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="model-*"))
    told: list[str] = []
    made.unstored.tell = told.append
    for name in ("model-1/weights.bin", "model-1/optimizer.bin", "model-2/weights.bin"):
        write(tmp_path / "work" / name, "x")
    assert look(made) == []
    made.observations.finished = True
    assert look(made, running=False) == [("0001-00001", 1, False, 2, 2)]
    made.report_unfinished()
    assert told[-1] == (
        "checkpoint model-2 is not in the store: it has fewer files than the one before; a restart begins at step 1"
    )


def test_what_was_never_seen_closed_is_not_whole_after_the_end(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="model_*.txt"))
    path = write(tmp_path / "work" / "model_1.txt", "its writer was killed before it was done")
    for _ in range(3):
        assert look(made, opened=inode(path)) == []
        wait_quiet()
    assert look(made, running=False) == look(made, running=False) == []


def test_one_look_before_the_end_is_not_enough(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="model_*.txt"))
    write(tmp_path / "work" / "model_1.txt", "once")
    assert look(made) == look(made, running=False) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's notices of renames are Linux's")
def test_renamed_into_place_counts_even_after_the_end(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    made = collector(launch(tmp_path, checkpoint_path="out/*.bin"))
    write(work / "out" / "last.bin.tmp", "whole").rename(work / "out" / "last.bin")
    write(work / "out" / "torn.bin", "straight to place")
    assert look(made, running=False) == [("0001-00001", 7, True, 1, 5)]
    write(work / "out" / "next.tmp", "whole").rename(work / "out" / "last.bin")
    with open(work / "out" / "last.bin", "a") as file:
        file.write(", and then written to")
    assert look(made, running=False) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's notices of renames are Linux's")
def test_directories(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    made = collector(launch(tmp_path, checkpoint_path="out/checkpoint-*"))
    write(work / "out" / "tmp-1" / "model.bin", "weights")
    write(work / "out" / "tmp-1" / "deep" / "rng.bin", "rng")
    (work / "out" / "tmp-1" / "none").mkdir()
    os.utime(work / "out" / "tmp-1", (1, 1))  # the clock of a file system is coarse: make the move later than the last write
    (work / "out" / "tmp-1").rename(work / "out" / "checkpoint-1")
    assert look(made, running=False) == [("0001-00001", 1, False, 2, 10)]
    listed = manifest(str(tmp_path / "blobs" / "checkpoints" / "digits-1"), "0001-00001")
    assert listed["directories"] == [f"out/checkpoint-1{below}" for below in ("", "/deep", "/none")]
    place = work / "out" / "checkpoint-2"
    write(place / "model.bin", pickle.dumps(1))
    assert look(made) == []
    write(place / "deep" / "rng.bin", pickle.dumps(2)[:-1])
    assert look(made) == []
    (place / "deep" / "rng.bin").write_bytes(pickle.dumps(2))
    assert [one[:2] for one in look(made, running=False)] == [("0001-00002", 2)]


def test_a_directory_that_lacks_what_the_last_one_had_must_hold_still_for_longer(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="checkpoint-*"))
    for name in ("model-1-of-2", "model-2-of-2"):
        write(tmp_path / "work" / "checkpoint-1" / name, "weights")
    assert look(made) == []
    wait_quiet()
    write(tmp_path / "work" / "checkpoint-2" / "model-1-of-2", pickle.dumps(1))
    assert look(made) == [("0001-00001", 1, False, 2, 14)]
    for _ in range(3):
        assert look(made) == []
        wait_quiet()
    assert look(made, running=False) == []


def test_the_first_of_several_files_may_lack_what_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says yet what belongs to it: a program that pauses between two files is not done when all it wrote is closed."""
    for path, pattern in (("checkpoint-{}/model.bin", "checkpoint-*"), ("{}.model.bin", "{step}.*.bin")):
        root = tmp_path / pattern
        monkeypatch.setattr(observations, "_LACKING_QUIET_S", 1000.0)
        made = collector(launch(root, checkpoint_path=pattern))
        write(root / "work" / path.format(20), "weights")
        for _ in range(3):
            assert look(made) == []
            wait_quiet()
        assert look(made, running=False) == []  # killed in that pause
        write(root / "work" / path.format(40), "weights")  # it has gone on: the one before is done
        assert look(made) == [("0001-00001", 20, False, 1, 7)]
        assert look(made) == []
        wait_quiet()
        assert look(made) == [("0001-00002", 40, False, 1, 7)]  # as the one before


def test_a_directory_that_is_written_over_counts_when_every_file_is_new(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="state-*"))
    found = []
    for content in ("one", "three", "fifteen"):
        for name in ("model.bin", "optimizer.bin"):
            write(tmp_path / "work" / "state-1" / name, content)
            for _ in range(3):
                found += look(made)
                wait_quiet()
    assert [one[1:] for one in found] == [
        (1, False, 2, 10),
        (1, False, 2, 14),
    ]  # after the first it is known what belongs to it


def test_the_only_one_of_several_files_is_whole_when_all_ranks_ended_well(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="model-*"))
    write(tmp_path / "work" / "model-1" / "weights.bin", "weights")
    for _ in range(2):
        assert look(made) == []
        wait_quiet()
    made.observations.finished = True
    assert look(made, running=False) == [("0001-00001", 1, False, 1, 7)]


def test_all_matches_of_a_step_are_one(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="out/{step}.*.pkl"))
    for step in (100, 20):
        for part in ("model", "optimizer"):
            write(tmp_path / "work" / "out" / f"{step}.{part}.pkl", pickle.dumps(step))
    assert look(made) == []
    wait_quiet()
    size = len(pickle.dumps(20))
    assert look(made) == [("0001-00001", 20, False, 2, 2 * size), ("0001-00002", 100, False, 2, 2 * size)]


def test_links_and_unfinished_names_are_no_checkpoints(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="out/*"))
    write(tmp_path / "work" / "out" / "step_1.pkl", pickle.dumps(1))
    write(tmp_path / "work" / "out" / "step_2.pkl.tmp", pickle.dumps(2))
    (tmp_path / "work" / "out" / "latest").symlink_to("step_1.pkl")
    (tmp_path / "work" / "out" / "away").symlink_to(write(tmp_path / "step_3.pkl", pickle.dumps(3)))
    os.mkfifo(tmp_path / "work" / "out" / "step_4.pkl")
    assert [one[1] for one in look(made)] == [1]


def test_what_prime_saw_is_committed_and_numbers_go_on(tmp_path: Path) -> None:
    orders = launch(tmp_path, checkpoint_path="ckpt.pt", attempt=3, in_place=True)
    path = write(tmp_path / "work" / "ckpt.pt", pickle.dumps(1))
    write(Path(orders["checkpoint_store"]) / "0003-00007" / "n0" / "MANIFEST.json", "{}")
    write(Path(orders["checkpoint_store"]) / "0002-00009" / "n0.part" / "half", "left by a crash")
    made = collector(orders)
    assert look(made) == []
    path.write_bytes(pickle.dumps(22))
    assert [one[:3] for one in look(made)] == [("0003-00008", 7, True)]
    assert "0002-00009/n0.part/half" not in tree(Path(orders["checkpoint_store"]))


def test_other_nodes_and_jobs_without_a_path_collect_nothing(tmp_path: Path) -> None:
    write(tmp_path / "work" / "ckpt.pt", pickle.dumps(1))
    assert look(collector(launch(tmp_path, checkpoint_path="ckpt.pt", node_index=1))) == []
    assert look(collector(launch(tmp_path))) == []


def test_a_full_disk_is_told_and_tried_again(tmp_path: Path) -> None:
    """R6: a real ENOSPC, from a file system of 64 KiB in a mount namespace of a child process."""
    program = f"""
import sys, pickle, os
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from launches import launch, tree
from pathlib import Path
from trainmaster.agent.checkpoints.collect import Collector
root = Path({str(tmp_path)!r})
orders = launch(root, checkpoint_path="ck_*.pkl", in_place=True, checkpoint_store=str(root / "small" / "store"))
(root / "work").mkdir()
made = Collector(orders); made.prime()
told = []; made.unstored.tell = told.append
(root / "work" / "ck_1.pkl").write_bytes(pickle.dumps(os.urandom(40000)))
os.utime(root / "work" / "ck_1.pkl", (1, 1))
filler = root / "small" / "filler"; filler.write_bytes(b"x" * 30000)
first = made.scan(lambda _: 1, True, frozenset())
left = tree(root / "small")
filler.unlink()
second = made.scan(lambda _: 1, True, frozenset())
print([first, told, sorted(left), [one["id"] for one in second]])
"""
    (tmp_path / "small").mkdir()
    script = write(tmp_path / "full.py", program)
    mount = f"mount -t tmpfs -o size=64k none {tmp_path}/small && exec {sys.executable} {script}"
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare: a full disk cannot be made here")
    result = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, text=True)
    if "ermi" in result.stderr or "ermitted" in result.stderr:
        pytest.skip("mounting is not permitted: a full disk cannot be made here")
    text = "checkpoint ck_1.pkl is not in the store: [Errno 28] No space left on device; a restart begins at step 1 if it is on"
    assert eval(result.stdout) == [[], [f"{text} this node again", ""], ["filler", "store"], ["0001-00001"]], result.stderr


def test_a_zip_counts_while_open_and_a_pickle_does_not(tmp_path: Path) -> None:
    made = collector(launch(tmp_path, checkpoint_path="*_*"))
    with zipfile.ZipFile(write(tmp_path / "work" / "ck_1", ""), "w") as archive:
        archive.writestr("a", "b")
    write(tmp_path / "work" / "ck_2", pickle.dumps(2))
    opened = inode(tmp_path / "work" / "ck_1") | inode(tmp_path / "work" / "ck_2")
    assert [one[1] for one in look(made, opened=opened)] == [1]
    assert [one[1] for one in look(made)] == [2]
