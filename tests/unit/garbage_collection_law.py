"""The law of garbage collection, checked on a store and its references at any moment before and during a collection.

Nothing that is needed is ever gone, nothing that is young is taken, and a code tree that is there has all its objects.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from garbage_collection_world import GRACE_S, STRANGE, Died, World, bytes_of, checkpoint, sha, tree_of
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trainmaster.blobs import garbage_collection
from trainmaster.blobs.code import object_name, store_tree, tree_name
from trainmaster.lifecycle.machine import apply
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.commands import AgentReport, SubmitJob
from trainmaster.model.events import CheckpointsGivenUp
from trainmaster.model.job import Job, NodeRun, State
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.blobs import diff_blob, environment_blob
from trainmaster.testing.store_contract import some_attempt, some_job
from trainmaster.wire.code import digest

CONTENTS = [b"a", b"b", b"c", b"d", b"e"]
ATTEMPTS = 3
ALLOWED = ["submit", "fork", "patch", "told", "code"]  # what others do, as long as the door is open
CONTROL = ["take", "commit", "keep", "end", "again"]  # what control does, at any moment
# What happens within a collection: what others do, what control does. First what is taken up as soon as it is accepted.
ACTS = st.tuples(st.sampled_from([["submit"], ["told"]]), st.just(["take"])) | st.tuples(
    st.lists(st.sampled_from(ALLOWED), max_size=3), st.lists(st.sampled_from(CONTROL), max_size=3)
)


class Interleavings(RuleBasedStateMachine):
    """Submits, forks, uploads, commits, retention and ends, at any moment before and within a collection."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.world.blobs.put(STRANGE, b"x")
        self.numbers = 0

    def _some(self, data: Any, live: bool = False) -> Job | None:
        ids = [id for id, job in sorted(self.world.recorded.items()) if not (live and job.state.ended)]
        return self.world.recorded[data.draw(st.sampled_from(ids))] if ids else None

    def _job(self, code: str | None, lineage: Lineage | None = None, diff: str | None = None) -> None:
        self.numbers += 1
        spec = JobSpec(command="true", experiment="train")
        command = SubmitJob("", spec, Origin(git_diff=diff), CodeCopy(digest=code), lineage=lineage)
        self.world.accept(f"train-{self.numbers}", command)

    @rule(
        contents=st.lists(st.sampled_from(CONTENTS), max_size=3),
        submit=st.booleans(),
        after_s=st.sampled_from([0.0, 0.0, 150.0]),
    )
    def code(self, contents: list[bytes], submit: bool, after_s: float = 0.0) -> None:
        """Objects, their tree, and perhaps a job of it, with a patch."""
        for each in contents:
            self.world.blobs.put(object_name(sha(each)), each)
        self.world.blobs.now_s += after_s
        self.world.blobs.fresh.add(store_tree(self.world.blobs, tree_of(contents)))
        if submit:
            patch = b"".join(contents)
            self.world.blobs.put(diff_blob(sha(patch)), patch)
            self._job(digest(tree_of(contents)), diff=sha(patch))

    @rule(contents=st.lists(st.sampled_from(CONTENTS), max_size=3))
    def submit_around_a_collection(self, contents: list[bytes]) -> None:
        """Objects that have been there for long, a tree of them just sent, a collection, and only then the job."""
        self.code(contents, False, after_s=150.0)
        self.world.collect()
        tree = digest(tree_of(contents))
        if self.world.blobs.exists([tree_name(tree)])[0]:  # else it was an old one, and the client has to send it again
            self._job(tree)

    @rule(each=st.sampled_from(CONTENTS), what=st.sampled_from(["object", "patch", "environment"]))
    def stray(self, each: bytes, what: str) -> None:
        """Sent, and never referred to so far."""
        name = {"object": object_name, "patch": diff_blob, "environment": environment_blob}[what](sha(each))
        self.world.blobs.put(name, each)

    @rule(parent_ends=st.booleans(), keep=st.integers(1, 2))
    def fork(self, parent_ends: bool, keep: int) -> None:
        """A job's checkpoint, another job from it, and the job goes on to a newer one in place of that one."""
        self.code([], True)
        job = self._take(f"train-{self.numbers}")
        assert job is not None
        for turn in range(2):
            self._upload(job.id)
            self._commit(keep)
            job = self.world.recorded[job.id]
            if turn == 0:
                self._job(job.code.digest, Lineage(Relation.FORK, job.id, job.checkpoints[-1], job.id))
        if parent_ends:
            self.world.recorded[job.id] = replace(job, state=State.SUCCEEDED, ended_s=0.0)

    @rule(each=st.sampled_from(CONTENTS), again=st.booleans())
    def run_in(self, each: bytes, again: bool) -> None:
        """A job whose first attempt ran in an environment, and whose second one, if any, has not said yet in which."""
        self.world.blobs.put(environment_blob(sha(each)), each)
        self.code([], True)
        job = self._take(f"train-{self.numbers}")
        assert job is not None
        assert job.attempt is not None
        first = replace(job.attempt, nodes=(NodeRun(environment=sha(each)),))
        if again:
            self.world.earlier[job.id] = [first]
        self.world.recorded[job.id] = replace(job, attempt=replace(job.attempt, number=2) if again else first)

    @rule(each=st.sampled_from(CONTENTS), then=st.sampled_from(["", "keep", "end"]))
    def artifact(self, each: bytes, then: str) -> None:
        """A job whose artifact is sent, perhaps on record, and which may be over."""
        self.code([], True)
        job = self._take(f"train-{self.numbers}")
        assert job is not None
        self.world.blobs.put(f"artifacts/{job.id}/{sha(each)}", each)
        if then:
            self.world.kept[job.id] = [Artifact("out", sha(each), 1, 1)]
        else:
            self.world.sent.append((job.id, sha(each)))
        if then == "end":
            self.world.recorded[job.id] = replace(job, state=State.SUCCEEDED, ended_s=0.0)

    @rule(data=st.data(), what=st.sampled_from(["upload", "send", *ALLOWED, *CONTROL]))
    def go_on(self, data: Any, what: str) -> None:
        """Something of a job's way from the inbox to its end."""
        self._act(what, data)

    @rule(seconds=st.sampled_from([1.0, 60.0, 150.0]))
    def wait(self, seconds: float) -> None:
        self.world.blobs.now_s += seconds

    @rule(
        data=st.data(), lives=st.none() | st.integers(0, 3), after_s=st.sampled_from([150.0, 150.0, 10.0]),
        acts=ACTS, quick=st.booleans(),
    )  # fmt: skip
    def collect(self, data: Any, lives: int | None, after_s: float, acts: tuple[list[str], list[str]], quick: bool) -> None:
        """Collect garbage. While the gate is open, clients create references; control does so even while it is closed.

        `quick`: control processes the submission at once.
        """
        world = self.world
        world.blobs.now_s += after_s
        others, control = list(acts[0]), list(acts[1])
        young = {name for name, at_s in world.blobs.written.items() if at_s > world.blobs.now_s - GRACE_S}
        young &= {stored.name for stored in world.blobs.walk("")}
        inside = [False]

        def outside() -> None:
            assert world.torn() == []
            if not inside[0] and others:
                self._act(others.pop(0), data)
                if quick and control:
                    self._act(control.pop(0), data)

        @contextmanager
        def closed() -> Iterator[None]:
            outside()
            inside[0] = True
            yield
            inside[0] = False

        world.blobs.deleting, world.blobs.lives = outside, lives
        world.meanwhile = lambda: self._act(control.pop(0), data) if inside[0] and control else None
        with suppress(Died):
            world.collect(closed=closed, batch=2)
        world.blobs.lives, world.blobs.deleting, world.meanwhile = None, lambda: None, lambda: None
        assert young <= {stored.name for stored in world.blobs.walk("")}

    @precondition(lambda self: any(garbage_collection.spare(job) for job in self.world.recorded.values()))
    @rule()
    def give_up_older(self) -> None:
        """What `tm storage gc --older-checkpoints` asks of control, which removes the bytes of what it gave up."""
        for one in garbage_collection.older(self.world, float("inf")):
            job, effects = apply(self.world.recorded[one.job], one.job, CheckpointsGivenUp("ann", one.ids), 1.0)
            self.world.recorded[one.job] = replace(job, deleting=())
            for effect in effects:
                self.world.blobs.delete_tree(f"checkpoints/{one.job}/{effect.checkpoint}")  # type: ignore[union-attr]

    def _act(self, what: str, data: Any) -> None:
        jobs = self.world.recorded
        live = self._some(data, live=True)
        if what == "submit" or what == "patch":
            self._submit(what, data)
        elif what == "fork":
            for job in [job for job in jobs.values() if job.checkpoints]:
                self._job(job.code.digest, Lineage(Relation.FORK, job.id, job.checkpoints[0], job.id))
        elif what == "code":
            self.code(data.draw(st.lists(st.sampled_from(CONTENTS), max_size=3)), False)
        elif what == "take" and self.world.inbox:
            self._take(data.draw(st.sampled_from(sorted(self.world.inbox))))
        elif what == "commit" and self.world.uploaded:
            self._commit()
        elif what == "keep" and self.world.sent:
            job_id, name = self.world.sent.pop()
            if not jobs[job_id].state.ended:
                self.world.kept[job_id] = [*self.world.kept.get(job_id, []), Artifact("out", name, 1, 1)]
                self.world.recorded[job_id] = replace(jobs[job_id])  # an event of the job, as any other
        elif live is not None:
            self._of_live(what, live, data)

    def _submit(self, what: str, data: Any) -> None:
        """Of code, or with a patch, that was sent long ago: only what is stored is accepted."""
        prefix = "code/trees" if what == "submit" else "provenance/diffs"
        names = sorted(stored.name.rpartition("/")[2].partition(".")[0] for stored in self.world.blobs.walk(prefix))
        if names:
            name = data.draw(st.sampled_from(names))
            self._job(name if what == "submit" else None, diff=name if what == "patch" else None)

    def _of_live(self, what: str, job: Job, data: Any) -> None:
        if what == "upload":
            self._upload(job.id)
        elif what == "send":
            each = data.draw(st.sampled_from(CONTENTS))
            self.world.blobs.put(f"artifacts/{job.id}/{sha(each)}", each)
            self.world.sent.append((job.id, sha(each)))
        elif what == "end":
            self.world.recorded[job.id] = replace(job, state=State.SUCCEEDED, ended_s=0.0)
        elif what == "told":
            names = sorted(
                one.name.rpartition("/")[2].partition(".")[0] for one in self.world.blobs.walk("provenance/environments")
            )
            if names and not any(isinstance(one, AgentReport) for one in self.world.inbox.values()):
                report = {"environment": data.draw(st.sampled_from(names)), "job": job.id}
                self.world.accept(f"report-{len(self.world.rows)}", AgentReport(f"{job.id}.1/n0", report))
        elif what == "again" and job.attempt is not None and job.attempt.number < ATTEMPTS:
            self.world.earlier.setdefault(job.id, []).append(job.attempt)
            fresh = replace(job.attempt, number=job.attempt.number + 1, nodes=(NodeRun(),))
            self.world.recorded[job.id] = replace(job, attempt=fresh)
            self.world.uploaded = [
                one for one in self.world.uploaded if one[0] != job.id
            ]  # the fence: it is the older attempt's

    def _take(self, name: str) -> Job | None:
        command = self.world.inbox.pop(name)
        if isinstance(command, AgentReport):
            job = self.world.recorded[str(command.report["job"])]
            if job.attempt is not None and not job.state.ended:
                node = replace(job.attempt.nodes[0], environment=str(command.report["environment"]))
                self.world.recorded[job.id] = replace(job, attempt=replace(job.attempt, nodes=(node,)))
            return None
        seq, origin = int(name.rpartition("-")[2]), command.origin
        begun = some_job(seq, State.RUNNING, code=command.code, lineage=command.lineage, attempt=some_attempt(1), origin=origin)
        self.world.recorded[name] = replace(begun, id=name)
        return self.world.recorded[name]

    def _upload(self, job: str) -> None:
        attempt = self.world.recorded[job].attempt
        assert attempt is not None
        self.numbers += 1
        identifier = f"{attempt.number:04d}-{self.numbers:05d}"
        self.world.blobs.put(bytes_of(job, identifier), b"x")
        self.world.uploaded.append((job, identifier))

    def _commit(self, keep: int = 2) -> None:
        job_id, identifier = self.world.uploaded.pop()
        job = self.world.recorded[job_id]
        if not job.state.ended:
            self.world.recorded[job_id] = replace(job, checkpoints=(*job.checkpoints, checkpoint(identifier))[-keep:])

    @invariant()
    def nothing_needed_is_gone(self) -> None:
        if hasattr(self, "world"):
            names = sorted(self.world.needed())
            assert [name for name, there in zip(names, self.world.blobs.exists(names), strict=True) if not there] == []

    @invariant()
    def a_tree_that_is_there_is_whole(self) -> None:
        if hasattr(self, "world"):
            assert self.world.torn() == []
