"""Where jobs run, on a real server: racks of virtual nodes, a rack waited for and given up, data that is near, what can never be."""

from collections.abc import Iterator

import pytest
from effort import nightly
from running import Tm, server
from waiting import deadline

pytestmark = nightly  # what it tries is tried by a page of the documentation in every run

RACKS = """
pools:
  main:
    nodes: ["node*"]
    node_labels:
      "node[01]": {rack: r1}
      "node[23]": {rack: r2, data: imagenet}
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """Two racks of two nodes with a GPU each; on the first node of either a job runs."""
    with server(tmp_path_factory.mktemp("placement"), "--nodes", "4", "--gpus-per-node", "1") as tm:
        tm.file("cluster.yaml", RACKS)
        tm.ok("apply", "cluster.yaml")
        for data, node in (("other", "node0"), ("imagenet", "node2")):
            job = submit(tm, f"on-{node}", 1, f"{{near: {data}}}")
            deadline(lambda job=job: tm.show(job)["state"] == "running", f"{job} does not run", 30.0)  # type: ignore[misc]
            assert tm.show(job)["nodes"] == [node]
        yield tm


def submit(tm: Tm, name: str, nodes: int, placement: str) -> str:
    text = f"name: {name}\ncommand: sleep 300\nresources: {{nodes: {nodes}, gpus: 1, cpus: 0.1}}\nplacement: {placement}\n"
    tm.file(f"{name}.yaml", text)
    return tm.ok("submit", "-q", f"{name}.yaml").strip()


def test_a_gang_waits_for_its_rack_and_another_for_a_while(tm: Tm) -> None:
    patient, strict = submit(tm, "patient", 2, "{prefer: rack, prefer_for: 10s}"), submit(tm, "strict", 2, "{within: rack}")
    asks = "waiting for 2 nodes with 1 GPU, 0.1 CPUs each, in one rack, all at once: other jobs hold what it needs"
    told = {strict: asks, patient: f"{asks}; after 10 s in the queue it takes any place"}
    deadline(lambda: {job: tm.show(job)["reason"] for job in told} == told, "they do not say what they wait for", 30.0)
    assert "most free now: 1 of 2 in rack r1" in tm.ok("why", strict)
    deadline(lambda: tm.show(patient)["state"] == "running", "it waits for longer than was said", 30.0)
    assert tm.show(patient)["nodes"] == ["node1", "node3"]
    tm.ok("cancel", patient, "on-node0-1")
    deadline(lambda: tm.show(strict)["state"] == "running", "its rack is free", 30.0)
    assert tm.show(strict)["nodes"] == ["node0", "node1"]


def test_what_no_rack_can_hold_is_refused(tm: Tm) -> None:
    tm.file("never.yaml", "command: x\nresources: {nodes: 3, gpus: 1}\nplacement: {within: rack}\n")
    code, said = tm("submit", "never.yaml").refusal
    assert code == 6
    assert "asks for 3 nodes with 1 GPU, 1 CPU each, in one rack, all at once; no rack has more than 2 such" in said
    tm.file("floor.yaml", "command: x\nresources: {nodes: 2, gpus: 1}\nplacement: {within: floor}\n")
    assert "no node has the label 'floor'" in tm("submit", "floor.yaml").err
