"""Mutated specs: always an error with file, line and column, never anything else."""

import json
import random
from collections.abc import Callable

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.errors import SpecError
from trainmaster.model.spec import JobSpec
from trainmaster.spec.document import load_bytes

RIGHT = r"""# a whole spec
name: digits-ddp
project: vision
experiment: digits
command: python train.py --epochs 20
workdir: .
priority: 0
resources:
  nodes: 2
  gpus: h100:8
  cpus: 16
  memory: 64GiB
  disk: 200GiB
  ranks: 8
  network: 100Gbps
  accelerators: {tpu-v5e: 4}
  custom: {license: 1}
roles:
  evaluator:
    command: [python, eval.py, --watch]
    resources: {cpus: 4}
time_limit: 12h
checkpoint: {path: out/ckpt*.pt, interval: 10m, keep: 3, resume_arguments: "--resume {path}"}
restarts: {program: 3, infrastructure: 20}
environment:
  python: .venv/bin/python
  requirements: requirements.lock
  variables: {OMP_NUM_THREADS: "4"}
artifacts: [out/*.png, out/model.safetensors]
data: {train: data/train.csv, eval: "s3://bucket/eval"}
params: &params {lr: 3e-4, batch: 256}
metrics: {pattern: 'step (?P<step>\d+): loss (?P<loss>[\d.]+)', primary: loss, mode: min}
tags: {owner: team-a, candidate: "yes"}
"""
LINES = RIGHT.splitlines()
NASTY = (
    "", "~", "[]", "{}", "[[1]]", "{a: {b: 1}}", "-1", "0", "1e999", ".nan", ".inf", "9" * 400, "true", "*params", "*nobody",
    "&a x", "!!python/object:os.system x", "!!binary aGk=", "'", '"', "|", ">", "%", "@x", "`", "? x", "- x", "\t", "x: y",
    "a: b: c", "{", "}", "[", "]", ",", "#", "\u2028", "\ufeff", "é" * 70, "${HOME}", "1_000", "0x10", "12:30", "x" * 5000,
)  # fmt: skip
Mutation = Callable[[random.Random, list[str]], str]


def _at(rng: random.Random, lines: list[str]) -> int:
    return rng.randrange(len(lines))


def _named(rng: random.Random, lines: list[str]) -> int:
    return rng.choice([n for n, line in enumerate(lines) if ":" in line] or [0])


def typo(rng: random.Random, lines: list[str]) -> str:
    """One letter of a name gone, doubled or another."""
    at = _named(rng, lines)
    head, _, tail = lines[at].partition(":")
    begin = len(head) - len(head.lstrip())
    where = begin + rng.randrange(len(head) - begin + 1)
    head = head[:where] + rng.choice(["", head[where : where + 1] * 2, "q"]) + head[where + 1 :]
    return "\n".join([*lines[:at], f"{head}:{tail}", *lines[at + 1 :]])


def value(rng: random.Random, lines: list[str]) -> str:
    """Another value behind a name."""
    at = _named(rng, lines)
    return "\n".join([*lines[:at], f"{lines[at].partition(':')[0]}: {rng.choice(NASTY)}", *lines[at + 1 :]])


def twice(rng: random.Random, lines: list[str]) -> str:
    """A line that stands there twice."""
    at = _at(rng, lines)
    return "\n".join([*lines[: at + 1], *lines[at:]])


def indentation(rng: random.Random, lines: list[str]) -> str:
    """A line that begins elsewhere."""
    at = _at(rng, lines)
    begin = rng.choice([" ", "   ", "\t", " \t", "- ", "        "])
    return "\n".join([*lines[:at], begin + lines[at].lstrip(" "), *lines[at + 1 :]])


def gone(rng: random.Random, lines: list[str]) -> str:
    """A line less, or the end cut off."""
    at = _at(rng, lines)
    return "\n".join([*lines[:at], *lines[at + 1 :]] if rng.random() < 0.5 else [*lines[:at], lines[at][: len(lines[at]) // 2]])


def swapped(rng: random.Random, lines: list[str]) -> str:
    """Two lines in each other's place."""
    lines = list(lines)
    one, other = _at(rng, lines), _at(rng, lines)
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def letter(rng: random.Random, lines: list[str]) -> str:
    """A character anywhere."""
    text = "\n".join(lines)
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice("{}[]:,#&*!|>'\"%@`-? \t\0\x07\u2028\ufeff") + text[at + rng.randrange(2) :]


def deep(rng: random.Random, lines: list[str]) -> str:
    """A value in many brackets, or aliases of aliases."""
    depth = rng.choice([5, 29, 30, 31, 2000])
    nested = "x: " + "{a: " * depth + "1" + "}" * depth
    fan = "\n".join(["b0: &b0 [x]", *(f"b{n}: &b{n} [{','.join([f'*b{n - 1}'] * 9)}]" for n in range(1, rng.randrange(2, 12)))])
    return "\n".join([*lines, rng.choice([nested, fan])])


def document(rng: random.Random, lines: list[str]) -> str:
    """Something else altogether."""
    return rng.choice(["", "---\n" * 3, "\n".join(lines) + "\n---\n" + "\n".join(lines), "- " * 50, "\n".join(lines * 2), "[]"])


MUTATIONS: tuple[Mutation, ...] = (typo, value, twice, indentation, gone, swapped, letter, deep, document)


def outcome(data: bytes) -> JobSpec | list[dict[str, object]]:
    """The spec, or the faults; whatever else is raised is a defect."""
    try:
        return load_bytes(data, "train.yaml")
    except SpecError as error:
        json.dumps(error.as_dict(), allow_nan=False).encode()
        str(error).encode()
        return error.details or [{"file": "an error that lists nothing"}]


def check(data: bytes) -> None:
    found = outcome(data)
    if isinstance(found, JobSpec):
        return
    lines = len(data.decode("utf-8", "replace").splitlines()) + 2
    for fault in found:
        assert fault["file"] == "train.yaml"
        assert fault["message"]
        assert isinstance(fault["line"], int)
        assert isinstance(fault["column"], int)
        assert 1 <= fault["line"] <= lines
        assert fault["column"] >= 1


def test_the_spec_that_is_broken_is_right_before() -> None:
    assert isinstance(outcome(RIGHT.encode()), JobSpec)


@settings(max_examples=examples(200, 2000), deadline=None)
@given(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_a_broken_spec_is_answered_with_its_places(mutations: list[Mutation], rng: random.Random) -> None:
    lines = LINES
    for mutation in mutations:
        lines = mutation(rng, lines).split("\n")
    check("\n".join(lines).encode())


@settings(max_examples=examples(50, 500), deadline=None)
@given(st.binary(min_size=1, max_size=8), st.integers(0, len(RIGHT)))
def test_bytes_in_the_midst_are_answered_with_their_place(data: bytes, at: int) -> None:
    right = RIGHT.encode()
    check(right[:at] + data + right[at:])


@pytest.mark.parametrize("name", [line.partition(":")[0] for line in LINES if line[:1].isalpha()])
def test_every_name_that_lacks_a_letter_is_told_with_the_one_that_was_meant(name: str) -> None:
    short = name[:-2] + name[-1]
    found = outcome(("\n".join(LINES)).replace(f"\n{name}:", f"\n{short}:", 1).encode())
    assert isinstance(found, list)
    assert [fault["nearest"] for fault in found if fault["field"] == short] == [name]
