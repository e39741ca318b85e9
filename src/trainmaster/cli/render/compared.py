"""Names of the sections in a comparison, and formatting of its values and metrics."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainmaster.cli.render import human
from trainmaster.wire import rest

SECTIONS = {
    "spec": "Spec", "params": "Parameters", "recorded": "Parameters that the program does not read",
    "logged": "Parameters and tags that the program logged", "tags": "Tags", "start": "Start", "code": "Code", "files": "Files",
    "data": "Data", "python": "Python", "packages": "Packages", "hardware": "Hardware", "machine": "Machine",
    "variables": "Variables", "submitted": "Submitted",
}  # fmt: skip
_EQUAL_ENDS = "Last and best values are equal in all (values between are not compared)"
_EQUAL_LAST = "Last values are equal in all (others are not compared)"


def unknown(found: Mapping[str, Any]) -> Iterator[str]:
    """Each section that is not compared, why, and of which jobs: `packages: nothing is recorded for digits-2`."""
    for section, lacking in found["unknown"].items():
        why = found.get("unknown_because", {}).get(section, {})  # a server of an older version does not say
        runs: dict[str, list[str]] = {}
        for id in lacking:
            runs.setdefault(why.get(id, "not known"), []).append(id)
        for reason, ids in runs.items():
            who = "any of them" if len(ids) == len(found["jobs"]) else ", ".join(ids)
            yield f"{SECTIONS.get(section, section).lower()}: {reason} for {who}"


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
    cells = zip(ats(one["last"]), diverged, strict=True)
    return [cell if bad is None else human.diverged(bad) for cell, bad in cells]


def equal_ends(found: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """What is equal of metrics that have no row, and their names."""
    listed = {one["name"] for one in found["metrics"]}
    apart = "metrics_last_equal" in found  # a server of an older version lists those without a best value, too
    ends = (_EQUAL_ENDS if apart else _EQUAL_LAST, found["metrics_equal"]), (_EQUAL_LAST, found.get("metrics_last_equal", ()))
    for title, names in ends:
        same = [name for name in names if name not in listed]
        if same:
            yield title, same


def ats(points: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """The values of one row with their steps: in full if two that differ would look equal."""
    values = [None if point is None else rest.number_of(point["value"]) for point in points]
    short = [human.number(value) for value in values]
    full = [str(value) for value in values]
    words = full if len({*full}) > len({*short}) else short
    steps = ["" if point is None or point["step"] is None else f" at {point['step']}" for point in points]
    return ["-" if value is None else f"{word}{step}" for value, word, step in zip(values, words, steps, strict=True)]
