"""Programs that use the SDK, in real jobs: reports, checkpoints of one rank and of all, stop, artifacts; killed and resumed."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from running import Tm, agent_of, attempts, gone, kill, ranks_of, server
from waiting import deadline

from trainmaster.store.metrics.points import SqlMetricStore

TRAIN = """
import json, os, pathlib, sys, time
from trainmaster import sdk

ranks, last = sys.argv[1], int(sys.argv[2])
begin = 0
if sdk.resume_dir() is not None:
    name = f"rank{sdk.rank()}.json" if ranks == "all" else "state.json"
    state = json.loads((sdk.resume_dir() / name).read_text())
    assert state["rank"] == (sdk.rank() if ranks == "all" else 0), state
    begin = state["step"]
print("begins at", begin, "of", sdk.params()["lr"], flush=True)
for step in range(begin + 1, last + 1):
    sdk.report(step=step, loss=1 / step)
    with sdk.checkpoint(step, ranks=ranks) as directory:
        name = f"rank{sdk.rank()}.json" if ranks == "all" else "state.json"
        (directory / name).write_text(json.dumps({"step": step, "rank": sdk.rank()}))
    while step == 4 and sdk.attempt() == 1 and last > 4:
        time.sleep(0.05)
    time.sleep(0.05)
if sdk.rank() == 0:
    pathlib.Path("plot.bin").write_bytes(bytes(range(256)))
    sdk.artifact("plot.bin", name="plots/loss.bin")
"""
STOPS = """
import time
from trainmaster import sdk
sdk.report(step=1, loss=1.0)
print("ready", flush=True)
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while not sdk.should_stop():
    time.sleep(0.02)
with sdk.checkpoint(7) as directory:
    (directory / "last").write_text("saved")
print("stopped by itself", flush=True)
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server with two virtual nodes."""
    with server(tmp_path_factory.mktemp("sdk"), "--nodes", "2", "--gpus-per-node", "0") as tm:
        tm.file("train.py", TRAIN)
        tm.file("stops.py", STOPS)
        yield tm


def interrupted(tm: Tm, name: str, ranks: str, *options: str) -> str:
    """A job of ten steps, one rank of which is killed once the checkpoint of step 4 is committed."""
    job = tm.submit("--name", name, "--param", "lr=0.1", *options, "--", "python", "train.py", ranks, "10")
    deadline(lambda: any(one["step"] == 4 for one in tm.show(job)["checkpoints"]), "the checkpoint of step 4", 20, 0.2)
    kill(max(ranks_of(tm, job).items())[1])
    return job


def begins(tm: Tm, job: str, attempt: int, ranks: int = 1) -> list[str]:
    """What each rank said at its beginning."""
    per_node = 2 if ranks > 2 else ranks
    places = [tm.home.attempt(job, attempt, rank // per_node) / f"rank{rank}.log" for rank in range(ranks)]
    return [place.read_text().splitlines()[0] for place in places]


def test_reports_checkpoints_and_artifacts_of_one_rank(tm: Tm) -> None:
    job = interrupted(tm, "one", "one")
    shown = tm.ended(job)
    assert attempts(shown, "state", "cause", "resumed_from_step") == [("restarted", "killed", None), ("succeeded", None, 4)]
    assert (begins(tm, job, 1), begins(tm, job, 2)) == (["begins at 0 of 0.1"], ["begins at 4 of 0.1"])
    assert [(one["step"], one["approximate"], one["good"]) for one in shown["checkpoints"]] == [
        (8, False, True), (9, False, True), (10, False, True),
    ]  # fmt: skip
    assert (shown["step"], shown["metrics"]["loss"]["value"], shown["notes"]) == (10, 0.1, [])
    assert tm.json("get", job)[0]["path"] == "plots/loss.bin"
    tm.ok("get", job, "plots/loss.bin", "-o", "fetched.bin")
    assert (tm.work / "fetched.bin").read_bytes() == bytes(range(256))


def test_a_checkpoint_of_all_ranks_of_both_nodes_is_one(tm: Tm) -> None:
    job = interrupted(tm, "all", "all", "--nodes", "2", "--ranks", "2", "--cpus", "0.5")
    shown = tm.ended(job)
    assert attempts(shown, "state", "cause", "resumed_from_step") == [("restarted", "killed", None), ("succeeded", None, 4)]
    assert begins(tm, job, 2, 4) == ["begins at 4 of 0.1"] * 4
    newest = shown["checkpoints"][-1]
    assert (newest["step"], newest["good"]) == (10, True)
    root = tm.home.blobs / "checkpoints" / job / newest["id"]
    files = {
        part.name: sorted(file["path"] for file in json.loads((part / "MANIFEST.json").read_bytes())["files"])
        for part in root.iterdir()
    }
    assert files == {"n0": ["rank0.json", "rank1.json"], "n1": ["rank2.json", "rank3.json"]}


def test_a_checkpoint_that_one_rank_has_not_finished_is_none(tm: Tm) -> None:
    code = (
        "import sys, time; from trainmaster import sdk\n"
        "with sdk.checkpoint(1, ranks='all') as directory:\n"
        "    (directory / f'{sdk.rank()}').write_text('x')\n"
        "    if sdk.rank() == 3: raise SystemExit(5)\n"
    )
    tm.file("torn.py", code)
    job = tm.submit("--name", "torn", "--nodes", "2", "--ranks", "2", "--cpus", "0.5", "--", "python", "torn.py")
    shown = tm.ended(job)
    assert (shown["state"], shown["checkpoints"]) == ("failed", [])
    assert attempts(shown, "cause", "rank", "exit_code") == [("program", 3, 5)]


def test_a_cancelled_program_stops_by_itself_and_its_last_checkpoint_counts(tm: Tm) -> None:
    job = tm.submit("--name", "stops", "--", "python", "stops.py")
    deadline(lambda: "ready" in tm.ok("logs", job), "its first word", 20, 0.1)
    tm.ok("cancel", job)
    shown = tm.ended(job)
    assert shown["state"] == "cancelled"
    assert tm.ok("logs", job) == "ready\nstopped by itself\n"
    assert [(one["step"], one["good"]) for one in shown["checkpoints"]] == [(7, True)]
    assert shown["ended_s"] - shown["started_s"] < 15


GOES_ON = """
import os, time
from trainmaster import sdk
if sdk.attempt() > 1:
    sdk.report(step=5000, loss=0.0)
    raise SystemExit
for step in range(1, 1000):
    sdk.report(step=step, loss=float(step))
    while step == 20 and not os.path.exists("go"):
        time.sleep(0.02)
    time.sleep(0.001)
"""


def losses(tm: Tm, job: str) -> list[tuple[int, float]]:
    """The curve as it is on record."""
    with closing(SqlMetricStore(tm.home.metrics_db, read_only=True)) as metrics:
        return metrics.series(job, "loss")


def test_what_was_reported_while_the_server_was_away_is_there_when_it_is_back(tm: Tm) -> None:
    tm.file("goes_on.py", GOES_ON)
    job = tm.submit("--name", "away", "--", "python", "goes_on.py")
    deadline(lambda: len(losses(tm, job)) == 20, "the first steps", 20, 0.1)
    agent = agent_of(tm, job)
    tm.ok("down")
    (tm.home.work(job, "node0") / "go").touch()
    gone(agent, 30.0)  # the job is over, and nobody has heard of it
    assert len(losses(tm, job)) == 20
    tm.ok("up")
    assert tm.ended(job)["state"] == "succeeded"
    deadline(lambda: losses(tm, job) == [(step, float(step)) for step in range(1, 1000)], "every step", 20, 0.1)
    assert not tm.home.points(f"{job}.1/n0").exists()


def test_what_was_reported_before_the_agent_was_killed_is_there(tm: Tm) -> None:
    tm.file("goes_on.py", GOES_ON)
    job = tm.submit("--name", "killed", "--", "python", "goes_on.py")
    deadline(lambda: len(losses(tm, job)) == 20, "the first steps", 20, 0.1)
    (tm.home.work(job, "node0") / "go").touch()
    told = tm.home.attempt(job, 1, 0) / "rank0.sdk"
    deadline(lambda: len(told.read_bytes().splitlines()) > 60, "some more", 20, 0.001)
    kill(agent_of(tm, job))
    shown = tm.ended(job)
    assert attempts(shown, "state", "cause") == [("restarted", "agent_lost"), ("succeeded", None)]
    wanted = len(told.read_bytes().splitlines())
    deadline(lambda: len(losses(tm, job)) > wanted, "the second attempt's", 20, 0.1)
    assert losses(tm, job) == [*((step, float(step)) for step in range(1, wanted + 1)), (5000, 0.0)]
    assert wanted > 60
