"""Forks: a checkpoint stays while a fork may start from it, and is deleted when nothing needs it; a late fork is told."""

import tempfile
from pathlib import Path
from random import Random

from control_server import Server, staged
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.blobs.fs import FsBlobs
from trainmaster.home import Home
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.commands import CancelJob, GiveUpCheckpoints, SubmitJob
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import State
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.spec import CheckpointSpec, CodeCopy, JobSpec, Origin


class Watched(FsBlobs):
    """Remembers what it removed, and which live fork needed it."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.home.blobs)
        self.server, self.removed = server, list[str]()
        self.broken: list[str] = []

    def delete_tree(self, prefix: str) -> None:
        self.removed.append(prefix)
        for job in self.server.loop.world.jobs.values():
            one = job.lineage
            if one is not None and one.checkpoint is not None and not job.state.ended:
                needs = f"checkpoints/{one.owner}/{one.checkpoint.id}"
                self.broken += [f"{prefix}, needed by {job.id}"] if needs == prefix else []
        super().delete_tree(prefix)


def watched(root: Path, keep: int = 1) -> tuple[Server, Watched]:
    server = Server(Home(root))
    blobs = Watched(server)
    server.loop.runner.removals.blobs = blobs
    server.running(checkpoint=CheckpointSpec(keep=keep))
    return server, blobs


def fork(server: Server, checkpoint: Checkpoint) -> None:
    """As the api accepts it: held, so that it waits."""
    lineage = Lineage(Relation.FORK, "train-1", checkpoint, "train-1")
    server.ask(SubmitJob("", JobSpec("true", "train", experiment="train"), Origin(), CodeCopy(), "waits", (), lineage))


def test_a_checkpoint_given_up_goes_only_with_its_last_fork(tmp_path: Path) -> None:
    server, blobs = watched(tmp_path)
    server.tell(staged(5, n=2))
    server.tick(0.01)
    fork(server, server.job().good_checkpoints[-1])
    server.tell(staged(6, n=3))  # keep is 1: the one before is given up
    server.tick(0.01)
    server.tick()
    assert (server.job().deleting, blobs.removed) == (("0001-5",), [])
    server.ask(CancelJob("train-2", "ann"))
    server.tick()
    server.tick()
    assert (server.job().deleting, blobs.removed) == ((), ["checkpoints/train-1/0001-5"])


def test_a_fork_that_comes_too_late_is_held_and_says_why(tmp_path: Path) -> None:
    server, blobs = watched(tmp_path)
    server.tell(staged(5, n=2))
    server.tick(0.01)
    seen = server.job().good_checkpoints[-1]
    server.tell(staged(6, n=3))
    server.loop.tick(server.clock.time_s)  # given up and removed in this very tick
    assert blobs.removed == ["checkpoints/train-1/0001-5"]
    fork(server, seen)
    server.tick(0.01)
    held = server.job("train-2")
    assert held.state is State.HELD
    assert held.reason == "the checkpoint of step 5 of train-1 was removed just before; cancel this job and fork from a later checkpoint"


def test_a_fork_of_what_was_removed_right_before_a_crash_is_held(tmp_path: Path) -> None:
    server, blobs = watched(tmp_path)
    server.tell(staged(5, n=2))
    server.tick(0.01)
    seen = server.job().good_checkpoints[-1]
    server.tell(staged(6, n=3))
    server.loop.tick(server.clock.time_s)
    server.start()  # control died before it could record that the bytes are gone
    assert (blobs.removed, server.job().deleting) == (["checkpoints/train-1/0001-5"], ("0001-5",))
    fork(server, seen)
    server.tick(0.01)
    assert server.job("train-2").reason.startswith("the checkpoint of step 5 of train-1 was removed just before")


def test_a_fork_of_what_a_job_that_is_over_gave_up_is_held(tmp_path: Path) -> None:
    server, blobs = watched(tmp_path, keep=2)
    server.tell(staged(5, n=2))
    server.tell(staged(6, n=3))
    server.tick(0.01)
    seen = server.job().good_checkpoints[0]
    server.ask(CancelJob("train-1", "ann", grace_s=0.0))
    for _ in range(5):
        server.tick()
    assert server.job().state is State.CANCELLED
    server.ask(GiveUpCheckpoints("train-1", "ann", ("0001-5", "0001-6", "no-such")))
    server.tick()
    server.tick()
    assert (blobs.removed, [one.id for one in server.job().checkpoints]) == (["checkpoints/train-1/0001-5"], ["0001-6"])
    assert (server.job().deleting, "train-1" in server.loop.world.jobs) == ((), False)
    fork(server, seen)
    server.tick(0.01)
    assert server.job("train-2").reason.startswith("the checkpoint of step 5 of train-1 was removed just before")


def test_what_a_live_fork_holds_another_may_be_made_of(tmp_path: Path) -> None:
    """A reproduction of a fork starts where that did, though their parent has given the checkpoint up since."""
    server, blobs = watched(tmp_path)
    server.tell(staged(5, n=2))
    server.tick(0.01)
    seen = server.job().good_checkpoints[-1]
    lineage = Lineage(Relation.FORK, "train-1", seen, "train-1")
    server.ask(SubmitJob("", JobSpec("true", "train", experiment="train"), Origin(), CodeCopy(), None, (), lineage))
    server.tick(0.01)
    assert server.job("train-2").attempt is not None
    server.tell(staged(6, n=3))
    server.tick()
    again = Lineage(Relation.REPRODUCTION, "train-2", seen, "train-1")
    server.ask(SubmitJob("", JobSpec("true", "train", experiment="train"), Origin(), CodeCopy(), "waits", (), again))
    server.tick()
    assert (server.job().deleting, server.job("train-3").reason, blobs.removed) == (("0001-5",), "waits", [])


def test_an_attempt_of_a_fork_tries_its_own_checkpoints_before_its_parent_s(tmp_path: Path) -> None:
    server, _ = watched(tmp_path)
    server.tell(staged(5, n=2))
    server.tick(0.01)
    parent = server.job().good_checkpoints[-1]
    lineage = Lineage(Relation.FORK, "train-1", parent, "train-1")
    server.ask(SubmitJob("", JobSpec("true", "train", experiment="train"), Origin(), CodeCopy(), None, (), lineage))
    server.tick(0.01)
    first = server.job("train-2")
    assert first.resumable() == ("train-1:0001-5",)
    if first.attempt is not None:
        assert first.attempt.resume == ("train-1:0001-5",)
    assert server.events.children("train-1") == ["train-2"]


def test_what_a_fork_found_damaged_is_so_on_its_parents_record(tmp_path: Path) -> None:
    """The next fork was given the same damaged checkpoint, and failed likewise."""
    server, _ = watched(tmp_path, keep=2)
    server.tell(staged(5, n=2), staged(6, n=3))
    server.tick(0.01)
    server.ask(CancelJob("train-1", "ann", grace_s=0.0))
    for _ in range(5):
        server.tick()
    lineage = Lineage(Relation.FORK, "train-1", server.job().good_checkpoints[-1], "train-1")
    server.ask(SubmitJob("", JobSpec("true", "train", experiment="train"), Origin(), CodeCopy(), None, (), lineage))
    server.tick(0.01)
    began = {"kind": "started", "n": 1, "restored": None, "step": None, "bad": ["train-1:0001-6"]}
    server.tell(began, key=AgentKey("train-2", 1, 0))
    server.tick(0.01)
    parent = server.job()
    assert [(one.id, one.good) for one in parent.checkpoints] == [("0001-5", True), ("0001-6", False)]
    assert [one.topic for one in parent.troubles] == ["damaged checkpoint"]


@settings(max_examples=examples(10, 200), deadline=None)
@given(st.lists(st.sampled_from(("stage", "fork", "cancel", "tick", "crash")), min_size=5, max_size=30), st.randoms())
def test_no_interleaving_takes_away_what_a_fork_needs(steps: list[str], rng: Random) -> None:
    with tempfile.TemporaryDirectory() as directory:
        server, blobs = watched(Path(directory))
        forks, step = 0, 5
        seen: list[Checkpoint] = []
        for what in steps:
            if what == "stage":
                step += 1
                server.tell(staged(step, n=step))
            elif what == "fork" and seen:
                fork(server, seen[-1])  # what the api saw, perhaps ticks ago
                forks += 1
            elif what == "cancel" and forks:
                server.ask(CancelJob(f"train-{rng.randint(2, forks + 1)}", "ann"))
            elif what == "crash":
                server.start()
                server.loop.runner.removals.blobs = blobs
            if what in ("tick", "crash") or rng.random() < 0.3:
                server.tick(rng.choice([0.001, 1.0]))
                seen = list(server.job().good_checkpoints)
        assert blobs.broken == []
        server.ask(*(CancelJob(f"train-{number}", "calm") for number in range(2, forks + 2)))
        server.tick()
        server.tick()
        assert server.job().deleting == ()
