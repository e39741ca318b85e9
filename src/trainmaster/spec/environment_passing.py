"""Variables given by name only: the value is passed on from the submitting environment.

A client passes its environment in. A server does not (and never uses its own): there a name without a value is a fault.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.spec.faults import Fault, describe
from trainmaster.spec.yaml.fault_places import at
from trainmaster.spec.yaml.reader import Path, Positions, dotted

_VARIABLES: Path = ("environment", "variables")
_NOBODYS = "names alone take their values from the submitting shell, through tm or trainmaster.submit; here: NAME: VALUE"


def names_of(mapping: Mapping[str, Any]) -> Sequence[object] | None:
    """The variables that a spec gives by name only; None if it gives values, or no variables."""
    section = mapping.get("environment")
    names = section.get("variables") if isinstance(section, Mapping) else None
    return names if isinstance(names, list | tuple) else None


def lacking(name: object, environment: Mapping[str, str]) -> str:
    """Why a variable has no value to pass on; empty if it has one."""
    if not isinstance(name, str):
        return f"expected a variable's name, got {describe(name)}"
    if "=" in name:
        return f"{name.partition('=')[0]!r} is in a list of names but has a value; give a mapping, as {{NAME: VALUE}}"
    if name not in environment:
        return f"the variable {name!r} is not set here, or not exported; export it, or give it a value"
    if any("\ud800" <= character <= "\udfff" for character in environment[name]):
        return f"the variable {name!r} is not valid UTF-8 here; give it a value"
    return ""


def passed_on(
    mapping: dict[str, Any], where: Positions, environment: Mapping[str, str] | None
) -> tuple[dict[str, Any], list[Fault]]:
    """The spec's mapping with values filled in for variables given by name, and the faults found."""
    names = names_of(mapping)
    if names is None:
        return mapping, []
    if environment is None:
        told = [at(where, _VARIABLES, Fault(dotted(_VARIABLES), _NOBODYS, "a mapping of names to values", "a list"))]
    else:
        wrong = [(index, lacking(name, environment)) for index, name in enumerate(names)]
        told = [_fault(where, index, message) for index, message in wrong if message]
    known = {str(name): environment[str(name)] for name in names if environment and not lacking(name, environment)}
    return {**mapping, "environment": {**mapping["environment"], "variables": known}}, told


def _fault(where: Positions, index: int, message: str) -> Fault:
    path = (*_VARIABLES, index)
    return at(where, path, Fault(dotted(path), message, "the name of a variable that is set"))
