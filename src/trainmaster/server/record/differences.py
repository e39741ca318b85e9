"""Compares runs field by field. Pure. Values are JSON; None means that a run has no such field.

A section that some run did not record is reported as unknown, never as equal.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trainmaster.model import redaction
from trainmaster.model.job import Job
from trainmaster.model.nodes import Node
from trainmaster.model.options.placeholders import unread
from trainmaster.model.spec import DataVersion
from trainmaster.wire.code import Tree
from trainmaster.wire.environment import EnvironmentRecord

Values = list[Any]  # one per run
_LEFT_OUT = ("params", "tags", "environment.variables", "notify")  # compared elsewhere, or not about the run
_DIGEST_SHOWN = 12
_NUMBERED = re.compile(r"(?<=python)[\d.]+$")  # the version in an interpreter's name


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that is compared of a job, except metrics. None: not recorded."""

    job: Job
    nodes: tuple[Node, ...] = ()  # of the last attempt
    environment: EnvironmentRecord | None = None
    tree: Tree | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One field. `equal`: listed only because all fields were requested."""

    section: str
    field: str
    values: Values
    equal: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """The result. `unknown`: section -> runs that did not record it."""

    fields: list[Difference] = field(default_factory=list)
    unknown: dict[str, list[str]] = field(default_factory=dict)


def compare(runs: Sequence[Run], everything: bool = False) -> Compared:
    """The differing fields, in a useful reading order; with `everything` also the equal ones."""
    found = Compared()
    for section, tables in _sections(runs).items():
        lacking = [run.job.id for run, table in zip(runs, tables, strict=True) if table is None]
        if lacking:
            found.unknown[section] = lacking
        if len(lacking) == len(runs):
            continue
        known = [table or {} for table in tables]
        for name in dict.fromkeys(name for table in known for name in table):
            values = [None if table is None else table.get(name) for table in tables]
            compared = [value for value, table in zip(values, tables, strict=True) if table is not None]
            same = _same_program if (section, name) == ("python", "path") else _same
            equal = all(same(value, compared[0]) for value in compared[1:])
            if not equal or everything:
                found.fields.append(Difference(section, name, _shown(section, name, values), equal))
    return found


def _shown(section: str, name: str, values: Values) -> Values:
    """The values with credentials masked. Values that differ only in a credential are numbered, so that it shows."""
    told: Values = [_shown_value(section, name, value) for value in values]
    alike: dict[str, dict[str, int]] = {}  # masked text -> number of each value behind it
    for one, shown in zip(values, told, strict=True):
        if shown != one:
            numbers = alike.setdefault(shown, {})
            numbers.setdefault(one, len(numbers) + 1)
    return [
        redaction.numbered(shown, alike[shown][one]) if shown != one and len(alike[shown]) > 1 else shown
        for one, shown in zip(values, told, strict=True)
    ]


def _shown_value(section: str, name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return redaction.values({name: value})[name] if section in ("params", "recorded") else value
    if section == "variables":
        return redaction.variables({name: value})[name]
    if section in ("params", "recorded", "tags"):
        return redaction.values({name: value})[name]
    return redaction.line(value) if section == "spec" else redaction.text(value)


def _sections(runs: Sequence[Run]) -> dict[str, list[Mapping[str, Any] | None]]:
    records = [run.environment for run in runs]
    return {
        "spec": [_spec(run.job) for run in runs],
        "params": [_params(run.job, read=True) for run in runs],
        "recorded": [_params(run.job, read=False) for run in runs],
        "tags": [dict(run.job.spec.tags) for run in runs],
        "start": [_start(run.job) for run in runs],
        "code": [_code(run.job) for run in runs],
        "files": [_files(run.tree) for run in runs],
        "data": _all_data([run.job for run in runs]),
        "python": [_python(record) for record in records],
        "packages": _all_packages(records),
        "hardware": [_hardware(run) for run in runs],
        "machine": [_machine(record) for record in records],
        "variables": [_variables(run.job) for run in runs],
        "submitted": [_submitted(run.job) for run in runs],
    }


def _params(job: Job, read: bool) -> dict[str, Any]:
    """The parameters that its program reads, or those that are only recorded."""
    recorded = unread(job.spec, job.origin)
    return {name: value for name, value in job.spec.params.items() if (name not in recorded) is read}


def _variables(job: Job) -> dict[str, str]:
    """Variables to compare. Credentials are left out by name: each user has different ones."""
    return redaction.without_secrets({**job.origin.variables, **job.spec.environment.variables})


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 is not true, and NaN equals itself."""
    return one is other or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _same_program(one: str | None, other: str | None) -> bool:
    """Treat `python`, `python3` and `python3.11` in one directory as equal; the version is a field of its own."""
    return one == other or (one is not None and other is not None and _NUMBERED.sub("", one) == _NUMBERED.sub("", other))


def flattened(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings into one with dotted names."""
    found: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            found |= flattened(item, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = list(item) if isinstance(item, tuple) else item
    return found


def _spec(job: Job) -> dict[str, Any]:
    """The spec's fields. Commands are compared as shell lines: argv and the line that bash splits into it are equal."""
    flat = flattened(asdict(job.spec))
    for name, value in flat.items():
        if name.rpartition(".")[2] == "command" and isinstance(value, list):
            flat[name] = shlex.join(value) or None  # None if the job calls a function
    return {name: value for name, value in flat.items() if not name.startswith(tuple(f"{one}." for one in _LEFT_OUT))}


def _start(job: Job) -> dict[str, Any]:
    """The checkpoint of another job that it starts from; nothing if it starts from the beginning."""
    lineage = job.lineage
    if lineage is None or lineage.checkpoint is None:
        return {}
    point = lineage.checkpoint
    return {"checkpoint": f"{point.id} of {lineage.owner or lineage.job}, {point.place or 'unknown step'}"}


def _code(job: Job) -> dict[str, Any]:
    origin, code = job.origin, job.code
    found: dict[str, Any] = {"git commit": origin.git_commit[:_DIGEST_SHOWN] if origin.git_commit else None}
    if origin.git_commit:
        found["git changes"] = origin.git_dirty
    if code.in_place:
        found["run in"] = origin.directory
        found["git patch"] = origin.git_diff[:_DIGEST_SHOWN] if origin.git_diff else None  # of a copy, the files tell
    return found


def _files(tree: Tree | None) -> dict[str, Any] | None:
    """For each path in the code copy, text that identifies its content."""
    if tree is None:
        return None
    return {entry["path"]: _content(entry) for entry in tree["entries"]}


def _content(entry: Mapping[str, Any]) -> str:
    if entry["type"] == "symlink":
        return f"-> {entry['target']}"
    if entry["type"] == "link":
        return "linked, not copied"
    if entry["type"] == "directory":
        return "an empty directory"
    return str(entry["sha256"])[:_DIGEST_SHOWN] + (" executable" if entry["mode"] & 0o100 else "")


def _all_data(jobs: Sequence[Job]) -> list[Mapping[str, Any] | None]:
    """What is there besides files counts for an entry only if all jobs recorded it: otherwise it is not known to differ."""
    unlisted = {one.name for job in jobs for one in job.data if one.listing is None}
    return [{one.name: _version(one, one.name not in unlisted) for one in job.data} for job in jobs]


def _version(one: DataVersion, listed: bool) -> str:
    beside = f", besides files {one.listing[:_DIGEST_SHOWN]}" if listed and one.listing else ""
    return f"{one.uri} {(one.digest or 'not looked at')[:_DIGEST_SHOWN]}{beside}"


def _python(record: EnvironmentRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    found = record["python"]
    if found is None:
        return {}
    built = record["torch"]
    torch = {} if built is None else {"torch built for": _built_for(built["cuda"], built["hip"])}
    return {"version": found["version"], "path": found["path"], **torch}


def _built_for(cuda: str | None, hip: str | None) -> str:
    return f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else "CPU"


def _all_packages(records: Sequence[EnvironmentRecord | None]) -> list[Mapping[str, Any] | None]:
    """What identifies the code of one version counts only if all records have it: otherwise it is not known to differ.

    None for a record that may lack packages.
    """
    known = all("built_from" in record for record in records if record is not None)
    whole = [None if record is None or record.get("unread") else record for record in records]
    return [None if record is None else _packages(record, record.get("built_from", {}) if known else {}) for record in whole]


def _packages(record: EnvironmentRecord, built_from: Mapping[str, str]) -> dict[str, Any]:
    marks = {name: f" ({told})" for name, told in built_from.items() if told} | dict.fromkeys(record["editable"], " (editable)")
    return {name: version + marks.get(name, "") for name, version in sorted(record["packages"].items())}


def _hardware(run: Run) -> dict[str, Any] | None:
    """The hardware of the last attempt; None for a job that never ran."""
    attempt = run.job.attempt
    if attempt is None:
        return None
    kinds = {node.name: {device.index: device.kind for device in node.devices} for node in run.nodes}
    shares = attempt.allocation.shares
    return {
        "nodes": len(shares),
        "devices": [kinds.get(share.node, {}).get(index, "device") for share in shares for index in share.devices],
        "host": sorted({node.host for node in run.nodes}),
    }


def _machine(record: EnvironmentRecord | None) -> dict[str, Any] | None:
    """The machine of the attempt's first node."""
    if record is None:
        return None
    return {name: value for name, value in record["machine"].items() if name not in ("host", "devices")}


def _submitted(job: Job) -> dict[str, Any]:
    origin = job.origin
    umask = None if origin.umask is None else f"{origin.umask:03o}"
    return {"by": job.owner, "from": origin.host, "directory": origin.directory, "umask": umask}
