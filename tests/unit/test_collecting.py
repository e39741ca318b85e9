"""The law of garbage collection: whatever is referenced, or young, or may still be written, is never taken."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trainmaster.blobs.code import object_name, store_tree, tree_name
from trainmaster.blobs.collecting import Collecting, collect, use
from trainmaster.blobs.fs import FsBlobs
from trainmaster.model.checkpoints import Artifact, Checkpoint, Part
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job, State
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.blobs import Stored
from trainmaster.testing.store_contract import some_attempt, some_job
from trainmaster.wire.code import Entry, Tree, digest

GRACE_S = 100.0
CONTENTS = [b"a", b"b", b"c", b"d", b"e"]


class AgedBlobs(FsBlobs):
    """A store in memory whose blobs are as old as a test's clock says."""

    serial = 0

    def __init__(self) -> None:
        AgedBlobs.serial += 1
        super().__init__(f"memory://collecting/{AgedBlobs.serial}")
        self.now_s = 1000.0
        self.written: dict[str, float] = {}

    def put(self, name: str, data: bytes) -> None:
        """As written now; what is there stays as it was, as in a store with conditional writes."""
        if not self.exists([name])[0]:
            super().put(name, data)
            self.written[name] = self.now_s

    def stat(self, name: str) -> Stored | None:
        found = super().stat(name)
        return None if found is None else replace(found, modified_s=self.written[name])

    def walk(self, prefix: str) -> Iterator[Stored]:
        for stored in super().walk(prefix):
            yield replace(stored, modified_s=self.written[stored.name])


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree_of(contents: Iterable[bytes]) -> Tree:
    return Tree(entries=[Entry(path=f"{n:03}", type="file", sha256=sha(c), mode=0o644, bytes=len(c)) for n, c in enumerate(contents)])


def checkpoint(identifier: str, attempt: int = 1) -> Checkpoint:
    return Checkpoint(identifier, 1, attempt, (Part(0, "d", 1, 1),))


class World:
    """What a server has on record, and its store."""

    def __init__(self) -> None:
        self.blobs = AgedBlobs()
        self.recorded: dict[str, Job] = {}
        self.inbox: dict[str, SubmitJob] = {}
        self.kept: dict[str, list[Artifact]] = {}

    def waiting(self) -> list[tuple[str, SubmitJob]]:
        return list(self.inbox.items())

    def jobs(self) -> list[Job]:
        return list(self.recorded.values())

    def artifacts(self, job: str) -> list[Artifact]:
        return self.kept.get(job, [])

    def needed(self) -> set[str]:
        """Every blob that somebody needs, worked out in another way than the collection does."""
        names = set[str]()
        trees = [job.code.digest for job in self.jobs()] + [command.code.digest for command in self.inbox.values()]
        for name in [tree_name(tree) for tree in trees if tree is not None]:
            names.add(name)
            with self.blobs.open(name) as file:
                names |= {object_name(entry["sha256"]) for entry in json.loads(file.read())["entries"]}
        lineages = [job.lineage for job in self.jobs()] + [command.lineage for command in self.inbox.values()]
        held = {(one.owner, one.checkpoint.id) for one in lineages if one is not None and one.checkpoint is not None}
        for job in self.jobs():
            held |= {(job.id, one.id) for one in (*job.checkpoints, *job.staged)}
        names |= {f"checkpoints/{job}/{identifier}/n0/x" for job, identifier in held}
        names |= {f"artifacts/{job}/{one.digest}" for job, kept in self.kept.items() for one in kept}
        return names

    def collect(self, grace_s: float = GRACE_S, closed: Any = None) -> Any:
        rules = Collecting(grace_s, now_s=lambda: self.blobs.now_s)
        return collect(self.blobs, self, rules if closed is None else replace(rules, closed=closed))


class Interleavings(RuleBasedStateMachine):
    """Submits, forks, uploads, commits, retention and ends, at any moment before and within a collection."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.uploaded: list[tuple[str, str]] = []  # checkpoints whose bytes are there, uncommitted
        self.numbers = 0

    def _job(self, code: str | None, lineage: Lineage | None = None) -> None:
        self.numbers += 1
        spec = JobSpec(command="true", experiment="train")
        self.world.inbox[f"train-{self.numbers}"] = SubmitJob("", spec, Origin(), CodeCopy(digest=code), lineage=lineage)

    @rule(contents=st.lists(st.sampled_from(CONTENTS), max_size=3), submit=st.booleans())
    def code(self, contents: list[bytes], submit: bool) -> None:
        for each in contents:
            self.world.blobs.put(object_name(sha(each)), each)
        store_tree(self.world.blobs, tree_of(contents))
        if submit:
            self._job(digest(tree_of(contents)))

    @rule(each=st.sampled_from(CONTENTS))
    def stray_object(self, each: bytes) -> None:
        self.world.blobs.put(object_name(sha(each)), each)

    @precondition(lambda self: self.world.inbox)
    @rule()
    def take_up(self) -> None:
        name, command = self.world.inbox.popitem()
        seq = int(name.rpartition("-")[2])
        job = some_job(seq, State.RUNNING, code=command.code, lineage=command.lineage, attempt=some_attempt(1))
        self.world.recorded[name] = replace(job, id=name)

    @precondition(lambda self: self.world.recorded)
    @rule(data=st.data())
    def upload(self, data: Any) -> None:
        job = data.draw(st.sampled_from(sorted(self.world.recorded)))
        if self.world.recorded[job].state.ended:
            return
        identifier = f"0001-{len(self.uploaded):05d}"
        self.world.blobs.put(f"checkpoints/{job}/{identifier}/n0/x", b"x")
        self.uploaded.append((job, identifier))

    @precondition(lambda self: self.uploaded)
    @rule()
    def commit(self) -> None:
        job_id, identifier = self.uploaded.pop()
        job = self.world.recorded[job_id]
        if not job.state.ended:
            self.world.recorded[job_id] = replace(job, checkpoints=(*job.checkpoints, checkpoint(identifier))[-1:])

    @precondition(lambda self: any(job.checkpoints for job in self.world.recorded.values()))
    @rule(data=st.data())
    def fork(self, data: Any) -> None:
        """And the parent goes on, commits a newer checkpoint in place of that one, and ends."""
        job = data.draw(st.sampled_from([job for job in self.world.recorded.values() if job.checkpoints]))
        self._job(job.code.digest, Lineage(Relation.FORK, job.id, job.checkpoints[-1], job.id))
        newer = f"0001-{self.numbers:05d}x"
        self.world.blobs.put(f"checkpoints/{job.id}/{newer}/n0/x", b"x")
        self.world.recorded[job.id] = replace(job, state=State.SUCCEEDED, checkpoints=(checkpoint(newer),))

    @precondition(lambda self: self.world.recorded)
    @rule(data=st.data())
    def end(self, data: Any) -> None:
        job = self.world.recorded[data.draw(st.sampled_from(sorted(self.world.recorded)))]
        self.world.recorded[job.id] = replace(job, state=State.SUCCEEDED)

    @precondition(lambda self: self.world.recorded)
    @rule(data=st.data(), each=st.sampled_from(CONTENTS))
    def keep(self, data: Any, each: bytes) -> None:
        job = self.world.recorded[data.draw(st.sampled_from(sorted(self.world.recorded)))]
        if not job.state.ended:
            self.world.blobs.put(f"artifacts/{job.id}/{sha(each)}", each)
            self.world.kept[job.id] = [Artifact("out", sha(each), 1, 1)]

    @precondition(lambda self: self.world.inbox or self.world.recorded)
    @rule(data=st.data(), ends=st.booleans())
    def train(self, data: Any, ends: bool) -> None:
        """A job's way from the inbox to a newer checkpoint, and perhaps to its end."""
        if self.world.inbox:
            self.take_up()
        before = len(self.uploaded)
        self.upload(data)
        if len(self.uploaded) > before:
            job = self.uploaded[-1][0]
            self.commit()
            if ends:
                self.world.recorded[job] = replace(self.world.recorded[job], state=State.SUCCEEDED)

    @rule(seconds=st.sampled_from([1.0, 60.0, 150.0]))
    def wait(self, seconds: float) -> None:
        self.world.blobs.now_s += seconds

    @rule(data=st.data())
    def collect(self, data: Any) -> None:
        """At night. Between marking and sweeping, before the door is closed, anything may happen."""
        self.world.blobs.now_s += 150.0
        acts = data.draw(st.lists(st.sampled_from(["submit", "fork", "take", "end", "commit"]), max_size=4))
        self._collect(acts, data)

    def _collect(self, acts: list[str], data: Any) -> None:
        young = {name for name, at_s in self.world.blobs.written.items() if at_s > self.world.blobs.now_s - GRACE_S}
        young &= {stored.name for stored in self.world.blobs.walk("")}

        @contextmanager
        def closed() -> Iterator[None]:
            while acts:
                self._act(acts.pop(), data)
            yield

        self.world.collect(closed=closed)
        left = {stored.name for stored in self.world.blobs.walk("")}
        assert young <= left

    def _act(self, what: str, data: Any) -> None:
        trees = sorted(stored.name for stored in self.world.blobs.walk("code/trees"))
        if what == "submit" and trees:  # of code that was sent long ago: only what is stored is accepted
            self._job(data.draw(st.sampled_from(trees)).rpartition("/")[2].removesuffix(".json"))
        elif what == "take" and self.world.inbox:
            self.take_up()
        elif what == "commit" and self.uploaded:
            self.commit()
        elif what == "end" and self.world.recorded:
            self.end(data)
        elif what == "fork":
            for job in [job for job in self.world.recorded.values() if job.checkpoints]:
                self._job(job.code.digest, Lineage(Relation.FORK, job.id, job.checkpoints[0], job.id))

    @invariant()
    def nothing_needed_is_gone(self) -> None:
        if hasattr(self, "world"):
            missing = [name for name in sorted(self.world.needed()) if not self.world.blobs.exists([name])[0]]
            assert missing == []


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def world() -> World:
    made = World()
    spec = replace(JobSpec(command="true", experiment="train"), project="vision")
    job = replace(some_job(1, State.SUCCEEDED, attempt=some_attempt(1)), id="train-1", spec=spec)
    kept = (checkpoint("0001-00001"), checkpoint("0001-00002"))
    store_objects(made, [b"a", b"b"])
    made.recorded["train-1"] = replace(job, checkpoints=kept, code=CodeCopy(digest=store_tree(made.blobs, tree_of([b"a", b"b"]))))
    for identifier in ("0001-00001", "0001-00002", "0001-00003"):
        made.blobs.put(f"checkpoints/train-1/{identifier}/n0/x", b"12345")
    made.kept["train-1"] = [Artifact("out", sha(b"a"), 1, 1)]
    made.blobs.put(f"artifacts/train-1/{sha(b'a')}", b"a")
    made.blobs.put(f"artifacts/train-1/{sha(b'b')}", b"b")
    made.blobs.put("checkpoints/strange-7/0001-00001/n0/x", b"x")
    made.blobs.put("provenance/diffs/x.patch", b"x")
    return made


def store_objects(world: World, contents: Iterable[bytes]) -> None:
    for each in contents:
        world.blobs.put(object_name(sha(each)), each)


def test_only_what_nothing_refers_to_and_is_old_goes(world: World) -> None:
    before = {stored.name for stored in world.blobs.walk("")}
    assert world.collect().blobs == 0
    world.blobs.now_s += 1000.0
    store_objects(world, [b"young"])
    done = world.collect()
    gone = before - {stored.name for stored in world.blobs.walk("")}
    assert gone == {"checkpoints/train-1/0001-00003/n0/x", f"artifacts/train-1/{sha(b'b')}"}
    assert (done.blobs, done.bytes, done.young_bytes) == (2, 6, 5)


def test_a_dry_run_removes_nothing(world: World) -> None:
    world.blobs.now_s += 1000.0
    before = {stored.name for stored in world.blobs.walk("")}
    done = collect(world.blobs, world, Collecting(GRACE_S, dry_run=True, now_s=lambda: world.blobs.now_s))
    assert (done.blobs, done.by_kind) == (2, {"checkpoints": 5, "artifacts": 1})
    assert {stored.name for stored in world.blobs.walk("")} == before


def test_use_is_told_by_project_and_kind(world: World) -> None:
    rows = {(one.project, one.kind): (one.blobs, one.bytes, one.orphaned_bytes, one.spare_bytes) for one in use(world.blobs, world)}
    assert rows[("vision", "checkpoints")] == (3, 15, 5, 5)
    assert rows[("vision", "artifacts")] == (2, 2, 1, 0)
    assert rows[("(shared)", "code")][0] == 3
    assert rows[("(unknown)", "checkpoints")] == (1, 1, 0, 0)
    assert rows[("(shared)", "provenance")] == (1, 1, 0, 0)


def test_what_a_live_attempt_may_still_commit_stays(world: World) -> None:
    world.recorded["train-1"] = replace(world.recorded["train-1"], state=State.RUNNING)
    world.blobs.now_s += 1000.0
    assert world.collect().blobs == 0


def test_a_directory_is_collected_as_well(tmp_path: Path) -> None:
    blobs = FsBlobs(tmp_path / "blobs")
    blobs.put(object_name(sha(b"a")), b"a")
    world = World()
    assert collect(blobs, world, Collecting(1e6)).blobs == 0
    assert collect(blobs, world, Collecting(-1.0)).blobs == 1
    assert list(blobs.walk("")) == []
