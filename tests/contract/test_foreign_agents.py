"""Agents and exit records of another home, or of a log that was lost: never taken for this one's, never stopped."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_world import LocalWorld
from waiting import deadline

from trainmaster import troubles
from trainmaster.engines.local.attempts import Attempts
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model.ids import AgentKey
from trainmaster.ports.engine import Phase
from trainmaster.store.migrate import migrate
from trainmaster.testing.engine_contract import Behaviour
from trainmaster.wire import processes

KEY = AgentKey("train-1", 1, 0)


def foreign(world: LocalWorld, key: AgentKey = KEY) -> Path:
    """Make what lies there another home's."""
    directory = Attempts(world.home).directory(key)
    for name in ("launch.json", "agent.json", "exit.json"):
        path = directory / name
        if path.exists():
            path.write_text(json.dumps({**json.loads(path.read_text()), "home": "former.1"}))
    return directory


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    migrate(Home(tmp_path / "home"), "server")
    made = LocalWorld(tmp_path / "home")
    troubles.own.forget()
    yield made
    made.close()
    troubles.own.forget()


def test_launches_and_exit_records_bear_the_id(world: LocalWorld) -> None:
    world.engine().submit(world.submission(Behaviour.FAILS))
    deadline(lambda: world.engine().observe([KEY])[KEY].phase is Phase.ENDED, "its end", timeout_s=30.0)
    directory = Attempts(world.home).directory(KEY)
    for name in ("launch.json", "agent.json", "exit.json"):
        assert json.loads((directory / name).read_text())["home"] == world.home.identity()


def test_an_exit_record_of_another_log_is_not_taken_for_this_jobs(world: LocalWorld) -> None:
    """R9: a new job was `succeeded` that never ran, by the exit record of an older one with its number."""
    world.engine().submit(world.submission(Behaviour.SUCCEEDS))
    deadline(lambda: world.engine().observe([KEY])[KEY].phase is Phase.ENDED, "its end", timeout_s=30.0)
    directory = foreign(world)
    pid = json.loads((directory / "agent.json").read_text())["pid"]
    world.restart()
    assert world.engine().observe([KEY])[KEY].phase is Phase.ABSENT
    deadline(lambda: processes.start_ticks(pid) is None, "its agent to be gone", timeout_s=30.0)
    world.engine().submit(world.submission(Behaviour.FAILS))
    seen = deadline(lambda: (o := world.engine().observe([KEY])[KEY]).phase is Phase.ENDED and o, "its end", timeout_s=30.0)
    assert seen.outcome is not None
    assert [rank.exit_code for rank in seen.outcome.ranks] == [3]
    assert (directory.with_name("n0.of-former.1") / "exit.json").exists()


def test_an_agent_of_another_log_is_told_and_left_alone(world: LocalWorld) -> None:
    """R9: a healthy running job was stopped because its log was lost."""
    world.engine().submit(world.submission(Behaviour.RUNS))
    deadline(lambda: world.engine().observe([KEY])[KEY].phase is Phase.RUNNING, "it to run", timeout_s=30.0)
    pid = world.agent(KEY)
    foreign(world)
    world.restart()
    assert world.engine().observe(None) == {}
    world.engine().inventory()
    (told,) = troubles.own.said()
    assert f"train-1.1/n0 (process {pid})" in told.text
    with pytest.raises(OperationError, match="an agent of another home"):
        world.engine().submit(world.submission(Behaviour.FAILS))
    assert processes.start_ticks(pid) is not None
