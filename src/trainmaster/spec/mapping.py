"""Converts a spec back into the complete mapping of a spec file."""

from typing import Any

from trainmaster.model.spec import START_LIMIT_S, Choose, GpuChoice, JobSpec, PlacementSpec, Resources, Role
from trainmaster.spec.fields.quantities import rate_text
from trainmaster.spec.fields.values import duration_s

_SECTIONS = ("resources", "checkpoint", "restarts", "environment", "metrics")
_SIZE_UNITS = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("B", 1))


def to_mapping(spec: JobSpec) -> dict[str, Any]:
    """The complete mapping of `spec`, as JSON values. `from_mapping(to_mapping(spec)) == spec`."""
    checkpoint, metrics, environment = spec.checkpoint, spec.metrics, spec.environment
    sections: dict[str, dict[str, Any]] = {
        "resources": {"nodes": spec.resources.nodes, **_resources(spec.resources), "ranks": _ranks(spec.resources)},
        "checkpoint": {
            "path": checkpoint.path, "interval": checkpoint.interval_s, "keep": checkpoint.keep,
            "resume_arguments": checkpoint.resume_arguments,
        },
        "restarts": {"program": spec.restarts.program, "infrastructure": spec.restarts.infrastructure},
        "environment": {
            "python": environment.python, "requirements": environment.requirements, "variables": dict(environment.variables),
        },
        "metrics": {
            "pattern": metrics.pattern, "primary": metrics.primary,
            "mode": metrics.mode.value if metrics.mode is not None else None,
            "automatic": None if metrics.automatic else False, "files": list(metrics.files) or None,
        },
    }  # fmt: skip
    mapping: dict[str, Any] = {
        "name": spec.name,
        "project": spec.project,
        "experiment": spec.experiment,
        "class": spec.work,
        "priority": spec.priority,
        **({"command": _command(spec.command)} if spec.python is None else {"python": spec.python}),
        "workdir": spec.workdir,
        **{section: {k: v for k, v in fields.items() if v is not None} for section, fields in sections.items()},
        "params": dict(spec.params),
        "tags": dict(spec.tags),
        "artifacts": list(spec.artifacts),
    }
    if spec.resources.nodes_max:
        mapping["elastic"] = {"nodes_max": spec.resources.nodes_max}
    placement = _placement(spec.placement)
    if placement:
        mapping["placement"] = placement
    if spec.time_limit_s is not None:
        mapping["time_limit"] = spec.time_limit_s
    if spec.start_limit_s != START_LIMIT_S:
        mapping["start_limit"] = spec.start_limit_s
    if spec.roles:
        mapping["roles"] = {name: _role(role) for name, role in spec.roles.items()}
    if spec.notify.to:
        mapping["notify"] = {"to": list(spec.notify.to), "on": spec.notify.on}
    if spec.index is not None:
        mapping["index"] = spec.index
    if spec.max_running is not None:
        mapping["max_running"] = spec.max_running
    if spec.data:
        mapping["data"] = dict(spec.data)
    return mapping


_DURATIONS = (("time_limit",), ("start_limit",), ("checkpoint", "interval"), ("placement", "prefer_for"))


def to_file(spec: JobSpec) -> dict[str, Any]:
    """The mapping as a person writes it: durations with units, and no empty section. `from_mapping(to_file(spec)) == spec`."""
    mapping = to_mapping(spec)
    for *sections, name in _DURATIONS:
        section = mapping
        for one in sections:
            section = section.get(one, {})
        if name in section:
            section[name] = duration_value(section[name])
    return {name: value for name, value in _without_empty(mapping).items() if value not in ({}, [])}


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    """The sections without empty mappings in them."""
    return {
        name: {key: item for key, item in value.items() if item not in ({}, [])} if name in _SECTIONS else value
        for name, value in mapping.items()
    }


def _placement(placement: PlacementSpec) -> dict[str, Any]:
    """The placement section, without empty fields."""
    told = {
        "pool": placement.pool, "strategy": placement.strategy and str(placement.strategy), "within": placement.within,
        "prefer": placement.prefer, "prefer_for": placement.prefer_s or None, "near": placement.near, "with": placement.group,
        "choose": None if placement.choose is Choose.FINISH else str(placement.choose), "speed": dict(placement.speed) or None,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value is not None}


def _command(command: str | tuple[str, ...]) -> str | list[str]:
    return command if isinstance(command, str) else list(command)


def _role(role: Role) -> dict[str, Any]:
    resources = {name: value for name, value in _resources(role.resources).items() if value is not None}
    return {"command": _command(role.command), "resources": resources}


def _resources(resources: Resources) -> dict[str, Any]:
    """The resources that a role can have; None for those not requested."""
    choices = [_gpus(one) for one in resources.choices]
    return {
        "gpus": choices or _gpus(resources),
        "cpus": resources.cpus,
        "memory": None if resources.memory_bytes is None else size_text(resources.memory_bytes),
        "disk": size_text(resources.disk_bytes) if resources.disk_bytes else None,
        "network": rate_text(resources.network_bps) if resources.network_bps else None,
        "accelerators": {kind: int(number) for kind, number in resources.accelerators} or None,
        "custom": dict(resources.custom) or None,
    }


def _gpus(one: Resources | GpuChoice) -> float | str:
    gpus = one.gpu_share or one.gpus
    return gpus if one.gpu_kind is None else f"{one.gpu_kind}:{gpus}"


def _ranks(resources: Resources) -> int | None:
    """The number of ranks; None if it was not given, or if it follows from the GPUs of each choice."""
    several = len({one.ranks for one in resources.choices}) > 1
    return resources.ranks if resources.ranks_given and not several else None


def size_text(size_bytes: int) -> str:
    """Text that means exactly `size_bytes`."""
    unit, factor = next((unit, factor) for unit, factor in _SIZE_UNITS if size_bytes % factor == 0)
    return f"{size_bytes // factor}{unit}"


def duration_text(seconds: float) -> str:
    """Text that means exactly `seconds`: `1d12h`, `90s`, `0.5s`."""
    whole, text = int(seconds), ""
    for unit, factor in (("d", 86400), ("h", 3600), ("m", 60)):
        count, whole = divmod(whole, factor)
        text += f"{count}{unit}" if count else ""
    rest = whole + (seconds - int(seconds))
    return text + (f"{rest:g}s" if rest or not text else "")


def duration_value(seconds: float) -> str | float:
    """The duration as a person writes it, or the number itself where that text would not mean exactly as much."""
    text = duration_text(seconds)
    return text if "e" not in text and duration_s(text) == seconds else seconds
