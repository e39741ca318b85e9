"""Variables given by name only, whose value is passed on from the submitting environment, and `NAME=VALUE` before a command.

A client passes its environment in. A server does not (and never uses its own): there a name without a value is a fault.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.spec.faults import Fault, describe
from trainmaster.spec.yaml.fault_places import at
from trainmaster.spec.yaml.reader import Path, Positions, dotted

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VARIABLES: Path = ("environment", "variables")
_NOBODYS = "names alone take their values from the submitting shell, through tm or trainmaster.submit; here: NAME: VALUE"


def is_name(text: str) -> bool:
    """Whether a shell takes the text as the name of a variable."""
    return _NAME.match(text) is not None


def assignments(command: str | Sequence[str]) -> tuple[dict[str, str], str | Sequence[str]]:
    """The variables that `NAME=VALUE` words before a command set, as in a shell, and the command itself.

    Raises: UsageError if there is no command.
    """
    words = [command] if isinstance(command, str) else list(command)
    if len(words) == 1 and len(str(words[0]).split()) > 1:
        return {}, command  # a line: bash reads its variables itself
    pairs = [str(word).partition("=") for word in words]
    count = next((n for n, (name, equals, _) in enumerate(pairs) if not equals or not is_name(name)), len(words))
    if not count:
        return {}, command
    if count == len(words):
        named = ", ".join(name for name, _, _ in pairs)  # no values: they may be secret
        raise UsageError(f"there is no command after {named}", f"{pairs[0][0]}=VALUE python train.py")
    return {name: value for name, _, value in pairs[:count]}, words[count:]


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
