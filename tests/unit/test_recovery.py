"""Verdicts: each cause and what becomes of it, and the bounds."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.model.job import (
    Action,
    Attempt,
    Cause,
    Job,
    Ledger,
    NodePhase,
    NodeRun,
    Outcome,
    RankEnd,
    State,
    StopFor,
)
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CodeCopy, JobSpec, Origin, Restarts
from trainmaster.recovery.classify import raised
from trainmaster.recovery.verdict import BACKOFF_MAX_S, backoff_s, judge

TRACEBACK = "Traceback (most recent call last):"


def ended(*outcomes: Outcome, number: int = 1, **more: object) -> Job:
    nodes = tuple(NodeRun(NodePhase.ENDED, outcome=o) for o in outcomes)
    shares = Allocation(tuple(NodeShare(f"node{i}", "127.0.0.1", 1.0) for i in range(len(outcomes))))
    job = Job(
        "x-1", 1, JobSpec("true"), Origin(), CodeCopy(), 0.0, State.RUNNING, "running", 0.0,
        attempt=Attempt(number, shares, 1.0, nodes, started_s=2.0),
    )  # fmt: skip
    return replace(job, **more)  # type: ignore[arg-type]


def of(*ranks: RankEnd, **more: object) -> Outcome:
    return Outcome(ranks=ranks, **more)  # type: ignore[arg-type]


OK = RankEnd(0, exit_code=0)
KILLED = RankEnd(1, signal=9, ended_after_s=5.0)
FAILED = RankEnd(0, exit_code=1, ended_after_s=4.5, last_lines=("Traceback", "ValueError: 3"))
CHECKPOINT = Checkpoint("0001-00001", 20, 1, (Part(0, "d", 1, 1),))


def judged(job: Job) -> tuple[Action, State, Cause | None, Ledger]:
    verdict = judge(job, Random(0))
    return verdict.action, verdict.state, verdict.failure.cause if verdict.failure else None, verdict.ledger


FINISHED = (Action.FINISH, State.SUCCEEDED, None, Ledger.NONE)
RESTARTED = (Action.RESTART, State.QUEUED, Cause.KILLED, Ledger.INFRASTRUCTURE)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (ended(of(OK)), FINISHED),
        (ended(of(OK), stopping_for=StopFor.EVICT, state=State.STOPPING), FINISHED),
        (ended(of(replace(OK, stopped_by_us=True)), stopping_for=StopFor.EVICT), (Action.REQUEUE, State.QUEUED, Cause.EVICTED, Ledger.NONE)),
        (ended(of(OK), stopping_for=StopFor.SHRINK, state=State.STOPPING), FINISHED),
        (ended(of(replace(OK, stopped_by_us=True)), stopping_for=StopFor.SHRINK), (Action.REQUEUE, State.QUEUED, Cause.SHRUNK, Ledger.NONE)),
        (ended(of(replace(OK, stopped_by_us=True)), stopping_for=StopFor.LIMIT), (Action.STOP, State.FAILED, Cause.TIME_LIMIT, Ledger.NONE)),
        (ended(of(OK), stopping_for=StopFor.CANCEL), (Action.FINISH, State.CANCELLED, Cause.CANCELLED, Ledger.NONE)),
        (ended(of(KILLED)), RESTARTED),
        (ended(of(FAILED, KILLED)), RESTARTED),  # killed within a second of the first failure: that explains it
        (ended(of(replace(FAILED, ended_after_s=1.0), KILLED, last_step=3)), (Action.RESTART, State.QUEUED, Cause.PROGRAM, Ledger.PROGRAM)),
        (ended(of(RankEnd(0, signal=6, ended_after_s=5.1)), of(KILLED)), RESTARTED),  # gloo's abort follows the kill
        (ended(of(FAILED)), (Action.STOP, State.FAILED, Cause.PROGRAM, Ledger.NONE)),
        (ended(of(FAILED, last_step=7)), (Action.RESTART, State.QUEUED, Cause.PROGRAM, Ledger.PROGRAM)),
        (ended(of(FAILED, last_step=7), progress_step=7), (Action.STOP, State.FAILED, Cause.PROGRAM, Ledger.NONE)),
        (ended(of(FAILED), checkpoints=(CHECKPOINT,)), (Action.RESTART, State.QUEUED, Cause.PROGRAM, Ledger.PROGRAM)),
        (ended(of(RankEnd(0, signal=11))), (Action.STOP, State.FAILED, Cause.CRASH, Ledger.NONE)),
        (ended(of(RankEnd(0, signal=9), over_memory=True)), (Action.STOP, State.FAILED, Cause.OUT_OF_MEMORY, Ledger.NONE)),
        (ended(Outcome(lost=True)), (Action.RESTART, State.QUEUED, Cause.AGENT_LOST, Ledger.INFRASTRUCTURE)),
        (ended(Outcome(launch_error="no such file: trian.py")), (Action.STOP, State.FAILED, Cause.LAUNCH, Ledger.NONE)),
        (ended(Outcome(lost=True, launch_error="fork: no memory")), (Action.RESTART, State.QUEUED, Cause.LAUNCH, Ledger.INFRASTRUCTURE)),
        (ended(of(FAILED, port_in_use=True)), (Action.RESTART, State.QUEUED, Cause.RENDEZVOUS, Ledger.NONE)),
        (ended(of(FAILED, port_in_use=True), number=9), (Action.RESTART, State.QUEUED, Cause.RENDEZVOUS, Ledger.INFRASTRUCTURE)),
        (ended(of(KILLED), restarts_infrastructure=20), (Action.STOP, State.FAILED, Cause.KILLED, Ledger.NONE)),
    ],
)  # fmt: skip
def test_each_end_has_its_verdict(job: Job, expected: tuple[object, ...]) -> None:
    assert judged(job) == expected


def test_a_failure_shows_its_last_lines_and_says_why_it_was_not_restarted() -> None:
    failure = judge(ended(of(FAILED)), Random(0)).failure
    assert failure is not None
    assert failure.message == "rank 0 exited with code 1: ValueError: 3; not restarted: it made no progress"
    assert failure.last_lines == ("Traceback", "ValueError: 3")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((TRACEBACK, '  File "x.py", line 1', "    import y", "ImportError: no y", "bye"), "ImportError: no y"),
        ((TRACEBACK, "    a", "KeyError: 1", "", "During handling", TRACEBACK, "    b", "x.Boom: 2", "more of it"), "x.Boom: 2"),
        ((f"[rank1]: {TRACEBACK}", "[rank1]:     a", "[rank1]: StopIteration"), "StopIteration"),
        ((TRACEBACK, "    assert x", "AssertionError"), "AssertionError"),
        (("    deep", "ValueError: the traceback's head is cut off"), "ValueError: the traceback's head is cut off"),
        (("ValueError: told, and dealt with", "bye"), None),
        ((TRACEBACK, "    x"), None),
        (("MyError: " + "x" * 300,), "MyError: " + "x" * 150 + "…"),
        ((), None),
    ],
)  # fmt: skip
def test_the_exception_that_ended_a_program(lines: tuple[str, ...], expected: str | None) -> None:
    assert raised(lines) == expected


def test_the_ledger_of_program_restarts_is_bounded() -> None:
    job = ended(of(FAILED, last_step=9), restarts_program=2, progress_step=3)
    assert judge(replace(job, spec=replace(job.spec, restarts=Restarts(program=2))), Random(0)).state is State.FAILED


@given(st.integers(0, 100), st.integers())
def test_back_off_is_none_at_first_then_grows_within_its_bound(restarts: int, seed: int) -> None:
    delay_s = backoff_s(restarts, Random(seed))
    assert (delay_s == 0.0) if restarts == 0 else (1.5 <= delay_s <= 1.25 * BACKOFF_MAX_S)
