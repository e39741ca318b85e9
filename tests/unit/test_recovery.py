"""Verdicts: the cause, the consequence, and the bounds."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.lifecycle.machine import apply
from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.model.events import AttemptEnded, NodeEnded, NodeStarted, Placed, Submitted
from trainmaster.model.job import (
    Action,
    Attempt,
    Cause,
    Job,
    NodePhase,
    NodeRun,
    Outcome,
    RankEnd,
    RestartBudget,
    State,
    StopFor,
)
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CodeCopy, JobSpec, Origin, Restarts
from trainmaster.recovery.restart_policy import BACKOFF_MAX_S, backoff_s, verdict_of


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


def judged(job: Job) -> tuple[Action, State, Cause | None, RestartBudget]:
    verdict = verdict_of(job, Random(0))
    return verdict.action, verdict.state, verdict.failure.cause if verdict.failure else None, verdict.ledger


UNSEEN = "no progress was seen: no step was read of its output, and no checkpoint of it is stored"
FINISHED = (Action.FINISH, State.SUCCEEDED, None, RestartBudget.NONE)
RESTARTED = (Action.RESTART, State.QUEUED, Cause.KILLED, RestartBudget.INFRASTRUCTURE)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (ended(of(OK)), FINISHED),
        (ended(of(OK), stopping_for=StopFor.EVICT, state=State.STOPPING), FINISHED),
        (ended(of(replace(OK, stopped_by_us=True)), stopping_for=StopFor.EVICT), (Action.REQUEUE, State.QUEUED, Cause.EVICTED, RestartBudget.NONE)),
        (ended(of(OK), stopping_for=StopFor.SHRINK, state=State.STOPPING), FINISHED),
        (ended(of(replace(OK, stopped_by_us=True)), stopping_for=StopFor.SHRINK), (Action.REQUEUE, State.QUEUED, Cause.SHRUNK, RestartBudget.NONE)),
        (ended(of(replace(OK, stopped_by_us=True)), stopping_for=StopFor.LIMIT), (Action.STOP, State.FAILED, Cause.TIME_LIMIT, RestartBudget.NONE)),
        (ended(Outcome(), stopping_for=StopFor.START), (Action.RESTART, State.QUEUED, Cause.START_LIMIT, RestartBudget.INFRASTRUCTURE)),
        (ended(Outcome(launch_error="no such file"), stopping_for=StopFor.START), (Action.STOP, State.FAILED, Cause.LAUNCH, RestartBudget.NONE)),
        (ended(of(OK), stopping_for=StopFor.CANCEL), (Action.FINISH, State.CANCELLED, Cause.CANCELLED, RestartBudget.NONE)),
        (ended(of(KILLED)), RESTARTED),
        (ended(of(FAILED, KILLED)), RESTARTED),  # killed within a second of the first failure: that explains it
        (ended(of(replace(FAILED, ended_after_s=1.0), KILLED, last_step=3)), (Action.RESTART, State.QUEUED, Cause.PROGRAM, RestartBudget.PROGRAM)),
        (ended(of(RankEnd(0, signal=6, ended_after_s=5.1)), of(KILLED)), RESTARTED),  # gloo's abort follows the kill
        (ended(of(FAILED)), (Action.STOP, State.FAILED, Cause.PROGRAM, RestartBudget.NONE)),
        (ended(of(FAILED, last_step=7)), (Action.RESTART, State.QUEUED, Cause.PROGRAM, RestartBudget.PROGRAM)),
        (ended(of(FAILED, last_step=7), progress_step=7), (Action.STOP, State.FAILED, Cause.PROGRAM, RestartBudget.NONE)),
        (ended(of(FAILED), checkpoints=(CHECKPOINT,)), (Action.RESTART, State.QUEUED, Cause.PROGRAM, RestartBudget.PROGRAM)),
        (ended(of(RankEnd(0, signal=11))), (Action.STOP, State.FAILED, Cause.CRASH, RestartBudget.NONE)),
        (ended(of(RankEnd(0, signal=9), over_memory=True)), (Action.STOP, State.FAILED, Cause.OUT_OF_MEMORY, RestartBudget.NONE)),
        (ended(Outcome(lost=True)), (Action.RESTART, State.QUEUED, Cause.AGENT_LOST, RestartBudget.INFRASTRUCTURE)),
        (ended(Outcome(launch_error="no such file: trian.py")), (Action.STOP, State.FAILED, Cause.LAUNCH, RestartBudget.NONE)),
        (ended(Outcome(lost=True, machine_error="fork: no memory")), (Action.RESTART, State.QUEUED, Cause.MACHINE, RestartBudget.INFRASTRUCTURE)),
        (ended(of(FAILED, port_in_use=True)), (Action.RESTART, State.QUEUED, Cause.RENDEZVOUS, RestartBudget.NONE)),
        (ended(of(FAILED, port_in_use=True), number=9, evictions=3, shrinks=1), (Action.RESTART, State.QUEUED, Cause.RENDEZVOUS, RestartBudget.NONE)),
        (ended(of(FAILED), of(KILLED, port_in_use=True)), RESTARTED),
        (ended(of(FAILED, port_in_use=True), number=9), (Action.RESTART, State.QUEUED, Cause.RENDEZVOUS, RestartBudget.INFRASTRUCTURE)),
        (ended(of(KILLED), restarts_infrastructure=20), (Action.STOP, State.FAILED, Cause.KILLED, RestartBudget.NONE)),
    ],
)  # fmt: skip
def test_each_end_has_its_verdict(job: Job, expected: tuple[object, ...]) -> None:
    assert judged(job) == expected


def test_a_checkpoint_found_damaged_is_no_progress() -> None:
    """The one before it is another one than at the last failure, and counted as newer."""
    damaged = replace(CHECKPOINT, id="0001-00002", step=40, good=False)
    job = ended(of(FAILED), checkpoints=(CHECKPOINT, damaged), progress_checkpoint=damaged.id, progress_step=50, restarts_program=1)
    assert judged(job) == (Action.STOP, State.FAILED, Cause.PROGRAM, RestartBudget.NONE)
    newer = replace(CHECKPOINT, id="0002-00001", step=60)
    assert judged(replace(job, checkpoints=(*job.checkpoints, newer)))[0] is Action.RESTART


def test_a_failure_shows_its_last_lines_and_says_why_it_was_not_restarted() -> None:
    failure = verdict_of(ended(of(FAILED)), Random(0)).failure
    assert failure is not None
    assert failure.message == "rank 0 exited with code 1: ValueError: 3; not restarted: " + UNSEEN
    assert failure.last_lines == ("Traceback", "ValueError: 3")


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (ended(of(FAILED)), UNSEEN),  # it may print what is not read as a step, so progress is not denied
        (ended(of(FAILED, last_step=7), progress_step=7), "it made no progress"),
        (ended(of(FAILED), progress_step=7, restarts_program=1), "it made no progress since its last failure"),
    ],
)
def test_no_progress_is_told_only_of_a_program_that_shows_its_progress(job: Job, told: str) -> None:
    assert verdict_of(job, Random(0)).reason == f"rank 0 exited with code 1: ValueError: 3; not restarted: {told}"


def test_a_taken_rendezvous_port_hides_no_exception() -> None:
    failure = verdict_of(ended(of(FAILED, port_in_use=True)), Random(0)).failure
    assert failure is not None
    assert failure.message == "rank 0 exited with code 1: ValueError: 3; its rendezvous port was probably taken"


def test_an_out_of_memory_kill_hides_no_exception() -> None:
    """The kernel may have killed a worker that the program did without."""
    limit = {"over_memory": True, "memory_limit_bytes": 100 << 20, "peak_memory_bytes": 100 << 20}
    said = [verdict_of(ended(of(rank, **limit)), Random(0)).reason for rank in (FAILED, KILLED)]
    text = "used 100.0 MiB of memory; its limit is 100.0 MiB per node: use less, or raise resources.memory (--memory)"
    assert said == [f"{text}; rank 0 exited with code 1: ValueError: 3", text]


def test_output_that_could_not_be_read_is_no_lack_of_progress() -> None:
    """It was stopped for good with "it made no progress": the disk of its log had answered EIO."""
    unread = of(FAILED, unread="rank 0: the end of its output cannot be read: [Errno 5] Input/output error")
    assert judged(ended(unread, progress_step=7)) == (Action.RESTART, State.QUEUED, Cause.PROGRAM, RestartBudget.PROGRAM)
    assert judged(ended(unread, restarts_program=3)) == (Action.STOP, State.FAILED, Cause.PROGRAM, RestartBudget.NONE)
    killed = of(KILLED, unread="rank 0: its output cannot be read")
    assert [verdict_of(ended(one), Random(0)).fruitless for one in (killed, of(KILLED))] == [False, True]


TORCHRUN = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "train.py FAILED",
    "Failures:",
    "[1]:",
    "  rank      : 0 (local_rank: 0)",
    "  exitcode  : -15 (pid: 30871)  (SIGTERM)",
    "  traceback : Signal 15 (SIGTERM) received by PID 30871",
    "Root Cause (first observed failure):",
    "[0]:",
    "  time      : 2026-11-23_23:52:29",
    "  rank      : 1 (local_rank: 1)",
    "  exitcode  : {}",
    "  error_file: <N/A>",
    "=======",
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line.format("-9 (pid: 30872)  (SIGKILL)") for line in TORCHRUN], "rank 1 under torchrun was killed by SIGKILL"),
        ([line.format("3 (pid: 30882) ") for line in TORCHRUN], "rank 1 under torchrun exited with code 3"),
        (
            ["Traceback (most recent call last):", "    x", "ValueError: boom", *(line.format("1 (pid: 30882) ") for line in TORCHRUN)],
            "rank 1 under torchrun exited with code 1: ValueError: boom",
        ),
        (
            ["=   EXIT CODE: 9", "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)", "This typically refers to a problem"],
            "a rank under mpiexec was killed by SIGKILL",
        ),
        (
            ["mpirun noticed that process rank 1 with PID 77 on node a exited on signal 11 (Segmentation fault).", "-----"],
            "rank 1 under mpirun was killed by SIGSEGV",
        ),
        (["  exitcode  : unknown", "ValueError: boom"], None),
    ],
)
def test_what_a_launcher_says_of_its_ranks(lines: list[str], expected: str | None) -> None:
    failure = verdict_of(ended(of(RankEnd(0, exit_code=1, last_lines=tuple(lines)))), Random(0)).failure
    assert failure is not None
    told = failure.message.partition("; not restarted")[0]
    assert (failure.cause, told) == (Cause.PROGRAM, f"rank 0 exited with code 1: {expected or 'ValueError: boom'}")


def test_the_ledger_of_program_restarts_is_bounded() -> None:
    job = ended(of(FAILED, last_step=9), restarts_program=2, progress_step=3)
    assert verdict_of(replace(job, spec=replace(job.spec, restarts=Restarts(program=2))), Random(0)).state is State.FAILED


def test_the_agent_names_an_exception_that_is_before_the_last_lines() -> None:
    rank = RankEnd(0, exit_code=1, last_lines=("[bt] (1) libxgboost.so",), raised="xgboost.core.XGBoostError: no data")
    failure = verdict_of(ended(of(rank)), Random(0)).failure
    assert failure is not None
    assert failure.message == f"rank 0 exited with code 1: xgboost.core.XGBoostError: no data; not restarted: {UNSEEN}"


@given(st.integers(0, 100), st.integers())
def test_back_off_is_none_at_first_then_grows_within_its_bound(restarts: int, seed: int) -> None:
    delay_s = backoff_s(restarts, Random(seed))
    assert (delay_s == 0.0) if restarts == 0 else (1.5 <= delay_s <= 1.25 * BACKOFF_MAX_S)


def test_a_machine_error_is_restarted_with_its_cause_whatever_the_rest_of_the_gang_did() -> None:
    """R3: the job failed for good although 49 infrastructure restarts were left."""
    no_fork = Outcome(machine_error="could not start a rank: fork")
    for others in ((), (of(RankEnd(0, exit_code=1, ended_after_s=30.0)),), (Outcome(launch_error="command not found"),)):
        verdict = verdict_of(ended(*others, no_fork), Random(0))
        host = f"node{len(others)}"
        assert (verdict.action, verdict.ledger) == (Action.RESTART, RestartBudget.INFRASTRUCTURE)
        assert verdict.failure is not None
        assert (verdict.failure.cause, verdict.failure.message) == (
            Cause.MACHINE, f"could not be started on {host}: could not start a rank: fork",
        )  # fmt: skip


def gang(*parts: tuple[float, Outcome]) -> Job:
    """A gang whose nodes' ends were recorded at these times."""
    job = ended(*(outcome for _, outcome in parts))
    assert job.attempt is not None
    nodes = tuple(replace(node, ended_s=at_s) for node, (at_s, _) in zip(job.attempt.nodes, parts, strict=True))
    return replace(job, attempt=replace(job.attempt, nodes=nodes))


@given(st.floats(-1000.0, 1000.0), st.booleans())
def test_a_kill_on_one_node_explains_the_failures_of_others_whenever_their_agents_began(skew_s: float, kill_recorded_first: bool) -> None:
    """R14: times of two nodes were compared, so that the program was blamed for the failure of a machine."""
    killed, closed = of(replace(KILLED, ended_after_s=100.0)), of(replace(FAILED, rank=1, ended_after_s=100.6 + skew_s))
    order = (10.0, 11.0) if kill_recorded_first else (11.0, 10.0)
    assert judged(gang((order[0], killed), (order[1], closed))) == RESTARTED


@pytest.mark.parametrize(
    ("stop_for", "expected"),
    [
        (StopFor.EVICT, (Action.RESTART, State.QUEUED, Cause.PROGRAM, RestartBudget.PROGRAM)),
        (StopFor.SHRINK, (Action.RESTART, State.QUEUED, Cause.PROGRAM, RestartBudget.PROGRAM)),
        (StopFor.START, (Action.RESTART, State.QUEUED, Cause.PROGRAM, RestartBudget.PROGRAM)),
        (StopFor.LIMIT, (Action.STOP, State.FAILED, Cause.PROGRAM, RestartBudget.NONE)),
    ],
)
def test_a_program_that_failed_before_it_was_to_stop_has_failed(stop_for: StopFor, expected: tuple[object, ...]) -> None:
    """While its last checkpoint was stored, the job was evicted: that was told as its end, and no budget paid for it."""
    job = replace(gang((160.0, of(FAILED, failed_ago_s=60.0, last_step=3))), stopping_for=stop_for, reason="reached its limit")
    assert job.attempt is not None
    assert judged(replace(job, attempt=replace(job.attempt, stopping_s=130.0))) == expected
    later = verdict_of(replace(job, attempt=replace(job.attempt, stopping_s=90.0)), Random(0)).failure
    assert later is not None
    assert later.cause not in (Cause.PROGRAM, Cause.CRASH), "it failed because it was stopped"


def test_a_machine_that_prevented_the_start_is_told_although_the_time_to_start_was_over() -> None:
    job = ended(Outcome(machine_error="EIO"), Outcome(), stopping_for=StopFor.START, reason="did not start within 600 s")
    assert judged(job) == (Action.RESTART, State.QUEUED, Cause.MACHINE, RestartBudget.INFRASTRUCTURE)


BY_TERM = "the agent on node0 had SIGTERM or SIGINT, not from us: a shutdown of the machine sends it, or a person"
STOPPED = replace(OK, stopped_by_us=True)


@pytest.mark.parametrize(
    ("job", "cause", "message"),
    [
        (ended(of(STOPPED, terminated=True)), Cause.KILLED, BY_TERM),  # it saved and exited 0
        (ended(of(replace(KILLED, signal=15, stopped_by_us=True), terminated=True)), Cause.KILLED, BY_TERM),
        (ended(Outcome(terminated=True)), Cause.KILLED, BY_TERM),  # before its ranks ran
        (gang((20.0, of(STOPPED, terminated=True)), (10.0, of(FAILED, failed_ago_s=1.0))), Cause.KILLED, BY_TERM),
        (ended(of(FAILED, STOPPED, terminated=True, last_step=3)), Cause.PROGRAM, "rank 0 exited with code 1: ValueError: 3"),
        (ended(of(STOPPED)), Cause.KILLED, "its ranks were stopped, and its agent does not say why"),
        (
            ended(of(STOPPED), of(STOPPED), stopping_for=StopFor.FAILURE, reason="its nodes restored different checkpoints"),
            Cause.MACHINE,
            "its nodes restored different checkpoints",
        ),
    ],
)
def test_no_agent_is_told_lost_that_told_its_end(job: Job, cause: Cause, message: str) -> None:
    """`tm show` said "agent lost: running" after `docker stop`."""
    verdict = verdict_of(job, Random(0))
    assert verdict.action is Action.RESTART
    assert verdict.failure is not None
    assert (verdict.failure.cause, verdict.failure.message) == (cause, message)


def test_a_gang_ends_with_the_agent_that_was_told_to_end() -> None:
    """Its rank had saved and exited 0, so the other node waited for it until its collective timed out."""
    share = NodeShare("a", "127.0.0.1", 1.0)
    job, _ = apply(None, "x-1", Submitted(1, JobSpec("true"), Origin(), CodeCopy(), 1.0), 1.0)
    for event in (Placed(1, Allocation((share, share))), NodeStarted(1, 0), NodeStarted(1, 1), NodeEnded(1, 0, of(STOPPED, terminated=True))):
        job, _ = apply(job, "x-1", event, 2.0)
    assert (job.state, job.stopping_for) == (State.STOPPING, StopFor.FAILURE)


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_of_two_nodes_programs_the_one_that_failed_first_is_blamed(began_s: float, other_began_s: float) -> None:
    """R14: node 1 failed 8 s before node 0, but its end was recorded later, since its last checkpoint took time."""
    late = of(replace(FAILED, ended_after_s=began_s), failed_ago_s=1.0, last_step=1)
    first = of(replace(FAILED, rank=1, ended_after_s=other_began_s), failed_ago_s=12.0, last_step=1)
    failure = verdict_of(gang((100.0, late), (103.0, first)), Random(0)).failure
    assert failure is not None
    assert failure.rank == 1


def through(code: int) -> RankEnd:
    return RankEnd(0, exit_code=code, ended_after_s=1.0)


@pytest.mark.parametrize(
    ("end", "more", "cause", "message"),
    [
        (through(137), {}, Cause.KILLED, "rank 0 exited with code 137, as after SIGKILL (the kernel does so when memory is short)"),
        (through(143), {}, Cause.KILLED, "rank 0 exited with code 143, as after SIGTERM"),
        (through(139), {}, Cause.CRASH, "rank 0 exited with code 139, as after SIGSEGV; not restarted: " + UNSEEN),
        (RankEnd(0, signal=6, last_lines=("terminate called after throwing an instance of 'c10::Error'", "  what():  bad")), {}, Cause.CRASH, "rank 0 crashed with SIGABRT: c10::Error: bad; not restarted: " + UNSEEN),
        (RankEnd(0, signal=11, last_lines=("Fatal Python error: Segmentation fault",)), {}, Cause.CRASH, "rank 0 crashed with SIGSEGV; not restarted: " + UNSEEN),
        (through(130), {}, Cause.PROGRAM, "rank 0 exited with code 130; not restarted: " + UNSEEN),
        (RankEnd(0, signal=9), {}, Cause.KILLED, "rank 0 was killed by SIGKILL, not by us"),
        (RankEnd(0, signal=9), {"killed_for_memory": True}, Cause.KILLED, "rank 0 was killed by SIGKILL, not by us: the kernel counted an out-of-memory kill; use less, or request more (--memory)"),
    ],
)  # fmt: skip
def test_a_kill_is_known_through_a_shell_and_by_the_kernel_s_own_count(end: RankEnd, more: dict[str, Any], cause: Cause, message: str) -> None:
    """R23: exit code 137 was blamed on the program, without an explanation. But who exits with 143 need not have had a signal."""
    failure = verdict_of(ended(of(end, **more)), Random(0)).failure
    assert failure is not None
    assert (failure.cause, failure.message) == (cause, message)


def lived(outcome: Outcome, restarts: int = 20, started_s: float = 2.0) -> tuple[int, str]:
    """Attempts until the end of a job whose every attempt ends like this, and its final state."""
    spec, share = JobSpec("true", restarts=Restarts(0, restarts)), Allocation((NodeShare("a", "127.0.0.1", 1.0),))
    job, _ = apply(None, "x-1", Submitted(1, spec, Origin(), CodeCopy(), 1.0), 1.0)
    for number in range(1, 100):
        for event in (Placed(number, share), NodeStarted(number, 0), NodeEnded(number, 0, outcome)):
            job, _ = apply(job, "x-1", event, started_s)
        job, _ = apply(job, "x-1", AttemptEnded(number, verdict_of(job, Random(number))), started_s)
        if job.state.ended:
            return number, job.reason
    raise AssertionError("it was never given up")


def test_a_program_that_kills_itself_is_given_up() -> None:
    """R23: with --restarts 0 it had 13 attempts or more."""
    assert lived(of(RankEnd(0, signal=9))) == (6, "rank 0 was killed by SIGKILL, not by us; not restarted: 6 times in a row it made no progress")
    assert lived(of(through(137)))[0] == 6
    assert lived(Outcome(lost=True))[0] == 6
    assert lived(of(RankEnd(0, signal=9), ran_s=3600.0, last_step=5))[0] == 7  # the first got as far as step 5


def test_what_is_no_sign_of_the_program_is_restarted_as_often_as_the_spec_says() -> None:
    assert lived(Outcome(machine_error="the store is away"))[0] == 21
    assert lived(of(RankEnd(0, signal=9), ran_s=3600.0))[0] == 21  # it reports no steps, so its progress is unknown
    assert lived(Outcome(lost=True, declared_lost="a was declared lost by ann"))[0] == 21
