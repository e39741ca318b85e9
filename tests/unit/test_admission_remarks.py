"""What a submitter is told of a job: that it would train on the CPU of a machine with GPUs, or is handed no checkpoint."""

from dataclasses import replace

import pytest

from trainmaster.model.nodes import Device, Node, NodeState
from trainmaster.model.options.placeholders import without_resume_arguments
from trainmaster.model.spec import CheckpointSpec, GpuChoice, JobSpec, Resources, Role
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


USES = "./darknet detector train obj.data yolo.cfg ${TRAINMASTER_RESUME_ARGUMENTS:-yolov4.conv.137}"


def test_a_variable_in_the_command_that_is_always_empty() -> None:
    """darknet began again after each restart, and `tm plan` said only that it resumes from the newest checkpoint."""
    saves = CheckpointSpec("backup/*_last.weights")
    spec = replace(SPEC, command=USES, checkpoint=saves)
    told = "the command uses TRAINMASTER_RESUME_ARGUMENTS, which is always empty without checkpoint.resume_arguments"
    assert without_resume_arguments(spec) == [f"{told} (--resume-arguments)"]
    assert len(without_resume_arguments(replace(SPEC, command=("train.sh", "$TRAINMASTER_RESUME_ARGUMENTS")))) == 1
    assert len(without_resume_arguments(replace(SPEC, roles={"judge": Role(USES)}))) == 1
    assert without_resume_arguments(replace(spec, checkpoint=replace(saves, resume_arguments="{path}"))) == []
    assert without_resume_arguments(SPEC) == []
