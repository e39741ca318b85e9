"""What people do with jobs all day, at the real command line on one server: exit codes, reruns, tables of metrics, arrays, chains."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from running import Tm, server
from waiting import deadline

UP = ("--nodes", "1", "--gpus-per-node", "2")
TRAIN = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--name", default="none")
asked = parser.parse_args()
for step in range(1, 4):
    print(f"step {step}: loss {asked.lr / step}", flush=True)
print("name is", asked.name)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("every-day"), *UP) as tm:
        yield tm


@pytest.fixture
def tm(shared: Tm, tmp_path: Path) -> Tm:
    """The shared server, from a work directory of the test's own."""
    tm = Tm(tmp_path, shared.home.root)
    tm.file("t.py", TRAIN)
    return tm


def test_the_exit_code_of_the_program_is_passed_on(tm: Tm) -> None:
    assert tm("run", "--exit-code", "--restarts", "0", "-q", "--", "exit 7").code == 7
    assert tm("run", "--restarts", "0", "-q", "--", "exit 7").code == 10
    ok, bad = tm.submit("--", "true"), tm.submit("--restarts", "0", "--name", "died", "--", "kill -SEGV $$")
    assert tm("wait", ok, bad, "--exit-code").code == 128 + signal.SIGSEGV
    assert tm("wait", ok, "--exit-code").code == 0
    said = tm("run", "--exit-code", "-d", "--", "true")
    assert said.refusal == (2, "error: --exit-code and --detach cannot be combined\n  get the exit code later: tm wait --exit-code JOB\n")


def test_a_parameter_reaches_a_program_that_takes_arguments(tm: Tm) -> None:
    first = tm.submit("--set", "lr=0.25", "--set", "name=it's me", "--", "python3", "t.py", "--lr", "{lr}", "--name", "{name}")
    assert tm.state(first, "succeeded")["metrics"]["loss"]["value"] == 0.25 / 3
    assert tm.ok("logs", first).endswith("name is it's me\n")
    again = tm.ok("rerun", first, "--set", "lr=3", "-q").strip()
    assert tm.state(again, "succeeded")["metrics"]["loss"]["value"] == 1.0
    other = tm.ok("rerun", first, "-q", "--", "python3", "t.py", "--lr", "9", "--name", "{name}").strip()
    shown = tm.state(other, "succeeded")
    assert (shown["spec"]["params"], shown["metrics"]["loss"]["value"]) == ({"name": "it's me"}, 3.0)  # it took no {lr}
    shell = tm.submit("--set", "name=a b; exit 3", "--", "python3 t.py --name {name} | sed 's/{{name}}/{x}/'")
    assert tm.state(shell, "succeeded")["command"] == "python3 t.py --name {name} | sed 's/{{name}}/{x}/'"
    assert tm.ok("logs", shell).endswith("name is a b; exit 3\n")

    refused = tm("submit", "--set", "lr=0.5", "--", "python3", "t.py", "--lr", "1")
    assert (refused.code, refused.err.splitlines()[0]) == (2, "error: nothing would read the parameter 'lr'")
    noted = tm("submit", "--set", "lr=0.5", "--hold", "--", "true")
    assert "the command has no {lr}; if the program does not read TRAINMASTER_PARAMS, lr changes nothing" in noted.err
    tm.ok("cancel", noted.out.strip())


def test_compare_shows_no_parameter_that_a_run_did_not_use(tm: Tm) -> None:
    recorded = tm.submit("--add-param", "lr=0.5", "--name", "same", "--", "python3", "t.py", "--lr", "1")
    used = tm.submit("--set", "lr=1", "--name", "same", "--", "python3", "t.py", "--lr", "{lr}")
    tm.ok("wait", recorded, used)
    found = tm.json("compare", recorded, used)
    told = {(one["section"], one["field"]): one["values"] for one in found["differences"]}
    assert (told["params", "lr"], told["recorded", "lr"]) == ([None, 1], [0.5, None])
    assert "params     lr=0.5 (not read by the program)" in tm.ok("show", recorded)
    again = tm.ok("rerun", recorded, "-q", "--", "python3", "t.py", "--lr", "3").strip()
    assert tm.ended(again)["unread_params"] == ["lr"]
    assert tm("rerun", recorded, "--set", "lr=2").err.startswith("error: nothing would read the parameter 'lr'")


def test_rerun_does_what_it_says(tm: Tm) -> None:
    first = tm.submit("--", "python3", "t.py", "--lr", "1")
    tm.state(first, "succeeded")
    tm.file("t.py", "raise SystemExit('this one is newer')\n")
    said = tm("requeue", first, "--", "python3", "t.py", "--lr", "0.5")  # the former name of the command
    assert said.code == 0
    assert f"runs the new command with the code of {first}; with that of this directory: --workdir ." in said.err
    second = said.out.strip()
    shown = tm.state(second, "succeeded")
    assert (shown["command"], shown["metrics"]["loss"]["value"]) == ("python3 t.py --lr 0.5", 0.5 / 3)
    assert (shown["lineage"]["relation"], shown["lineage"]["job"]) == ("requeue", first)

    refused = tm("rerun", first, "--set", "lr=2")
    assert (refused.code, refused.err.splitlines()[0]) == (2, f"error: {first} has no parameters, so 'lr' would change nothing")
    third = tm.ok("rerun", first, "--set", "lr=2", "-q", "--", "python3", "t.py", "--lr", "{lr}").strip()
    assert tm.state(third, "succeeded")["metrics"]["loss"]["value"] == 2 / 3
    tm.file("f.py", "def main(lr): print('lr is', lr)\n")
    function = tm.submit("--function", "f:main", "--set", "lr=4")
    tm.state(function, "succeeded")
    again = tm.ok("rerun", function, "-q", "--set", "lr=5").strip()
    tm.state(again, "succeeded")
    assert tm.ok("logs", again) == "lr is 5\n"
    own = tm.ok("rerun", first, "-q", "--workdir", ".", "--", "python3 t.py || true").strip()
    tm.state(own, "succeeded")
    assert "this one is newer" in tm.ok("logs", own)


def test_rerun_goes_on_from_a_checkpoint(tm: Tm) -> None:
    program = "import os,sys; s=int(open('ckpt-5').read()) if os.path.exists('ckpt-5') else 0; open('ckpt-5','w').write('5'); print('began at', s)"
    first = tm.submit("--checkpoint", "ckpt-{step}", "--", "python3", "-c", program)
    tm.state(first, "succeeded")
    for asked in ((f"{first}@5",), (first, "--continue")):
        onward = tm.ok("rerun", "-q", *asked).strip()
        assert tm.state(onward, "succeeded")["lineage"] == {
            "relation": "fork", "job": first, "checkpoint": tm.show(first)["checkpoints"][0]["id"], "step": 5, "owner": first, "approximate": False,
        }  # fmt: skip
        assert tm.ok("logs", onward) == "began at 5\n"
    anew = tm.ok("rerun", first, "-q").strip()
    tm.state(anew, "succeeded")
    assert tm.ok("logs", anew) == "began at 0\n"


def test_metrics_as_a_table(tm: Tm) -> None:
    one, two = (tm.submit("--set", f"lr={lr}", "--name", "curve", "--", "python3", "t.py", "--lr", "{lr}") for lr in (6, 12))
    tm.ok("wait", one, two)
    rows = list(csv.DictReader(io.StringIO(tm.ok("metrics", one, two, "--metric", "loss", "--csv"))))
    assert [(row["job"], row["metric"], row["step"], row["value"], row["attempt"]) for row in rows] == [
        (job, "loss", str(step), str(lr / step), "1") for job, lr in ((one, 6.0), (two, 12.0)) for step in (1, 2, 3)
    ]
    assert [row["value"] for row in tm.json("metrics", one) if row["metric"] == "loss"] == [6.0, 3.0, 2.0]
    assert tm.ok("metrics", one, "--metric", "loss").splitlines()[1].split() == [one, "loss", "3", "6", "2", "2", "6", "3"]
    stepless = tm.submit("--name", "stepless", "--", "echo", "{'loss': 2.5}")
    tm.ok("wait", stepless)
    assert tm.ok("metrics", stepless).splitlines()[1].split() == [stepless, "loss", "1", *["2.5"] * 4, "-"]
    misspelled = tm.submit("--primary", "los", "--", "echo", "{'loss': 2.5}")
    tm.ok("wait", misspelled)
    assert "The primary metric 'los' was never read; did you mean 'loss'?\n" in tm.ok("show", misspelled)
    code = f"import trainmaster; print(trainmaster.metrics_table({two!r}, metrics=['loss'])['value'])"
    said = subprocess.run([sys.executable, "-c", code], env=tm.environment, capture_output=True, text=True, check=True)
    assert said.stdout == "[12.0, 6.0, 4.0]\n"
    refused = tm("metrics", one, "--metric", "acc")
    assert refused.refusal == (2, f"error: no metric 'acc' in {one}\n  those that there are: tm metrics {one}\n")
    tm.file("pyarrow.py", "raise ImportError\n")
    tm.environment["PYTHONPATH"] = os.pathsep.join(["src", str(tm.work), *filter(None, [os.environ.get("PYTHONPATH")])])
    refused = tm("metrics", one, "--parquet", "x.parquet")
    assert (refused.code, refused.err.splitlines()[0]) == (1, "error: --parquet needs the package pyarrow, which is not installed here")


def test_jobs_that_start_while_few_of_ones_own_run(tm: Tm) -> None:
    """Of four, two at a time, without a word about an array; `why`, `plan` and `queue` say what they wait for."""
    go = tm.work / "few"
    tm.file("few.yaml", f"command: 'while [ ! -e {go} ]; do sleep 0.1; done'\nname: few\nmax_running: 2\n")
    jobs = [tm.submit("few.yaml"), *(tm.submit("few.yaml", "--max-running", "2") for _ in range(3))]
    user = tm.show(jobs[0])["member"]
    for job in jobs[:2]:
        tm.state(job, "running")
    text = f"waits until fewer than 2 of {user}'s jobs run or are about to (max_running: 2)"
    assert [(tm.show(job)["state"], tm.show(job)["reason"]) for job in jobs[2:]] == [("held", text)] * 2
    now = f"{text}. Now 2 of {user}'s jobs run or are about to: {jobs[0]}, {jobs[1]}."
    assert tm.ok("why", jobs[2]) == f"{jobs[2]} is held: {now}\n"
    assert f"it would be held: {now}" in tm.ok("plan", "few.yaml")
    assert "it would be held" not in tm.ok("plan", "few.yaml", "--max-running", "3")
    assert f"{jobs[3]} of {user} ({text})" in tm("queue").err
    tm.ok("down")
    tm.ok("up", *UP)
    assert tm.show(jobs[2])["state"] == "held"
    go.touch()
    assert [tm.ended(job)["state"] for job in jobs] == ["succeeded"] * 4
    assert tm("submit", "--max-running", "0", "--", "true").code == 2


def test_a_chain_of_jobs(tm: Tm) -> None:
    go = tm.work / "go"
    first = tm.submit("--restarts", "0", "--", f"while [ ! -e {go} ]; do sleep 0.1; done; exit 1")
    after = {when: tm.submit("--after", f"{first}{when}", "--", "true") for when in ("", ":any", ":failed")}
    last = tm.submit("--after", after[":any"], "--after", after[":failed"], "--", "true")
    tm.state(after[""], "held")
    assert tm.ok("why", after[""]) == (
        f"{after['']} is held: waits for {first} to succeed. {first} is {tm.show(first)['state']}; "
        "if it fails or is cancelled, this job is cancelled.\n"
    )
    assert tm.json("show", after[""])["start"] == {
        "after": [{"job": first, "when": "ok"}], "begin_s": None, "array": "", "at_most": 0, "relative": False, "max_running": 0,
    }  # fmt: skip
    tm.ok("down")
    tm.ok("up", *UP)
    go.touch()
    lost = tm.ended(after[""])
    assert (lost["state"], lost["reason"]) == ("cancelled", f"{first} has failed, and this job was to start only after its success")
    assert [tm.ended(one)["state"] for one in (after[":any"], after[":failed"], last)] == ["succeeded"] * 3
    assert tm.show(last)["started_s"] >= max(tm.show(after[":any"])["ended_s"], tm.show(after[":failed"])["ended_s"])
    assert tm("submit", "--after", "nobody", "--", "true").code == 3


def test_a_job_that_begins_later_and_one_that_is_let_go(tm: Tm) -> None:
    soon, late = tm.submit("--begin", "+1s", "--", "true"), tm.submit("--begin", "2099-12-24 08:00", "--", "true")
    shown = tm.ended(soon)
    assert shown["started_s"] >= shown["start"]["begin_s"] >= shown["created_s"]
    assert tm.state(late, "held")["reason"].startswith("begins at 2099-12-2")
    tm.ok("release", late)
    assert tm.ended(late)["state"] == "succeeded"
    past = "note: the time before which it may not start is past: it starts as soon as it can"
    assert past in tm("submit", "--begin", "2020-12-24 08:00", "--", "true").err.splitlines()
    assert tm("submit", "--begin", "tonight", "--", "true").err.startswith("error: begin: 'tonight' is not a time")


def test_an_array(tm: Tm) -> None:
    line = 'test {index} = "$TRAINMASTER_ARRAY_INDEX" && sleep 0.3 && exit {index}'
    said = tm("run", "--array", "0,2-3%1", "--restarts", "0", "--name", "sweep", "--exit-code", "--", line)
    assert said.code == 2, said  # of the first that failed
    ids = [line.split()[0] for line in said.out.splitlines()]
    shown = [tm.show(id) for id in ids]
    assert [(one["state"], one["spec"]["index"]) for one in shown] == [("succeeded", 0), ("failed", 2), ("failed", 3)]
    for before, after in pairwise(shown):
        assert after["started_s"] >= before["ended_s"]  # one at once
    listed = tm.ok("submit", "--array", "0-1", "--name", "pair", "--json", "--", "true").splitlines()
    assert [tm.ended(json.loads(line)["id"])["spec"]["index"] for line in listed] == [0, 1]
    rerun = tm.ok("rerun", ids[1], "-q").strip()
    assert tm.ended(rerun)["spec"]["index"] == 2
    assert "  index      2 of its array\n" in tm.ok("show", rerun)


def test_somebody_is_told_of_the_end(tm: Tm) -> None:
    out = tm.work / "told"
    failed = tm.submit("--restarts", "0", "--notify", f"run:cat > {out}", "--notify-on", "failure", "--", "exit 3")
    tm.submit("--notify", f"run:cat > {out}-not", "--notify-on", "failure", "--", "true")
    bad = tm.submit("--notify", "run:exit 5", "--", "true")
    told = json.loads(deadline(lambda: out.read_text() or None if out.exists() else None, "the notification", 20.0))
    assert (told["job"], told["state"], told["exit_code"]) == (failed, "failed", 3)
    text = "the notification to run:exit 5 was not delivered: the command exited with code 5; it is tried again"
    deadline(lambda: text in [one["text"] for one in tm.show(bad)["troubles"]], "what is said of it", 20.0)
    assert text in " ".join(tm.ok("show", bad).split())
    assert not Path(f"{out}-not").exists()
    assert tm("submit", "--notify", "failed", "--", "true").code == 2


def test_who_uses_the_gpus(tm: Tm) -> None:
    go = tm.work / "go"
    job = tm.submit("--gpus", "1", "--", f"while [ ! -e {go} ]; do sleep 0.1; done")
    tm.state(job, "running")
    found = tm.json("gpus")
    assert sorted([user["job"] for user in gpu["users"]] for gpu in found["gpus"]) == [[], [job]]
    used = next(gpu for gpu in found["gpus"] if gpu["users"])
    assert 0 < used["held"] < 0.1
    said = tm("gpus", "--since", "1d")
    assert said.out.splitlines()[0].split() == ["NODE", "GPU", "KIND", "JOBS", "BUSY", "MEMORY", "HELD,", "1", "d", "BUSY,", "1", "d"]
    assert said.err.startswith("1 of 2 GPUs free; in the last 1 d: ")
    go.touch()
    tm.ended(job)
    (line,) = {gpu["held"] > 0 for gpu in tm.json("gpus")["gpus"] if gpu["index"] == used["index"]}
    assert line
