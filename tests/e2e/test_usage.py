"""`tm usage` on a real server: three projects, the control plane killed half-way, and every second is charged once."""

import csv
import io
from collections import Counter
from contextlib import closing
from pathlib import Path

from effort import nightly
from running import Tm, kill, ranks_of, server
from waiting import deadline

from trainmaster import live_processes
from trainmaster.model.events import AttemptEnded, Placed, Submitted
from trainmaster.store.events import SqlEventStore
from trainmaster.testing.ledger_law import ledger_problems

pytestmark = nightly  # what it tries is tried by a page of the documentation in every run

PROJECTS = ("vision", "text", "speech")
TRAIN = """
import os, pickle, time
os.makedirs("out", exist_ok=True)
step = pickle.load(open("out/10.pkl", "rb")) if os.path.exists("out/10.pkl") else 0
while step < 20:
    time.sleep(0.05)
    step += 1
    print("step", step, flush=True)
    if step == 10:
        pickle.dump(step, open("out/part", "wb"))
        os.rename("out/part", "out/10.pkl")
        if os.environ["TRAINMASTER_JOB"] == "vision-1":
            time.sleep(600)  # until it is killed
"""


def by_events(tm: Tm) -> Counter[str]:
    """Microseconds of one GPU by project, from the log alone."""
    used: Counter[str] = Counter()
    projects, began = {}, {}
    with closing(SqlEventStore(tm.home.events_db, read_only=True)) as store:
        for recorded in store.events(0, 100_000):
            match recorded.event:
                case Submitted(spec=spec):
                    projects[recorded.job] = spec.project
                case Placed(allocation=allocation):
                    gpus = sum(len(share.devices) for share in allocation.shares)
                    began[recorded.job] = round(recorded.now_s * 1000), gpus
                case AttemptEnded():
                    begin_ms, gpus = began[recorded.job]
                    used[projects[recorded.job]] += (round(recorded.now_s * 1000) - begin_ms) * gpus * 1000
        assert ledger_problems(store) == []
    return used


def test_what_three_projects_used_whatever_died(tmp_path: Path) -> None:
    with server(tmp_path, "--nodes", "2", "--gpus-per-node", "2") as tm:
        assert tm("usage").err.startswith("nothing was charged from ")
        tm.file("cluster.yaml", "pools: {lab: {nodes: ['*'], price: 3600}}\ncurrency: EUR\nfair_share: {half_life: 1h}\n")
        tm.ok("apply", "cluster.yaml")
        tm.file("train.py", TRAIN)
        jobs = []
        for gpus, project in enumerate(PROJECTS * 2):
            spec = f"{{name: {project}, project: {project}, command: python train.py, resources: {{gpus: {gpus % 2 + 1}}}}}"
            tm.file(f"{project}.yaml", f"{spec[:-1]}, checkpoint: {{path: 'out/*.pkl'}}}}\n")
            jobs.append(tm.submit(f"{project}.yaml"))
        deadline(lambda: len(tm.show(jobs[0])["checkpoints"]) > 0, "a checkpoint of the first job", 30.0)
        kill(ranks_of(tm, jobs[0])[0])
        running = live_processes.running(tm.home)
        assert running is not None
        kill(running.pids["control"])
        for job in jobs:
            assert tm.ended(job, 60.0)["state"] == "succeeded"
        found = tm.json("usage", "--since", "all", "--by", "project")
        used = by_events(tm)
        assert {line["project"]: line["gpu_us"] for line in found["lines"]} == used
        assert (found["total"]["gpu_us"], found["total"]["jobs"]) == (used.total(), len(jobs))
        assert found["total"]["attempts"] == len(jobs) + 1
        assert found["total"]["cost"] == {"EUR": f"{used.total() / 1e6:.6f}"}  # a Euro a second
        assert 0 < found["total"]["lost_gpu_hours"] < found["total"]["gpu_hours"]
        table = tm.ok("usage").splitlines()
        assert table[0].split() == ["PROJECT", "GPU", "H", "SHARE", "%", "JOBS", "ATTEMPTS", "LOST", "GPU", "H", "COST", "EUR"]
        assert sorted(line.split()[0] for line in table[1:]) == sorted([*PROJECTS, "all"])
        told = list(csv.DictReader(io.StringIO(tm.ok("usage", "--by", "job,day,member", "--csv", "--zone", "UTC"))))
        assert sorted({line["job"] for line in told}) == sorted(jobs)
        assert sum(int(line["gpu_us"]) for line in told) == used.total()
        checks = {check["name"]: check for check in tm.json("doctor", "--replay")}
        assert checks["replay"]["ok"], checks["replay"]
