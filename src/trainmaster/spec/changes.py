"""Applies changes to a spec."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.model.options.placeholders import commands_of, names_in
from trainmaster.model.spec import JobSpec
from trainmaster.spec.document import from_mapping
from trainmaster.spec.faults import nearest
from trainmaster.spec.mapping import to_mapping


def changed(spec: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """`spec` with the fields in `changes` (a mapping as in a spec file) replaced, section by section. Raises: SpecError."""
    if not changes:
        return spec
    mapping = to_mapping(spec)
    for one, other in (("command", "python"), ("python", "command")):
        if one in changes:
            mapping.pop(other, None)
    if "name" in changes and "experiment" not in changes and spec.experiment == spec.name:
        mapping.pop("experiment", None)  # its default follows the name
    return remade(spec, mapping, changes)


def remade(spec: JobSpec, mapping: dict[str, Any], changes: Mapping[str, Any]) -> JobSpec:
    """The spec that `mapping`, made from `spec`, describes after `changes`. Modifies the mapping. Raises: SpecError.

    If `ranks` was not given, there is still one rank per GPU; if it was given, the job is still a gang.
    """
    resources = changes.get("resources")
    if spec.resources.ranks_follow and isinstance(resources, Mapping) and "gpus" in resources:
        mapping["resources"].pop("ranks", None)
    made = from_mapping(merged(mapping, changes))
    if not spec.resources.ranks_given:
        return made
    return replace(made, resources=replace(made.resources, ranks_given=True))


def only_known_params(spec: JobSpec, changes: Mapping[str, Any], job: str) -> None:
    """Reject a parameter that neither the job nor its (new) command has. Raises: UsageError with the most similar name."""
    given, command = changes.get("params"), changes.get("command")
    commands = commands_of(spec) if command is None else (command if isinstance(command, str) else tuple(map(str, command)),)
    known = frozenset(spec.params).union(*(names_in(one) for one in commands))
    unknown = [name for name in given if name not in known] if isinstance(given, Mapping) else []
    if not unknown:
        return
    name = str(unknown[0])
    add = f"a new one: --add-param {name}=…"
    if not spec.params:
        other = f"give a command that takes it: tm rerun {job} --set {name}=… -- python train.py --{name} {{{name}}}"
        raise UsageError(f"{job} has no parameters, so {name!r} would change nothing", f"{other}   {add}")
    near = nearest(name, list(spec.params))
    hint = f"did you mean {near!r}?" if near else f"it has {', '.join(spec.params)}"
    raise UsageError(f"{job} has no parameter {name!r}", f"{hint}   {add}")


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base`, overridden by `over`, section by section."""
    both = dict(base)
    for name, value in over.items():
        below = both.get(name)
        both[name] = merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return both
