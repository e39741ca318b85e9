"""Choices of GPUs on a real server: the faster kind, then the other, then a wait that names both; the ranks follow, so do bills."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from effort import nightly
from running import Tm, cleared, server
from waiting import deadline

from trainmaster.control.replan import replan
from trainmaster.model.events import Placed
from trainmaster.store.events import SqlEventStore

POOLS = """
pools:
  fast: {nodes: [node0], speed: 2, price: 6}
  slow: {nodes: [node1], price: 1}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A node with two fast GPUs and one with two slow ones."""
    with server(tmp_path_factory.mktemp("choices"), "--nodes", "2", "--gpus-per-node", "2", "--gpu-kind", "h100,a100") as tm:
        tm.file("cluster.yaml", POOLS)
        tm.ok("apply", "cluster.yaml")
        yield tm


@pytest.fixture
def tm(shared: Tm) -> Iterator[Tm]:
    """The server, idle."""
    yield shared
    cleared(shared)


def submit(tm: Tm, name: str, *more: str) -> str:
    command = ["bash", "-c", "echo world $WORLD_SIZE sees $CUDA_VISIBLE_DEVICES; sleep 300"]
    return tm.ok("submit", "-q", "--name", name, "--gpus", "h100:1,a100:2", "--cpus", "0.1", *more, "--", *command).strip()


def runs_on(tm: Tm, job: str, node: str) -> None:
    deadline(lambda: tm.show(job)["state"] == "running", f"{job} does not run", 30.0)
    assert tm.show(job)["nodes"] == [node]


def charged(tm: Tm, job: str) -> list[dict[str, Any]]:
    """What its attempt is charged, as it was placed."""
    rows = SqlEventStore(tm.home.events_db, read_only=True).events(0, 1000, job)
    (placed,) = [row.event for row in rows if isinstance(row.event, Placed)]
    return [asdict(rate) for rate in placed.rates]


def test_the_best_choice_is_taken_and_what_is_held_is_what_was_given(tm: Tm) -> None:
    """One fast GPU is as fast as two slow ones, and first in the list; by cost the slow ones are cheaper."""
    cheap = submit(tm, "cheap", "--choose", "cost")
    runs_on(tm, cheap, "node1")
    first, second = submit(tm, "first"), submit(tm, "second")
    runs_on(tm, first, "node0")
    runs_on(tm, second, "node0")
    deadline(lambda: tm.ok("logs", cheap).count("world 2 sees 0,1") == 2, "two ranks on two GPUs", 30.0)
    assert "1 × h100 or 2 × a100, 0.1 CPUs, 1 rank or 2 ranks" in tm.ok("show", cheap)
    deadline(lambda: "world 1 sees 0" in tm.ok("logs", first), "one rank on one GPU", 30.0)
    waits = submit(tm, "waits")
    asks = "waiting for 1 h100 GPU, 0.1 CPUs or 2 a100 GPUs, 0.1 CPUs: other jobs hold what it needs"
    deadline(lambda: tm.show(waits)["reason"] == asks, "it does not say what it waits for", 30.0)
    assert asks in tm.ok("why", waits)
    assert "h100" in tm.ok("queue")
    tm.ok("cancel", cheap)
    runs_on(tm, waits, "node1")
    rates = {job: [(rate["pool"], rate["gpu_milli"]) for rate in charged(tm, job)] for job in (first, waits)}
    assert rates == {first: [("fast", 1000)], waits: [("slow", 2000)]}, "what is charged is what it was given"
    tm.ok("cancel", first, second, waits)


def test_every_plan_can_be_made_again(tm: Tm) -> None:
    jobs = [submit(tm, f"j{n}", "--choose", ("cost", "finish")[n % 2]) for n in range(5)]
    deadline(lambda: sum(tm.show(job)["state"] == "running" for job in jobs) == 3, "three fit", 30.0)
    tm.ok("cancel", *jobs)
    deadline(lambda: all(tm.show(job)["state"] == "cancelled" for job in jobs), "they do not end", 60.0)
    events = SqlEventStore(tm.home.events_db, read_only=True)
    plans = list(replan(events.events(0, 1_000_000)))
    assert plans
    assert [one.recorded ^ one.decided for one in plans if one.recorded != one.decided] == []


def test_what_is_not_there_is_refused_with_every_choice(tm: Tm) -> None:
    code, said = tm("submit", "--gpus", "b200:1,h100:4", "--", "true").refusal
    assert code == 6
    assert "asks for GPUs of kind b200; those here are of kind a100, h100; and asks for 4 h100 GPUs, 1 CPU on one node" in said


def test_an_elastic_job_takes_both_nodes_and_one_while_another_waits(tm: Tm) -> None:
    """What its ranks are told is of the nodes that it was given; beside another each has what it asks for at least."""
    command = ["bash", "-c", "echo world $WORLD_SIZE; sleep 300"]

    def elastic(name: str) -> str:
        asks = ["--nodes-max", "2", "--gpus", "2", "--cpus", "0.1"]
        return tm.ok("submit", "-q", "--name", name, *asks, "--", *command).strip()

    alone = elastic("alone")
    deadline(lambda: tm.show(alone)["state"] == "running", "it does not run", 30.0)
    assert tm.show(alone)["nodes"] == ["node0", "node1"]
    deadline(lambda: tm.ok("logs", alone).count("world 4") == 4, "four ranks on two nodes", 30.0)
    assert "1 to 2 nodes" in tm.ok("show", alone)
    pair = [elastic("pair"), elastic("pair")]
    deadline(lambda: all("other jobs hold" in tm.show(job)["reason"] for job in pair), "they do not wait", 30.0)
    tm.ok("cancel", alone)
    for job in pair:
        deadline(lambda job=job: tm.show(job)["state"] == "running", f"{job} does not run", 30.0)  # type: ignore[misc]
    assert sorted(node for job in pair for node in tm.show(job)["nodes"]) == ["node0", "node1"]
    tm.ok("cancel", *pair)
    deadline(lambda: all(tm.show(job)["state"] == "cancelled" for job in pair), "they do not end", 60.0)
    plans = list(replan(SqlEventStore(tm.home.events_db, read_only=True).events(0, 1_000_000)))
    assert [one.recorded ^ one.decided for one in plans if one.recorded != one.decided] == []


@nightly
def test_what_is_measured_is_said_and_decides(tm: Tm) -> None:
    """What is declared twice as fast takes three times as long for this program: the other is taken, and the log says why."""
    tm.file("probe.sh", "sleep $1\n")
    jobs = []
    for _ in range(3):
        for gpus, time_s in (("h100:1", "2.4"), ("a100:1", "0.8")):
            asks = ["--name", "probe", "--gpus", gpus, "--cpus", "0.1"]
            jobs.append(tm.ok("submit", "-q", *asks, "--", "bash", "probe.sh", time_s).strip())
    for job in jobs:
        tm.state(job, "succeeded", timeout_s=60.0)
    (told,) = [line.strip() for line in tm.ok("policy").splitlines() if line.strip().startswith("probe.sh of ")]
    assert re.search(r" \(default\): one of a100 as much as (2\.[5-9]|3|3\.[1-5]) of h100 \(3 and 3 runs\)$", told), told
    either = ["--gpus", "h100:1,a100:1", "--cpus", "0.1", "--", "bash", "probe.sh", "300"]
    for node in ("node1", "node1", "node0", "node0"):
        runs_on(tm, tm.ok("submit", "-q", "--name", "either", *either).strip(), node)
    waits = tm.ok("submit", "-q", "--name", "either", *either).strip()
    said = tm.json("why", waits)
    assert "; measured: one of a100 as much as " in said["reason"]
    assert {gpu: one["runs"] for gpu, one in said["speeds"].items()} == {"a100": 3, "h100": 3}
    plans = list(replan(SqlEventStore(tm.home.events_db, read_only=True).events(0, 1_000_000)))
    assert [one.recorded ^ one.decided for one in plans if one.recorded != one.decided] == []
