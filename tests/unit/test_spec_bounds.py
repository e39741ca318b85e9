"""Every string, number and collection of a spec has a bound, in the JSON Schema and in the reader."""

from collections.abc import Iterator
from typing import Any

import pytest

from trainmaster.errors import SpecError
from trainmaster.spec.document import from_mapping
from trainmaster.spec.schema import cluster_schema, schema

BOUNDS = {
    "string": ("maxLength", "pattern"),
    "array": ("maxItems",),
    "integer": ("maximum", "exclusiveMaximum"),
    "number": ("maximum", "exclusiveMaximum"),
    "object": ("maxProperties", "properties"),
}
OF_CLUSTERS = ("array", "object")  # their number is bounded by the file's size, 1 MiB


def lacking(value: Any, path: str = "") -> Iterator[str]:
    """Where a schema leaves something without a bound."""
    if isinstance(value, dict):
        kinds = value.get("type", [])
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            scalar = kind == "number" and "string" in kinds and "boolean" in kinds  # JSON's own numbers
            if kind in BOUNDS and not scalar and not {*BOUNDS[kind], "enum", "const"} & value.keys():
                yield f"{path}: {kind}"
        for name, item in value.items():
            yield from lacking(item, f"{path}/{name}")
    elif isinstance(value, list):
        for item in value:
            yield from lacking(item, path)


def test_every_field_of_a_job_has_its_bound() -> None:
    """S9: numbers and texts of any length came as far as the stores and the kernel."""
    left = [place for place in lacking(schema()) if not place.endswith("additionalProperties: number") and "items: " not in place]
    assert [place for place in left if "/anyOf: " not in place and "/anyOf/" not in place] == []


def test_every_number_and_text_of_a_cluster_has_its_bound() -> None:
    left = [place for place in lacking(cluster_schema()) if not place.endswith(OF_CLUSTERS) and "/anyOf" not in place]
    assert left == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("command", "x" * 100_001),
        ("command", ["x" * 60_000, "y" * 60_000]),
        ("workdir", "x" * 4097),
        ("artifacts", ["a/" * 500 + "x"]),
        ("artifacts", [f"a{n}" for n in range(1001)]),
        ("checkpoint", "a" * 1001),
        ("params", {"x" * 251: 1}),
        ("params", {"x": "y" * 20_001}),
        ("params", {f"p{n}": n for n in range(1001)}),
        ("params", {"x": 10**23}),
        ("tags", {"x": "y" * 4097}),
        ("time_limit", 10**400),
        ("time_limit", "9" * 59 + "d"),
        ("restarts", 10**30),
        ("priority", -(10**30)),
        ("resources", {"cpus": 1e308}),
        ("resources", {"memory": "9" * 50 + "GiB"}),
        ("resources", {"nodes": 2**70}),
        ("resources", {"custom": {"license": 10**400}}),
    ],
)
def test_what_is_beyond_a_bound_is_refused_in_words(field: str, value: Any) -> None:
    with pytest.raises(SpecError) as refused:
        from_mapping({"command": "true", field: value})
    assert refused.value.details[0]["field"].startswith(field)
    assert len(refused.value.message) < 1000
