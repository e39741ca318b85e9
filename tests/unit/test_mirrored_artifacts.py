"""A file that cannot be copied into a tracker is skipped, and the reason is recorded; others are copied."""

import io
from pathlib import Path
from typing import BinaryIO

import pytest

from trainmaster.errors import DamagedError, NotFoundError, StoreRefusedError, StoreUnavailableError, TrainmasterError
from trainmaster.model.checkpoints import Artifact
from trainmaster.ports.tracker import Mirrored, RunRefusedError, RunTroubledError
from trainmaster.store.mirror_state import MirrorFile
from trainmaster.testing.tracker_contract import MemoryTracker, some_run
from trainmaster.tracking.artifacts import ArtifactCopier
from trainmaster.tracking.run_directories import RunDirectories

LONG = "n" * 256


def same(run: Mirrored) -> Mirrored:
    return run


@pytest.mark.parametrize(
    ("path", "error", "why"),
    [
        ("bad.png", DamagedError("bad.png is damaged"), "bad.png is damaged"),
        ("bad.png", NotFoundError("no bad.png"), "no bad.png"),
        ("bad.png", OSError(5, "Input/output error"), "Input/output error"),
        (LONG, None, "File name too long"),
    ],
)
def test_a_file_that_cannot_be_read_is_skipped_and_named(tmp_path: Path, path: str, error: Exception | None, why: str) -> None:
    def opened(job: str, one: Artifact) -> BinaryIO:
        if error is not None and one.path == path:
            raise error
        return io.BytesIO(b"bytes")

    tracker = MemoryTracker()
    ref = tracker.begin(some_run()).ref
    copier = ArtifactCopier(lambda job, limit: [Artifact(path, "1", 5, 1), Artifact("good.png", "2", 5, 1)], opened, tmp_path)
    run = copier(tracker, Mirrored("digits-1", ref, "http://h/1"), same)
    assert run.kept == {path: f"not copied: {why}", "good.png": "2"}
    assert copier(tracker, run, same) is run  # tried again, with the same result

    file = MirrorFile(tmp_path / "mirror.db")
    file.of("memory").save(None, [run])
    assert file.urls("digits-1") == {"memory": f"http://h/1 ({path} not copied: {why})"}
    file.close()


@pytest.mark.parametrize("path", ["n" * 252, "plot/inside.png"])
def test_a_directory_refuses_only_the_file_whose_name_it_cannot_store(tmp_path: Path, path: str) -> None:
    runs, source = RunDirectories(tmp_path), tmp_path / "source"
    source.write_bytes(b"bytes")
    ref = str(runs.begin(some_run()))
    runs.keep(ref, "plot", source)
    with pytest.raises(RunRefusedError, match="cannot be stored"):
        runs.keep(ref, path, source)


@pytest.mark.parametrize("kind", [StoreUnavailableError, StoreRefusedError])
def test_a_store_that_fails_is_the_trouble_of_this_run_and_not_of_the_tracker(tmp_path: Path, kind: type[TrainmasterError]) -> None:
    """One job's file stopped the points of all jobs, and `tm doctor` said that MLflow did not answer."""

    def opened(job: str, one: Artifact) -> BinaryIO:
        raise kind("the store could not read a.png")

    tracker = MemoryTracker()
    copier = ArtifactCopier(lambda job, limit: [Artifact("a.png", "1", 5, 1)], opened, tmp_path)
    with pytest.raises(RunTroubledError, match=r"\Athe store could not read a\.png\Z"):
        copier(tracker, Mirrored("digits-1", tracker.begin(some_run()).ref, ""), same)


def test_what_was_copied_before_a_failure_is_not_copied_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def opened(job: str, one: Artifact) -> BinaryIO:
        asked.append(one.path)
        if one.path == "b.png":
            raise StoreRefusedError("no")
        return io.BytesIO(b"bytes")

    tracker, kept = MemoryTracker(), list[Mirrored]()
    copier = ArtifactCopier(lambda job, limit: [Artifact("a.png", "1", 5, 1), Artifact("b.png", "2", 5, 1)], opened, tmp_path)

    def keep(run: Mirrored) -> Mirrored:
        kept.append(run)
        return run

    with pytest.raises(RunTroubledError):
        copier(tracker, Mirrored("digits-1", tracker.begin(some_run()).ref, ""), keep)
    with pytest.raises(RunTroubledError):
        copier(tracker, kept[0], keep)
    assert (asked, len(kept), kept[0].kept) == (["a.png", "b.png", "b.png"], 1, {"a.png": "1"})
