"""An elastic job on a real server gives back the nodes that another can start on, and counts on from its checkpoint."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from effort import nightly
from running import Tm, attempts, server
from waiting import deadline

from trainmaster.control.replan import replan
from trainmaster.model.events import StopOrdered
from trainmaster.model.job import StopFor
from trainmaster.store.events import SqlEventStore

pytestmark = nightly  # what it tries is tried by a page of the documentation in every run

LAST = 60
COUNTING = f"""
import os, pathlib, sys, time
from trainmaster import sdk
tally, resumed, first = pathlib.Path(sys.argv[1]), sdk.resume_dir(), os.environ["RANK"] == "0"
count = int((resumed / "count").read_text()) if resumed else 0
while count < {LAST}:
    time.sleep(0.25)
    count += 1
    if first:
        with tally.open("a") as file:
            file.write(f"{{sdk.attempt()}} {{count}} {{os.environ['WORLD_SIZE']}}\\n")
    with sdk.checkpoint(step=count) as directory:
        (directory / "count").write_text(str(count))
"""


@pytest.fixture
def tm(tmp_path: Path) -> Iterator[Tm]:
    """Four nodes of one GPU each; nobody is left undisturbed for long."""
    with server(tmp_path, "--nodes", "4", "--gpus-per-node", "1") as tm:
        tm.file("counting.py", COUNTING)
        tm.file("cluster.yaml", "preemption: {min_run: 0.5}\n")
        tm.ok("apply", "cluster.yaml")
        yield tm


def test_it_gives_back_what_another_needs_and_counts_on_with_the_rest(tm: Tm) -> None:
    tally = tm.work / "tally"
    asks = ["--nodes", "1", "--nodes-max", "4", "--gpus", "1", "--cpus", "0.1"]
    wide = tm.submit("--name", "wide", *asks, "--", "python", "counting.py", str(tally))
    deadline(lambda: tally.exists() and len(tally.read_text().splitlines()) >= 4, f"{wide} counts", 30.0)
    assert len(tm.show(wide)["nodes"]) == 4
    other = tm.submit("--name", "other", "--nodes", "2", "--gpus", "1", "--cpus", "0.1", "--", "sleep", "300")
    tm.state(other, "running", timeout_s=40.0)
    shown = tm.state(wide, "running", timeout_s=40.0)
    assert len(tm.show(other)["nodes"]) == 2
    assert len(shown["nodes"]) == 2, "what the other does not need it takes again"
    assert set(shown["nodes"]).isdisjoint(tm.show(other)["nodes"])
    assert attempts(shown, "state") == [("requeued",), ("running",)]
    assert "gives back nodes for other-1" in tm.ok("show", wide)
    assert tm.ended(wide, 60.0)["state"] == "succeeded"
    told = [tuple(map(int, line.split())) for line in tally.read_text().splitlines()]
    assert {attempt: world for attempt, _, world in told} == {1: 4, 2: 2}
    assert told[-1][1] == LAST
    for (then, number, _), (attempt, following, _) in pairwise(told):
        assert following == number + 1 or (attempt > then and number - 1 <= following - 1 <= number), f"it goes back: {told}"
    tm.ok("cancel", other)
    tm.state(other, "cancelled", timeout_s=40.0)
    events = SqlEventStore(tm.home.events_db, read_only=True)
    rows = list(events.events(0, 1_000_000))
    stops = [(row.job, row.event.stop_for) for row in rows if isinstance(row.event, StopOrdered)]
    assert stops == [(wide, StopFor.SHRINK)]
    plans = list(replan(rows))
    assert [one.recorded ^ one.decided for one in plans if one.recorded != one.decided] == []
