"""Ends of an attempt that does not report: a person's declaration, or a limit."""

import math
from functools import partial
from pathlib import Path

import pytest
from control_server import KEY, STARTED, Server, staged

from trainmaster.agent.transport.sync import _aged
from trainmaster.compose import last_heard
from trainmaster.control import observe
from trainmaster.control.decide import Contact
from trainmaster.engines.simulated.scripts import Faults
from trainmaster.home import Home
from trainmaster.model.commands import SetNodeState
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Attempt, Cause, Outcome, RankEnd, State
from trainmaster.model.nodes import NodeState
from trainmaster.model.spec import Resources
from trainmaster.ports.engine import Observation, Phase


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(Home(tmp_path))


def test_a_start_that_never_ends_gives_its_node_back(server: Server) -> None:
    """R16: a package index that does not answer held two GPUs for ever. The start limit ends it, and restarts are bounded."""
    server.engine.faults = Faults(hangs=1.0)
    server.submit(start_limit_s=60.0)
    server.tick()
    server.tell({"kind": "preparing", "n": 1, "doing": "building the environment from requirements.txt"})
    server.tick(30.0)
    assert (server.job().state, server.job().reason) == (State.STARTING, "building the environment from requirements.txt")
    server.tick(31.0)
    for _ in range(5):
        server.tick()
    (first, *_) = server.events.attempts("train-1")
    message = "did not start within 1 min: building the environment from requirements.txt; start_limit in its spec allows more"
    assert first.failure is not None
    assert (first.failure.cause, first.failure.message, server.job().restarts_infrastructure) == (Cause.START_LIMIT, message, 1)
    for _ in range(60):
        server.tick(30.0)
    assert (server.job().state, len(server.events.attempts("train-1"))) == (State.FAILED, 6)
    assert server.job().reason.endswith("not restarted: 6 times in a row it made no progress")


def test_a_start_within_its_limit_is_left_alone(server: Server) -> None:
    server.submit()
    server.tick()
    server.tell({**STARTED, "n": 1})
    server.tick(59.0)
    assert (server.job().state, len(server.events.attempts("train-1"))) == (State.RUNNING, 1)
    server.tick(1800.0)
    assert (server.job().state, len(server.events.attempts("train-1"))) == (State.SUCCEEDED, 1)


def declare_lost(server: Server, node: str) -> None:
    server.ask(SetNodeState(node, NodeState.LOST, "ann", "burnt down"))
    server.tick()


def test_a_node_that_is_cut_off_and_declared_lost_keeps_no_job(server: Server) -> None:
    """R4: the job stayed in `stopping` for ever. A person's declaration ends it, and the job restarts elsewhere."""
    server.running()
    node = server.held(KEY)
    server.engine.partition(node, 1e9)
    declare_lost(server, node)
    for _ in range(5):
        server.tick()
    (first, second) = server.events.attempts("train-1")
    assert first.failure is not None
    assert (first.failure.cause, first.failure.message) == (Cause.NODE_LOST, f"{node} was declared lost by ann: burnt down")
    assert (server.job().restarts_infrastructure, second.allocation.shares[0].node != node) == (1, True)
    server.tell(staged(), key=KEY)  # the old one is cut off, not dead: what it says is refused from now on
    server.tick()
    assert (server.job().checkpoints, second.number) == ((), 2)


def test_a_word_holds_although_the_node_is_up_again_in_the_same_moment(server: Server) -> None:
    """R4: declared lost and resumed between two observations, the job stayed in `stopping` while the node was silent."""
    server.running()
    node = server.held(KEY)
    server.engine.partition(node, 1e9)
    server.ask(SetNodeState(node, NodeState.LOST, "ann", "burnt down"))
    server.ask(SetNodeState(node, NodeState.UP, "ann", "repaired"))
    for _ in range(6):
        server.tick()
    (first, *_) = server.events.attempts("train-1")
    assert first.failure is not None
    assert (first.failure.cause, first.failure.message) == (Cause.NODE_LOST, f"{node} was declared lost by ann: burnt down")


def test_what_the_engine_still_sees_of_a_lost_node_is_ended_there_first(server: Server) -> None:
    """The declaration may be wrong: the engine's proof comes before the next attempt. An unkillable process is given up."""
    server.running()
    node = server.held(KEY)
    server.engine.says[KEY] = Observation(Phase.RUNNING)
    declare_lost(server, node)
    for _ in range(int(observe.LOST_GRACE_S) - 5):
        server.tick()
    assert (server.job().state, len(server.events.attempts("train-1"))) == (State.STOPPING, 1)
    for _ in range(10):
        server.tick()
    assert len(server.events.attempts("train-1")) == 2


def test_a_word_about_one_node_ends_the_part_of_a_gang_that_was_there(server: Server) -> None:
    server.submit(resources=Resources(nodes=2))
    server.tick()
    for index in (0, 1):
        server.tell({**STARTED, "n": 1}, key=AgentKey("train-1", 1, index))
    server.tick()
    cut = AgentKey("train-1", 1, 1)
    server.engine.partition(server.held(cut), 1e9)
    declare_lost(server, server.held(cut))
    for _ in range(5):
        server.tick()
    assert (server.job().state, server.job().restarts_infrastructure) == (State.QUEUED, 1)


def test_what_ended_while_the_server_was_away_is_not_blamed_on_a_limit(server: Server) -> None:
    """Killed after 4 s, with the server away for 30, a job with 20 s to run "reached its time limit" and was over."""
    server.running(time_limit_s=20.0)
    server.engine.says[KEY] = Observation(Phase.ENDED, Outcome((RankEnd(0, signal=9),), ran_s=4.0))
    server.clock.time_s += 30.0
    server.start()
    server.tick()
    (first, second) = server.events.attempts("train-1")
    assert first.failure is not None
    assert (first.failure.cause, first.ran_s, server.job().ran_s, second.number) == (Cause.KILLED, 4.0, 4.0, 2)


def test_a_limit_that_passed_while_the_server_was_away_is_enforced_once_it_was_looked(server: Server) -> None:
    server.running(time_limit_s=20.0)
    server.clock.time_s += 30.0
    server.start()
    server.tick()
    assert (server.job().state, server.job().reason) == (State.STOPPING, "reached its time limit of 20 s")


def test_a_start_that_nobody_could_hear_of_is_not_too_slow(server: Server) -> None:
    """A training that began just before the server went away was ended when it came back: it "did not start"."""
    server.submit(start_limit_s=60.0)
    server.tick()
    server.clock.time_s += 3600.0
    server.start()
    server.engine.says[KEY] = Observation(Phase.RUNNING)
    server.tick()
    server.tick(30.0)
    assert server.job().state is State.STARTING
    server.tell({**STARTED, "n": 1})
    server.tick(60.0)
    assert (server.job().state, len(server.events.attempts("train-1"))) == (State.RUNNING, 1)


def test_a_start_that_is_too_slow_is_ended_by_a_server_that_comes_back_too(server: Server) -> None:
    server.submit(start_limit_s=60.0)
    server.tick()
    server.clock.time_s += 3600.0
    server.start()
    server.engine.says[KEY] = Observation(Phase.RUNNING)
    server.tick(59.0)
    assert server.job().state is State.STARTING
    server.tick(2.0)
    assert server.job().state is State.STOPPING


def test_an_agent_that_went_with_its_machine_ran_until_it_was_last_heard_of(server: Server) -> None:
    """Power was lost at night: in the morning the job had "reached its time limit", having run for minutes."""
    server.running(time_limit_s=3600.0)
    last_read_s = server.clock.time_s + 300.0
    server.engine.says[KEY] = Observation(Phase.GONE)
    server.clock.time_s += 8 * 3600.0
    server.start()
    server.loop.contact.heard = {KEY: last_read_s}.get
    server.tick()
    (first, second) = server.events.attempts("train-1")
    assert first.failure is not None
    assert (first.failure.cause, first.ran_s, server.job().ran_s, second.number) == (Cause.AGENT_LOST, 300.0, 300.0, 2)


def test_an_agent_that_went_before_its_first_heartbeat_did_not_run_until_it_was_missed(server: Server) -> None:
    """After a restore of yesterday's backup, a job had "run" for a day, and reached its limit in its next attempt."""
    server.running(time_limit_s=3600.0)
    server.engine.says[KEY] = Observation(Phase.GONE)
    server.clock.time_s += 8 * 3600.0
    server.start()
    server.loop.contact.heard = dict[AgentKey, float]().get
    server.tick()
    (first, second) = server.events.attempts("train-1")
    assert (first.ran_s, server.job().ran_s, second.number) == (0.0, 0.0, 2)


def test_an_agent_whose_heartbeats_were_lost_ran_at_least_until_its_last_checkpoint(server: Server) -> None:
    """Power failed and damaged `metrics.db`, which has the heartbeats: an attempt that had stored a checkpoint had run 0 s."""
    server.running(time_limit_s=3600.0)
    server.engine.says[KEY] = Observation(Phase.RUNNING)
    server.clock.time_s += 300.0
    server.tell(staged(n=2))
    server.tick(0.0)
    server.engine.says[KEY] = Observation(Phase.GONE)
    server.clock.time_s += 8 * 3600.0
    server.start()
    server.loop.contact.heard = dict[AgentKey, float]().get
    server.tick()
    (first, second) = server.events.attempts("train-1")
    assert (first.ran_s, server.job().ran_s, second.number) == (300.0, 300.0, 2)


def test_an_agent_whose_heartbeats_cannot_be_read_may_have_run_until_now(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.metrics_db.write_bytes(b"no database" * 1000)
    assert last_heard(home, KEY) == math.inf
    assert Contact(partial(last_heard, home)).lost_s([KEY], 5.0, 9000.0) is None


def test_a_start_that_is_told_late_was_when_the_ranks_began(server: Server) -> None:
    """The server was down for 20 s after a start: "running for 1.6 s" was said at step 49, and the time limit began then."""
    server.submit(time_limit_s=60.0)
    server.tick()
    placed_s = server.clock.time_s
    server.engine.says[KEY] = Observation(Phase.RUNNING)
    server.clock.time_s += 22.0
    server.tell({**STARTED, "n": 1, "ago_s": 21.0})
    server.tick(0.0)
    assert (server.job().state, server.job().started_s, attempt_of(server).started_s) == (State.RUNNING, placed_s + 1.0, placed_s + 1.0)
    server.tick(40.0)
    assert server.job().state is State.STOPPING


def test_a_start_is_not_before_the_placement_nor_told_to_a_second(server: Server) -> None:
    server.submit()
    server.tick()
    server.engine.says[KEY] = Observation(Phase.RUNNING)
    server.tell({**STARTED, "n": 1, "ago_s": 9e9})
    server.tick()
    assert attempt_of(server).started_s == attempt_of(server).placed_s
    assert _aged({"kind": "started", "n": 1, "at_s": 5.0}, 7.5) == {"kind": "started", "n": 1, "ago_s": 2.5}
    assert _aged({"kind": "staged", "n": 1}, 7.5) == {"kind": "staged", "n": 1}


def attempt_of(server: Server) -> Attempt:
    attempt = server.job().attempt
    assert attempt is not None
    return attempt
