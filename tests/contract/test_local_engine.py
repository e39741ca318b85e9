"""EngineContract on the local engine, with real agents and processes, and the laws only it has."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from trainmaster.engines.local import observing, starting
from trainmaster.engines.local.attempts import Attempts
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.settings import LocalSettings
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.model.spec import CodeCopy
from trainmaster.ports.engine import Engine, Observation, Phase, Submission
from trainmaster.testing import builders
from trainmaster.testing.engine_contract import (
    Behaviour,
    EngineContract,
    EngineWorld,
    await_over,
    await_running,
    eventually,
    phase,
    stop_until_over,
)
from trainmaster.wire import names, processes

PROGRAMS = {
    Behaviour.SUCCEEDS: "exit 0",
    Behaviour.FAILS: "exit 3",
    Behaviour.CRASHES: "kill -SEGV $$",
    Behaviour.RUNS: "exec -a {mark} sleep 1000",
    Behaviour.STUBBORN: "trap '' TERM; exec -a {mark} sleep 1000",
    Behaviour.DAEMON: "( setsid bash -c 'exec -a {mark} sleep 1000' & ) ; exec -a {mark} sleep 1000",
}


class LocalWorld:
    """A home of its own; every process of its programs bears the world's mark as its name."""

    deadline_s = 30.0

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.mark = f"program-{uuid.uuid4().hex}"
        self.wakes = threading.Event()
        self._settings = LocalSettings(nodes=2, gpus_per_node=2)
        self._engines: list[LocalEngine] = []
        root.mkdir(exist_ok=True)
        self.restart()

    def engine(self) -> LocalEngine:
        return self._engines[-1]

    def restart(self) -> LocalEngine:
        self._engines.append(LocalEngine(self.home, self._settings, self.wakes.set))
        return self._engines[-1]

    def rival(self) -> Engine:
        self._engines.insert(0, LocalEngine(self.home, self._settings, self.wakes.set))
        return self._engines[0]

    def submission(self, behaviour: Behaviour, job: str = "train-1") -> Submission:
        return self.line(PROGRAMS[behaviour].format(mark=self.mark), job)

    def line(self, command: str, job: str = "train-1") -> Submission:
        """A program that says that it was started, then goes on so."""
        said = self.home.root / f"started.{job}"
        project = self.home.root / "project"
        project.mkdir(exist_ok=True)
        value = builders.job(
            f"echo started >> {said}; {command}", id=job, origin=builders.origin(str(project)), code=CodeCopy(in_place=True)
        )
        return builders.submission(value, credential="deadbeef")

    def pause(self) -> None:
        self.wakes.wait(0.02)
        self.wakes.clear()

    def agent(self, key: AgentKey) -> int:
        identity = Attempts(self.home).identity(key)
        assert identity is not None
        return identity.pid

    def kill_agent(self, key: AgentKey) -> None:
        os.kill(self.agent(key), signal.SIGKILL)

    def processes(self, key: AgentKey) -> int:
        return len(self.marked())

    def marked(self) -> list[int]:
        """Every process named by the mark."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_marked(int(name))]

    def _is_marked(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            return command.startswith(self.mark.encode() + b"\0") and processes.start_ticks(pid) is not None
        return False

    def starts(self, key: AgentKey) -> int:
        with contextlib.suppress(FileNotFoundError):
            return (self.home.root / f"started.{key.job}").read_text().count("started")
        return 0

    def close(self) -> None:
        starting.stop_spawner(self.home)
        for record in self.home.root.glob(f"attempts/*/*/*/{names.AGENT}"):
            agent = json.loads(record.read_text())
            if processes.same_process(agent["pid"], agent["start_ticks"], agent["boot_id"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(agent["pid"], signal.SIGKILL)
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for engine in self._engines:
            engine.close()


class TestByExec(EngineContract):
    """Each test begins without a spawner: the first agent is started by exec, later ones perhaps by a fork."""

    def make_world(self, tmp_path_factory: pytest.TempPathFactory) -> EngineWorld:
        return LocalWorld(tmp_path_factory.mktemp("home"))


def with_spawner(root: Path) -> LocalWorld:
    world = LocalWorld(root)
    starting.start_spawner(world.home)
    eventually(world, lambda: starting.spawner_answers(world.home), "the spawner answers")
    return world


class TestBySpawner(EngineContract):
    """Each test begins with a warm spawner."""

    def make_world(self, tmp_path_factory: pytest.TempPathFactory) -> EngineWorld:
        return with_spawner(tmp_path_factory.mktemp("home"))


@pytest.fixture
def world(tmp_path: Path) -> object:
    made = with_spawner(tmp_path / "home")
    yield made
    made.close()


SUBMITS = """
import os, pickle, sys
from pathlib import Path
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.settings import LocalSettings
from trainmaster.errors import OperationError
from trainmaster.home import Home
submission = pickle.loads(bytes.fromhex(sys.argv[2]))
engine = LocalEngine(Home(Path(sys.argv[1])), LocalSettings(nodes=2), lambda: None)
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
engine.submit(submission)
os.kill(os.getpid(), 9)
"""


def submitter(world: LocalWorld, submission: Submission) -> "subprocess.Popen[bytes]":
    """A control process that submits when it reads a line, and is killed right after."""
    import pickle  # noqa: PLC0415 - here alone

    command = [sys.executable, "-c", SUBMITS, str(world.home.root), pickle.dumps(submission).hex()]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_two_processes_start_it_once_and_the_agent_outlives_both(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.RUNS)
    both = [submitter(world, submission) for _ in range(2)]
    for process in both:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.wait(30) for process in both] == [-9, -9]
    for process in both:
        process.communicate()
    starting.stop_spawner(world.home)
    await_running(world, submission.key)
    assert parent(world.agent(submission.key)) == 1
    stop_until_over(world, submission.key, 5.0)
    assert world.starts(submission.key) == 1


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_an_agents_end_wakes_at_once(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.RUNS)
    world.engine().submit(submission)
    await_running(world, submission.key)
    world.wakes.clear()
    killed_s = time.monotonic()
    world.kill_agent(submission.key)
    assert world.wakes.wait(5.0)
    assert time.monotonic() - killed_s < 1.0
    stop_until_over(world, submission.key, 0.0)


def test_a_daemon_without_our_environment_is_known_from_the_agents_record(world: LocalWorld) -> None:
    submission = world.line(
        f"( setsid env -i bash -c 'exec -a {world.mark} sleep 1000' & ) ; exec -a {world.mark} sleep 1000"
    )
    world.engine().submit(submission)
    await_running(world, submission.key)
    recorded = Attempts(world.home)
    eventually(
        world, lambda: len(world.marked()) == 2 and set(world.marked()) <= set(recorded.tree(submission.key)), "both recorded"
    )
    world.kill_agent(submission.key)
    stop_until_over(world, submission.key, 0.0)
    assert world.marked() == []


def test_the_same_key_of_another_home_is_left_alone(world: LocalWorld, tmp_path: Path) -> None:
    other = LocalWorld(tmp_path / "other")
    try:
        for each in (world, other):
            each.engine().submit(each.submission(Behaviour.RUNS))
        key = world.submission(Behaviour.RUNS).key
        for each in (world, other):
            await_running(each, key)
        world.kill_agent(key)
        stop_until_over(world, key, 0.0)
        assert (len(world.marked()), len(other.marked())) == (0, 1)
        assert phase(other, key) is Phase.RUNNING
        stop_until_over(other, key, 5.0)
    finally:
        other.close()


def test_a_hung_agent_is_killed_after_its_grace_and_more(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.RUNS)
    world.engine().submit(submission)
    await_running(world, submission.key)
    os.kill(world.agent(submission.key), signal.SIGSTOP)
    world.engine().stop(submission.key, 0.0)
    assert phase(world, submission.key) is Phase.RUNNING
    path = Attempts(world.home).directory(submission.key) / names.STOP
    stone = json.loads(path.read_text())
    path.write_text(json.dumps(stone | {"since_monotonic_s": stone["since_monotonic_s"] - 11.0}))
    seen = stop_until_over(world, submission.key, 0.0)
    assert (seen.phase, world.marked()) == (Phase.GONE, [])


def test_after_a_reboot_what_has_no_record_is_gone(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.RUNS)
    world.engine().submit(submission)
    await_running(world, submission.key)
    path = Attempts(world.home).directory(submission.key) / names.AGENT
    record = path.read_text()
    path.write_text(json.dumps(json.loads(record) | {"boot_id": "an earlier one"}))
    fresh = world.restart()
    assert fresh.observe([submission.key]) == {
        submission.key: Observation(Phase.GONE, evidence="the machine was started again since")
    }
    path.write_text(record)
    world.restart()
    stop_until_over(world, submission.key, 5.0)


def test_a_launch_that_no_agent_came_of_is_unknown_then_absent(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.RUNS)
    attempts = Attempts(world.home)
    attempts.create(submission.key, json.loads(world.engine().render(submission)))
    assert phase(world, submission.key) is Phase.UNKNOWN
    launch = attempts.directory(submission.key) / names.LAUNCH
    long_ago_s = time.time() - observing.LAUNCH_S - 1.0
    os.utime(launch, (long_ago_s, long_ago_s))
    assert phase(world, submission.key) is Phase.ABSENT
    world.engine().submit(submission)
    await_running(world, submission.key)
    stop_until_over(world, submission.key, 5.0)


def test_the_cost_of_finding_all_is_that_of_the_living(world: LocalWorld) -> None:
    ended = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(ended)
    await_over(world, ended.key)
    assert list(world.home.live.iterdir()) == []
    assert world.engine().observe(None) == {}


def test_orders_and_directory_are_private(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(submission)
    await_over(world, submission.key)
    directory = Attempts(world.home).directory(submission.key)
    modes = [path.stat().st_mode & 0o777 for path in (directory, directory / names.LAUNCH)]
    assert modes == [0o700, 0o600]


def spawner_pid(world: LocalWorld) -> int:
    """Who listens on the spawner's socket, by its lock."""
    inode = str(world.home.lock("spawner").stat().st_ino)
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    (pid,) = [int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rpartition(":")[2] == inode]
    return pid


def test_a_killed_spawner_is_replaced_and_nothing_is_lost(world: LocalWorld) -> None:
    first = spawner_pid(world)
    one, two, three = (world.submission(Behaviour.RUNS, f"train-{number}") for number in (1, 2, 3))
    world.engine().submit(one)
    await_running(world, one.key)
    os.kill(first, signal.SIGKILL)
    world.engine().submit(two)  # by exec, past a socket file that nobody listens on
    await_running(world, two.key)
    eventually(world, lambda: starting.spawner_answers(world.home), "a new spawner answers")
    assert spawner_pid(world) != first
    world.engine().submit(three)
    await_running(world, three.key)
    assert phase(world, one.key) is Phase.RUNNING
    for each in (one, two, three):
        stop_until_over(world, each.key, 5.0)


def test_a_spawner_of_other_code_is_replaced(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    old = spawner_pid(world)
    assert starting.ask(world.home, {"directory": "/nowhere", "version": "another"}) == {"error": "version"}
    eventually(world, lambda: processes.start_ticks(old) is None, "the old one goes")
    submission = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(submission)
    assert await_over(world, submission.key).phase is Phase.ENDED
    eventually(world, lambda: starting.spawner_answers(world.home), "a new spawner answers")


def test_two_spawners_race_and_one_stays(world: LocalWorld) -> None:
    first = spawner_pid(world)
    for _ in range(2):
        starting.start_spawner(world.home)
    submission = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(submission)
    assert await_over(world, submission.key).phase is Phase.ENDED
    assert spawner_pid(world) == first


def test_a_spawner_stopped_while_it_starts_goes(tmp_path: Path) -> None:
    made = LocalWorld(tmp_path / "home")
    pid = starting.start_spawner(made.home)
    starting.stop_spawner(made.home)
    eventually(made, lambda: processes.start_ticks(pid) is None, "it is gone")
    assert not starting.spawner_answers(made.home)
    made.close()


def test_a_spawner_goes_with_its_socket(tmp_path: Path) -> None:
    made = with_spawner(tmp_path / "home")
    pid = spawner_pid(made)
    starting.stop_spawner(made.home)
    eventually(made, lambda: processes.start_ticks(pid) is None, "it is gone")
    assert not made.home.socket("spawner").exists()
    made.close()


def fastest_s(what: Callable[[], object], times: int = 5) -> float:
    spent = []
    for _ in range(times):
        began_s = time.perf_counter()
        what()
        spent.append(time.perf_counter() - began_s)
    return min(spent)


def test_a_warm_fork_is_quick(world: LocalWorld, tmp_path: Path) -> None:
    nowhere = tmp_path / "no-launch-here"
    nowhere.mkdir()
    request = {"directory": str(nowhere), "version": starting.version()}
    assert fastest_s(lambda: starting.ask(world.home, request)) < 0.02  # measured near 2 ms; the bound is for busy machines


def test_an_agent_that_never_comes_up_is_an_error_in_the_end(tmp_path: Path) -> None:
    made = LocalWorld(tmp_path / "home")
    try:
        made.home.logs.write_text("a file, so that no spawner can be started")
        first, second = made.submission(Behaviour.SUCCEEDS), made.submission(Behaviour.SUCCEEDS, "train-2")
        made.engine().submit(first)
        assert await_over(made, first.key).phase is Phase.ENDED
        made.home.agent_zipapp.write_bytes(b"not an archive")
        refused: list[OperationError] = []

        def is_refused() -> bool:
            try:
                made.engine().submit(second)
            except OperationError as error:
                refused.append(error)
            return bool(refused)

        eventually(made, is_refused, "the engine gives up")
        assert refused[0].message.startswith("the agent of train-2.1/n0 did not come up in 3 tries: ")
        assert "agent.pyz" in made.engine().logs(second.key)
    finally:
        made.close()
