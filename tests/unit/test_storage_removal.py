"""Removal of stored bytes: everything on disk is counted, removals are recorded first, and needed bytes stay."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainmaster.configuration import RetentionSettings
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.workers import Inline
from trainmaster.control.world import World
from trainmaster.engines.local import removing
from trainmaster.home import Home
from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint
from trainmaster.lifecycle.machine import apply
from trainmaster.lifecycle.pending import pending
from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.model.commands import GiveUpBytes
from trainmaster.model.events import BytesGivenUp, BytesRemoved
from trainmaster.model.job import Attempt, Job, State
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.storage_kinds import OF_ENDED, StorageKind
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.server.storage import disk_usage, removal, retention
from trainmaster.server.storage.retention import DAY_S, Retention
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.testing.store_contract import some_attempt, some_job
from trainmaster.wire import disks

CHECKPOINT = Checkpoint("0001-1", 1, 1, (Part(0, "d", 1, 5),))


def ended(number: int = 1, ended_s: float = 1000.0, **changes: object) -> Job:
    job = some_job(number, State.SUCCEEDED, attempt=some_attempt(1), ended_s=ended_s, checkpoints=(CHECKPOINT,))
    return replace(job, id=f"train-{number}", **changes)  # type: ignore[arg-type]


def fill(home: Home, job: str, attempts: int = 1) -> None:
    """Work directories, files set aside, and the attempts of a job."""
    for number in range(1, attempts + 1):
        directory = home.attempt(job, number, 0)
        directory.mkdir(parents=True)
        for name in ("rank0.log", "exit.json"):
            (directory / name).write_bytes(b"x" * 10_000)
        aside = home.jobs_work(job) / "node0.aside" / f"{number}-0.work"
        aside.mkdir(parents=True)
        (aside / "old.pt").write_bytes(b"x" * 50_000)
    work = home.work(job, "node0")
    work.mkdir(parents=True)
    (work / "model.pt").write_bytes(b"x" * 100_000)


def test_what_a_person_gives_up_is_recorded_first_and_forgotten_when_it_is_gone() -> None:
    """L4: whatever dies in between, state alone calls for the rest."""
    job, effects = apply(ended(), "train-1", BytesGivenUp("ann", ("work", "checkpoints", "metrics", "no-such")), 9.0)
    assert effects == (DeleteCheckpoint("train-1", "0001-1"), Clear("train-1", "work"))
    assert pending(job) == effects
    assert (job.checkpoints, job.removed, job.removed_by) == ((), ("work", "checkpoints", "metrics"), "ann")
    again, effects = apply(job, "train-1", BytesGivenUp("ann", ("work",)), 10.0)
    assert (again, effects) == (job, (Clear("train-1", "work"),))
    job, _ = apply(job, "train-1", BytesRemoved("work", 7), 11.0)
    assert pending(job) == (DeleteCheckpoint("train-1", "0001-1"),)
    assert job.removed == ("work", "checkpoints", "metrics")


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
def test_of_a_job_that_is_not_over_only_early_things_go(state: State) -> None:
    """L4: its work directory may hold the only checkpoint it will restart from."""
    job = replace(ended(), state=state, ended_s=None, attempt=None if state is State.QUEUED else some_attempt(1))
    changed, effects = apply(job, job.id, BytesGivenUp("ann", tuple(kind.value for kind in StorageKind)), 9.0)
    assert effects == (Clear(job.id, "aside"), Clear(job.id, "early-logs"))
    assert (changed.checkpoints, changed.removed) == (job.checkpoints, ())


def test_early_things_are_those_before_the_newest_attempts(tmp_path: Path) -> None:
    home = Home(tmp_path)
    fill(home, "train-1", attempts=5)
    assert removing.clear(home, "train-1", "aside") > 100_000
    assert sorted(path.name for path in (home.jobs_work("train-1") / "node0.aside").iterdir()) == [
        "3-0.work",
        "4-0.work",
        "5-0.work",
    ]
    assert removing.clear(home, "train-1", "early-logs") >= 20_000
    left = {(number, name) for number in range(1, 6) for name in os.listdir(home.attempt("train-1", number, 0))}
    assert left == {(n, "exit.json") for n in range(1, 6)} | {(n, "rank0.log") for n in (3, 4, 5)}
    assert home.work("train-1", "node0").exists()
    assert removing.clear(home, "train-1", "work") > 100_000
    assert removing.clear(home, "train-1", "logs") > 0
    assert (removing.clear(home, "train-1", "work"), list(home.jobs_work("").iterdir())) == (0, [])


def test_what_the_disk_refuses_is_asked_for_again(tmp_path: Path) -> None:
    class Engine:
        refuses = True

        def clear(self, job: str, kind: str) -> int:
            if self.refuses:
                raise OSError(5, "Input/output error")
            return 7

    engine = Engine()
    runner = EffectRunner(engine, None, str, Inline())  # type: ignore[arg-type]
    runner.run([Clear("train-1", "work")], World())
    assert runner.removals.cleared == []
    engine.refuses = False
    runner.run([Clear("train-1", "work"), Clear("train-1", "work")], World())
    assert runner.removals.cleared == [(Clear("train-1", "work"), 7)]


def test_everything_in_the_home_is_counted_once(tmp_path: Path) -> None:
    """L4: work directories, files set aside, logs and databases were not counted."""
    home = Home(tmp_path)
    fill(home, "train-1", attempts=2)
    fill(home, "train-2")
    for name in (
        "blobs/checkpoints/train-1/0001-1/x",
        "blobs/code/trees/y",
        "metrics.db",
        "metrics.db-wal",
        "backups/1/events.db",
        "cache/z",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 5000)
    found = disk_usage.use(home)
    assert set(found.kinds) == {"work", "set aside", "logs", "checkpoints", "code", "metrics.db", "cache", "other"}
    assert sum(size.files for size in found.kinds.values()) == sum(len(files) for _, _, files in os.walk(tmp_path))
    (first, kinds), _ = found.largest()
    assert (first, set(kinds)) == ("train-1", {"work", "set aside", "logs", "checkpoints"})
    assert {kind: size.bytes for kind, size in disk_usage.of_job(home, "train-1").items()} == kinds
    assert found.free_bytes > 0


def test_a_tree_is_measured_as_it_lies_on_the_disk_and_removed_whatever_its_rights(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "locked").mkdir(parents=True)
    elsewhere.write_text("stays")
    (root / "locked" / "link").symlink_to(elsewhere)
    with (root / "sparse").open("wb") as file:
        file.truncate(10**9)
    (root / "locked").chmod(0o500)
    assert disks.size(root).bytes < 10**6
    disks.remove(root)
    assert not root.exists()
    assert elsewhere.read_text() == "stays"
    assert (disks.remove(root), disks.size(root)) == (0, disks.Size())


def test_a_directory_that_cannot_be_read_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had no size, so `tm rm` could say that there is nothing to remove."""
    home, refused, listed = Home(tmp_path), tmp_path / "work" / "train-1" / "node0", os.listdir
    fill(home, "train-1")
    refusing = [True]

    def listing(path: str = ".") -> list[str]:
        if refusing and str(path).startswith(str(refused)):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr("os.listdir", listing)
    monkeypatch.setattr("os.chmod", lambda path, mode: refusing.clear())
    there = disk_usage.of_job(home, "train-1")
    assert (there["work"].unread, there["work"].bytes < 100_000, there["logs"].unread) == (1, True, 0)
    assert disk_usage.use(home).kinds["work"].unread == 1
    monkeypatch.setattr("trainmaster.server.storage.disk_usage.Path.iterdir", lambda path: iter(map(path.joinpath, listing(str(path)))))
    refused = home.jobs_work("train-1")
    assert disk_usage.of_job(home, "train-1")["work"] == disks.Size(unread=1)
    assert disks.remove(home.jobs_work("train-1")) > 150_000, "what was made readable is counted"


def test_a_tree_deeper_than_a_path_may_be_long_is_removed(tmp_path: Path) -> None:
    """A program may nest directories deeply; their removal must not end control."""
    root = tmp_path / "root"
    (root / ".going-0" / ".going-1").mkdir(parents=True)  # a removal that was broken off
    depth = sys.getrecursionlimit() + 100
    directory = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deeper", dir_fd=directory)
        below = os.open("deeper", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.mkdir("beside", dir_fd=directory)
    os.close(directory)
    try:
        disks.remove(root)
        assert os.listdir(tmp_path) == []
    finally:
        subprocess.run(["rm", "-rf", root], check=True)  # what is left of it would end later runs, which remove their directories


@dataclass
class Events:
    """The record, as far as the retention looks at it."""

    jobs: dict[str, Job]

    def job(self, id: str) -> Job | None:
        return self.jobs.get(id)

    def attempts(self, id: str) -> list[Attempt]:
        return []

    def children(self, id: str) -> list[str]:
        return [job.id for job in self.jobs.values() if job.lineage is not None and job.lineage.job == id]


def due(home: Home, jobs: list[Job], now_s: float, stored: bool = True, **settings: float) -> list[GiveUpBytes]:
    events = Events({job.id: job for job in jobs})
    given = RetentionSettings(**{"free_percent": 0.0, **settings})
    return list(Retention(home, events, given, lambda job, checkpoint: stored).due(now_s))  # type: ignore[arg-type]


def test_what_ended_long_ago_goes_by_its_age(tmp_path: Path) -> None:
    """L4: the defaults are 30 days for work directories and 180 for logs; never a job that may go on."""
    home = Home(tmp_path)
    jobs = [ended(1, 1000.0), ended(2, 160 * DAY_S), ended(3, 199 * DAY_S), replace(ended(4), state=State.QUEUED, ended_s=None)]
    for job in jobs:
        fill(home, job.id)
    fill(home, "stranger-1")
    now_s = 200 * DAY_S
    assert due(home, jobs, now_s) == [
        GiveUpBytes("train-1", "retention", (StorageKind.WORK, StorageKind.LOGS)), GiveUpBytes("train-2", "retention", (StorageKind.WORK,))
    ]  # fmt: skip
    assert due(home, jobs, now_s, work_days=0.0, logs_days=0.0) == []


def test_on_a_full_disk_the_oldest_go_before_their_time_but_nothing_of_the_last_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L4: by size, too."""
    home, now_s = Home(tmp_path), 100 * DAY_S
    jobs = [ended(1, now_s - 5 * DAY_S), ended(2, now_s - 9 * DAY_S), ended(3, now_s - 2 * DAY_S), ended(4, now_s - 60.0)]
    for job in jobs:
        fill(home, job.id)
    monkeypatch.setattr(Retention, "_missing", lambda self: 300_000)
    assert [one.job for one in due(home, jobs, now_s)] == ["train-2", "train-1"]
    monkeypatch.setattr(Retention, "_missing", lambda self: 10**12)
    assert [one.job for one in due(home, jobs, now_s)] == ["train-2", "train-1", "train-3"]


def test_of_a_job_that_restarts_often_only_the_newest_attempts_are_kept_whole(tmp_path: Path) -> None:
    """L4: twenty restarts of a large checkpoint filled the disk. Without a good checkpoint in the store nothing goes."""
    home = Home(tmp_path)
    job = replace(ended(1), state=State.QUEUED, ended_s=None, attempt=some_attempt(4))
    fill(home, job.id, attempts=4)
    assert due(home, [job], 9.0) == [GiveUpBytes("train-1", "retention", (StorageKind.ASIDE, StorageKind.EARLY_LOGS))]
    assert due(home, [replace(job, checkpoints=(replace(CHECKPOINT, good=False),))], 9.0) == []
    assert due(home, [job], 9.0, stored=False) == []  # what was set aside may be all that is left
    assert due(home, [replace(job, attempt=some_attempt(3))], 9.0) == []


def test_curves_are_thinned_and_keep_their_best_and_their_last(tmp_path: Path) -> None:
    """L4: points were kept for ever."""
    store = SqlMetricStore(tmp_path / "metrics.db")
    values = [float(step % 97) for step in range(5000)]
    values[1234], values[2345] = -5.0, 500.0
    store.write([MetricPoint("train-1", 1, 0, step, "loss", value, 1.0) for step, value in enumerate(values)], [])
    store.write([MetricPoint("train-2", 1, 0, step, "loss", 1.0, 1.0) for step in range(10)], [])
    assert store.jobs("", 10) == ["train-1", "train-2"]
    events = Events({"train-1": ended(1), "train-2": ended(2, removed=("metrics",))})
    settings = RetentionSettings(metrics_points=100.0)
    keeper = Retention(Home(tmp_path), events, settings, lambda job, checkpoint: True)  # type: ignore[arg-type]
    assert keeper.thin(store, store.jobs("", 10), 1000.0 + DAY_S) == ["train-2"]
    assert len(store.series("train-1", "loss", 10_000)) == 5000  # it ended only yesterday
    keeper.thin(store, ["train-1"], 1000.0 + 200 * DAY_S)
    left = store.series("train-1", "loss", 10_000)
    assert 100 <= len(left) <= 102
    assert (left[0][0], left[-1][0]) == (0, 4999)
    assert [store.best("train-1", "loss", largest)[1] for largest in (False, True)] == [-5.0, 500.0]  # type: ignore[index]
    assert store.series("train-2", "loss") == []
    assert store.last(["train-2"])["train-2"]["loss"][0] == 9
    assert store.thin("train-1", 100) == 0
    store.close()


def test_an_order_is_given_once_a_day(tmp_path: Path) -> None:
    order = GiveUpBytes("train-1", "retention", OF_ENDED)
    assert (
        retention.row(order, 5 * DAY_S).key == retention.row(order, 5 * DAY_S + 60.0).key != retention.row(order, 6 * DAY_S).key
    )


def test_a_reproduction_of_a_fork_needs_the_checkpoint_too(tmp_path: Path) -> None:
    """Only direct children were looked at."""
    fork = ended(2, lineage=Lineage(Relation.FORK, "train-1", CHECKPOINT, "train-1"))
    again = replace(ended(3, lineage=Lineage(Relation.REPRODUCTION, "train-2", CHECKPOINT, "train-1")), state=State.QUEUED)
    other = replace(ended(4, lineage=Lineage(Relation.FORK, "train-2", CHECKPOINT, "train-2")), state=State.QUEUED)
    without = replace(ended(5, lineage=Lineage(Relation.REQUEUE, "train-1")), state=State.QUEUED)
    events = Events({job.id: job for job in (ended(1), fork, again, other, without)})
    api = SimpleNamespace(services=SimpleNamespace(events=events))
    assert list(removal._forks(api, ended(1))) == ["train-3"]  # type: ignore[arg-type]
