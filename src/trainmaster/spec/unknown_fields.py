"""Faults for fields that a spec may not have: unknown ones, with a suggestion, and ones not supported yet."""

from pydantic import BaseModel

from trainmaster.spec.faults import Fault, describe, nearest
from trainmaster.spec.fields.job_fields import RESERVED, SECTIONS, JobFields, RoleResourcesFields
from trainmaster.spec.yaml.reader import Path, dotted

_HABITS = {  # field names of other systems
    "cmd": "command", "entrypoint": "command", "run": "command", "script": "command", "args": "command",
    "env": "environment.variables", "environ": "environment.variables", "timeout": "time_limit", "time": "time_limit",
    "mem": "resources.memory", "gpu": "resources.gpus", "gpu_kind": "resources.gpus", "cpu": "resources.cpus",
    "retries": "restarts", "max_retries": "restarts",
    "cwd": "workdir", "working_dir": "workdir", "num_nodes": "resources.nodes", "nnodes": "resources.nodes", "labels": "tags",
    "nproc_per_node": "resources.ranks", "tasks": "resources.ranks", "hyperparameters": "params", "outputs": "artifacts",
    "requirements_file": "environment.requirements", "packages": "environment.requirements", "dataset": "data",
    "datasets": "data", "function": "python", "main": "python", "sidecars": "roles", "storage": "resources.disk",
    "bandwidth": "resources.network", "licenses": "resources.custom", "tpus": "resources.accelerators",
    "vars": "environment.variables", "glob": "checkpoint.path", "max": "restarts.program",
}  # fmt: skip


def unknown(path: Path, value: object) -> Fault:
    """The fault for an unknown field, without its position."""
    name, field = str(path[-1]), dotted(path)
    if field in RESERVED:
        return Fault(field, f"{name!r} is not supported yet; {RESERVED[field][1]}", "", describe(value))
    section = ".".join("*" if depth == 1 and path[0] == "roles" else str(part) for depth, part in enumerate(path[:-1]))
    model: type[BaseModel] = SECTIONS[section] if section else JobFields
    names = _names(model)
    suggestion = _meant(name, section.removeprefix("roles.*").lstrip("."), names)
    below = [f"resources.{name}" for name in RoleResourcesFields.model_fields]
    if section.startswith("roles.") and suggestion not in (*names, *below):
        suggestion = None  # it is a field of the job, which a role does not have: a role runs once, on one node
    hint = f"; did you mean {suggestion!r}?" if suggestion else f"; known are {', '.join(names)}"
    return Fault(field, "unknown field" + hint, "one of " + ", ".join(names), name[:60], suggestion)


def _names(model: type[BaseModel]) -> list[str]:
    """The fields' names in the file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _meant(name: str, section: str, names: list[str]) -> str | None:
    """The intended name: the exact word here, then elsewhere, then a habit; then a similar word here, then elsewhere."""
    lowered = name.lower().replace("-", "_")
    if lowered in names:
        return lowered
    sections = {s: model for s, model in SECTIONS.items() if not s.startswith("roles.")}
    homes = {f: f"{s}.{f}" for s, model in reversed(sections.items()) for f in _names(model)}
    homes |= {f: f for f in _names(JobFields)}
    ending = [f for f in names if f.endswith(f"_{lowered}")]
    if section and len(ending) == 1:
        return ending[0]
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
