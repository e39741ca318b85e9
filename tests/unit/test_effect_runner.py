"""Effects on a failing engine or store: the loop goes on, and nothing that may still start counts as failed."""

import errno
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from trainmaster import troubles
from trainmaster.blobs.fs import FsBlobs
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.removals import RemovalRetries
from trainmaster.control.workers import Inline
from trainmaster.control.world import World
from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.errors import OperationError
from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect, Launch, Stop
from trainmaster.model.ids import AgentKey
from trainmaster.ports.engine import Submission
from trainmaster.testing.builders import job, placed

KEY = AgentKey("train-1", 1, 0)
FULL = OperationError("no space", "free some")


@dataclass
class Clock:
    time_s: float = 1000.0

    def now_s(self) -> float:
        return self.time_s


@dataclass
class Disk:
    """Which verbs it is too full for."""

    refuses: set[str] = field(default_factory=set)


class Engine(SimulatedEngine):
    """The simulated engine on a disk that may be full."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Random(1), Clock())
        self.disk = disk

    def submit(self, submission: Submission) -> None:
        if "submit" in self.disk.refuses:
            raise FULL
        super().submit(submission)

    def stop(self, key: AgentKey, grace_s: float) -> None:
        if "stop" in self.disk.refuses:
            raise FULL
        super().stop(key, grace_s)


def test_a_launch_failed_only_if_it_surely_will_not_start(tmp_path: Path) -> None:
    disk, world = Disk({"submit", "stop"}), World()
    world.jobs[KEY.job] = placed(job())
    runner = EffectRunner(Engine(disk), FsBlobs(tmp_path), str, Inline())
    runner.run([Launch(KEY)], world)
    assert runner.failed_launches == []  # state alone calls for it again
    disk.refuses = {"submit"}
    runner.run([Launch(KEY)], world)
    assert runner.failed_launches == [(KEY, "no space free some")]


def test_a_stop_that_cannot_be_written_does_not_end_the_loop(tmp_path: Path) -> None:
    runner = EffectRunner(Engine(Disk({"stop"})), FsBlobs(tmp_path), str, Inline())
    runner.run([Stop(KEY, 30.0)], World())
    assert runner.failed_launches == []


def test_what_cannot_be_removed_is_tried_ever_less_often_and_told(tmp_path: Path) -> None:
    """A store that refuses for a day is not asked at every beat of it, and people hear of it."""
    register, refusing = troubles.Register(), list[str]()

    class Store(FsBlobs):
        def delete_tree(self, prefix: str) -> None:
            refusing.append(prefix)
            raise OSError(errno.EROFS, "Read-only file system")

    runner = EffectRunner(Engine(Disk()), Store(tmp_path), str, Inline())
    runner.removals.retries = RemovalRetries(register)
    effects: list[Effect] = [DeleteCheckpoint("train-1", "0001-00001"), Clear("train-2", "artifacts")]
    for _ in range(1000):
        runner.run(effects, World())
    assert (len(refusing), runner.removals.deleted, runner.removals.cleared) == (2 * 11, [], [])
    assert [one.text for one in register.said()] == [
        "checkpoint 0001-00001 of train-1 cannot be removed, and 1 more; it is retried: [Errno 30] Read-only file system"
    ]
    runner.removals.blobs = FsBlobs(tmp_path)
    for _ in range(300):
        runner.run(effects, World())
    cleared = {clear for clear, _ in runner.removals.cleared}
    assert (set(runner.removals.deleted), cleared, register.said()) == ({effects[0]}, {effects[1]}, [])
