"""What a submitter is told of a job that would train on the CPU of a machine with GPUs."""

from dataclasses import replace

import pytest

from trainmaster.model.nodes import Device, Node, NodeState
from trainmaster.model.spec import GpuChoice, JobSpec, Resources, Role
from trainmaster.server.jobs.admission import without_gpus

SPEC = JobSpec(name="train", command=("python3", "train.py"))
REAL = Node("a", "local", "a", "127.0.0.1", 8.0, 2**30, (Device(0, "h200", 2**37),))
PLAIN = replace(REAL, name="b", devices=())
STAND_IN = replace(REAL, name="c", devices=(Device(0, "h100", stand_in=True),))


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([REAL], True),
        ([REAL, replace(PLAIN, state=NodeState.GONE)], True),
        ([REAL, PLAIN], False),  # the usual cluster: nodes for what needs no GPU
        ([PLAIN], False),
        ([STAND_IN], False),  # not hidden
        ([], False),
    ],
)
def test_where_every_node_has_gpus(nodes: list[Node], told: bool) -> None:
    assert [note.endswith("--gpus 1") for note in without_gpus(nodes, SPEC)] == [True] * told


@pytest.mark.parametrize("asked", [Resources(gpus=1), Resources(gpu_share=0.5), Resources(gpus=2, choices=(GpuChoice("a100", 2),))])
def test_not_of_a_job_that_requests_one(asked: Resources) -> None:
    assert without_gpus([REAL], replace(SPEC, resources=asked)) == []
    assert without_gpus([REAL], replace(SPEC, roles={"judge": Role("true", asked)})) == []
