"""Garbage collection never removes referenced, young or unfinished blobs; see `garbage_collection_law`."""

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from garbage_collection_law import Interleavings
from garbage_collection_world import GRACE_S, World, bytes_of, checkpoint, sha, tree_of
from hypothesis import HealthCheck, settings

from trainmaster.blobs.code import object_name, store_tree, tree_name
from trainmaster.blobs.fs import FsBlobs
from trainmaster.blobs.garbage_collection import Collecting, Older, collect, older
from trainmaster.blobs.usage import use
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.commands import AgentReport, SubmitJob
from trainmaster.model.job import Job, NodeRun, State
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.blobs import diff_blob, environment_blob
from trainmaster.server.runtime.known_blobs import BlobLock
from trainmaster.testing.store_contract import some_attempt, some_job
from trainmaster.wire.code import canonical

TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def world() -> World:
    made = World()
    spec = replace(JobSpec(command="true", experiment="train"), project="vision")
    job = replace(some_job(1, State.SUCCEEDED, attempt=some_attempt(1), ended_s=1000.0), id="train-1", spec=spec)
    kept = (checkpoint("0001-00001"), checkpoint("0001-00002"))
    store_objects(made, [b"a", b"b"])
    made.recorded["train-1"] = replace(
        job, checkpoints=kept, code=CodeCopy(digest=store_tree(made.blobs, tree_of([b"a", b"b"])))
    )
    for identifier in ("0001-00001", "0001-00002", "0001-00003"):
        made.blobs.put(bytes_of("train-1", identifier), b"12345")
    made.kept["train-1"] = [Artifact("out", sha(b"a"), 1, 1)]
    made.blobs.put(f"artifacts/train-1/{sha(b'a')}", b"a")
    made.blobs.put(f"artifacts/train-1/{sha(b'b')}", b"b")
    made.blobs.put(bytes_of("strange-7", "0001-00001"), b"x")
    made.blobs.put(f"artifacts/strange-7/{sha(b'b')}", b"b")
    made.blobs.put("provenance/later/x.json", b"x")
    return made


def store_objects(world: World, contents: Iterable[bytes]) -> None:
    for each in contents:
        world.blobs.put(object_name(sha(each)), each)


def names(world: World) -> set[str]:
    return {stored.name for stored in world.blobs.walk("")}


def test_only_what_nothing_refers_to_and_is_old_goes(world: World) -> None:
    before = names(world)
    assert world.collect().blobs == 0
    world.blobs.now_s += 1000.0
    store_objects(world, [b"young"])
    done = world.collect()
    assert before - names(world) == {bytes_of("train-1", "0001-00003"), f"artifacts/train-1/{sha(b'b')}"}
    assert (done.blobs, done.bytes, done.young_bytes) == (2, 6, 5)


def test_a_dry_run_removes_nothing(world: World) -> None:
    world.blobs.now_s += 1000.0
    before = names(world)
    done = world.collect(dry_run=True)
    assert (done.blobs, done.by_kind) == (2, {"checkpoints": 5, "artifacts": 1})
    assert names(world) == before


def test_use_is_told_by_project_and_kind(world: World) -> None:
    rows = {
        (one.project, one.kind): (one.blobs, one.bytes, one.orphaned_bytes, one.spare_bytes) for one in use(world.blobs, world)
    }
    assert rows[("vision", "checkpoints")] == (3, 15, 5, 5)
    assert rows[("vision", "artifacts")] == (2, 2, 1, 0)
    assert rows[("(shared)", "code")][0] == 3
    assert rows[("(unknown)", "checkpoints")] == (1, 1, 0, 0)
    assert rows[("(shared)", "provenance")] == (1, 1, 0, 0)


def test_what_a_live_attempt_may_still_commit_stays(world: World) -> None:
    world.recorded["train-1"] = replace(world.recorded["train-1"], state=State.RUNNING)
    world.blobs.now_s += 1000.0
    assert world.collect().blobs == 0


def test_what_lies_there_of_unknown_jobs_goes_only_when_asked_for(world: World) -> None:
    world.blobs.now_s += 1000.0
    world.collect()
    world.blobs.put(bytes_of("strange-8", "0001-00001"), b"young")
    before = names(world)
    assert world.collect(unknown=True).by_kind == {"checkpoints": 1, "artifacts": 1}
    assert before - names(world) == {bytes_of("strange-7", "0001-00001"), f"artifacts/strange-7/{sha(b'b')}"}


def test_what_a_lost_home_may_have_stored_after_the_backup_goes_only_when_asked_for(world: World) -> None:
    """`tm storage gc` removed checkpoints and artifacts that known jobs had stored after the backup was taken."""
    world.home_id = "server.r1a2b3c4d"
    late, own = bytes_of("train-1", "0002-00001"), bytes_of("train-1", "0003-r1a2b-00001")
    artifact = f"artifacts/train-1/{sha(b'late')}"
    for name in (late, own, artifact):
        world.blobs.put(name, b"x")
    world.blobs.now_s += 1000.0
    world.collect()
    assert {late, artifact} <= names(world)
    assert own not in names(world), "this home stored it itself, and nothing refers to it"
    world.collect(unknown=True)
    assert not {late, artifact} & names(world)


def test_without_the_homes_id_what_a_lost_home_may_have_stored_stays(world: World) -> None:
    """`home.json` was removed while the server of a restored home ran, and the collection removed the newest checkpoints."""
    world.home_id = ""
    before = names(world)
    world.blobs.now_s += 1000.0
    assert (world.collect().blobs, names(world)) == (0, before)


def test_patches_and_environments_stay_while_a_job_or_what_waits_refers_to_them(world: World) -> None:
    """Of a job's earlier attempts and its current one, of a submission, and of a report that control has not processed."""
    held = [diff_blob("job"), diff_blob("waits"), *(environment_blob(one) for one in ("earlier", "last", "told"))]
    for name in [*held, diff_blob("nobody"), environment_blob("nothing")]:
        world.blobs.put(name, b"12")
    first, last = some_attempt(1), some_attempt(2)
    world.earlier["train-1"] = [replace(first, nodes=(NodeRun(environment="earlier"),))]
    last = replace(last, nodes=(NodeRun(environment="last"),))
    world.recorded["train-1"] = replace(world.recorded["train-1"], origin=Origin(git_diff="job"), attempt=last)
    world.accept("train-2", SubmitJob("", JobSpec(command="true"), Origin(git_diff="waits"), CodeCopy()))
    world.accept("report", AgentReport("train-1.2/n0", {"kind": "environment", "environment": "told"}))
    rows = {(one.project, one.kind): (one.blobs, one.bytes, one.orphaned_bytes) for one in use(world.blobs, world)}
    assert rows[("(shared)", "provenance")] == (8, 15, 4)
    assert world.collect().young_bytes == 10
    world.blobs.now_s += 1000.0
    assert world.collect().by_kind["provenance"] == 4
    assert {name for name in names(world) if name.startswith("provenance/")} == {*held, "provenance/later/x.json"}


def test_older_checkpoints_are_those_of_jobs_that_are_over_and_that_nobody_starts_from(world: World) -> None:
    assert older(world, 1000.0) == [Older("train-1", ("0001-00001",), 5)]
    assert older(world, 999.0) == []
    lineage = Lineage(Relation.FORK, "train-1", checkpoint("0001-00001"), "train-1")
    world.recorded["train-2"] = replace(some_job(2, State.CANCELLED, lineage=lineage, ended_s=1.0), id="train-2")
    assert older(world, 1000.0) == []
    del world.recorded["train-2"]
    job = world.recorded["train-1"]
    world.recorded["train-1"] = replace(job, checkpoints=(*job.checkpoints, replace(checkpoint("0001-00003"), good=False)))
    assert [one.ids for one in older(world, 1000.0)] == [("0001-00001", "0001-00003")]
    world.recorded["train-1"] = replace(job, state=State.RUNNING, ended_s=None)
    assert older(world, 1000.0) == []


def test_no_tree_is_left_without_its_objects_between_two_batches() -> None:
    """A client that has uploaded its code submits by its digest alone, and is accepted if the tree exists."""
    world, seen = World(), list[str]()
    store_objects(world, [b"a", b"b", b"c"])
    store_tree(world.blobs, tree_of([b"a", b"b", b"c"]))
    world.blobs.now_s += 1000.0
    world.blobs.deleting = lambda: seen.extend(world.torn())
    assert world.collect(batch=1).blobs == 4
    assert seen == []


def test_with_the_gate_closed_only_what_is_newer_is_read() -> None:
    """L1: at 20,000 jobs each closing read all of them again, and took 20 s."""
    closed, reads, batches = [False], list[str](), [0]

    class Counting(World):
        def jobs(self) -> list[Job]:
            reads.append("all, closed" if closed[0] else "all")
            return super().jobs()

        def changed(self, after: int) -> list[Job]:
            found = super().changed(after)
            reads.extend(job.id for job in found)
            return found

    world = Counting()
    for number in range(1, 40):
        world.recorded[f"train-{number}"] = replace(some_job(number, State.CANCELLED, ended_s=1.0), id=f"train-{number}")
    store_objects(world, [b"%d" % number for number in range(40)])
    world.blobs.now_s += 1000.0

    @contextmanager
    def gate() -> Iterator[None]:
        if batches[0] == 1:
            world.recorded["train-7"] = replace(world.recorded["train-7"], reason="another")
        batches[0] += 1
        closed[0] = True
        yield
        closed[0] = False

    assert world.collect(closed=gate, batch=10).blobs == 40
    assert (batches[0], reads) == (4, ["all", "train-7"])


def test_the_gate_is_opened_again_before_a_batch_is_done_where_the_store_is_slow() -> None:
    """L1: with any slow store, the gate is closed for one step at most."""
    world, batches = World(), [0]
    store_objects(world, [b"%d" % number for number in range(20)])
    world.blobs.now_s += 1000.0

    @contextmanager
    def gate() -> Iterator[None]:
        batches[0] += 1
        yield

    assert world.collect(closed=gate, closed_s=0.0).blobs == 20
    assert batches[0] >= 5  # of eight blobs at first, then of fewer


def test_a_collection_waits_for_a_long_upload_and_lets_others_pass_meanwhile() -> None:
    """L1: the gate was closed for as long as the longest upload inside took."""
    lock, done = BlobLock(), threading.Event()

    async def others() -> None:
        async with lock.shared():  # the upload
            thread = threading.Thread(target=collection)
            thread.start()
            for _ in range(20):
                before_s = time.monotonic()
                async with lock.shared():
                    pass
                longest_s.append(time.monotonic() - before_s)
                await asyncio.sleep(0.01)
            assert not done.is_set()
        await asyncio.to_thread(thread.join)

    def collection() -> None:
        with lock.exclusive():
            done.set()

    longest_s = list[float]()
    asyncio.run(others())
    assert done.is_set()
    assert max(longest_s) < 2.0  # it was for ever


def test_a_damaged_tree_stops_nothing_and_all_code_is_kept_for_it(tmp_path: Path) -> None:
    """`tm storage` and the collection failed as a whole; which objects are in use is not known without it."""
    blobs, world = FsBlobs(tmp_path / "blobs"), World()
    for content in (b"a", b"b"):
        blobs.put(object_name(sha(content)), content)
    digest = store_tree(blobs, tree_of([b"a"]))
    blobs.put("provenance/diffs/" + sha(b"d") + ".patch", b"d")
    world.recorded["train-1"] = replace(some_job(1, State.SUCCEEDED), id="train-1", code=CodeCopy(digest=digest))
    (tmp_path / "blobs" / "code" / "trees" / f"{digest}.json").write_bytes(b"{}")
    shown = {one.kind: (one.bytes, one.orphaned_bytes) for one in use(blobs, world)}
    assert shown == {"code": (4, 0), "provenance": (1, 1)}
    done = collect(blobs, world, Collecting(-1.0))
    assert (done.by_kind, done.unread_trees) == ({"provenance": 1}, 1)
    assert blobs.exists([object_name(sha(b"a")), object_name(sha(b"b"))]) == [True, True]
    blobs.put(tree_name(digest), canonical(tree_of([b"a"])))
    done = collect(blobs, world, Collecting(-1.0))
    assert (done.by_kind, done.unread_trees) == ({"code": 1}, 0)


def test_what_a_killed_put_left_behind_is_counted_and_collected_when_it_is_old(tmp_path: Path) -> None:
    """It was in no listing, so it stayed for ever and no table showed it. A user's file of that name stays."""
    blobs, world = FsBlobs(tmp_path / "blobs"), World()
    world.recorded["train-1"] = replace(some_job(1, State.SUCCEEDED), id="train-1", checkpoints=(checkpoint("0001-00001"),))
    left = ("code/objects/ab/.cdef.123-1-0.part", "code/trees/.x.json.1-1-0.part", "artifacts/train-1/.77.part")
    needed = "checkpoints/train-1/0001-00001/n0/a.part"
    for name in (*left, needed):
        path = tmp_path / "blobs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    shown = {one.kind: (one.bytes, one.orphaned_bytes) for one in use(blobs, world)}
    assert shown == {"artifacts": (1, 1), "checkpoints": (1, 0), "code": (2, 1)}  # of trees, a young one may be needed
    assert collect(blobs, world, Collecting(GRACE_S * 1e4)).blobs == 0
    assert collect(blobs, world, Collecting(-1.0)).blobs == 3
    assert [one.name for one in blobs.walk("")] == [needed]


def test_a_directory_is_collected_as_well(tmp_path: Path) -> None:
    blobs = FsBlobs(tmp_path / "blobs")
    blobs.put(object_name(sha(b"a")), b"a")
    world = World()
    assert collect(blobs, world, Collecting(GRACE_S * 1e4)).blobs == 0
    assert collect(blobs, world, Collecting(-1.0)).blobs == 1
    assert list(blobs.walk("")) == []
