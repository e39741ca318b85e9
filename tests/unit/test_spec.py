"""Valid specs: their meaning and notations. An invalid one raises only SpecError."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors import SpecError, UsageError
from trainmaster.model.spec import (
    CheckpointSpec,
    Counts,
    Environment,
    JobSpec,
    MetricsSpec,
    Mode,
    Resources,
    Restarts,
    Role,
    counts,
)
from trainmaster.spec.changes import changed
from trainmaster.spec.default_names import default_name
from trainmaster.spec.document import from_mapping, load_bytes, workdir_path
from trainmaster.spec.fields.values import duration_s, size_bytes
from trainmaster.spec.mapping import to_mapping
from trainmaster.spec.schema import schema
from trainmaster.spec.shorthand import from_options
from trainmaster.spec.yaml.reader import parse
from trainmaster.spec.yaml.scalars import scalar

FULL = r"""
name: digits-ddp
project: vision
experiment: digits
command: python train.py --epochs 20
workdir: .
priority: -3
resources: {nodes: 2, gpus: H100:8, cpus: 16, memory: 64GiB, ranks: 4, disk: 200GiB, network: 2.5Gbps,
            accelerators: {tpu-v5e: 4, asic: 1}, custom: {license: 1, Token: 0.5}}
roles:
  evaluator: {command: [python, eval.py, --every, 010], resources: {cpus: 4, gpus: 1, custom: {license: 1}}}
  loader: python load.py
time_limit: 1h30m
checkpoint: {path: ./out/ckpt*.pt, interval: 10m, keep: 2, resume_arguments: "--resume {path}"}
restarts: {program: 3, infrastructure: 5}
environment: {python: .venv/bin/python, requirements: ./requirements.lock, variables: {OMP_NUM_THREADS: 04, LR: 1e-4, ON: on}}
artifacts: [out/*.png, out/model.safetensors]
data: {train: data/train.csv, eval-set: "s3://bucket/eval"}
params: {lr: 3e-4, batch: 256, flag: true, note: null, time: 12:30}
metrics: {pattern: 'step (?P<step>\d+): loss (?P<loss>[\d.]+)', primary: loss, mode: max}
tags: {owner: team-a, candidate: yes}
"""
FULL_SPEC = JobSpec(
    command="python train.py --epochs 20",
    name="digits-ddp",
    project="vision",
    experiment="digits",
    priority=-3,
    workdir=".",
    resources=Resources(
        2, 8, "h100", 16.0, 64 * 1024**3, 4, 200 * 1024**3, 2.5e9, (("asic", 1), ("tpu-v5e", 4)), (("Token", 0.5), ("license", 1.0)),
    ),
    time_limit_s=5400.0,
    checkpoint=CheckpointSpec("out/ckpt*.pt", 2, "--resume {path}", 600.0),
    restarts=Restarts(3, 5),
    environment=Environment(".venv/bin/python", {"OMP_NUM_THREADS": "04", "LR": "1e-4", "ON": "on"}, "requirements.lock"),
    params={"lr": 3e-4, "batch": 256, "flag": True, "note": None, "time": "12:30"},
    metrics=MetricsSpec(r"step (?P<step>\d+): loss (?P<loss>[\d.]+)", "loss", Mode.MAX),
    tags={"owner": "team-a", "candidate": "yes"},
    artifacts=("out/*.png", "out/model.safetensors"),
    roles={
        "evaluator": Role(("python", "eval.py", "--every", "010"), Resources(1, 1, None, 4.0, custom=(("license", 1.0),))),
        "loader": Role("python load.py"),
    },
    data={"train": "data/train.csv", "eval-set": "s3://bucket/eval"},
)


def test_everything_at_once() -> None:
    assert load_bytes(FULL.encode(), "f") == FULL_SPEC


def test_the_least() -> None:
    least = JobSpec(command="python train.py", name="train", experiment="train", resources=Resources(ranks_given=False))
    assert load_bytes(b"command: python train.py", "f") == least


def test_numbers_among_arguments_keep_their_text() -> None:
    spec = load_bytes(b"command: [python, a.py, --lr, 1e-4, --n, 010]", "f")
    assert spec.command == ("python", "a.py", "--lr", "1e-4", "--n", "010")


def test_short_forms() -> None:
    spec = load_bytes(b"command: x\ncheckpoint: out/*.pt\nrestarts: 0\nresources: {gpus: 2}", "f")
    assert (spec.checkpoint, spec.restarts) == (CheckpointSpec("out/*.pt"), Restarts(0, 20))
    assert spec.resources == Resources(gpus=2, ranks=2, ranks_given=False)


@pytest.mark.parametrize(
    ("resources", "distributed"),
    [
        ({}, False),
        ({"gpus": 1}, False),
        ({"gpus": 0.5}, False),
        ({"gpus": ["h100:1", "a100:1"]}, False),
        ({"ranks": 1}, True),
        ({"gpus": 1, "ranks": 1}, True),
        ({"gpus": ["h100:1", "a100:1"], "ranks": 1}, True),
        ({"ranks": 2}, True),
        ({"gpus": 2}, True),
        ({"gpus": ["h100:1", "a100:2"]}, True),
        ({"nodes": 2}, True),
    ],
)
def test_who_asks_for_a_gang(resources: dict[str, object], distributed: bool) -> None:
    """More than one node or GPU, or `ranks` written; so it stays when the spec is told back and read again."""
    spec = from_mapping({"command": "x", "resources": resources})
    again = from_mapping(to_mapping(spec))
    assert (spec.resources.distributed, again) == (distributed, spec)


def test_nodes_that_it_may_take_make_a_gang() -> None:
    assert from_mapping({"command": "x", "elastic": {"nodes_max": 2}}).resources.distributed


@pytest.mark.parametrize(
    ("resources", "change", "ranks", "distributed"),
    [
        ({}, {"cpus": 2}, 1, False),
        ({}, {"gpus": 1}, 1, False),
        ({"gpus": 2}, {"gpus": 1}, 1, False),
        ({"ranks": 1}, {"cpus": 2}, 1, True),
        ({"ranks": 1}, {"gpus": 1}, 1, True),
        ({"gpus": 2, "ranks": 2}, {"gpus": 1}, 1, True),
        ({"gpus": 2, "ranks": 2}, {"gpus": 4}, 4, True),
        ({"gpus": 4, "ranks": 2}, {"gpus": 1}, 2, True),
    ],
)
def test_ranks_once_written_are_not_forgotten(resources: dict[str, object], change: dict[str, object], ranks: int, distributed: bool) -> None:
    """Where there was one for each GPU they follow the new number; a gang of one remains a gang."""
    spec = changed(from_mapping({"command": "x", "resources": resources}), {"resources": change})
    assert (spec.resources.ranks, spec.resources.distributed) == (ranks, distributed)


@pytest.mark.parametrize(
    ("written", "meant", "told"),
    [
        ("0.25", Resources(gpu_share=0.25, ranks_given=False), 0.25),
        ("0.3333", Resources(gpu_share=0.333, ranks_given=False), 0.333),  # thousandths
        ("h100:0.5", Resources(gpu_share=0.5, gpu_kind="h100", ranks_given=False), "h100:0.5"),
        ("H100:.5", Resources(gpu_share=0.5, gpu_kind="h100", ranks_given=False), "h100:0.5"),
    ],
)
def test_a_part_of_a_gpu(written: str, meant: Resources, told: object) -> None:
    spec = load_bytes(f"command: x\nresources: {{gpus: {written}}}".encode(), "f")
    assert (spec.resources, spec.resources.devices, to_mapping(spec)["resources"]["gpus"]) == (meant, 1, told)
    assert from_mapping(to_mapping(spec)) == spec
    assert from_mapping(from_options({"gpus": written}, ["x"])).resources == meant


def test_anchors_are_followed() -> None:
    spec = load_bytes(b"command: x\nname: &n a\nexperiment: *n\nparams: &p {a: 1}\n", "f")
    assert (spec.name, spec.experiment, spec.params) == ("a", "a", {"a": 1})


def test_byte_order_mark_and_line_ends() -> None:
    assert load_bytes(b"\xef\xbb\xbfcommand: x\r\nname: y\r\n", "f").name == "y"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("12:30", "12:30"), ("1e-4", 1e-4), ("010", 10), ("0o10", 8), ("0x1F", 31), ("1_000",
        "1_000"),
        ("~", None), ("", None), ("Null", None), ("nULL", "nULL"), ("True", True), ("tRUE", "tRUE"), ("+5", 5), (".5", 0.5),
        ("5.", 5.0),
        ("-.inf", float("-inf")), ("0b1", "0b1"), ("2026-11-20", "2026-11-20"), ("1e", "1e"), ("٣", "٣"), ("<<", "<<"), ("=",
        "="),
    ],
)  # fmt: skip
def test_the_core_schema(text: str, value: object) -> None:
    assert (type(scalar(text)), scalar(text)) == (type(value), value)


def test_places_of_everything() -> None:
    where = parse(b"a: 1\nb:\n  - x\n  - {c: 2}\n", "f").where
    assert where.values == {
        (): (1, 1), ("a",): (1, 4), ("b",): (3, 3), ("b", 0): (3, 5), ("b", 1): (4, 5), ("b", 1, "c"): (4, 9),
    }  # fmt: skip
    assert where.keys == {("a",): (1, 1), ("b",): (2, 1), ("b", 1, "c"): (4, 6)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12h", 43200), ("30m", 1800), ("90s", 90), ("1h30m", 5400), ("1d", 86400), ("1d 12h", 129600), ("1.5h", 5400), (90, 90),
    ("90", 90)],
)
def test_durations(text: object, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("64GiB", 64 * 2**30), ("500MB", 500_000_000), ("1.5TiB", 3 * 2**39), ("2 kB", None), (2**20, 2**20)]
)
def test_sizes(text: object, size: int | None) -> None:
    if size is None:
        with pytest.raises(SpecError, match="at least 1MiB"):
            from_mapping({"command": "x", "resources": {"memory": text}})
    else:
        assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py", "train"), (["python", "-u", "src/my train.py"], "my-train"), ("python -m pkg.mod --x", "mod"),
        ("cd src && OMP=1 python3 run.py | tee log", "run"), ("torchrun --nproc-per-node 2 ddp.py", "ddp"), ("./train.sh",
        "train"),
        ("bash scripts/go.sh", "go"), ("nvidia-smi", "nvidia-smi"), ("echo 'open", "echo"), (["-"], "job"), ("A=1", "job"),
        ("python -m torch.distributed.run a.py", "a"), ("python -c 'print(1)'", "python"), ("/usr/bin/env python x.py", "x"),
    ],
)  # fmt: skip
def test_default_names(command: str | list[str], name: str) -> None:
    assert default_name(command) == name


def test_the_shorthand_the_file_and_python_make_the_same_spec() -> None:
    file = load_bytes(b"command: [python, train.py]\nresources: {nodes: 1, gpus: 2, ranks: 2}\nparams: {lr: 1e-4}\n", "f")
    typed = from_mapping(from_options({"nodes": "1", "ranks": "2", "gpus": "2", "params": ["lr=1e-4"]}, ["python", "train.py"]))
    python = from_mapping(from_options({"nodes": 1, "ranks": 2, "gpus": 2, "params": {"lr": 1e-4}}, ("python", "train.py")))
    assert file == typed == python


def test_every_option_reaches_its_field() -> None:
    options = {
        "name": "digits-ddp", "project": "vision", "experiment": "digits", "priority": -3, "workdir": ".", "nodes": 2,
        "gpus": "h100:8", "disk": "200GiB", "network": "2.5Gbps", "accelerators": ["tpu-v5e=4", "asic=1"],
        "custom": {"license": 1, "Token": 0.5}, "cpus": "16", "memory": "64GiB", "ranks": 4, "time_limit": "1h30m",
        "checkpoint": "out/ckpt*.pt", "keep": 2, "checkpoint_interval": "600", "resume_arguments": "--resume {path}",
        "restarts": {"program": 3, "infrastructure": 5}, "python": ".venv/bin/python", "requirements": "requirements.lock",
        "roles": {
            "evaluator": {
                "command": ["python", "eval.py", "--every", "010"],
                "resources": {"cpus": 4, "gpus": 1, "custom": {"license": 1}},
            },
            "loader": "python load.py",
        },
        "data": ["train=data/train.csv", "eval-set=s3://bucket/eval"],
        "env": ["OMP_NUM_THREADS=04", "LR=1e-4", "ON=on"],
        "params": ["lr=3e-4", "batch=256", "flag=true", "note=~", "time=12:30"],
        "metrics_pattern": r"step (?P<step>\d+): loss (?P<loss>[\d.]+)", "primary": "loss", "mode": "max",
        "tags": ["owner=team-a", "candidate=yes"],
        "artifacts": ["out/*.png", "out/model.safetensors"],
    }  # fmt: skip
    assert from_mapping(from_options(options, ["python train.py --epochs 20"])) == FULL_SPEC


@pytest.mark.parametrize(
    ("options", "message"),
    [({"gpu": 1}, "there is no option 'gpu'; did you mean 'gpus'?"), ({"env": ["A"]}, "env: expected NAME=VALUE, got 'A'")],
)
def test_options_that_are_none(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_options(options, ["x"])
    assert caught.value.message == message


def test_the_work_directory_is_beside_the_file(tmp_path, monkeypatch) -> None:
    spec = JobSpec(command="x", workdir="sub")
    monkeypatch.chdir(tmp_path)
    assert workdir_path(spec, tmp_path / "a" / "train.yaml") == tmp_path / "a" / "sub"
    assert workdir_path(spec, None) == tmp_path / "sub"


def test_the_schema_knows_every_name() -> None:
    result = schema()
    names = result["properties"]
    assert set(to_mapping(FULL_SPEC)) <= set(names)
    assert names["budget"] == {
        "not": {},
        "description": "Not supported yet: what the job may cost. Meanwhile: bound the job with 'time_limit'.",
    }
    assert all("description" in field for field in names.values())
    assert names["checkpoint"]["anyOf"][1] == {"type": "string"}
    assert result["oneOf"] == [{"required": ["command"]}, {"required": ["python"]}]
    assert names["roles"]["additionalProperties"]["anyOf"][1] == {"type": "string"}
    json.dumps(result)


def test_importing_the_package_is_free() -> None:
    code = "import sys, trainmaster.spec; print({'yaml', 'pydantic', 'trainmaster.spec.document'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


NAMES = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9_])?\Z")
# Characters beyond the first plane are written as two escapes by JSON, which YAML does not put together again.
CHARACTERS = st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"], exclude_characters="\0")
TEXTS = st.text(CHARACTERS, min_size=1, max_size=12).filter(str.strip)
GLOBS = st.lists(st.from_regex(r"\A[a-z]{1,4}\*?\Z"), min_size=1, max_size=3).map("/".join)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def counted(amounts: st.SearchStrategy[float]) -> st.SearchStrategy[Counts]:
    return st.dictionaries(st.from_regex(r"\A[a-z][a-z0-9-]{0,5}[a-z]\Z"), amounts, max_size=2).map(counts)


SPECS = st.builds(
    JobSpec,
    command=TEXTS | st.lists(TEXTS, min_size=1, max_size=4).map(tuple),
    name=NAMES, project=NAMES, experiment=NAMES, priority=st.integers(-100, 100), workdir=TEXTS,
    resources=st.builds(
        Resources, st.integers(1, 9), st.integers(1, 9), st.none() | st.from_regex(r"\A[a-z][a-z0-9]{0,5}\Z"),
        st.floats(0.01, 512), st.none() | st.integers(2**20, 2**50), st.integers(1, 9),
        st.just(0) | st.integers(2**20, 2**50), st.just(0.0) | st.floats(1000, 1e15), counted(st.integers(1, 99)),
        counted(st.floats(0.001, 1e9)),
    ),
    time_limit_s=st.none() | st.floats(0.001, 1e8),
    start_limit_s=st.floats(0.001, 1e8),
    checkpoint=st.builds(CheckpointSpec, st.none() | GLOBS, st.integers(1, 9), st.none() | st.just("--resume {path}"),
    st.none() | st.floats(0.001, 1e8)),
    restarts=st.builds(Restarts, st.integers(0, 9), st.integers(0, 9)),
    environment=st.builds(Environment, st.none() | TEXTS, st.dictionaries(st.from_regex(r"\A[a-z_][a-z0-9_]{0,5}\Z"), TEXTS,
    max_size=3), st.none() | st.just("a/b.txt")),
    roles=st.dictionaries(NAMES, st.builds(Role, TEXTS | st.lists(TEXTS, min_size=1, max_size=3).map(tuple)), max_size=2),
    data=st.dictionaries(st.from_regex(r"\A[a-z][a-z0-9_]{0,5}\Z"), st.sampled_from(["a", "/b/c", "s3://d/e"]), max_size=2),
    params=st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | FLOATS | TEXTS, max_size=3),
    metrics=st.builds(MetricsSpec, st.none() | st.just("(?P<loss>.)"), st.none() | TEXTS, st.sampled_from(Mode)),
    tags=st.dictionaries(TEXTS, TEXTS, max_size=3),
    artifacts=st.lists(GLOBS, max_size=3).map(tuple),
)  # fmt: skip


@given(SPECS)
def test_round_trip(spec: JobSpec) -> None:
    mapping = to_mapping(spec)
    assert from_mapping(mapping) == spec
    assert from_mapping(json.loads(json.dumps(mapping))) == spec
    assert load_bytes(json.dumps(mapping).encode(), "f") == spec  # JSON is YAML


def faults(load: Callable[[], JobSpec]) -> list[dict[str, Any]]:
    """What `load` finds wrong; an error that lists nothing or cannot be sent is itself wrong."""
    try:
        load()
    except SpecError as error:
        json.dumps(error.as_dict()).encode()
        return error.details or [{"line": -1, "column": -1}]
    return []


KEYS = st.sampled_from(
    [*to_mapping(FULL_SPEC), "nodes", "gpus", "path", "program", "variables", "pattern", "elastic", "gpu", "<<", "1", "? a",
    "''"]
)
SCALARS = st.sampled_from(
    ["2", "-1", "0.5", "h100:8", "on", "~", "''", "'x", "*a", "&a", "!t x", "1e999", "12:30", ".nan", "{", "]", "|", "- x",
    "9" * 99, "\t"]
) | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "[" + ", ".join(parts) + "]")
    | st.dictionaries(KEYS, inner, max_size=3).map(lambda d: "{" + ", ".join(f"{k}: {v}" for k, v in d.items()) + "}"),
    max_leaves=6,
)
LINES = st.tuples(st.sampled_from(["", "", "", "  ", "\t", "- "]), KEYS, VALUES).map(lambda p: f"{p[0]}{p[1]}: {p[2]}")


@given(st.lists(LINES, max_size=6).map("\n".join))
def test_a_broken_file_gives_a_spec_error_and_nothing_else(text: str) -> None:
    lines = len(text.splitlines()) + 2  # YAML's line breaks are more than the line feed
    places = [(d["line"], d["column"]) for d in faults(lambda: load_bytes(text.encode("utf-8", "surrogatepass"), "f"))]
    assert all(1 <= line <= lines and column >= 1 for line, column in places)


@given(st.binary(max_size=60))
def test_bytes_give_a_spec_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(SpecError):
        load_bytes(b"x" + data, "f")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, JSON, max_size=5))
def test_a_broken_mapping_gives_a_spec_error_and_nothing_else(mapping: dict[str, object]) -> None:
    if not faults(lambda: from_mapping(mapping)):
        spec = from_mapping(mapping)
        assert from_mapping(to_mapping(spec)) == spec
