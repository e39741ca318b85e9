"""Five hundred jobs of three projects share eight nodes, really: fair, stopped and resumed, one node drained and one lost.

Each job counts, a checkpoint after every number. Then every plan of the run is made again from its events alone.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from effort import nightly
from running import Tm, server
from waiting import deadline

from trainmaster import live_processes
from trainmaster.client.api import Client
from trainmaster.control.replan import replan
from trainmaster.model.events import Placed, Promised, Submitted
from trainmaster.ports.store import Recorded
from trainmaster.store.events import SqlEventStore

pytestmark = nightly  # the simulated histories hold the same laws in every run
WEIGHTS = {"speech": 1.0, "vision": 2.0, "search": 5.0}
JOBS = {"speech": 120, "vision": 140, "search": 240}  # not as the weights: those of little weight wait for longer
COUNT = 4
COUNTING = f"""
import os, pathlib, sys, time
from trainmaster import sdk
tally, resumed = pathlib.Path(sys.argv[1]) / os.environ["TRAINMASTER_JOB"], sdk.resume_dir()
count = int((resumed / "count").read_text()) if resumed else 0
while count < {COUNT}:
    time.sleep(0.3)
    count += 1
    with tally.open("a") as file:
        file.write(f"{{sdk.attempt()}} {{count}}\\n")
    with sdk.checkpoint(step=count) as directory:
        (directory / "count").write_text(str(count))
"""
RULES = """
projects: {speech: {weight: 1}, vision: {weight: 2}, search: {weight: 5}}
preemption: {min_run: 0.5}
"""


@dataclass
class Lived:
    """What a run left behind."""

    jobs: list[dict[str, Any]]
    rows: list[Recorded]
    counts: dict[str, list[tuple[int, int]]]  # of each job: attempt, number
    usage: dict[str, float]  # GPU-seconds by project, while all three had work waiting


def _submission(tm: Tm, project: str, name: str, **spec: Any) -> dict[str, Any]:
    counting, tally = tm.work / "counting.py", tm.work / "tally"
    variables = {"PATH": tm.environment["PATH"]}
    origin = {"user": "ann", "host": "here", "directory": str(tm.work), "variables": variables}
    resources = {"gpus": 1, "cpus": 0.05}
    given = {"command": ["python", str(counting), str(tally)], "project": project, "name": name, "resources": resources}
    return {"spec": given | spec, "origin": origin, "code": {}}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """The run."""
    with server(tmp_path_factory.mktemp("sharing"), "--nodes", "8", "--gpus-per-node", "3") as tm:
        tm.file("counting.py", COUNTING)
        (tm.work / "tally").mkdir()
        tm.file("cluster.yaml", RULES)
        tm.ok("apply", "cluster.yaml")
        info = live_processes.running(tm.home)
        assert info is not None
        with Client(info.url, tm.home.token_file.read_text().strip()) as client:
            yield _live(tm, client)


def _live(tm: Tm, client: Client) -> Lived:
    client.submit_batch([_submission(tm, project, "count") for project, count in JOBS.items() for _ in range(count)])
    deadline(lambda: len(client.jobs(all=1, state="running")) >= 20, "the cluster to be full", 30.0)
    hurried = client.submit_batch([_submission(tm, "vision", "now", **{"class": "production"}) for _ in range(8)])
    usage: dict[str, float] = {}
    drained = lost = False
    while True:
        queued = Counter(job["project"] for job in client.jobs(all=1, state="queued"))
        if len(queued) < len(WEIGHTS) or min(queued.values()) < 5:
            break
        usage = {line["project"]: line["gpu_us"] / 1e6 for line in client.usage(by="project")["lines"]}
        done = len(client.jobs(all=1, state="succeeded"))
        if done > 80 and not drained:
            drained = bool(client.set_node("node7", "drain", "to be looked at"))
        if done > 120 and not lost:
            lost = bool(client.set_node("node6", "lost", "burnt down"))
        time.sleep(0.5)
    assert drained
    assert lost
    deadline(lambda: not client.jobs(all=1, state="queued") and not client.jobs(all=1, state="running"), "all to end", 120.0, 1.0)
    deadline(lambda: all(client.job(id)["state"] == "succeeded" for id in hurried), "the hurried to end", 30.0)
    counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for path in (tm.work / "tally").iterdir():
        counts[path.name] = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]  # type: ignore[misc]
    events = SqlEventStore(tm.home.events_db, read_only=True)
    rows = events.events(0, 1_000_000)
    return Lived(client.jobs(all=1, limit=1000), rows, counts, usage)


def test_every_job_ends_well_and_counts_on_from_its_checkpoint(lived: Lived) -> None:
    assert Counter(job["state"] for job in lived.jobs) == {"succeeded": sum(JOBS.values()) + 8}
    for job, counts in lived.counts.items():
        assert counts[-1][1] == COUNT, job
        for (attempt, number), (then, following) in pairwise(counts):
            assert following == number + 1 or (then > attempt and number - 1 <= following - 1 <= number), f"{job}: {counts}"
        assert len({number for _, number in counts}) == COUNT, f"{job} left a number out"


def test_usage_goes_by_weight(lived: Lived) -> None:
    total, weights = sum(lived.usage.values()), sum(WEIGHTS.values())
    shares = {project: service / total for project, service in lived.usage.items()}
    for project, weight in WEIGHTS.items():
        assert shares[project] == pytest.approx(weight / weights, rel=0.05), shares


def test_some_made_way_and_nodes_went(lived: Lived) -> None:
    assert any(isinstance(row.event, Promised) for row in lived.rows)
    resumed = [counts for counts in lived.counts.values() if len({attempt for attempt, _ in counts}) > 1]
    assert resumed, "nobody was stopped and came back"


def test_every_plan_is_what_is_decided_from_the_events_alone(lived: Lived) -> None:
    submitted = sum(isinstance(row.event, Submitted) for row in lived.rows)
    placed = sum(isinstance(row.event, Placed) for row in lived.rows)
    found = list(replan(lived.rows))
    assert submitted >= 500
    assert len(found) > 50
    assert sum(len([one for one in plan.decided if one[0] == "starts"]) for plan in found) == placed  # type: ignore[index]
    assert [plan for plan in found if plan.recorded != plan.decided] == []


