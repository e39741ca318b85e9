"""What runs beside a job's ranks: roles of its spec, commands of `tm exec`; and how a cancel ends it all, within its grace."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Tm, agent_of, gone, kill, server
from waiting import deadline

TRAIN = """
import os, pathlib, sys, time
print(f"step 1 loss {1 / (1 + int(os.environ['RANK']))}", flush=True)
print("role" if "TRAINMASTER_ROLE" in os.environ else "rank", flush=True)
while not pathlib.Path("enough").exists():
    time.sleep(0.02)
"""
EVAL = """
import os, signal, sys, time
def end(*_):
    print("step 9 accuracy 0.9")
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "TRAINMASTER_ROLE")
print([os.environ.get(name) for name in names], flush=True)
print("step 8 accuracy 0.5", flush=True)
if "fail" in sys.argv:
    raise ValueError("boom")
while True:
    time.sleep(60)
"""
SPEC: dict[str, Any] = {
    "command": ["python", "train.py"], "resources": {"ranks": 2, "cpus": 0.1}, "restarts": {"program": 0},
    "metrics": {"pattern": r"step (?P<step>\d+) (?:loss (?P<loss>[\d.]+)|accuracy (?P<accuracy>[\d.]+))"},
}  # fmt: skip


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("beside")) as made:
        made.file("train.py", TRAIN)
        made.file("eval.py", EVAL)
        yield made


def begin(tm: Tm, **changes: Any) -> str:
    """A job of the spec, once its ranks have printed something."""
    spec = tm.file("spec.json", json.dumps({**SPEC, **changes}))
    job = tm.submit(str(spec))
    tm.state(job, "running", timeout_s=60)
    deadline(lambda: "[1] rank" in tm.ok("logs", job), "both ranks to print", 60, 0.2)
    return job


def end(tm: Tm, job: str) -> dict[str, Any]:
    """Let its ranks end by themselves."""
    (Path(tm.show(job)["work"][0]) / "enough").touch()
    return tm.ended(job, 60)


def test_a_role_runs_beside_the_ranks_and_ends_with_them(tm: Tm) -> None:
    job = begin(tm, roles={"evaluator": {"command": "exec python eval.py"}})
    deadline(lambda: "accuracy 0.5" in tm.ok("logs", job, "--role", "evaluator"), "the role to print", 60, 0.2)
    assert tm.ok("exec", job, "--role", "evaluator", "--", "printenv", "TRAINMASTER_ROLE") == "evaluator\n"
    shown = end(tm, job)
    assert (shown["state"], shown["step"], shown["attempts"][0]["state"]) == ("succeeded", 1, "succeeded")
    assert {name: value["value"] for name, value in shown["metrics"].items() if not name.startswith("system/")} == {
        "loss": 1.0, "evaluator/accuracy": 0.9,
    }  # fmt: skip
    said = "[None, None, '2', '127.0.0.1', 'evaluator']\nstep 8 accuracy 0.5\nstep 9 accuracy 0.9\n"
    assert tm.ok("logs", job, "--role", "evaluator") == said
    assert tm.ok("logs", job).endswith("".join(f"[evaluator] {line}\n" for line in said.splitlines()))
    assert tm("logs", job, "--role", "judge").refusal == (2, f"error: {job} has no role 'judge'\n  it has evaluator\n")
    assert "beside     evaluator: exec python eval.py" in tm.ok("show", job)


def test_a_role_that_fails_fails_the_attempt_and_is_named(tm: Tm) -> None:
    job = tm.submit(str(tm.file("fails.json", json.dumps({**SPEC, "roles": {"judge": {"command": ["python", "eval.py", "fail"]}}}))))
    shown = tm.ended(job, 60)
    assert shown["failure"]["message"].startswith("role judge exited with code 1: ValueError: boom; not restarted")
    assert (shown["failure"]["rank"], shown["failure"]["last_lines"][-1]) == (None, "ValueError: boom")
    job = tm.submit(str(tm.file("none.json", json.dumps({**SPEC, "roles": {"judge": {"command": ["no-such-program"]}}}))))
    assert "role judge: command not found: no-such-program" in tm.ended(job, 60)["failure"]["message"]


def test_a_command_runs_where_the_job_does(tm: Tm) -> None:
    job = begin(tm)
    work = tm.show(job)["work"][0]
    said = tm("exec", job, "--rank", "1", "--", "sh", "-c", "echo $RANK $WORLD_SIZE; pwd; echo no >&2; exit 7")
    assert (said.code, said.out, said.err) == (7, f"1 2\n{work}\n", "no\n")
    assert tm("exec", job, "--", "sh", "-c", "kill -9 $$").code == 137
    assert len(tm.ok("exec", job, "--", "head", "-c", "10000000", "/dev/zero")) == 10_000_000
    typed = subprocess.run(
        [sys.executable, "-m", "trainmaster", "exec", "-i", job, "--", "wc", "-c"], cwd=tm.work, env=tm.environment,
        input=b"x" * 3_000_000, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert typed.stdout.split() == [b"3000000"]
    assert tm("exec", job, "--", "cat").out == ""  # its input is empty
    lines = [json.loads(line) for line in tm.ok("exec", "--json", job, "--", "echo", "hi").splitlines()]
    assert (lines[0], lines[1]["exit_code"]) == ({"stream": "stdout", "text": "hi\n"}, 0)
    assert tm("exec", job, "--rank", "2", "--", "true").refusal == (2, f"error: {job} has no rank 2\n  its last is 1\n")
    said = tm("exec", job, "--", "no-such-program")
    assert (said.code, said.err.startswith("error: command not found: no-such-program")) == (127, True)
    assert tm("exec", job).code == 2
    ran = [event for event in events(tm, job) if event["type"] == "CommandRun"]
    assert (ran[0]["data"]["rank"], ran[0]["data"]["command"].startswith("sh -c echo $RANK")) == (1, True)
    assert end(tm, job)["state"] == "succeeded"
    said = tm("exec", job, "--", "true")
    assert (said.code, said.err) == (5, f"error: {job} has ended (succeeded)\n  see how: tm show {job}\n")


def events(tm: Tm, job: str) -> list[dict[str, Any]]:
    from trainmaster.client.api import Client  # noqa: PLC0415  it reads the environment

    record = json.loads(tm.home.server_json.read_bytes())
    with Client(record["url"], tm.home.token_file.read_text().strip()) as client:
        return client.events(job)


class Running:
    """A `tm exec` that goes on; `pid` is of the command itself."""

    def __init__(self, tm: Tm, job: str, line: str) -> None:
        path = tm.work / f"pid-{job}"
        path.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainmaster", "exec", job, "--", "sh", "-c", f"echo $$ > {path}; {line}"], cwd=tm.work,
            env=tm.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = int(deadline(lambda: path.exists() and path.read_text().strip(), "the command to start", 60))

    def ended(self) -> tuple[int, str]:
        """Its exit code, and its words on standard error."""
        _, words = self.process.communicate(timeout=90)
        return self.process.returncode, words


def test_ctrl_c_ends_the_command_and_nothing_else(tm: Tm) -> None:
    job = begin(tm)
    command = Running(tm, job, "trap '' INT TERM; while :; do sleep 0.1; done")
    command.process.send_signal(signal.SIGINT)
    assert command.ended()[0] == 130
    gone(command.pid, 60)
    assert tm.show(job)["state"] == "running"
    end(tm, job)


def test_the_end_of_the_attempt_ends_the_command(tm: Tm) -> None:
    job = begin(tm)
    command = Running(tm, job, "exec sleep 600")
    assert end(tm, job)["state"] == "succeeded"
    assert command.ended() == (143, f"attempt 1 of {job} ended, and the command with it\n")
    gone(command.pid, 60)


def test_a_killed_agent_takes_the_command_with_it(tm: Tm) -> None:
    job = begin(tm, restarts={"infrastructure": 0})
    command = Running(tm, job, "exec sleep 600")
    kill(agent_of(tm, job))
    code, words = command.ended()
    assert (code, words.splitlines()[0]) == (1, f"attempt 1 of {job} ended, and the command with it")
    gone(command.pid, 60)
    assert tm.ended(job, 60)["state"] == "failed"


def test_a_cancel_allows_what_it_says(tm: Tm) -> None:
    stubborn = ["bash", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    jobs = [tm.submit("--cpus", "0.1", "--", *stubborn) for _ in range(3)]
    for job in jobs:
        deadline(lambda job=job: "ready" in tm.ok("logs", job), "it to trap its TERM", 60, 0.2)  # type: ignore[misc]
    tm.ok("cancel", jobs[0])
    tm.ok("cancel", *jobs[:2], "--now")
    tm.ok("cancel", jobs[2], "--grace", "0.5s")
    for job in jobs:
        shown = tm.ended(job, 25)  # the usual grace is over 30 s
        assert shown["state"] == "cancelled"
    asked = [event["data"]["grace_s"] for event in events(tm, jobs[0]) if event["type"] == "CancelRequested"]
    assert asked == [None, 0.0]


def test_all_can_be_cancelled_at_once(tm: Tm) -> None:
    held = [tm.submit("--hold", "--name", "held", "--", "true") for _ in range(3)]
    said = tm("cancel", "--all", "--experiment", "held")
    assert (said.code, said.err.splitlines()[0]) == (2, "error: this would cancel 3 jobs")
    assert sorted(tm.ok("cancel", "--all", "--experiment", "held", "--yes", "-q").split()) == held
    assert tm("cancel", "--all", "--experiment", "held").err == "there is nothing to cancel\n"
    said = tm("cancel", held[0], "nope")
    assert (said.code, said.out) == (3, f"{held[0]} is already cancelled\n")
