"""Inputs of control, valid and invalid: no accepted input is lost, and none ends the loop."""

import json
from pathlib import Path

import pytest
from control_server import ENDED, KEY, STARTED, Server, kept, staged

from trainmaster.blobs.fs import FsBlobs
from trainmaster.control.loop import DRAIN
from trainmaster.engines.local import exits
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model.commands import CancelJob
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Cause, Outcome, RankEnd, State
from trainmaster.model.spec import CheckpointSpec
from trainmaster.ports.engine import Observation, Phase
from trainmaster.store.inbox import SqlInbox


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(Home(tmp_path))


NESTED: object = 1
for _ in range(240):
    NESTED = [NESTED]

MALFORMED: list[dict[str, object]] = [
    {**STARTED, "n": 2, "restored": ["x"]},
    {**STARTED, "n": 2, "restored": "0001-1", "step": 1.5},
    {**STARTED, "n": 2, "bad": 7},
    staged("epoch", n=2),
    staged(True, n=2),
    staged(n=2, id="../../../etc"),
    staged(n=2, bytes=None),
    staged(n=[2]),
    kept(n=2, path=None),
    kept(n=2, digest="../x"),
    {"kind": "rendezvous", "n": 2, "address": "127.0.0.1", "port": "many"},
    {**ENDED, "last_step": "last"},
    {**ENDED, "memory_limit_bytes": "much", "over_memory": True},
    {**ENDED, "ranks": [{**ENDED["ranks"][0], "signal": ["SIGKILL"]}]},  # type: ignore[index]
    {**ENDED, "ranks": {}},
    {"n": 2},
    {"kind": ["ended"], "n": 2},
]


@pytest.mark.parametrize("report", MALFORMED)
def test_a_malformed_report_is_passed_over_with_a_word(
    server: Server, report: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    server.running()
    server.tell(report, staged(n=3))
    server.tick()
    assert ([c.step for c in server.job().checkpoints], server.job().state) == ([5], State.RUNNING)
    server.start()  # what is on record can be loaded
    if report.get("kind") != ["ended"]:
        assert "malformed" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE inbox SET type = 'Teleport' WHERE type = 'CancelJob'",
        "UPDATE inbox SET data = '{\"job\": ' WHERE type = 'CancelJob'",
        "UPDATE inbox SET data = '{}' WHERE type = 'CancelJob'",
    ],
)
def test_a_row_that_cannot_be_read_does_not_block_those_behind_it(
    server: Server, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.submit()
    server.ask(CancelJob("train-1", "ann"))
    server.submit()
    server.damage(damage)
    api = SqlInbox(server.home.inbox_db)  # another process than the one that accepted them, which need not read them
    assert [row.job for row in api.pending(0)] == ["train-1", "train-2"]
    api.close()
    server.tick()
    assert (server.job().state, server.job("train-2").state) == (State.STARTING, State.STARTING)
    assert "that this version cannot read" in caplog.text


def test_a_report_nested_too_deep_to_be_read_again_is_passed_over(server: Server) -> None:
    server.running()
    server.tell({**kept(n=2), "more": NESTED}, staged(n=3))
    server.tick()
    assert [c.step for c in server.job().checkpoints] == [5]


def test_an_exit_record_repeats_its_reports_in_the_order_they_were_made(server: Server) -> None:
    """While the api was away: an artifact, then a checkpoint, then the end."""
    server.running()
    record = {**ENDED, "n": 0, "staged": [staged(n=3)], "kept": [kept(n=2), kept("b.png", n=4)]}
    server.engine.says[KEY] = Observation(Phase.ENDED, exits.outcome(record), exits.reports(record))
    server.tick()
    job = server.job()
    assert ([a.path for a in server.events.artifacts("train-1", 10)], [c.step for c in job.checkpoints]) == (["a.png", "b.png"], [5])


def test_a_failure_keeps_its_time_while_its_report_waits(server: Server) -> None:
    """Of a gang that ended while control was down, the rank was blamed whose node had stored for longer."""
    server.running()
    server.tell({**ENDED, "ranks": [{**ENDED["ranks"][0], "exit_code": 1, "signal": None}], "failed_ago_s": 1.0})  # type: ignore[index]
    server.tick(1800.0)
    attempt = server.job().attempt
    assert attempt is not None
    assert attempt.nodes[0].outcome is not None
    assert attempt.nodes[0].outcome.failed_ago_s == 1801.0


def test_garbage_in_an_exit_record_is_no_end_of_the_loop(server: Server) -> None:
    server.running()
    reports: tuple[object, ...] = (7, {"n": 1.5, "kind": "kept"}, staged("x", n=2), staged(n=3))
    server.engine.says[KEY] = Observation(Phase.ENDED, Outcome(ranks=(RankEnd(0, exit_code=0),)), reports)  # type: ignore[arg-type]
    server.tick()
    server.tick()
    assert server.job().state in (State.RUNNING, State.SUCCEEDED)


def test_what_a_dead_agent_had_spooled_is_taken(server: Server) -> None:
    server.running()
    server.tell(staged(4, n=2))
    spool = b'{"kind": "staged", "n": 2}\n{"kind": "staged", "n": 3, "id"' + b"\n"
    told = exits.spooled(spool + b"\xff\n" + _line(staged(n=4)) + _line({**ENDED, "n": 5}))
    server.engine.says[KEY] = Observation(Phase.GONE, reports=told)
    server.tick()
    job = server.job()
    assert [c.step for c in job.checkpoints] == [4, 5]
    assert job.attempt is not None
    assert job.attempt.resume == ("0001-5", "0001-4")


def _line(report: dict[str, object]) -> bytes:
    return json.dumps(report).encode() + b"\n"


def test_a_report_accepted_before_its_agent_died_is_not_passed_over(server: Server) -> None:
    """It came after control had read the inbox, and the agent was dead when control looked a moment later."""
    server.running()

    def accepted_and_killed() -> None:
        if KEY not in server.engine.says:
            server.tell(staged(n=2))
            server.engine.says[KEY] = Observation(Phase.GONE)

    server.engine.just_before = accepted_and_killed
    server.tick()
    server.tick()
    assert [c.step for c in server.job().checkpoints] == [5]


def test_an_end_is_taken_only_after_a_whole_backlog_of_reports(server: Server) -> None:
    """Control was down: more was accepted than one tick processes, and the agent has died meanwhile."""
    server.running()
    server.tell(*(kept(f"{n}.png", n=n) for n in range(2, DRAIN + 2)), staged(n=DRAIN + 2))
    server.engine.says[KEY] = Observation(Phase.GONE)
    server.start()
    server.tick()
    job = server.job()
    assert (server.events.artifact_totals("train-1").files, [c.step for c in job.checkpoints]) == (DRAIN, [5])
    assert job.attempt is not None
    assert job.attempt.number == 2


def test_an_agent_whose_records_are_gone_does_not_run_for_ever(server: Server) -> None:
    server.running()
    server.engine.says[KEY] = Observation(Phase.ABSENT)
    server.tick()
    job = server.job()
    assert (job.state, job.reason) == (State.STOPPING, "the agent's records on sim0 are gone")


def test_a_checkpoint_that_cannot_be_removed_is_tried_again(server: Server, tmp_path: Path) -> None:
    blobs = server.loop.runner.removals.blobs
    server.running(checkpoint=CheckpointSpec(keep=1))

    class Away(FsBlobs):
        def delete_tree(self, prefix: str) -> None:
            raise PermissionError(1, "not ours", prefix)

    server.loop.runner.removals.blobs = Away(server.home.blobs)
    server.tell(staged(1, n=2), staged(2, n=3))
    server.tick()
    server.tick()
    assert server.job().deleting == ("0001-1",)
    server.loop.runner.removals.blobs = blobs
    for _ in range(3):  # it rests ever longer between two tries
        server.tick()
    assert server.job().deleting == ()


def test_on_a_full_disk_the_result_of_a_launch_is_kept_for_later(server: Server) -> None:
    server.submit()
    server.engine.broken = OperationError("no fork")
    stop = server.engine.stop
    server.engine.stop = lambda key, grace_s: None  # type: ignore[method-assign]
    server.clock.time_s += 1.0
    server.loop.tick(server.clock.time_s)
    server.events.full = True
    for _ in range(3):
        server.tick()
    assert server.job().state is State.STARTING
    server.events.full, server.engine.broken, server.engine.stop = False, None, stop  # type: ignore[method-assign]
    server.tick()
    failure = server.events.attempts("train-1")[0].failure
    assert failure is not None
    assert (failure.cause, failure.message) == (Cause.MACHINE, "could not be started on sim0: no fork")


def test_a_full_disk_does_not_keep_control_from_starting(server: Server) -> None:
    server.running()
    stray = AgentKey("train-1", 1, 7)  # of no node that is live
    server.engine.says[stray] = Observation(Phase.RUNNING)
    server.engine.broken = OperationError("the stop could not be written")
    server.start()
    assert server.job().state is State.RUNNING
