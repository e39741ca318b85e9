"""What people do with jobs all day, at the real command line; one server for all of it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from running import Tm, server
from waiting import deadline

PROGRAM = """
import os, sys, time
for step in range(1, 6):
    print(f"step {step} loss {1 / step:.3f} rank {os.environ.get('RANK', '0')}", flush=True)
    print("nothing", flush=True)
if "stay" in sys.argv:
    time.sleep(600)
"""
TIMED = """
import os, sys, time
print("early", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
for number in range(2):
    print("late", number, flush=True)
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("everyday"), "--nodes", "1") as tm:
        tm.file("train.py", PROGRAM)
        yield tm


@pytest.fixture(scope="module")
def ended(tm: Tm) -> list[str]:
    """Two jobs that have ended."""
    first = tm.submit("--name", "digits", "--tag", "owner=team-a", "--param", "lr=1e-4", "--", "python3", "train.py", "{lr}")
    second = tm.submit("--name", "digits-2", "--tag", "owner=team-b", "--ranks", "2", "--", "python3", "train.py")
    assert [tm.ended(job)["state"] for job in (first, second)] == ["succeeded", "succeeded"]
    return [first, second]


def test_jobs_are_found(tm: Tm, ended: list[str]) -> None:
    first, second = ended
    user = tm.json("show", first)["member"]
    assert tm.ok("ps", "-q", "--tag", "owner=team-a").split() == [first]
    assert tm.ok("ps", "-q", "--tag", "owner", "--name", "digits*", "--mine").split() == [second, first]
    assert tm.ok("ps", "-q", "--user", user, "--experiment", "digits-2", "--state", "succeeded").split() == [second]
    assert tm.ok("ps", "-q", "--user", "nobody").split() == []
    assert tm.ok("ps", "-q", "--name", "digits*", "--since", "1h", "--sort", "id", "--limit", "5").split() == [first, second]
    assert tm.ok("ps", "-q", "--name", "digits*", "--until", "1h").split() == []
    (told,) = tm.json("ps", "--tag", "owner=team-a")
    assert (told["id"], told["member"], told["tags"]) == (first, user, {"owner": "team-a"})
    assert told["elapsed_s"] == told["ended_s"] - told["started_s"]
    lines = tm.ok("ps", "--wide", "--name", "digits").splitlines()
    assert len(lines) == 2
    assert all(word in lines[1] for word in (first, user, "owner=team-a", "training", "succeeded"))


def test_the_spec_of_a_job_submits_it_again(tm: Tm, ended: list[str]) -> None:
    text = tm.ok("get-spec", ended[0])
    tm.file("again.yaml", text)
    again = tm.submit("again.yaml")
    assert yaml.safe_load(tm.ok("get-spec", again)) == yaml.safe_load(text)
    assert tm.json("get-spec", again)["spec"]["params"] == {"lr": 1e-4}
    assert tm.ended(again)["state"] == "succeeded"
    held = tm.submit("--hold", "--env", "HF_TOKEN=abc", "--", "python3", "train.py")
    said = tm("get-spec", held)
    assert ("abc" in said.out, "HF_TOKEN: (hidden)" in said.out) == (False, True)
    assert said.err == "hidden: environment.variables.HF_TOKEN; put the real values in before you submit it\n"
    tm.file("hidden.yaml", said.out)
    refused = tm("submit", "hidden.yaml")
    assert (refused.code, "holds (hidden), which stands for a credential" in refused.err) == (2, True)
    tm.ok("cancel", held)


def test_the_lines_of_logs(tm: Tm, ended: list[str]) -> None:
    first, second = ended
    assert tm.ok("logs", first, "-n", "2").splitlines() == ["step 5 loss 0.200 rank 0", "nothing"]
    assert tm.ok("logs", first, "--grep", "step [45]").splitlines() == ["step 4 loss 0.250 rank 0", "step 5 loss 0.200 rank 0"]
    assert tm.ok("logs", second, "--rank", "0,1", "--grep", "step 1").splitlines() == [
        "step 1 loss 1.000 rank 0", "[1] step 1 loss 1.000 rank 1",
    ]  # fmt: skip
    both = tm.ok("logs", first, second, "-f", "--rank", "0", "--grep", "step 3").splitlines()
    assert sorted(both) == [f"{first} | step 3 loss 0.333 rank 0", f"{second} | step 3 loss 0.333 rank 0"]
    told = [json.loads(line) for line in tm.ok("logs", first, second, "--json", "-n", "1").splitlines()]
    assert [(one["job"], one["rank"], one["text"]) for one in told] == [
        (first, 0, "nothing\n"), (second, 0, "nothing\n"), (second, 1, "nothing\n"),
    ]  # fmt: skip


def test_the_times_of_lines(tm: Tm) -> None:
    """What was printed before the first line of a running job is not printed again, and the rest is followed."""
    job = tm.submit("--name", "timed", "--", "python3", "-c", TIMED, str(tm.work / "go"))
    tm.state(job, "running")
    deadline(lambda: "early" in tm.ok("logs", job), "the first line")
    early, _, text = tm.ok("logs", "-t", job).strip().partition(" ")
    assert text == "early"
    shown = tm.show(job)
    assert shown["started_s"] - 2.0 <= datetime.fromisoformat(early).timestamp() <= shown["started_s"] + 20.0
    since_s = (datetime.fromisoformat(early) + timedelta(seconds=2)).timestamp()
    deadline(lambda: time.time() > since_s + 1.0, "a second to pass")
    tm.file("go", "")
    followed = tm.ok("logs", "-f", "-t", "--since", f"{since_s:.0f}", job).splitlines()
    assert [line.partition(" ")[2] for line in followed] == ["late 0", "late 1"]
    assert all(datetime.fromisoformat(line.partition(" ")[0]).timestamp() >= since_s for line in followed)
    assert tm.ok("logs", job, "--since", f"{since_s:.0f}", "--grep", "1", "-n", "5") == "late 1\n"
    (told,) = [json.loads(line) for line in tm.ok("logs", job, "--since", f"{since_s:.0f}", "-t", "--json").splitlines()]
    assert (told["text"], sum(count for count, _ in told["times"])) == ("late 0\nlate 1\n", 2)
    assert all(since_s <= time_s <= time.time() for _, time_s in told["times"])
    silent = tm("logs", job, "--since", "now")
    assert (silent.out, silent.err) == ("", f"{job} has printed nothing since then; its last lines: tm logs {job} -n 20\n")


def test_a_waiting_job_is_changed(tm: Tm) -> None:
    job = tm.submit("--hold", "--tag", "owner=team-a", "--", "python3", "train.py")
    said = tm.ok("update", job, "--priority", "10", "--time-limit", "2h", "--class", "interactive", "--tag", "kind=x", "--untag", "owner")
    assert said == f"{job} has priority 10, a time limit of 2 h, class interactive, tag kind=x, no tag owner\n"

    def changed() -> bool:
        shown = tm.show(job)
        return (shown["priority"], shown["time_limit_s"], shown["class"], shown["tags"]) == (10, 7200.0, "interactive", {"kind": "x"})

    deadline(changed, "the changes")
    assert tm.ok("ps", "-q", "--tag", "kind=x").split() == [job]
    assert tm.ok("ps", "-q", "--tag", "owner", "--state", "held").split() == []
    tm.ok("release", job)
    assert tm.ended(job)["state"] == "succeeded"
    assert tm("update", job, "--priority", "1").refusal == (5, f"error: {job} has succeeded; only its tags can still be changed\n")
    assert tm.json("update", job, "--tag", "best=yes")[0]["tags"] == {"kind": "x", "best": "yes"}
    deadline(lambda: tm.show(job)["tags"] == {"kind": "x", "best": "yes"}, "the tag of an ended job")
    assert tm.ok("ps", "-q", "--tag", "best").split() == [job]
    assert tm("update", job).refusal == (2, "error: there is nothing to change\n  such as: tm update @last --priority 10\n")
    assert tm.ok("doctor", "--replay", "--json")


def test_a_running_job_gets_another_limit(tm: Tm) -> None:
    job = tm.submit("--time-limit", "1h", "--", "python3", "train.py", "stay")
    tm.state(job, "running")
    refused = tm("update", job, "--class", "interactive")
    assert refused.refusal == (5, f"error: {job} is running; only the class of a waiting job can be changed\n")
    ran_s = int(time.time() - tm.json("show", job)["started_s"])
    limit_s = ran_s + 5  # a limit that has passed is refused, and this machine may be slow
    tm.ok("update", job, "--time-limit", f"{limit_s}s")
    assert f"reached its time limit of {limit_s} s" in tm.ended(job)["reason"]


def test_output_that_cannot_be_written_loses_no_job(tm: Tm) -> None:
    """A full disk: messages are lost, the id is not. Closed streams are as empty ones."""

    def submitted(redirected: str) -> tuple[int, str, str]:
        line = f'"{sys.executable}" -m trainmaster submit --name full -- true {redirected}'
        done = subprocess.run(["bash", "-c", line], cwd=tm.work, env=tm.environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert submitted("2>/dev/full") == (0, "full-1\n", "")
    assert submitted(">/dev/full") == (
        1, "", "error: full-2 was submitted, but standard output cannot be written: No space left on device\n"
        "  do not submit it again; look: tm show full-2\n",
    )  # fmt: skip
    assert submitted("<&- >&- 2>&-") == (0, "", "")
    assert tm.ok("ps", "-q", "--name", "full").split() == ["full-3", "full-2", "full-1"]


def test_no_server_there_and_none_is_started(tm: Tm, tmp_path: Path) -> None:
    elsewhere = Tm(tmp_path, tmp_path / "hoem")
    said = elsewhere("ps")
    assert (said.code, said.err.splitlines()[0]) == (
        7, f"error: no server is running: $TRAINMASTER_HOME names {tmp_path / 'hoem'}, which does not exist",
    )  # fmt: skip
    assert not (tmp_path / "hoem").exists()
    assert tm.ok("help", "update").endswith("tm update train-2 --priority 10 --time-limit 12h\n")
    assert tm.ok("version").startswith("trainmaster ")
    assert tm("sacct").refusal == (2, "error: there is no command 'sacct'\n  use: tm ps --all --wide\n")
    assert tm("submit", "--time-limit", "10", "--", "true").refusal == (
        2, "error: --time-limit 10: 10 of what?\n  minutes: --time-limit 10m  hours: 10h  seconds: 10s\n",
    )  # fmt: skip
