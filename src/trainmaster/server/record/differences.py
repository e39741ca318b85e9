"""Compares runs field by field. Pure. Values are JSON; None means that a run has no such field.

A section that is not known of some run is reported as unknown, never as equal.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trainmaster.model import redaction
from trainmaster.model.job import Job
from trainmaster.model.options.placeholders import unread
from trainmaster.model.spec import DataVersion
from trainmaster.wire.code import Tree
from trainmaster.wire.environment import UNNAMED, EnvironmentRecord, Machine

Values = list[Any]  # one per run
_LEFT_OUT = ("params", "tags", "environment.variables", "notify")  # compared elsewhere, or not about the run
NO_COPY = "there is no copy of them"
_NOT_RUN = "it has not run"
_GIVEN = ("params", "recorded")  # sections whose null is a value, and another thing than none
_MISSING = object()
_NULL = "(null)"  # how it is shown
_NOT_WHOLE = "some could not be read"
_DIGEST_SHOWN = 12
_NUMBERED = re.compile(r"(?<=python)[\d.]+$")  # the version in an interpreter's name


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that is compared of a job, except metrics. A text says why something is not known."""

    job: Job
    environments: tuple[EnvironmentRecord | str, ...] = ()  # of each node of the last attempt
    tree: Tree | str = NO_COPY

    @property
    def environment(self) -> EnvironmentRecord | str:
        """That of the first node, whose packages and machine stand for those of the attempt."""
        return self.environments[0] if self.environments else _NOT_RUN


@dataclass(frozen=True, slots=True)
class Difference:
    """One field. `equal`: listed only because all fields were requested."""

    section: str
    field: str
    values: Values
    equal: bool = False


@dataclass(frozen=True, slots=True)
class Compared:
    """The result. `unknown`: section -> runs of which it is not known -> why."""

    fields: list[Difference] = field(default_factory=list)
    unknown: dict[str, dict[str, str]] = field(default_factory=dict)


def compare(runs: Sequence[Run], everything: bool = False) -> Compared:
    """The differing fields, in a useful reading order; with `everything` also the equal ones."""
    found, secrets = Compared(), _secrets(runs)
    for section, told in _sections(runs).items():
        lacking = {run.job.id: table for run, table in zip(runs, told, strict=True) if isinstance(table, str)}
        tables = [None if isinstance(table, str) else table for table in told]
        if lacking:
            found.unknown[section] = lacking
        if len(lacking) == len(runs):
            continue
        known = [table or {} for table in tables]
        for name in dict.fromkeys(name for table in known for name in table):
            none = _MISSING if section in _GIVEN else None
            values = [None if table is None else table.get(name, none) for table in tables]
            compared = [value for value, table in zip(values, tables, strict=True) if table is not None]
            same = _same_program if (section, name) == ("python", "path") else _same
            equal = all(same(value, compared[0]) for value in compared[1:])
            if not equal or everything:
                found.fields.append(Difference(section, name, _shown(section, name, values, secrets), equal))
    return found


def _secrets(runs: Sequence[Run]) -> list[str]:
    """The credentials that the jobs gave to their programs, which may have logged them under any name."""
    logged = any(run.job.run_params or run.job.run_tags for run in runs)
    return sorted({one for run in runs for one in redaction.known(run.job.spec)}, key=lambda one: -len(one)) if logged else []


def _shown(section: str, name: str, values: Values, secrets: Sequence[str]) -> Values:
    """The values with credentials masked. Values that differ only in a credential are numbered, so that it shows."""
    given = [redaction.without_values(one, secrets) if section == "logged" and one is not None else one for one in values]
    told: Values = [_shown_value(section, name, value) for value in given]
    alike: dict[Any, dict[Any, int]] = {}  # masked text -> number of each value behind it
    for one, shown in zip(values, told, strict=True):
        if shown != one:
            numbers = alike.setdefault(shown, {})
            numbers.setdefault(one, len(numbers) + 1)
    return [
        redaction.numbered(shown, alike[shown][one]) if shown != one and len(alike[shown]) > 1 else shown
        for one, shown in zip(values, told, strict=True)
    ]


def _shown_value(section: str, name: str, value: Any) -> Any:
    if section in _GIVEN:
        return None if value is _MISSING else _NULL if value is None else redaction.values({name: value})[name]
    if not isinstance(value, str):
        return value
    if section == "variables":
        return redaction.variables({name: value})[name]
    if section in ("logged", "tags"):
        return redaction.values({name: value})[name]
    return redaction.line(value) if section == "spec" else redaction.text(value)


def _sections(runs: Sequence[Run]) -> dict[str, list[Mapping[str, Any] | str]]:
    """The fields of each section by run, or why they are not known."""
    records = [run.environment for run in runs]
    return {
        "spec": [_spec(run.job) for run in runs],
        "params": [_params(run.job, read=True) for run in runs],
        "recorded": [_params(run.job, read=False) for run in runs],
        "logged": [_logged(run.job) for run in runs],
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


def _logged(job: Job) -> dict[str, str]:
    """The parameters and tags that its program logged, without the tags that MLflow sets itself."""
    own = {name: value for name, value in job.run_tags.items() if not name.rpartition("/")[2].startswith("mlflow.")}
    return {**job.run_params, **{f"tag {name}": value for name, value in own.items()}}


def _variables(job: Job) -> dict[str, str]:
    """Variables to compare. Of those whose names may be those of credentials, only who has them: values could be guessed."""
    return redaction.without_secrets({**job.origin.variables, **job.spec.environment.variables})


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values and `_MISSING`: 1 is not true, and NaN equals itself."""
    if one is _MISSING or other is _MISSING:
        return one is other
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


def _files(tree: Tree | str) -> dict[str, Any] | str:
    """For each path in the code copy, text that identifies its content."""
    if isinstance(tree, str):
        return tree
    return {entry["path"]: _content(entry) for entry in tree["entries"]}


def _content(entry: Mapping[str, Any]) -> str:
    if entry["type"] == "symlink":
        return f"-> {entry['target']}"
    if entry["type"] == "link":
        return "linked, not copied"
    if entry["type"] == "directory":
        return "an empty directory"
    return str(entry["sha256"])[:_DIGEST_SHOWN] + (" executable" if entry["mode"] & 0o100 else "")


def _all_data(jobs: Sequence[Job]) -> list[Mapping[str, Any] | str]:
    """What is there besides files counts for an entry only if all jobs recorded it: otherwise it is not known to differ."""
    unlisted = {one.name for job in jobs for one in job.data if one.listing is None}
    return [{one.name: _version(one, one.name not in unlisted) for one in job.data} for job in jobs]


def _version(one: DataVersion, listed: bool) -> str:
    beside = f", besides files {one.listing[:_DIGEST_SHOWN]}" if listed and one.listing else ""
    return f"{one.uri} {(one.digest or 'not looked at')[:_DIGEST_SHOWN]}{beside}"


def _python(record: EnvironmentRecord | str) -> dict[str, Any] | str:
    if isinstance(record, str):
        return record
    found = record["python"]
    if found is None:
        return {}
    built = record["torch"]
    torch = {} if built is None else {"torch built for": _built_for(built["cuda"], built["hip"])}
    return {"version": found["version"], "path": found["path"], **torch}


def _built_for(cuda: str | None, hip: str | None) -> str:
    return f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else "CPU"


def _all_packages(records: Sequence[EnvironmentRecord | str]) -> list[Mapping[str, Any] | str]:
    """What identifies the code of one version counts only if all records have it: otherwise it is not known to differ."""
    known = all("built_from" in record for record in records if not isinstance(record, str))
    whole = [_NOT_WHOLE if not isinstance(record, str) and record.get("unread") else record for record in records]
    return [
        record if isinstance(record, str) else _packages(record, record.get("built_from", {}) if known else {})
        for record in whole
    ]


def _packages(record: EnvironmentRecord, built_from: Mapping[str, str]) -> dict[str, Any]:
    marks = {name: f" ({told})" for name, told in built_from.items() if told} | dict.fromkeys(record["editable"], " (editable)")
    return {name: version + marks.get(name, "") for name, version in sorted(record["packages"].items())}


def _hardware(run: Run) -> dict[str, Any] | str:
    """The hardware of the last attempt as its agents recorded it: a node's inventory is that of now."""
    if run.job.attempt is None:
        return _NOT_RUN
    machines, devices = list[Machine](), list[str]()
    for share, record in zip(run.job.attempt.allocation.shares, run.environments, strict=True):
        if isinstance(record, str):
            return record
        machines.append(record["machine"])
        names = {device["index"]: device["name"] for device in record["machine"]["devices"]}
        if any(names.get(index, UNNAMED) == UNNAMED for index in share.devices):
            return "the record does not name its devices"
        devices += [names[index] for index in share.devices]
    return {"nodes": len(machines), "devices": devices, "host": sorted({machine["host"] for machine in machines})}


def _machine(record: EnvironmentRecord | str) -> dict[str, Any] | str:
    """The machine of the attempt's first node."""
    if isinstance(record, str):
        return record
    return {name: value for name, value in record["machine"].items() if name not in ("host", "devices")}


def _submitted(job: Job) -> dict[str, Any]:
    origin = job.origin
    umask = None if origin.umask is None else f"{origin.umask:03o}"
    return {"by": job.owner, "from": origin.host, "directory": origin.directory, "umask": umask}
