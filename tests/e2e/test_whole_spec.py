"""The whole spec with real processes: a function as the program, data, roles, and resources that are only counted."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Tm, attempts, server
from waiting import deadline

NODES = '[nodes]\ndisk = "100GiB"\ncustom = {license = 2}\naccelerators = {tpu-v5e = 4}\n'
TRAIN = """
import json
import os
import sys
from pathlib import Path


def train(lr, steps=6):
    out = Path("out")
    out.mkdir(exist_ok=True)
    rank = int(os.environ["RANK"])
    saved = sorted(out.glob("ckpt-*.json"))
    step = json.loads(saved[-1].read_text())[0] if saved else 0
    print("data", Path(os.environ["TRAINMASTER_DATA_TRAIN_SET"]).read_text(), os.environ["TRAINMASTER_DATA_WEB"])
    print("python", sys.executable, "from", step)
    while step < steps:
        step += 1
        print(f"step {step} loss {lr / step}", flush=True)
        if rank == 0:
            part = out / "part"
            part.write_text(json.dumps([step]))
            part.rename(out / f"ckpt-{step}.json")
            if step == 3 and os.environ["TRAINMASTER_ATTEMPT"] == "1":
                sys.exit("broken on purpose")
"""
SPEC = """
name: whole
python: pkg.steps:train
params: {lr: 0.5}
data: {train-set: data/a.txt, web: "s3://bucket/key"}
resources: {ranks: 2, cpus: 0.5, disk: 10GiB, accelerators: {tpu-v5e: 4}, custom: {license: 1}}
roles: {evaluator: {command: "echo evaluating", resources: {cpus: 0.5, custom: {license: 1}}}}
checkpoint: {path: out/ckpt-*.json}
restarts: 2
"""


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    """A server whose administrator declared licenses, accelerators and disk."""
    directory = tmp_path_factory.mktemp("whole")
    (directory / "home").mkdir()
    (directory / "home" / "server.toml").write_text(NODES)
    with server(directory) as tm:
        yield tm


def test_a_function_with_ranks_roles_and_data_is_restarted_from_its_checkpoint(tm: Tm) -> None:
    tm.file("pkg/steps.py", TRAIN)
    tm.file("data/a.txt", "eins")
    tm.file("spec.yaml", SPEC)
    job = tm.ended(tm.submit("spec.yaml"), 120.0)
    assert attempts(job, "state", "resumed_from_step") == [("restarted", None), ("succeeded", 3)], job
    log = tm.ok("logs", job["id"])
    assert log.count("data eins s3://bucket/key") == 4, "two ranks, two attempts"
    assert "step 6 loss 0.08333" in log
    told = {version["name"]: version for version in job["data"]}
    assert (told["train-set"]["uri"], told["train-set"]["exact"]) == (str(tm.work / "data" / "a.txt"), True)
    assert told["web"] == {"name": "web", "uri": "s3://bucket/key", "digest": None, "exact": False, "files": 0, "bytes": 0, "doubt": ""}
    assert job["command"] == "python: pkg.steps:train"


def test_a_function_that_does_not_fit_is_told_in_one_line(tm: Tm) -> None:
    tm.file("pkg/steps.py", TRAIN)
    data = ["--data", "train-set=data/a.txt"]
    said = tm("run", "--restarts", "0", *data, "--function", "pkg.steps:train", "--param", "lrr=1")
    assert said.code == 10
    assert "ParameterError: pkg.steps:train takes no parameter 'lrr'; did you mean 'lr'?" in said.err


def test_no_more_licenses_are_given_than_there_are(tm: Tm, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    tm.file("hold.py", f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\n")
    asked = ["--name", "held", "--cpus", "0.1", "--custom", "license=1", "--", "python", "hold.py"]
    first, second, third = (tm.submit(*asked) for _ in range(3))
    for job in (first, second):
        tm.state(job, "running", timeout_s=60.0)
    waiting = "waiting for 0.1 CPUs, 1 license: other jobs hold what it needs"
    deadline(lambda: tm.show(third)["reason"] == waiting, "the third to wait", 60.0, 0.1)
    assert f"all 2 license in use by {first}, {second}" in tm.ok("why", third)
    (node,) = tm.json("nodes")
    assert (node["counted"]["custom.license"], node["free"]["counted"]["custom.license"]) == (2.0, 0.0)
    assert "license 0 of 2" in tm.ok("nodes")
    gate.touch()
    for job in (first, second, third):
        assert tm.ended(job, 60.0)["state"] == "succeeded"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--custom", "license=3"], 6, "asks for 1 CPU, 3 license on one node; no node has more than 2 license"),
        (["--custom", "licence=1"], 6, "asks for 1 licence; no node has any"),
        (["--network", "1Gbps"], 6, "asks for 1 Gbps of network; no node has any"),
        (["--disk", "101GiB"], 6, "no node has more than 100 GiB of disk"),
        (["--accelerator", "tpu-v5e=5"], 6, "no node has more than 4 tpu-v5e accelerators"),
        (["--network", "10GB/s"], 2, "did you mean '80Gbps'?"),
        (["--data", "train=nowhere"], 2, "data.train: there is no "),
        (["--data", "train=imagenet@v3"], 2, "a data set by name and version ('imagenet@v3') is not supported yet"),
    ],
)
def test_what_cannot_be_is_refused_at_submit(tm: Tm, arguments: list[str], code: int, words: str) -> None:
    said = tm("submit", *arguments, "--", "true")
    assert said.code == code, said
    assert words in said.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python: pkg.steps.train\n", "bad.yaml:1:9: python: expected a function as package.module:function"),
        ("command: x\nelastic: {nodes_min: 1}\n", "bad.yaml:2:22: elastic.nodes_min: has no effect without 'nodes_max'"),
        ("command: x\nroles: {a: {comand: y}}\n", "bad.yaml:2:13: roles.a.comand: unknown field; did you mean 'command'?"),
        ("command: x\nresources:\n\tcpus: 2\n", "bad.yaml:3:1: a tab in the indentation"),
    ],
)
def test_a_malformed_file_is_exit_2_with_its_place(tm: Tm, text: str, words: str) -> None:
    tm.file("bad.yaml", text)
    said = tm("submit", "bad.yaml")
    assert (said.code, words in said.err) == (2, True), said
    assert "Traceback" not in said.err
