"""EngineContract on the local engine, with real agents and processes, and the laws only it has."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from local_world import LocalWorld, with_spawner
from waiting import deadline

from trainmaster.engines.local import observing, starting
from trainmaster.engines.local.attempts import Attempts
from trainmaster.engines.local.cgroups import Cgroups
from trainmaster.ports.engine import Observation, Phase, Submission
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


class TestByExec(EngineContract):
    """Each test begins without a spawner: the first agent is started by exec, later ones perhaps by a fork."""

    def make_world(self, tmp_path_factory: pytest.TempPathFactory) -> EngineWorld:
        return LocalWorld(tmp_path_factory.mktemp("home"))


class TestBySpawner(EngineContract):
    """Each test begins with a warm spawner."""

    def make_world(self, tmp_path_factory: pytest.TempPathFactory) -> EngineWorld:
        return with_spawner(tmp_path_factory.mktemp("home"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
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
    deadline(lambda: parent(world.agent(submission.key)) == 1, "it to have init as its parent, and not its spawner")
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


def test_what_is_born_in_an_agents_last_moment_is_found_and_ended(world: LocalWorld) -> None:
    """R21: a daemon with an empty environment and its own session, which no agent had recorded, ran beside the next attempt."""
    if not Cgroups(world.home.root).contains:
        pytest.skip(Cgroups(world.home.root).words()[0])
    forking = "import os, time\nwhile True:\n    time.sleep(0.001)\n    if os.fork(): os._exit(0)\n    os.setsid()"
    storm = f"setsid env -i bash -c 'exec -a {world.mark} python3 -S -E -c \"{forking}\"'"
    submission = world.line(f"sleep 0.2; ( {storm} & ) ; sleep 0.05; kill -9 $PPID")
    world.engine().submit(submission)
    eventually(world, lambda: phase(world, submission.key) is Phase.LOST, "its agent to be gone and the daemon not")
    stop_until_over(world, submission.key, 0.0)
    assert (world.marked(), phase(world, submission.key)) == ([], Phase.GONE)
    assert not any(Path(path).exists() for path in json.loads(launch_of(world, submission))["contained"])


def test_what_a_rank_leaves_in_its_cgroup_is_ended_before_the_end_is_told(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(submission)
    await_over(world, submission.key)
    (Attempts(world.home).directory(submission.key) / names.TREE).unlink(missing_ok=True)
    groups = [Path(path) for path in json.loads(launch_of(world, submission))["contained"]]
    if not groups:
        pytest.skip("no cgroup here")
    deadline(lambda: not any(group.exists() for group in groups), "its agent to remove them at its end")
    groups[0].mkdir(exist_ok=True)
    left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        (groups[0] / "cgroup.procs").write_text(str(left.pid))
        seen = world.restart().observe([submission.key])[submission.key]
        assert (seen.phase, seen.evidence) == (Phase.RUNNING, "ended, but 1 of its processes still run")
        assert await_over(world, submission.key).phase is Phase.ENDED
        assert left.wait(10) == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()


def launch_of(world: LocalWorld, submission: Submission) -> str:
    return (Attempts(world.home).directory(submission.key) / names.LAUNCH).read_text()


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


def test_what_outlives_an_exit_record_is_ended_before_the_end_is_told(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(submission)
    await_over(world, submission.key)
    left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        tree = Attempts(world.home).directory(submission.key) / names.TREE
        with tree.open("a") as file:
            file.write(f"{left.pid} {processes.start_ticks(left.pid)}\n")
        seen = world.restart().observe([submission.key])[submission.key]
        assert (seen.phase, seen.evidence) == (Phase.RUNNING, "ended, but 1 of its processes still run")
        assert await_over(world, submission.key).phase is Phase.ENDED
        assert left.wait(10) == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()


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
    with world.stopped(submission.key):
        record = path.read_text()
        path.write_text(json.dumps(json.loads(record) | {"boot_id": "an earlier one"}))
        path.with_name(names.SPOOL).write_text('{"kind": "kept", "n": 2}\n{"kind": "staged", "n": 1}\n{"kind": "sta')
        fresh = world.restart()
        assert fresh.observe([submission.key]) == {
            submission.key: Observation(
                Phase.GONE,
                reports=({"kind": "staged", "n": 1}, {"kind": "kept", "n": 2}),  # what no server had acknowledged
                evidence="the machine was started again since",
            )
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


def test_what_runs_on_without_its_records_is_found_and_ended_by_a_stop(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.STUBBORN)
    world.engine().submit(submission)
    await_running(world, submission.key)
    records = Attempts(world.home).directory(submission.key)

    def gone() -> bool:
        shutil.rmtree(records, ignore_errors=True)  # its agent writes on meanwhile
        return not records.exists()

    deadline(gone, "its records to be gone")
    world.restart()
    assert phase(world, submission.key) is Phase.ABSENT
    world.engine().stop(submission.key, 30.0)
    assert phase(world, submission.key) is Phase.LOST
    stop_until_over(world, submission.key, 0.0)


@pytest.mark.parametrize("agent_is_killed", [False, True])
def test_a_stop_comes_though_a_program_put_pipes_in_place_of_the_records(world: LocalWorld, agent_is_killed: bool) -> None:
    submission = world.submission(Behaviour.STUBBORN)
    world.engine().submit(submission)
    await_running(world, submission.key)
    records = Attempts(world.home).directory(submission.key)
    if agent_is_killed:
        world.kill_agent(submission.key)
    for name in (names.STOP, names.EXIT, names.AGENT, names.TREE, names.SPOOL):
        os.mkfifo(records / "pipe")
        (records / "pipe").replace(records / name)  # at once: an agent that lives may be writing it
    seen = stop_until_over(world, submission.key, 0.0)
    assert seen.phase is (Phase.GONE if agent_is_killed else Phase.ENDED)
    assert world.marked() == []


def test_it_has_not_ended_while_its_agent_sends_the_last_points(world: LocalWorld) -> None:
    """A job was seen as succeeded before its last metrics were: the look at its exit record was quicker than its report."""
    with socket.socket(socket.AF_UNIX) as silent:  # takes requests, and answers none
        world.home.socket("api").parent.mkdir(parents=True, exist_ok=True)
        silent.bind(str(world.home.socket("api")))
        silent.listen()
        submission = world.submission(Behaviour.SUCCEEDS)
        world.engine().submit(submission)
        record = Attempts(world.home).directory(submission.key) / names.EXIT
        deadline(record.exists, "its exit record")
        assert phase(world, submission.key) is Phase.RUNNING
        os.utime(record, times=(0.0, 0.0))
        assert phase(world, submission.key) is Phase.ENDED  # the devices are not held by a server that is slow
        os.utime(record)
        world.kill_agent(submission.key)
        assert await_over(world, submission.key).phase is Phase.ENDED


def test_the_cost_of_finding_all_is_that_of_the_living(world: LocalWorld) -> None:
    ended = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(ended)
    await_over(world, ended.key)
    assert list(world.home.live.iterdir()) == []
    assert world.engine().observe(None) == {}


def test_one_that_nobody_asks_for_any_more_is_taken_off_the_index(world: LocalWorld) -> None:
    """It told its end itself, so control never asks for it again; the index must not grow with all that ever ran."""
    ended = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(ended)
    deadline(lambda: Attempts(world.home).ended(ended.key) is not None, "its exit record")

    def looked_at() -> bool:
        return all(world.engine().observe([]) == {} for _ in range(600)) and list(world.home.live.iterdir()) == []

    deadline(looked_at, "an empty index")


def test_orders_and_directory_are_private(world: LocalWorld) -> None:
    submission = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(submission)
    await_over(world, submission.key)
    directory = Attempts(world.home).directory(submission.key)
    modes = [path.stat().st_mode & 0o777 for path in (directory, directory / names.LAUNCH)]
    assert modes == [0o700, 0o600]


def test_where_a_gang_meets_is_known_of_a_node_that_ended_while_no_server_answered(world: LocalWorld) -> None:
    """Its other nodes wait for that, and the exit record does not repeat it."""
    submission = world.submission(Behaviour.SUCCEEDS)
    world.engine().submit(submission)
    await_over(world, submission.key)
    with suppress(ProcessLookupError):  # it may still look for its server, and would go on writing its spool
        world.kill_agent(submission.key)
    gone = Attempts(world.home).identity(submission.key)
    assert gone is not None
    deadline(lambda: not gone.alive, "the agent to go")
    meeting = {"kind": "rendezvous", "n": 1, "address": "127.0.0.1", "port": 12345}
    spool = Attempts(world.home).directory(submission.key) / names.SPOOL
    spool.write_text("".join(json.dumps(report) + "\n" for report in (meeting, {"kind": "started", "n": 2})))
    seen = world.restart().observe([submission.key])[submission.key]
    assert [report["kind"] for report in seen.reports] == ["rendezvous", "started"]
    assert seen.reports[0] == meeting
