"""Compares long command lines argument by argument, showing only those that differ."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.model.redaction import HIDDEN, unnumbered

LONG = 60  # characters; shorter commands are shown whole
_NEGATIVE = re.compile(r"-\.?[0-9]")
_GIVEN = "given"  # an option without a value
_SHELLS, _LINE_OPTIONS = ("bash", "sh"), ("-c", "-lc")
_CONTEXT = 8  # characters shown before the first difference

Row = Mapping[str, Any]


def by_argument(rows: Sequence[Row], most: int = LONG) -> list[Row]:
    """`rows` of a comparison, where a command longer than `most` characters becomes one row per differing argument."""
    return [one for row in rows for one in (_divided(row) if _is_long_command(row, most) else [row])]


def from_difference(values: Sequence[str], most: int) -> list[str]:
    """Values of one argument. If one is longer than `most` characters, all are cut to start shortly before the difference."""
    common = len(os.path.commonprefix([value for value in values if value != "-"]))  # noqa: RUF071  # of characters
    if common <= _CONTEXT or max(map(len, values)) <= most or len({*values} - {"-"}) < 2:
        return list(values)
    return [value if value == "-" else f"…{value[common - _CONTEXT :]}" for value in values]


def _is_long_command(row: Row, most: int) -> bool:
    lines = [value for value in row["values"] if isinstance(value, str)]
    command = row["section"] == "spec" and row["field"].rpartition(".")[2] == "command"
    return command and not row["equal"] and len(lines) > 1 and any(len(line) > most for line in lines)


def _divided(row: Row) -> list[Row]:
    parts = [(None, None) if value is None else unnumbered(value) for value in row["values"]]
    tables = [None if line is None else _arguments(line) for line, _ in parts]
    columns: dict[str, list[str | None]] = {}
    for name in dict.fromkeys(name for table in tables if table is not None for name in table):
        columns[f"{row['field']} {name}"] = [None if table is None else table.get(name) for table in tables]
    if any(number is not None for _, number in parts):
        columns[f"{row['field']}, what is hidden"] = [number and f"{HIDDEN} {number}" for _, number in parts]
    told: list[Row] = [{**row, "field": name, "values": values} for name, values in columns.items() if len(set(values)) > 1]
    return told or [{**row, "field": f"{row['field']}, ordered or written otherwise"}]


def _arguments(line: str) -> dict[str, str]:
    """The arguments of a line: options and assignments by name, others by number; 0 is the program."""
    words = _words(line)
    found: dict[str, list[str]] = {}
    others, at = 0, 0
    while at < len(words):
        word, after = words[at], words[at + 1] if at + 1 < len(words) else None
        at += 1
        if _is_assignment(word):
            name, _, value = word.partition("=")
            found.setdefault(name, []).append(value)
        elif not _is_option(word):
            found[f"argument {others}"] = [word]
            others += 1
        elif after is None or _is_option(after) or _is_assignment(after):
            found.setdefault(word, []).append(_GIVEN)
        else:
            found.setdefault(word, []).append(after)
            at += 1
    return {name: ", ".join(values) for name, values in found.items()}


def _words(line: str) -> list[str]:
    """The words of a line; for `bash -c LINE` those of LINE."""
    try:
        words = shlex.split(line)
        if len(words) == 3 and os.path.basename(words[0]) in _SHELLS and words[1] in _LINE_OPTIONS:
            words = shlex.split(words[2])
    except ValueError:  # an unterminated quote
        return line.split()
    return words


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals and name) and not any(map(str.isspace, name))


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and _NEGATIVE.match(word) is None
