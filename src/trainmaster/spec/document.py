"""A spec file or mapping to a `JobSpec` and back: the one gate through which every spec comes, whatever it was made from.

Faults are gathered, placed and told all at once (`SpecError.details`): unknown names with the nearest right one, names that are
not supported yet, wrong values, and what is missing (placed at its mapping).
"""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainmaster.model.spec import CheckpointSpec, Environment, JobSpec, MetricsSpec, Mode, Resources, Restarts
from trainmaster.spec.faults import FAULTS_MAX, Fault, describe, nearest, spec_error
from trainmaster.spec.fields import RESERVED, SECTIONS, JobFields
from trainmaster.spec.naming import default_name
from trainmaster.spec.yaml12 import SIZE_MAX_BYTES, Document, Positions, dotted, parse
from trainmaster.spec.yaml12 import Path as FieldPath

_HABITS = {  # what people write who come from elsewhere
    "cmd": "command", "entrypoint": "command", "run": "command", "script": "command", "args": "command",
    "env": "environment.variables", "environ": "environment.variables", "timeout": "time_limit", "time": "time_limit",
    "mem": "resources.memory", "gpu": "resources.gpus", "cpu": "resources.cpus", "retries": "restarts",
    "max_retries": "restarts",
    "cwd": "workdir", "working_dir": "workdir", "num_nodes": "resources.nodes", "nnodes": "resources.nodes", "labels": "tags",
    "nproc_per_node": "resources.ranks", "tasks": "resources.ranks", "hyperparameters": "params", "outputs": "artifacts",
    "vars": "environment.variables", "glob": "checkpoint.path", "max": "restarts.program",
}  # fmt: skip


def load_file(path: Path) -> JobSpec:
    """The spec in a file. Raises: SpecError."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        hint = "check the path; a command goes behind --, as in: tm run -- python train.py"
        raise spec_error([Fault("", f"{path}: cannot be read: {error.strerror}{_sibling(path)}")], hint) from error
    return load_bytes(data, str(path))


def _sibling(path: Path) -> str:
    """Which file was meant, where a name is nearly right."""
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return ""
    near = nearest(path.name, names, 0.8)
    return f"; did you mean {near!r}?" if near and near != path.name else ""


def load_bytes(data: bytes, file: str) -> JobSpec:
    """The spec in `data`; `file` is what errors call it. Raises: SpecError."""
    document = parse(data, file)
    return _load(document.value, document)


def from_mapping(mapping: object, where: Positions | None = None) -> JobSpec:
    """The spec a mapping says, defaults filled in. Raises: SpecError."""
    return _load(mapping, Document(mapping, where or Positions(""), ()))


def workdir_path(spec: JobSpec, file: Path | None) -> Path:
    """Where the work directory is: relative to the spec's file, or to the current directory where there is none."""
    base = file.parent if file is not None else Path()
    return (base / Path(spec.workdir).expanduser()).absolute()


def _load(value: object, document: Document) -> JobSpec:
    where = document.where
    faults = list(document.faults)
    if not isinstance(value, dict):
        empty = value is None
        message = "the spec is empty; it needs at least a command" if empty else f"expected a mapping, got {describe(value)}"
        fault = _at(where, (), Fault("command" if empty else "", message, "a mapping with at least 'command'", describe(value)))
        raise spec_error([*faults, fault])
    odd = _unspeakable(value, where)
    if odd:
        raise spec_error([*faults, *odd])
    try:
        fields = JobFields.model_validate(_as_written(value, where))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=True)
        faults += [_fault(dict(item), where) for item in found[:FAULTS_MAX]]
        raise spec_error(faults) from None
    if faults:
        raise spec_error(faults)
    return _complete(fields)


def _at(where: Positions, path: FieldPath, fault: Fault, key: bool = False) -> Fault:
    if not where.file:
        return fault
    line, column = where.key(path) if key else where.value(path)
    return Fault(fault.field, fault.message, fault.expected, fault.got, fault.nearest, where.file, line, column)


def _unspeakable(mapping: dict[Any, Any], where: Positions) -> list[Fault]:
    """Texts that no file, environment or database can hold, and names that are not texts."""
    faults: list[Fault] = []
    left: list[tuple[FieldPath, Any]] = [((), mapping)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            faults += [
                _at(where, path, Fault(dotted(path), f"a name must be text, not {describe(key)}", "a name", describe(key)))
                for key in value if not isinstance(key, str)
            ]  # fmt: skip
            left += [((*path, key), item) for key, item in value.items() if isinstance(key, str)]
            left += [((*path, key), key) for key in value if isinstance(key, str)]
        elif isinstance(value, list | tuple):
            left += [((*path, index), item) for index, item in enumerate(value)]
        elif isinstance(value, str) and not _is_text(value):
            field = dotted(path).encode("utf-8", "replace").decode().replace("\0", "?")
            faults.append(_at(where, path, Fault(field, "holds a NUL or half a character", "a text", "an unusable text")))
    return faults


def _is_text(value: str) -> bool:
    return "\0" not in value and (value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value))


def _as_written(mapping: dict[str, Any], where: Positions) -> dict[str, Any]:
    """Numbers among arguments and variables become the text that the file has: `1e-4` stays `1e-4`."""
    written = dict(mapping)
    command = mapping.get("command")
    if isinstance(command, list):
        written["command"] = [where.texts.get(("command", index), part) for index, part in enumerate(command)]
    environment = mapping.get("environment")
    if isinstance(environment, dict) and isinstance(environment.get("variables"), dict):
        variables = environment["variables"].items()
        texts = {name: where.texts.get(("environment", "variables", name), value) for name, value in variables}
        written["environment"] = {**environment, "variables": texts}
    return written


def _fault(error: dict[str, Any], where: Positions) -> Fault:
    """One of pydantic's errors as a fault."""
    path: FieldPath = tuple(error["loc"])
    at_key = bool(path) and path[-1] == "[key]"
    path = path[:-1] if at_key else path
    field, kind = dotted(path), error["type"]
    if kind == "extra_forbidden":
        return _unknown(path, error["input"], where)
    if kind == "missing":
        message = f"missing; every spec needs it, as '{field}: python train.py'"
        return _at(where, path, Fault(field, message, "a command", "nothing"))
    if kind == "spec":
        context = error["ctx"]
        fault = Fault(field, context["message"], context["expected"], context["got"], context["nearest"])
        return _at(where, path, fault, key=at_key)
    got = describe(error["input"])
    expected = {"model_type": "a mapping", "dict_type": "a mapping of names to values", "list_type": "a list"}.get(kind, "")
    message = f"expected {expected}, got {got}" if expected else error["msg"]
    alone = kind == "list_type" and isinstance(error["input"], str) and len(error["input"]) < 200
    suggestion = f"[{error['input']}]" if alone else None
    hint = f"; did you mean {suggestion!r}?" if suggestion else ""
    return _at(where, path, Fault(field, message + hint, expected, got, suggestion))


def _unknown(path: FieldPath, value: object, where: Positions) -> Fault:
    name, section, field = str(path[-1]), dotted(path[:-1]), dotted(path)
    if field in RESERVED:
        message = f"{name!r} is not supported yet"
        return _at(where, path, Fault(field, message, "", describe(value)), key=True)
    names = list((SECTIONS[section] if section else JobFields).model_fields)
    suggestion = _meant(name, section, names)
    hint = f"; did you mean {suggestion!r}?" if suggestion else f"; known are {', '.join(names)}"
    return _at(where, path, Fault(field, "unknown field" + hint, "one of " + ", ".join(names), name[:60], suggestion), key=True)


def _meant(name: str, section: str, names: list[str]) -> str | None:
    """The name that was meant: by its exact word here, then elsewhere, then a habit; by likeness here, then elsewhere."""
    lowered = name.lower().replace("-", "_")
    if lowered in names:
        return lowered
    homes = {f: f"{s}.{f}" for s, model in reversed(SECTIONS.items()) for f in model.model_fields}
    homes |= {f: f for f in JobFields.model_fields}
    habit = homes.get(lowered) or _HABITS.get(lowered)
    if habit is not None:
        return habit.removeprefix(f"{section}.") if section else habit
    near = nearest(name, names)
    if near is not None:
        return near
    elsewhere = nearest(name, list(homes), 0.75)
    if elsewhere is not None:
        return homes[elsewhere]
    reserved = [f.removeprefix(f"{section}.") for f in RESERVED if f.rpartition(".")[0] == section]
    return nearest(name, reserved, 0.75)


def _complete(fields: JobFields) -> JobSpec:
    name = fields.name or default_name(fields.command)
    resources, checkpoint = fields.resources, fields.checkpoint
    gpus, kind = resources.gpus
    return JobSpec(
        command=fields.command,
        name=name,
        project=fields.project,
        experiment=fields.experiment or name,
        priority=fields.priority,
        workdir=fields.workdir,
        resources=Resources(resources.nodes, gpus, kind, resources.cpus, resources.memory, resources.ranks or gpus or 1),
        time_limit_s=fields.time_limit,
        checkpoint=CheckpointSpec(checkpoint.path, checkpoint.keep, checkpoint.resume_arguments),
        restarts=Restarts(fields.restarts.program, fields.restarts.infrastructure),
        environment=Environment(fields.environment.python, fields.environment.variables),
        params=fields.params,
        metrics=MetricsSpec(fields.metrics.pattern, fields.metrics.primary, Mode(fields.metrics.mode)),
        tags=fields.tags,
        artifacts=tuple(fields.artifacts),
    )


def to_mapping(spec: JobSpec) -> dict[str, Any]:
    """The mapping that says `spec` in full: `from_mapping(to_mapping(spec)) == spec`, and it is JSON."""
    resources, metrics = spec.resources, spec.metrics
    gpus = resources.gpus if resources.gpu_kind is None else f"{resources.gpu_kind}:{resources.gpus}"
    memory = None if resources.memory_bytes is None else _size_text(resources.memory_bytes)
    sections: dict[str, dict[str, Any]] = {
        "resources": {
            "nodes": resources.nodes, "gpus": gpus, "cpus": resources.cpus, "memory": memory, "ranks": resources.ranks,
        },
        "checkpoint": {
            "path": spec.checkpoint.path, "keep": spec.checkpoint.keep, "resume_arguments": spec.checkpoint.resume_arguments,
        },
        "restarts": {"program": spec.restarts.program, "infrastructure": spec.restarts.infrastructure},
        "environment": {"python": spec.environment.python, "variables": dict(spec.environment.variables)},
        "metrics": {"pattern": metrics.pattern, "primary": metrics.primary, "mode": str(metrics.mode)},
    }  # fmt: skip
    mapping: dict[str, Any] = {
        "name": spec.name,
        "project": spec.project,
        "experiment": spec.experiment,
        "priority": spec.priority,
        "command": spec.command if isinstance(spec.command, str) else list(spec.command),
        "workdir": spec.workdir,
        **{section: {k: v for k, v in fields.items() if v is not None} for section, fields in sections.items()},
        "params": dict(spec.params),
        "tags": dict(spec.tags),
        "artifacts": list(spec.artifacts),
    }
    if spec.time_limit_s is not None:
        mapping["time_limit"] = spec.time_limit_s
    return mapping


def _size_text(size_bytes: int) -> str:
    for unit, factor in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the spec file, for editors: what is supported, and the reserved names as not supported yet."""
    result = JobFields.model_json_schema()
    result |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Trainmaster job"}
    for dotted_name, description in RESERVED.items():
        section, _, name = dotted_name.rpartition(".")
        model = SECTIONS[section].__name__ if section else None
        properties = (result["$defs"][model] if model else result)["properties"]
        properties[name] = {"not": {}, "description": f"Not supported yet: {description}."}
    checkpoint, restarts = result["properties"]["checkpoint"], result["properties"]["restarts"]
    result["properties"]["checkpoint"] = _or_short(checkpoint, {"type": "string"})
    result["properties"]["restarts"] = _or_short(restarts, {"type": "integer", "minimum": 0})
    return result


def _or_short(schema: dict[str, Any], short: dict[str, Any]) -> dict[str, Any]:
    reference = {"$ref": schema["$ref"]} if "$ref" in schema else schema["allOf"][0]
    rest = {k: v for k, v in schema.items() if k not in ("$ref", "allOf")}
    return {"anyOf": [reference, short], **rest}
