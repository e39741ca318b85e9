"""Names of the sections in a comparison, and formatting of its values and metrics."""

import json
from collections.abc import Mapping
from typing import Any

from trainmaster.cli.render import human
from trainmaster.wire import rest

SECTIONS = {
    "spec": "Spec", "params": "Parameters", "recorded": "Parameters that the program does not read",
    "tags": "Tags", "start": "Start", "code": "Code", "files": "Files", "data": "Data",
    "python": "Python", "packages": "Packages", "hardware": "Hardware", "machine": "Machine",
    "variables": "Variables", "submitted": "Submitted",
}  # fmt: skip
EQUAL_ENDS = "Last and best values are equal in all (values between are not compared)"
_UNKNOWN = {  # of other sections, nothing at all is recorded
    "files": "there is no copy of them",
    "packages": "they are not recorded, or not all of them",
}


def not_recorded(section: str) -> str:
    """Which section is not compared, and why; the jobs follow."""
    return f"{SECTIONS[section].lower()}: {_UNKNOWN.get(section, 'nothing is recorded')}"


def shown(value: Any) -> str:
    """A value as text; `-` if a run has none."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value or '""'
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return json.dumps(value, ensure_ascii=False)


def last_cells(one: Mapping[str, Any]) -> list[str]:
    """The last value of a metric by run, and since when it is not finite."""
    diverged = one.get("diverged") or [None] * len(one["last"])  # a server of an older version does not say
    pairs = zip(one["last"], diverged, strict=True)
    return [at(point) if bad is None else human.diverged(bad) for point, bad in pairs]


def at(point: Mapping[str, Any] | None) -> str:
    """A value and its step."""
    if point is None:
        return "-"
    step = "" if point["step"] is None else f" at {point['step']}"
    return f"{human.number(rest.number_of(point['value']))}{step}"
