"""A tick waits for no disk and no other process: workers do what takes long, and the laws hold meanwhile."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from waiting import deadline

from trainmaster.blobs.fs import FsBlobs
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.loop import ControlLoop, Recorder
from trainmaster.control.workers import THREADS, Lane, Threads, Workers
from trainmaster.control.world import World
from trainmaster.engines.local import leftovers
from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.home import Home
from trainmaster.lifecycle.effects import DeleteCheckpoint, Launch, Stop
from trainmaster.model.commands import AgentReport, CancelJob, Command, SubmitJob
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, State
from trainmaster.model.nodes import Allocation
from trainmaster.model.spec import CodeCopy, JobSpec, Origin, Resources
from trainmaster.ports.engine import Observation, Submission
from trainmaster.ports.store import NewRow
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.migrate import migrate
from trainmaster.testing.builders import job, placed, share
from trainmaster.wire.processes import own_identity

T = TypeVar("T")
KEY, OTHER = AgentKey("train-1", 1, 0), AgentKey("train-2", 1, 0)


@dataclass
class Clock:
    time_s: float = 1000.0

    def now_s(self) -> float:
        return self.time_s


class ByHand:
    """Workers that do nothing until a test has them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Lane, Future[Any], Callable[[], Any]]] = []

    def submit(self, lane: Lane, work: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        self.waiting.append((lane, future, work))
        return future

    def work(self, *lanes: Lane) -> None:
        """Run the waiting work of these lanes, or of all."""
        given, self.waiting = self.waiting, [one for one in self.waiting if lanes and one[0] not in lanes]
        for lane, future, work in given:
            if (not lanes or lane in lanes) and future.set_running_or_notify_cancel():
                future.set_result(work())

    def of(self, lane: Lane) -> int:
        return sum(one[0] is lane and not one[1].cancelled() for one in self.waiting)


@dataclass
class Server:
    """Control over real stores and an engine in memory."""

    home: Home
    workers: Workers
    clock: Clock = field(default_factory=Clock)
    rows: int = 0

    def __post_init__(self) -> None:
        migrate(self.home)
        self.inbox, self.events = SqlInbox(self.home.inbox_db), SqlEventStore(self.home.events_db)
        self.engine = Stuck(self.clock)
        runner = EffectRunner(self.engine, FsBlobs(self.home.blobs), str, self.workers)
        self.loop = ControlLoop(Recorder(self.events, lambda: None), self.inbox, runner, self.clock, Random(1))
        self.loop.load()

    def ask(self, *commands: Command) -> None:
        self.inbox.accept([NewRow(f"row-{self.rows + n}", one, self.clock.time_s) for n, one in enumerate(commands)])
        self.rows += len(commands)

    def submit(self) -> None:
        spec = JobSpec("true", "train", experiment="train", resources=Resources(gpus=1))
        self.ask(SubmitJob("", spec, Origin(), CodeCopy()))

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.time_s += seconds
        while self.loop.tick(self.clock.time_s) == 0.0:
            pass

    def state(self, name: str = "train-1") -> State:
        job = self.events.job(name)
        assert job is not None
        return job.state

    def tick_until(self, question: Callable[[], bool], what: str) -> None:
        def answer() -> bool:
            self.tick()
            return question()

        deadline(answer, what)


class Stuck(SimulatedEngine):
    """The simulated engine, which a test can stop like a process that was sent SIGSTOP."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(Random(1), clock)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.stuck: set[str] = set()

    def _wait(self, verb: str) -> None:
        if verb in self.stuck:
            assert self.goes_on.wait(20.0)

    def submit(self, submission: Submission) -> None:
        self._wait("submit")
        super().submit(submission)

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        self._wait("observe")
        return super().observe(keys)

    def stop(self, key: AgentKey, grace_s: float) -> None:
        self._wait("stop")
        super().stop(key, grace_s)


@pytest.mark.parametrize("verb", ["submit", "observe", "stop"])
def test_a_verb_of_the_engine_that_hangs_holds_up_no_tick(verb: str, tmp_path: Path) -> None:
    """L3: a stopped spawner, a huge `tree.pids`, a slow disk: the tick and other work of control continue."""
    woken = threading.Event()
    server = Server(Home(tmp_path), Threads(woken.set))
    server.submit()
    server.tick()
    server.tick_until(lambda: KEY in server.engine.truth.starts, "the first job to be launched")
    server.engine.stuck, server.engine.goes_on = {verb}, threading.Event()
    server.ask(CancelJob("train-1", "ann", grace_s=0.0))
    server.submit()
    for _ in range(5):
        server.tick()  # each returns although the verb does not
    assert server.state("train-2") in (State.STARTING, State.RUNNING)
    server.engine.goes_on.set()
    server.tick_until(lambda: server.state() is State.CANCELLED, "the cancelled job to end")
    server.tick_until(lambda: server.engine.truth.starts.get(OTHER) == 1, "the other one to be launched")


def test_a_delete_that_hangs_holds_up_neither_the_tick_nor_a_stop(tmp_path: Path) -> None:
    """L3: a checkpoint of very many files."""
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(FsBlobs):
        def delete_tree(self, prefix: str) -> None:
            begun.set()
            assert goes_on.wait(20.0)

    runner = EffectRunner(SimulatedEngine(Random(1), Clock()), Slow(tmp_path), str, Threads(lambda: None))
    for number in range(THREADS[Lane.DELETE] + 2):
        runner.run([DeleteCheckpoint("train-1", f"0001-{number}")], World())
    assert begun.wait(20.0)
    runner.run([Stop(KEY, 0.0), DeleteCheckpoint("train-1", "0001-0")], World())
    deadline(lambda: runner.collect() or not runner._stopping, "the stop to be done")  # type: ignore[func-returns-value]
    assert runner.removals.deleted == []
    goes_on.set()
    deadline(lambda: runner.collect() or len(runner.removals.deleted) == 4, "each delete to be done once")  # type: ignore[func-returns-value]


def test_a_stop_overtakes_a_launch_that_has_not_begun(tmp_path: Path) -> None:
    workers = ByHand()
    server = Server(Home(tmp_path), workers)
    server.submit()
    server.tick()
    assert workers.of(Lane.LAUNCH) == 1
    server.ask(CancelJob("train-1", "ann"))
    server.tick()
    assert (workers.of(Lane.LAUNCH), workers.of(Lane.STOP)) == (0, 1)
    workers.work()
    for _ in range(3):
        server.tick()
        workers.work()
    assert server.engine.truth.starts == {}
    assert server.state() is State.CANCELLED


def test_a_look_that_began_before_a_launch_proves_nothing_of_it(tmp_path: Path) -> None:
    """An agent that was not there yet when the engine was asked is not lost."""
    workers = ByHand()
    server = Server(Home(tmp_path), workers)
    server.submit()
    server.tick()
    server.tick()
    assert (workers.of(Lane.LAUNCH), workers.of(Lane.LOOK)) == (1, 1)
    workers.work(Lane.LOOK)  # it sees nothing
    workers.work(Lane.LAUNCH)
    server.clock.time_s += 1.0
    started = {"kind": "started", "n": 1, "restored": None, "step": None, "bad": []}
    server.ask(AgentReport(str(KEY), started))
    server.tick(0.0)
    assert server.state() is State.RUNNING
    for _ in range(3):
        workers.work()
        server.tick()
    assert server.state() is State.RUNNING
    assert server.engine.truth.starts == {KEY: 1}


def test_of_one_key_one_launch_and_one_stop_are_on_their_way(tmp_path: Path) -> None:
    """And a stop that allows less, asked for meanwhile, comes right behind."""
    workers = ByHand()
    runner, world = EffectRunner(SimulatedEngine(Random(1), Clock()), FsBlobs(tmp_path), str, workers), World()
    world.jobs[KEY.job] = placed(job())
    runner.run([Launch(KEY)], world)
    runner.run([Launch(KEY)], world)
    runner.run([Stop(KEY, 30.0)], world)
    runner.run([Stop(KEY, 30.0), Stop(KEY, 0.0)], world)
    assert (workers.of(Lane.LAUNCH), workers.of(Lane.STOP)) == (0, 1)
    workers.work()
    runner.collect()
    assert workers.of(Lane.STOP) == 1


def test_a_launch_waits_for_a_stop_on_its_devices(tmp_path: Path) -> None:
    workers = ByHand()
    runner, world = EffectRunner(SimulatedEngine(Random(1), Clock()), FsBlobs(tmp_path), str, workers), World()
    world.jobs[KEY.job] = holding(placed(job()), 0)
    world.jobs[OTHER.job] = holding(placed(replace(job(), id="train-2")), 0)
    world.jobs["train-3"] = holding(placed(replace(job(), id="train-3")), 1)
    runner.run([Stop(KEY, 0.0)], world)
    runner.run([Launch(OTHER), Launch(AgentKey("train-3", 1, 0))], world)
    assert workers.of(Lane.LAUNCH) == 1
    workers.work()
    runner.run([Launch(OTHER)], world)  # state alone calls for it again
    assert workers.of(Lane.LAUNCH) == 1


def holding(value: Job, device: int) -> Job:
    assert value.attempt is not None
    return replace(value, attempt=replace(value.attempt, allocation=Allocation((share(devices=(device,)),))))


def test_of_very_many_recorded_processes_only_those_that_run_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """L3: a job that starts processes all day long records a million of them; /proc is not asked for each."""
    me = own_identity()
    recorded = dict.fromkeys(range(5_000_000, 5_200_000), 1) | {int(str(me["pid"])): int(str(me["start_ticks"]))}
    asked: list[int] = []
    real = leftovers._row
    monkeypatch.setattr(leftovers, "_row", lambda pid: asked.append(pid) or real(pid))  # type: ignore[func-returns-value]
    assert [row.pid for row in leftovers.alive(recorded)] == [me["pid"]]
    assert len(asked) < 10_000


def test_work_is_done_by_so_many_threads_of_its_kind_and_what_it_raises_is_kept() -> None:
    running, most, goes_on, wakes = [0], [0], threading.Event(), [0]
    lock = threading.Lock()

    def work() -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        assert goes_on.wait(20.0)
        with lock:
            running[0] -= 1
        return 7

    def wake() -> None:
        with lock:
            wakes[0] += 1

    workers = Threads(wake)
    futures = [workers.submit(Lane.DELETE, work) for _ in range(6)]
    deadline(lambda: running[0] == THREADS[Lane.DELETE], "all threads of the lane at work")
    broken = workers.submit(Lane.STOP, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        broken.result(20.0)
    goes_on.set()
    assert [one.result(20.0) for one in futures] == [7] * 6
    deadline(lambda: wakes[0] == 7, "a wake for each")
    assert most[0] == THREADS[Lane.DELETE]
