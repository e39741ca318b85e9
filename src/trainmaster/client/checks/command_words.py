"""The words of the commands of a spec that is not validated yet."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from trainmaster.model.options.placeholders import Command


def commands(spec: Mapping[str, Any]) -> list[Command]:
    """The commands of the ranks (first) and roles, as far as they are valid: the server validates the spec."""
    roles = spec.get("roles")
    below = roles.values() if isinstance(roles, Mapping) else ()
    written = [spec.get("command"), *(one.get("command") if isinstance(one, Mapping) else one for one in below)]
    return [one if isinstance(one, str) else tuple(map(str, one)) for one in written if isinstance(one, str | list | tuple)]


def words(command: Command) -> Iterator[str]:
    """The words of a command, as a shell would split it."""
    if not isinstance(command, str):
        yield from command
        return
    try:
        yield from shlex.split(command)
    except ValueError:  # an open quote
        yield from command.split()


def module_files(word: str) -> set[str]:
    """The files that `python -m word` would run."""
    path = word.replace(".", "/")
    return {f"{path}.py", f"{path}/__main__.py"}
