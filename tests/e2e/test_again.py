"""A job made from another one, by the real command line: reproduced to the last bit, forked from one that runs, killed, tagged."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, server
from waiting import deadline

PROGRAM = """\
import argparse, json, os, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--resume")
resume = parser.parse_args().resume
params = json.loads(os.environ["TRAINMASTER_PARAMS"])
step, weight = 0, 1.0
if resume:
    step, weight = json.load(open(resume)).values()
    print("resumed from", step, flush=True)
os.makedirs("out", exist_ok=True)
while step < params["steps"]:
    step += 1
    weight -= params["lr"] * weight * (0.5 + random.Random(params["seed"] * 1000 + step).random())
    if step % 5 == 0:
        json.dump({"step": step, "weight": weight}, open("out/.new", "w"))
        os.rename("out/.new", f"out/ckpt-{step}.json")
    print(f"step {step}: loss {weight * weight!r}", flush=True)
    while step >= params["steps"] - 5 and params["wait"] and not os.path.exists(params["wait"]):
        time.sleep(0.05)
"""
SPEC = """\
name: digits
command: python train.py
params: {lr: 0.1, seed: 3, steps: 30, wait: ''}
checkpoint: {path: out/ckpt-*.json, keep: 2, resume_arguments: "--resume {path}"}
metrics: {primary: loss}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server, used from a work directory of each test's own."""
    with server(tmp_path_factory.mktemp("again")) as tm:
        yield tm


@pytest.fixture
def tm(shared: Tm, tmp_path: Path) -> Tm:
    """A repository with a change that is not committed."""
    tm = Tm(tmp_path, shared.home.root)
    (tm.work / "train.py").write_text(PROGRAM)
    (tm.work / "job.yaml").write_text(SPEC)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=tm.work, check=True)
    (tm.work / "train.py").write_text(PROGRAM + "# changed\n")
    return tm


def test_reproduced_requeued_and_forked(tm: Tm) -> None:
    first = tm.submit("job.yaml")
    assert tm.state(first, "succeeded", timeout_s=60)["step"] == 30
    told = tm.json("show", first, "--provenance")
    (attempt,) = told["attempts"]
    record = told["environments"][attempt["nodes"][0]["environment"]]
    assert re.fullmatch(r"3\.\d+\.\d+\S*", record["python"]["version"])
    assert record["packages"]["click"]
    patch = tm("show", first, "--diff")
    assert (patch.out.endswith("\n+# changed\n"), patch.err) == (True, "what git does not track is not in the patch, and submodules are not\n")

    (tm.work / "train.py").write_text("raise SystemExit('not this one')\n")
    said = tm("reproduce", first, "-f")
    assert (said.code, said.out.splitlines()[-1]) == (0, f"loss: {shown(tm, first)} in both"), said
    assert f"equal to {first}: code {told['code']['digest'][:12]} (git {told['origin']['git_commit'][:8]})" in said.err

    again = tm.ok("requeue", first, "--set", "steps=10", "-q").strip()
    assert tm.state(again, "succeeded", timeout_s=60)["step"] == 10
    refused = tm("requeue", first, "--set", "stesp=10")
    hint = "did you mean 'steps'?   a new one: --add-param stesp=…"
    assert refused.refusal == (2, f"error: {first} has no parameter 'stesp'\n  {hint}\n")
    assert tm("run", "--from", f"{first}@7").refusal == (
        3, f"error: {first} has no checkpoint of step 7\n  it has 25, 30; each job keeps its newest 2 (checkpoint.keep)\n"
    )  # fmt: skip


def shown(tm: Tm, job: str) -> str:
    """Its last loss as the command line writes numbers."""
    found = re.search(r"Metric loss: (\S+) at step 30", tm.ok("show", job))
    assert found is not None
    return found[1]


def test_a_fork_of_a_running_job_is_killed_and_goes_on(tm: Tm, tmp_path: Path) -> None:
    go = tmp_path / "go"
    parent = tm.submit("job.yaml", "--set", f"wait={go}")
    deadline(lambda: [c["step"] for c in tm.show(parent)["checkpoints"]][-1:] == [25], "the parent's checkpoint", 60)
    fork = tm.ok("submit", "-q", "--from", f"{parent}@25", "--set", "lr=0.01", "--set", "steps=40").strip()
    deadline(lambda: tm.show(fork)["checkpoints"] or None, "a checkpoint of the fork", 60)
    shown = tm.show(fork)
    assert (shown["lineage"]["job"], shown["lineage"]["step"], shown["attempts"][0]["resumed_from_step"]) == (parent, 25, 25)
    pid = rank_of(tm, fork)
    os.kill(pid, signal.SIGKILL)
    deadline(lambda: tm.show(fork)["attempt"] == 2, "the second attempt", 60)
    go.touch()
    assert tm.state(fork, "succeeded", timeout_s=60)["attempts"][1]["resumed_from_step"] > 25
    assert tm.state(parent, "succeeded", timeout_s=60)["children"] == [fork]
    assert tm.show(fork)["metrics"]["loss"]["step"] == 40
    assert f"from       {parent}@25" in tm.ok("show", fork)
    assert tm.json("doctor", "--replay")


def test_a_project_s_tags_cost_one_line_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "server.toml").write_text('[projects.vision]\nrequired_tags = ["owner", "task"]\n')
    with server(tmp_path) as tm:
        said = tm("submit", "--project", "vision", "--tag", "task=x", "--", "true")
        assert said.refusal == (2, "error: project vision requires the tag owner: add --tag owner=…\n")
        (tm.work / "trainmaster.toml").write_text('[tags]\nowner = "ann"\n')
        tm.environment["TRAINMASTER_TAGS"] = "task=x"
        job = tm.submit("--project", "vision", "--", "true")
        assert tm.show(job)["tags"] == {"owner": "ann", "task": "x"}


def rank_of(tm: Tm, job: str) -> int:
    """The pid of the fork's waiting rank, by its own environment."""

    def found() -> int | None:
        for name in os.listdir("/proc"):
            try:
                variables = Path("/proc", name, "environ").read_bytes() if name.isdigit() else b""
            except OSError:
                continue
            if f"TRAINMASTER_JOB={job}\0".encode() in variables and str(tm.home.root).encode() in variables:
                return int(name)
        return None

    return int(deadline(found, "the rank", 60))
