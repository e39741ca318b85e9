"""How a job may end, wait and come back: real processes on two virtual nodes, through the command line alone."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import nightly
from running import Tm, agent_of, attempts, gone, kill, ranks_of, server
from waiting import deadline

from trainmaster.home import account_name

ME = account_name()
STUBBORN = "trap '' TERM; echo ready; while true; do sleep 0.2; done"


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server with two virtual nodes of two stand-in GPUs each."""
    with server(tmp_path_factory.mktemp("life"), "--nodes", "2", "--gpus-per-node", "2") as tm:
        yield tm


@pytest.fixture(scope="module", autouse=True)
def stubborn(tm: Tm) -> tuple[str, float]:
    """A job that ignores TERM, cancelled before the other tests so that its grace passes meanwhile; (id, when)."""
    job = tm.submit("--name", "stubborn", "--cpus", "0.1", "--", STUBBORN)
    deadline(lambda: "ready" in tm.ok("logs", job), "the trap to be set", every_s=0.1)
    assert tm.ok("cancel", job) == f"{job} is being cancelled\n"
    return job, time.monotonic()


def test_the_time_limit_is_said(tm: Tm) -> None:
    job = tm.ended(tm.submit("--name", "limit", "--time-limit", "0.5s", "--", "sleep", "60"))
    assert attempts(job, "state", "cause", "message") == [("failed", "time_limit", "reached its time limit of 0.5 s")]
    assert job["ended_s"] - job["started_s"] < 3


def test_over_its_memory_limit_it_fails_and_says_so(tm: Tm) -> None:
    code = "import time; x = bytearray(400 << 20); time.sleep(60)"
    job = tm.ended(tm.submit("--name", "memory", "--memory", "100MiB", "--", "python", "-c", code))
    assert attempts(job, "state", "cause") == [("failed", "out_of_memory")]
    assert job["failure"]["message"].endswith("; its limit is 100.0 MiB per node: use less, or raise resources.memory (--memory)")


def test_daemons_end_with_their_job(tm: Tm) -> None:
    job = tm.ended(tm.submit("--name", "daemon", "--", "setsid sleep 300 & echo $! >pid; echo done"))
    assert job["state"] == "succeeded"
    gone(int(Path(job["work"][0], "pid").read_text()))


def test_a_crash_without_progress_is_not_tried_again(tm: Tm) -> None:
    job = tm.ended(tm.submit("--name", "crash", "--", "echo about to crash; kill -SEGV $$"))
    assert attempts(job, "state", "cause", "exit_code", "signal", "last_lines") == [
        ("failed", "crash", None, signal.SIGSEGV, ["about to crash"])
    ]
    standstill = "no progress was seen: no step was read of its output, and no checkpoint of it is stored"
    assert job["failure"]["message"] == f"rank 0 crashed with SIGSEGV; not restarted: {standstill}"


def test_failing_with_progress_is_tried_again_as_often_as_allowed(tm: Tm) -> None:
    command = "echo step $TRAINMASTER_ATTEMPT: loss 0.5; exit 3"
    job = tm.ended(tm.submit("--name", "bounded", "--restarts", "1", "--", command))
    assert attempts(job, "state", "cause", "exit_code") == [("restarted", "program", 3), ("failed", "program", 3)]
    assert job["failure"]["message"] == "rank 0 exited with code 3; not restarted: its 1 program restarts are spent"
    assert job["restarts"] == {"program": 1, "infrastructure": 0}


def test_the_same_step_twice_is_no_progress(tm: Tm) -> None:
    job = tm.ended(tm.submit("--name", "stuck", "--", "echo step 7: loss 0.5; exit 3"))
    assert attempts(job, "state") == [("restarted",), ("failed",)]
    assert job["failure"]["message"] == "rank 0 exited with code 3; not restarted: it made no progress since its last failure"


def test_a_taken_port_before_the_first_step_costs_nothing(tm: Tm) -> None:
    command = "if [ $TRAINMASTER_ATTEMPT = 1 ]; then echo 'RuntimeError: Address already in use'; exit 1; fi"
    job = tm.ended(tm.submit("--name", "port", "--ranks", "2", "--restarts", "0", "--", command))
    assert attempts(job, "state", "cause") == [("restarted", "rendezvous"), ("succeeded", None)]
    assert job["restarts"] == {"program": 0, "infrastructure": 0}


def test_a_killed_agent_takes_its_ranks_along_and_the_job_starts_again(tm: Tm) -> None:
    job = tm.submit("--name", "agent", "--ranks", "2", "--", "if [ $TRAINMASTER_ATTEMPT = 1 ]; then sleep 60; fi; echo again")
    tm.state(job, "running")
    ranks = deadline(lambda: len(ranks_of(tm, job)) == 2 and ranks_of(tm, job), "both ranks")
    kill(agent_of(tm, job))
    for pid in ranks.values():
        gone(pid)
    shown = tm.ended(job)
    assert attempts(shown, "state", "cause") == [("restarted", "agent_lost"), ("succeeded", None)]
    assert shown["restarts"] == {"program": 0, "infrastructure": 1}


def test_cancel_lets_a_program_save(tm: Tm) -> None:
    saving = "trap 'echo saved; exit 0' TERM; echo ready; while true; do sleep 0.05; done"
    job = tm.submit("--name", "saving", "--", saving)
    deadline(lambda: "ready" in tm.ok("logs", job), "the trap to be set")
    tm.ok("cancel", job, "--reason", "wrong data")
    shown = tm.ended(job)
    assert attempts(shown, "state", "cause", "message") == [("cancelled", "cancelled", f"cancelled by {ME}: wrong data")]
    assert tm.ok("logs", job).splitlines()[-1] == "saved"
    assert tm.ok("cancel", job) == f"{job} is already cancelled\n"
    assert ranks_of(tm, job) == {}


def test_a_queued_job_says_why_it_waits_and_can_be_cancelled_or_held(tm: Tm) -> None:
    holder = tm.submit("--name", "holder", "--nodes", "2", "--gpus", "2", "--", "sleep", "60")
    tm.state(holder, "running")
    waiting, held = (tm.submit("--name", name, "--gpus", "1", "--", "echo ran") for name in ("waiting", "held"))
    why = f"{waiting} is number 1 in the queue, waiting for 1 GPU, 1 CPU: other jobs hold what it needs (free now: "
    deadline(lambda: tm.ok("why", waiting).startswith(why), "the reason", every_s=0.1)
    assert tm.ok("hold", held, "--reason", "not yet") == f"{held} is held; release it: tm release {held}\n"
    assert tm.state(held, "held")["reason"] == f"held by {ME}: not yet"
    tm.ok("cancel", waiting)
    assert attempts(tm.state(waiting, "cancelled"), "number") == []
    tm.ok("cancel", holder)
    tm.ended(holder)
    assert tm.show(held)["state"] == "held"
    tm.ok("release", held)
    assert tm.ended(held)["state"] == "succeeded"


def test_a_drained_node_gets_nothing_until_it_is_resumed(tm: Tm) -> None:
    for name in ("node0", "node1"):
        tm.ok("nodes", "drain", name, "--reason", "new fan")
    job = tm.submit("--name", "drained", "--", "echo ran")
    reason = "waiting for 1 CPU: node0 is drained, node1 is drained"
    deadline(lambda: tm.show(job)["reason"] == reason, f"the reason {reason!r}", every_s=0.1)
    tm.ok("nodes", "resume", "node1")
    shown = tm.ended(job)
    tm.ok("nodes", "resume", "node0")
    assert (shown["state"], shown["nodes"]) == ("succeeded", ["node1"])


def test_a_lost_node_s_job_starts_elsewhere(tm: Tm) -> None:
    tm.ok("nodes", "drain", "node0")
    job = tm.submit("--name", "lost", "--gpus", "1", "--", "if [ $TRAINMASTER_ATTEMPT = 1 ]; then sleep 60; fi")
    assert tm.state(job, "running")["nodes"] == ["node1"]
    rank = deadline(lambda: ranks_of(tm, job).get(0), "its rank")
    tm.ok("nodes", "resume", "node0")
    tm.ok("nodes", "lost", "node1")
    gone(rank)
    shown = tm.ended(job)
    tm.ok("nodes", "resume", "node1")
    assert attempts(shown, "state", "cause", "nodes") == [("restarted", "agent_lost", ["node1"]), ("succeeded", None, ["node0"])]
    assert shown["attempts"][0]["message"] == f"node1 was declared lost by {ME}"


@nightly
def test_a_job_that_ignores_term_is_killed_at_the_end_of_its_grace(tm: Tm, stubborn: tuple[str, float]) -> None:
    job, since_s = stubborn
    if time.monotonic() < since_s + 25.0:
        stopping = tm.show(job)
        assert (stopping["state"], stopping["reason"]) == ("stopping", f"cancelled by {ME}")
        assert stopping["notes"] == ["it was told to save and end; what still runs 30 s after that is killed"]
    shown = tm.ended(job, timeout_s=45.0)
    assert attempts(shown, "state", "cause") == [("cancelled", "cancelled")]
    assert 29.0 < shown["ended_s"] - shown["attempts"][0]["started_s"] < 40.0
    assert ranks_of(tm, job) == {}


def test_a_stopped_server_is_waited_for_and_nothing_is_lost(tm: Tm) -> None:
    pids = tm.json("up")["pids"]
    gate = tm.file("frozen.gate", "")
    job = tm.submit("--name", "frozen", "--", f"echo step 1: loss 0.5; while [ -e {gate} ]; do sleep 0.05; done; echo done")
    tm.state(job, "running")
    try:
        kill(pids["control"], signal.SIGSTOP)
        later = tm.submit("--name", "later", "--", "echo later")
        shown = tm.show(later)
        assert (shown["state"], shown["reason"]) == ("queued", "waiting for the control process")
        kill(pids["api"], signal.SIGSTOP)
        agent = agent_of(tm, job)
        gate.unlink()
        gone(agent, 60.0)  # it first tries to tell a server that takes its calls and answers none
    finally:
        for pid in pids.values():
            kill(pid, signal.SIGCONT)
    assert [tm.ended(one, timeout_s=90.0)["state"] for one in (job, later)] == ["succeeded", "succeeded"]
    assert tm.json("up")["pids"] == pids
