"""Reads a spec file or mapping into a `JobSpec` (and back: `spec.mapping`). Every spec passes through here.

All faults are collected with their positions and reported together (`SpecError.details`): unknown fields with the most
similar known one, unsupported fields, wrong values, missing fields, and contradictions.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainmaster.model.redaction import HIDDEN
from trainmaster.model.spec import (
    START_LIMIT_S,
    CheckpointSpec,
    Choose,
    Environment,
    GpuChoice,
    JobSpec,
    MetricsSpec,
    Mode,
    NotifySpec,
    PlacementSpec,
    Resources,
    Restarts,
    Role,
    Strategy,
    counts,
)
from trainmaster.scheduling.model.domains import wider
from trainmaster.spec.default_names import default_name
from trainmaster.spec.environment_passing import passed_on
from trainmaster.spec.faults import FAULTS_MAX, Fault, describe, nearest, spec_error
from trainmaster.spec.fields.field_types import GANG_VARIABLES
from trainmaster.spec.fields.job_fields import (
    ElasticFields,
    JobFields,
    PlacementFields,
    ResourcesFields,
    RoleFields,
    RoleResourcesFields,
)
from trainmaster.spec.mapping import to_mapping
from trainmaster.spec.unknown_fields import unknown
from trainmaster.spec.yaml.fault_places import at, fault_of, unspeakable, with_text
from trainmaster.spec.yaml.reader import SIZE_MAX_BYTES, Document, Positions, dotted, parse
from trainmaster.spec.yaml.reader import Path as FieldPath
from trainmaster.wire.names import data_variable

RULES = frozenset(("pools", "projects", "classes", "fair_share", "multifactor", "preemption", "currency"))  # of a cluster.yaml

__all__ = ["RULES", "from_mapping", "load_bytes", "load_file", "to_mapping", "workdir_path"]


def load_file(path: Path, environment: Mapping[str, str] | None = None) -> JobSpec:
    """Read a spec file. `environment` has the values of variables that the spec only names. Raises: SpecError."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        hint = "check the path; a command goes after --, as in: tm run -- python train.py"
        raise spec_error([Fault("", f"{path}: cannot be read: {error.strerror}{_sibling(path)}")], hint) from error
    return load_bytes(data, str(path), environment)


def _sibling(path: Path) -> str:
    """A suggestion, if a file of a similar name exists."""
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return ""
    near = nearest(path.name, names, 0.8)
    return f"; did you mean {near!r}?" if near and near != path.name else ""


def load_bytes(data: bytes, file: str, environment: Mapping[str, str] | None = None) -> JobSpec:
    """Read a spec from bytes; `file` is its name in errors. Raises: SpecError."""
    document = parse(data, file)
    if isinstance(document.value, dict) and (hidden := with_text(document.value, document.where, HIDDEN)):
        raise spec_error([*document.faults, *hidden])
    return _load(document.value, document, environment)


def from_mapping(mapping: object, where: Positions | None = None) -> JobSpec:
    """Make a spec from a mapping, filling in defaults. Raises: SpecError."""
    return _load(mapping, Document(mapping, where or Positions(""), ()))


def workdir_path(spec: JobSpec, file: Path | None) -> Path:
    """The work directory, relative to the spec's file, or to the current directory without a file."""
    base = file.parent if file is not None else Path()
    return (base / Path(spec.workdir).expanduser()).absolute()


def _of_cluster(names: Set[Any]) -> bool:
    """Whether a file with these top-level fields is a cluster configuration."""
    return not names & {"command", "python"} and bool(names & {"pools", "projects"} or (names and names <= RULES))


def _load(value: object, document: Document, environment: Mapping[str, str] | None = None) -> JobSpec:
    where = document.where
    faults = list(document.faults)
    if isinstance(value, dict) and _of_cluster(value.keys()):
        message = "this is a cluster.yaml, not a job: it has no command"
        raise spec_error(
            [at(where, (), Fault("", message, "a job"))], "to see its effects: tm plan FILE   to apply it: tm apply FILE"
        )
    if not isinstance(value, dict):
        empty = value is None
        message = "the spec is empty; it needs at least a command" if empty else f"expected a mapping, got {describe(value)}"
        fault = at(where, (), Fault("command" if empty else "", message, "a mapping with at least 'command'", describe(value)))
        raise spec_error([*faults, fault])
    odd = unspeakable(value, where)
    if odd:
        raise spec_error([*faults, *odd])
    value, unset = passed_on(value, where, environment)
    faults += [*_lacking(value, where), *unset]
    try:
        fields = JobFields.model_validate(_as_written(value, where))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=True)
        faults += [fault_of(dict(item), where, unknown) for item in found[:FAULTS_MAX]]
        raise spec_error(faults) from None
    faults += [at(where, path, fault) for path, fault in _contradictions(fields)]
    if faults:
        raise spec_error(faults)
    return _complete(fields)


def _lacking(mapping: dict[str, Any], where: Positions) -> list[Fault]:
    """Check that exactly one of `command` and `python` is given."""
    if "command" in mapping and "python" in mapping:
        message = "is given besides 'command'; give one of them (an interpreter goes into environment.python)"
        return [at(where, ("python",), Fault("python", message, "command or python", "both"), key=True)]
    if "command" in mapping or "python" in mapping:
        return []
    message = "missing; every spec needs it, as 'command: python train.py' (or 'python: package.module:function')"
    return [at(where, ("command",), Fault("command", message, "a command", "nothing"))]


def _contradictions(fields: JobFields) -> list[tuple[FieldPath, Fault]]:
    """Values that are valid alone but contradict each other."""
    found: list[tuple[FieldPath, Fault]] = []
    if fields.python is not None and fields.checkpoint.resume_arguments is not None:
        message = "has no effect on a function, which calls sdk.resume_dir(); remove it, or use 'command' instead of 'python'"
        path: FieldPath = ("checkpoint", "resume_arguments")
        found.append((path, Fault(dotted(path), message, "no arguments", describe(fields.checkpoint.resume_arguments))))
    arguments, saved = fields.checkpoint.resume_arguments or "", fields.checkpoint.path or ""
    if "{step}" in arguments and "{step}" not in saved:
        message = f"has {{step}}, so checkpoint.path needs it too: it says where the step stands in {saved or 'the path'}"
        path = ("checkpoint", "resume_arguments")
        found.append((path, Fault(dotted(path), message, "{path}", describe(arguments))))
    if isinstance(fields.command, list | tuple) and "$(" in arguments:
        message = "has $(…), and no shell runs a command that is a list; {directory} stands for the directory of the checkpoint"
        path = ("checkpoint", "resume_arguments")
        found.append((path, Fault(dotted(path), message, "{path} or {directory}", describe(arguments))))
    if "on" in fields.notify.model_fields_set and not fields.notify.to:
        message = "says of what, but not who is told: give 'to' as well (--notify ADDRESS)"
        path = ("notify", "on")
        found.append((path, Fault(dotted(path), message, "'to' as well", fields.notify.on)))
    found += _choices(fields)
    found += _sizes(fields)
    known = " or ".join(kind for _, kind in fields.resources.gpus if kind is not None) or None
    for name, role in fields.roles.items():
        kind = role.resources.gpus[1]
        if kind is not None and known is not None and kind != known:
            message = f"GPUs of kind {kind} beside those of kind {known}; roles and ranks share a node, with GPUs of one kind"
            path = ("roles", name, "resources", "gpus")
            near = None if len(fields.resources.gpus) > 1 else f"{known}:{role.resources.gpus[0]}"
            found.append((path, Fault(dotted(path), message, known, kind, near)))
        known = known or kind
    found += _parts_of_gpus(fields)
    found += _places(fields.placement, len(fields.resources.gpus) > 1 and fields.placement.choose == Choose.COST)
    found += _variables_of_ranks(fields)
    variables: dict[str, str] = {}
    for name in fields.data:
        variable = data_variable(name)
        if variable in variables:
            message = f"would get the variable {variable}, as {variables[variable]!r} does; use another name"
            found.append((("data", name), Fault(dotted(("data", name)), message, "a unique name", name)))
        variables[variable] = name
    return found


def _variables_of_ranks(fields: JobFields) -> list[tuple[FieldPath, Fault]]:
    """Reject variables that Trainmaster sets for each rank of a gang. In any other job they are free to use."""
    if not _asked(fields).distributed:
        return []
    given = fields.environment.variables.keys() & GANG_VARIABLES
    paths: list[FieldPath] = [("environment", "variables", name) for name in sorted(given)]
    message = "is set by Trainmaster for each rank of a job with 'ranks', several nodes or several GPUs"
    return [(path, Fault(dotted(path), message, "another variable", str(path[-1]))) for path in paths]


def _parts_of_gpus(fields: JobFields) -> list[tuple[FieldPath, Fault]]:
    """Reject a second fraction of a GPU: the job's ranks share one, or one role has it; others could not be told apart."""
    own = min((count for count, _ in fields.resources.gpus if count), default=0)
    asked: list[tuple[FieldPath, float]] = [(("resources", "gpus"), own)]
    asked += [(("roles", name, "resources", "gpus"), role.resources.gpus[0]) for name, role in fields.roles.items()]
    message = "a job may have part of one GPU only: all its ranks share it, or one role has it; ask for whole GPUs instead"
    return [
        (path, Fault(dotted(path), message, "a whole number", describe(count), "1"))
        for path, count in [(path, count) for path, count in asked if 0 < count < 1][1:]
    ]


def _choices(fields: JobFields) -> list[tuple[FieldPath, Fault]]:
    """Reject duplicate choices, and options about choices without choices."""
    found: list[tuple[FieldPath, Fault]] = []
    gpus, place = fields.resources.gpus, fields.placement
    for index, one in enumerate(gpus):
        if one in gpus[:index]:
            path: FieldPath = ("resources", "gpus", index)
            found.append((path, Fault(dotted(path), "is a duplicate; remove it", "another kind or number", f"{one[1]}")))
    if place.choose is not None and len(gpus) == 1:
        path = ("placement", "choose")
        message = "there is nothing to choose from: give several in 'resources.gpus', as [h100:8, a100:8]"
        found.append((path, Fault(dotted(path), message, "several choices", place.choose)))
    kinds = [kind for _, kind in gpus if kind is not None]
    for kind in place.speed:
        if kind not in kinds or len(gpus) == 1:
            path, near = ("placement", "speed", kind), nearest(kind, kinds)
            hint = f"; did you mean {near!r}?" if near else ""
            message = f"none of several choices in 'resources.gpus' is of this kind{hint}"
            found.append((path, Fault(dotted(path), message, "one of the choices' kinds", kind, near)))
    return found


def _sizes(fields: JobFields) -> list[tuple[FieldPath, Fault]]:
    """Check the smallest number of nodes: given once, and not above the largest."""
    low, high, nodes = fields.elastic.nodes_min, fields.elastic.nodes_max, fields.resources.nodes
    said = low is not None and "nodes" in fields.resources.model_fields_set and nodes != low
    if said:
        path: FieldPath = ("elastic", "nodes_min")
        message = f"differs from 'resources.nodes' ({nodes}); give one of them"
        return [(path, Fault(dotted(path), message, f"{nodes}", f"{low}", f"{nodes}"))]
    if low is not None and high is None:
        message = "has no effect without 'nodes_max': a fixed number of nodes goes into 'resources.nodes'"
        return [(("elastic", "nodes_min"), Fault("elastic.nodes_min", message, "nodes_max as well", f"{low}"))]
    if high is not None and high < (low or nodes):
        message = f"is less than the smallest number of nodes, {low or nodes}"
        return [(("elastic", "nodes_max"), Fault("elastic.nodes_max", message, f"at least {low or nodes}", f"{high}"))]
    return []


def _places(place: PlacementFields, cheapest: bool) -> list[tuple[FieldPath, Fault]]:
    """Reject preferences that have no effect next to requirements."""
    found: list[tuple[FieldPath, Fault]] = []
    if place.prefer_for is not None and place.prefer is None and not cheapest:
        message = "limits how long to wait, but not for what: give 'prefer' too"
        path: FieldPath = ("placement", "prefer_for")
        found.append((path, Fault(dotted(path), message, "prefer: rack", describe(place.prefer_for))))
    if place.prefer is not None and place.within is not None and place.prefer in wider(place.within):
        message = f"is not narrower than {place.within!r}, which 'within' requires anyway"
        path = ("placement", "prefer")
        found.append((path, Fault(dotted(path), message, "a narrower level than in 'within'", place.prefer)))
    return found


def _as_written(mapping: dict[str, Any], where: Positions) -> dict[str, Any]:
    """Restore numbers in arguments and variables to the text in the file: `1e-4` stays `1e-4`."""
    written = _command_as_written(mapping, (), where)
    environment = mapping.get("environment")
    if isinstance(environment, dict) and isinstance(environment.get("variables"), dict):
        variables = environment["variables"].items()
        texts = {name: where.texts.get(("environment", "variables", name), value) for name, value in variables}
        written["environment"] = {**environment, "variables": texts}
    roles = mapping.get("roles")
    if isinstance(roles, dict):
        written["roles"] = {
            name: _command_as_written(role, ("roles", name), where) if isinstance(role, dict) else role
            for name, role in roles.items()
        }
    return written


def _command_as_written(mapping: dict[str, Any], path: FieldPath, where: Positions) -> dict[str, Any]:
    command = mapping.get("command")
    if not isinstance(command, list):
        return dict(mapping)
    texts = [where.texts.get((*path, "command", index), part) for index, part in enumerate(command)]
    return {**mapping, "command": texts}


def _complete(fields: JobFields) -> JobSpec:
    name = fields.name or default_name(fields.command if fields.python is None else fields.python.rpartition(":")[2])
    checkpoint, environment, metrics = fields.checkpoint, fields.environment, fields.metrics
    return JobSpec(
        command=fields.command,
        name=name,
        project=fields.project,
        experiment=fields.experiment or name,
        priority=fields.priority,
        workdir=fields.workdir,
        resources=_asked(fields),
        time_limit_s=fields.time_limit,
        start_limit_s=START_LIMIT_S if fields.start_limit is None else fields.start_limit,
        checkpoint=CheckpointSpec(checkpoint.path, checkpoint.keep, checkpoint.resume_arguments, checkpoint.interval),
        restarts=Restarts(fields.restarts.program, fields.restarts.infrastructure),
        environment=Environment(environment.python, environment.variables, environment.requirements),
        params=fields.params,
        metrics=MetricsSpec(
            metrics.pattern, metrics.primary, Mode(metrics.mode) if metrics.mode is not None else None, metrics.automatic,
            tuple(metrics.files),
        ),
        tags=fields.tags,
        artifacts=tuple(fields.artifacts),
        python=fields.python,
        roles={name: _role(role) for name, role in fields.roles.items()},
        data=fields.data,
        work=fields.work,
        placement=_placement(fields.placement),
        index=fields.index,
        notify=NotifySpec(tuple(dict.fromkeys(fields.notify.to)), fields.notify.on),
        max_running=fields.max_running,
    )


def _placement(fields: PlacementFields) -> PlacementSpec:
    strategy = None if fields.strategy is None else Strategy(fields.strategy)
    return PlacementSpec(
        fields.pool, strategy, fields.within, fields.prefer, fields.prefer_for or 0.0, fields.near, fields.group,
        Choose(fields.choose or Choose.FINISH), counts(fields.speed),
    )  # fmt: skip


def _role(fields: RoleFields) -> Role:
    return Role(fields.command, _resources(fields.resources))


def _resources(fields: RoleResourcesFields) -> Resources:
    nodes, several = 1, [fields.gpus]
    ranks: int | None = 1
    if isinstance(fields, ResourcesFields):
        nodes, ranks, several = fields.nodes, fields.ranks, list(fields.gpus)
    choices = [_choice(count, kind, ranks) for count, kind in several]
    first = choices[0]
    return Resources(
        nodes, first.gpus, several[0][1], fields.cpus, fields.memory, first.ranks, fields.disk or 0, fields.network or 0.0,
        counts(fields.accelerators), counts(fields.custom), first.gpu_share, tuple(choices) if len(choices) > 1 else (),
        ranks_given=ranks is not None,
    )  # fmt: skip


def _asked(fields: JobFields) -> Resources:
    return _grown(_resources(fields.resources), fields.elastic)


def _grown(resources: Resources, fields: ElasticFields) -> Resources:
    nodes = fields.nodes_min or resources.nodes
    most = fields.nodes_max if fields.nodes_max not in (None, nodes) else 0
    return replace(resources, nodes=nodes, nodes_max=most) if fields.nodes_max else resources


def _choice(count: float, kind: str | None, ranks: int | None) -> GpuChoice:
    gpus = int(count)  # a fraction becomes a share
    return GpuChoice(kind or "", gpus, float(count - gpus), ranks or gpus or 1)
