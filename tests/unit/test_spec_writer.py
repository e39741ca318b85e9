"""A spec as a file: written and read back it is the same spec, and a hidden credential is not submitted."""

import json
from typing import Any

import pytest
import yaml
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_spec import FULL_SPEC

from trainmaster.errors import SpecError
from trainmaster.model.redaction import HIDDEN, shown
from trainmaster.model.spec import JobSpec
from trainmaster.spec.document import from_mapping, load_bytes
from trainmaster.spec.mapping import to_file
from trainmaster.spec.yaml.reader import parse
from trainmaster.spec.yaml.writer import to_yaml

ODD = (
    "1e-4", "0o17", "0x1F", "010", "yes", "on", "null", "~", "", ".5", ".inf", "12:30", "1_000", "=", "<<", "a: b", "a #b", "- x", "? x",
    " x ", "a\nb", "a\nb\n", "\na", " a\nb", "a\n\n", "a\tb\nc", "a\r\nb", "\u2028x\ny", "\x85", "é", "日本", "😀", "'", '"', "\\", "%", "@x", "`", "{a}", "[a]",
    "&a", "*a", "!t", "|", ">", "---", "...", "9" * 30, "\ufeffx\ny", "x" * 300 + " y" * 100,
)  # fmt: skip
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30) | st.sampled_from(ODD)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts
names = st.from_regex(r"[A-Za-z][a-z0-9]{0,10}", fullmatch=True)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | texts, inner, max_size=4), max_leaves=12
)
words = texts.filter(lambda text: text.strip() and HIDDEN not in text)


@settings(max_examples=examples(100, 2000), deadline=None)
@given(st.dictionaries(names, values, max_size=5))
def test_what_is_written_is_read_back_the_same(mapping: dict[str, Any]) -> None:
    written = to_yaml(mapping)
    read = parse(written.encode(), "f")
    assert (read.faults, json.dumps(read.value)) == ((), json.dumps(mapping)), written
    assert yaml.safe_load(written) == mapping  # of YAML 1.1, as other programs read it


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    gpus = draw(st.sampled_from([0, 2, 0.25, "h100:8", ["h100:4", "a100:8"]]))
    resources = {"cpus": draw(st.sampled_from([1.0, 0.5, 16.0])), "nodes": draw(st.integers(1, 3)), "gpus": gpus}
    resources |= draw(st.sampled_from([{}, {"memory": "64GiB"}, {"ranks": 1}, {"network": "2.5Gbps", "custom": {"license": 0.5}}]))
    mapping: dict[str, Any] = {
        "command": draw(words | st.lists(words, min_size=1, max_size=4)), "resources": resources, "name": draw(names),
        "priority": draw(st.integers(-100, 100)), "params": draw(st.dictionaries(names, scalars, max_size=3)),
        "tags": draw(st.dictionaries(names, words, max_size=3)),
        "environment": {"variables": draw(st.dictionaries(st.from_regex(r"[A-Z_]{1,9}X", fullmatch=True), texts, max_size=3))},
        "artifacts": draw(st.lists(st.sampled_from(["out/*.png", "a b.txt"]), max_size=2)),
    }  # fmt: skip
    for field in ("time_limit", "start_limit"):
        if draw(st.booleans()):
            mapping[field] = draw(st.floats(0.001, 1e8) | st.integers(1, 10**8))
    if draw(st.booleans()):
        mapping["checkpoint"] = {"path": "out/{step}.pt", "interval": draw(st.floats(1, 1e6)), "resume_arguments": "--resume {path}"}
    if draw(st.booleans()):
        mapping["roles"] = {"eval": {"command": draw(words), "resources": {"cpus": 0.5}}}
    if draw(st.booleans()):
        mapping["max_running"] = draw(st.integers(1, 10_000))
    if draw(st.booleans()):
        mapping["elastic"] = {"nodes_max": 4}
    return from_mapping(mapping)


@settings(max_examples=examples(60, 1000), deadline=None)
@given(specs())
def test_a_spec_file_of_a_spec_submits_that_spec(spec: JobSpec) -> None:
    assert from_mapping(to_file(spec)) == spec
    assert load_bytes(to_yaml(to_file(spec)).encode(), "f") == spec


def test_it_reads_like_a_file_of_a_person() -> None:
    written = to_yaml(to_file(FULL_SPEC))
    assert load_bytes(written.encode(), "f") == FULL_SPEC
    assert "time_limit: 1h30m\n" in written
    assert "  interval: 10m\n" in written
    lines = to_yaml(to_file(from_mapping({"command": "set -e\npython a.py\n", "time_limit": 0.1 + 0.2}))).splitlines()
    assert lines[: lines.index("workdir: .")] == [
        "name: a", "project: default", "experiment: a", "class: training", "priority: 0", "command: |", "  set -e", "  python a.py",
    ]  # fmt: skip
    assert [line for line in lines if line.endswith(("{}", "[]"))] == []
    assert lines[-1] == f"time_limit: {0.1 + 0.2}"


@pytest.mark.parametrize("own", [False, True])
def test_a_hidden_credential_is_not_submitted(own: bool) -> None:
    given = {"command": "x --token abc", "environment": {"variables": {"HF_TOKEN": "abc", "MODE": "fast"}}}
    written = to_yaml(to_file(shown(from_mapping(given), own)))
    assert ("fast" in written, "abc" in written) == (own, False)
    with pytest.raises(SpecError) as raised:
        load_bytes(written.encode(), "again.yaml")
    fields = {detail["field"] for detail in raised.value.details}
    assert fields == {"command", "environment.variables.HF_TOKEN"} | (set() if own else {"environment.variables.MODE"})
    assert all(detail["file"] == "again.yaml" and detail["line"] for detail in raised.value.details)


@pytest.mark.parametrize("seconds", [1e-300, 0.00001, 1.0000001, 90.123456789])
def test_a_span_that_no_text_says_exactly_is_a_number(seconds: float) -> None:
    """One of 0.00001 s ended in a traceback."""
    spec = from_mapping({"command": "true", "time_limit": seconds, "checkpoint": {"path": "a", "interval": seconds}})
    assert from_mapping(to_file(spec)) == spec
