"""Placeholders in commands: `{lr}` stands for the value of the parameter `lr`, and `{{lr}}` for the text `{lr}`.

Braces that name no parameter stay as they are, so that awk programs and JSON in commands work; so does the shell's `${lr}`.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping

from trainmaster.model.spec import JobSpec, Origin, Scalar
from trainmaster.wire.names import ENV_PARAMS, ENV_RESUME_ARGUMENTS

INDEX = "index"  # the index of an array's task, unless a parameter has this name
_PLACE = re.compile(r"""\$?\{(?:\{([^{}\s"'\\`$]+)\}|([^{}\s"'\\`$]+))\}""")
_BEFORE_COMMENT = " \t\n;&|()"  # in a shell, `#` begins a comment only after one of these
_SPECIAL = re.compile(r'[\\"$`]')  # inside double quotes of a shell

Command = str | tuple[str, ...]


def values_of(spec: JobSpec) -> dict[str, str]:
    """What the placeholders of its commands stand for, as text: `true`, `null` and numbers as in JSON."""
    index = {} if spec.index is None else {INDEX: str(spec.index)}
    return {**index, **{name: _text(value) for name, value in spec.params.items()}}


def filled(command: Command, values: Mapping[str, str]) -> Command:
    """`command` with its placeholders replaced. In a line for bash each value is quoted, as its place requires."""
    if not values:
        return command
    if isinstance(command, str):
        return "".join(_pieces(command, values))
    return tuple(_PLACE.sub(lambda found: _replaced(found, values, None), part) for part in command)


def names_in(command: Command) -> frozenset[str]:
    """All names that stand in braces."""
    parts = (command,) if isinstance(command, str) else command
    found = (match for part in parts for match in _PLACE.finditer(part) if not match[0].startswith("$"))
    return frozenset(match[2] for match in found if match[2])


def commands_of(spec: JobSpec) -> tuple[Command, ...]:
    """The commands of its ranks and roles."""
    return (spec.command, *(role.command for role in spec.roles.values()))


def unread(spec: JobSpec, origin: Origin) -> tuple[str, ...]:
    """Parameters that are only recorded: no command has a placeholder for them, and nothing reads all parameters.

    Empty if a function gets them, or if it is not known what the program reads (`Origin.reads_params`).
    """
    commands = commands_of(spec)
    if spec.python is not None or origin.reads_params is not False or any(mentions_reader(one) for one in commands):
        return ()
    used = frozenset[str]().union(*(names_in(one) for one in commands))
    return tuple(name for name in spec.params if name not in used)


def mentions_reader(command: Command) -> bool:
    """Whether a command itself reads the variable with all parameters."""
    return _mentions(command, ENV_PARAMS)


def without_resume_arguments(spec: JobSpec) -> list[str]:
    """A note if a command takes the resume arguments and there are none: it would begin again at each restart."""
    if spec.checkpoint.resume_arguments or not any(_mentions(one, ENV_RESUME_ARGUMENTS) for one in commands_of(spec)):
        return []
    empty = "is always empty without checkpoint.resume_arguments (--resume-arguments)"
    return [f"the command uses {ENV_RESUME_ARGUMENTS}, which {empty}"]


def _mentions(command: Command, variable: str) -> bool:
    return any(variable in part for part in ((command,) if isinstance(command, str) else command))


def _text(value: Scalar) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _replaced(found: "re.Match[str]", values: Mapping[str, str], quote: str | None) -> str:
    """The replacement of one match; `quote`: the shell's open quote, "" outside of quotes, None for an argument of a list."""
    literal, name = found[1], found[2]
    if found[0].startswith("$") or (literal or name) not in values:
        return found[0]
    if literal:
        return "{" + literal + "}"
    value = values[name]
    if quote is None:
        return value
    if quote == "'":
        return value.replace("'", "'\\''")
    return shlex.quote(value) if not quote else _SPECIAL.sub(r"\\\g<0>", value)


def _pieces(line: str, values: Mapping[str, str]) -> Iterator[str]:
    """A line for bash in pieces, with its placeholders replaced."""
    quote, at, done = "", 0, 0
    for found in _PLACE.finditer(line):
        while at < found.start():  # track quotes up to the placeholder
            char = line[at]
            if char == "#" and not quote and (not at or line[at - 1] in _BEFORE_COMMENT):
                end = line.find("\n", at)
                at = len(line) if end < 0 else end
                continue
            if char == "\\" and quote != "'":
                at += 1
            elif char in "'\"" and quote in ("", char):
                quote = "" if quote else char
            at += 1
        yield line[done : found.start()]
        yield found[0] if at > found.start() else _replaced(found, values, quote)  # in a comment or after a backslash: as it is
        at, done = max(at, found.end()), found.end()
    yield line[done:]
