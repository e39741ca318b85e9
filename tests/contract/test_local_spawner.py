"""How agents are started: by the warm spawner, through its deaths and upgrades, and by exec without it."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_world import LocalWorld, with_spawner

from trainmaster.agent.processes.process_tree import children
from trainmaster.engines.local import spawner, starting
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.ports.engine import Phase
from trainmaster.testing.engine_contract import Behaviour, await_over, await_running, eventually, phase, stop_until_over
from trainmaster.wire import processes


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    made = with_spawner(tmp_path / "home")
    yield made
    made.close()


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
    world.engine().submit(two)  # by exec, because no process listens on the socket file
    await_running(world, two.key)
    eventually(world, lambda: starting.spawner_answers(world.home), "a new spawner answers")
    assert spawner_pid(world) != first
    world.engine().submit(three)
    await_running(world, three.key)
    assert phase(world, one.key) is Phase.RUNNING
    for each in (one, two, three):
        stop_until_over(world, each.key, 5.0)


def test_a_spawner_of_other_code_is_replaced(world: LocalWorld) -> None:
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


def test_a_spawner_is_not_wanted_without_its_home_wherever_that_went(tmp_path: Path) -> None:
    """One stayed for ever whose home was moved away, or removed beside a copy by hard links, if its socket lay elsewhere."""
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.lock("spawner").touch()
    descriptor = os.open(home.lock("spawner"), os.O_RDWR)
    try:
        assert spawner._wanted(home, descriptor)
        os.link(home.lock("spawner"), tmp_path / "copy")
        home.root.rename(tmp_path / "moved")
        assert not spawner._wanted(home, descriptor)
        home.root.mkdir()
        home.lock("spawner").touch()
        assert not spawner._wanted(home, descriptor), "another home has its place"
    finally:
        os.close(descriptor)


def test_a_spawner_that_does_not_answer_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch waited two seconds for a stopped one, and those of all nodes wait for each other."""
    monkeypatch.setattr(starting, "_CONNECT_S", 0.2)
    monkeypatch.setattr(starting.Starter, "_execute", lambda *_: None)
    home = Home(tmp_path)
    monkeypatch.setattr(starting, "start_spawner", lambda _: 0)
    starter = starting.Starter(home)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(str(home.socket("spawner")))
        stopped.listen(16)
        for _ in range(5):
            starter.start(tmp_path)
        stopped.settimeout(0.0)
        stopped.accept()[0].close()
        with pytest.raises(BlockingIOError):
            stopped.accept()


def test_an_agent_that_ends_leaves_no_zombie_and_one_that_runs_outlives_its_spawner(tmp_path: Path) -> None:
    made = with_spawner(tmp_path / "home")
    spawner = spawner_pid(made)
    over, running = made.submission(Behaviour.SUCCEEDS), made.submission(Behaviour.RUNS, "train-2")
    for each in (running, over):
        made.engine().submit(each)
    assert await_over(made, over.key).phase is Phase.ENDED
    await_running(made, running.key)
    eventually(made, lambda: children(spawner) == [made.agent(running.key)], "only the one that runs is left")
    starting.stop_spawner(made.home)
    eventually(made, lambda: processes.start_ticks(spawner) is None, "it is gone")
    assert phase(made, running.key) is Phase.RUNNING
    stop_until_over(made, running.key, 5.0)
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
