"""Suggests a `metrics.pattern` that reads a printed line, for programs whose lines are not read by themselves."""

import re
from itertools import takewhile
from typing import NamedTuple

from trainmaster.agent.metrics.parse import Parser
from trainmaster.agent.metrics.patterns import compiled

_LINE_MAX = 500  # characters
_VALUES_MAX = 4
_FOUND = re.compile(r"(?<![\w.:/-])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w:/.-]*[\w/])", re.ASCII)
_UNITS = re.compile(r" ?(?:s|ms|us|it/s|s/it|sec|seconds|min|h|[KMG]i?B)\b")
_BETWEEN = " \t:=([|#"  # a name and its number
_BETWEEN_MAX = 4
_STEPS = ("step", "steps", "iter", "iters", "iteration", "it", "batch", "update", "epoch", "episode", "generation", "round")


class _Number(NamedTuple):
    """A number of the line: its place, the word before it, and whether it has no fraction."""

    start: int
    end: int
    name: str
    value: float
    whole: bool


def suggested(line: str) -> str | None:
    """A pattern that finds the step and up to four values of `line`; None if it has no number with a fraction, or is too long.

    A value without a word before it is called `value_1` and so on, by its place.
    """
    text = line.strip()
    if len(text) > _LINE_MAX:
        return None
    numbers = list(_numbers(text))
    step = _step(numbers)
    values = [one for one in numbers if not one.whole][:_VALUES_MAX]
    if not values:
        return None
    pattern = _pattern(text, sorted([*values, *([step] if step else [])]), step)
    found = Parser(compiled(pattern)).parse(text.encode())
    return pattern if found is not None and found[1] else None


def _numbers(text: str) -> list[_Number]:
    found = []
    for match in _FOUND.finditer(text):
        if not _UNITS.match(text, match.end()):
            name = _name(text[: match.start()])
            found.append(_Number(match.start(), match.end(), name, float(match[0]), match[0].isdecimal()))
    return found


def _name(before: str) -> str:
    """The word at the end of `before`."""
    text = before.rstrip(_BETWEEN)
    at = len(text)
    while at and (text[at - 1] == "_" or (text[at - 1].isascii() and text[at - 1].isalpha())):
        at -= 1
    return text[at:].lstrip("_") if len(before) - len(text) <= _BETWEEN_MAX else ""


def _step(numbers: list[_Number]) -> _Number | None:
    """The number that a word calls a step, else the highest of those without a fraction at the beginning."""
    named = [one for word in _STEPS for one in numbers if one.whole and one.name.lower() == word]
    leading = sorted(takewhile(lambda one: one.whole, numbers), key=lambda one: -one.value)
    return next(iter([*named, *leading]), None)


def _pattern(text: str, wanted: list[_Number], step: _Number | None) -> str:
    pattern, at, used = "", _begin(text, wanted[0]), set[str]()
    for number in wanted:
        pattern += _between(text[at : number.start])
        if number is step:
            pattern += r"(?P<step>\d+)"
        else:
            stem = number.name.lower() or "value"
            name = stem if number.name and stem not in used else f"{stem}_{len(used) + 1}"
            used.add(name)
            pattern += rf"(?P<{name}>[-+.\deE]+)"
        at = number.end
    return pattern


def _begin(text: str, first: _Number) -> int:
    """Where the pattern begins: at the word of its first number, or at the beginning of the line."""
    return text.rindex(first.name, 0, first.start) if first.name else 0


def _between(text: str) -> str:
    """A pattern for the text between two numbers: other numbers in it may change."""
    parts = re.split(r"(\s+|\d[\w.]*)", text)
    return "".join(r"\s+" if part.isspace() else r"\S+" if part[:1].isdigit() else re.escape(part) for part in parts)
