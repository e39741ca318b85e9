"""Lines that programs print, and what must be read of them: the files of `printed_lines/`.

`read_*.txt`: blocks of one style, each printed by one program. A line is followed by `=> step name=value …` if something must
be read of it; `-` is no step. `nothing_*.txt`: lines of which nothing must be read. `\\t`, `\\r`, `\\x1b` and `\\x08` are written out.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from trainmaster.agent.files.following import Lines
from trainmaster.agent.metrics.output import LINE_MAX
from trainmaster.agent.metrics.parse import Parser

PLACE = Path(__file__).with_name("printed_lines")
_LATE = 1
Found = tuple[int | None, dict[str, float]] | None


class Printed(NamedTuple):
    """A line and what must be read of it."""

    style: str
    text: str
    wanted: Found


class Score(NamedTuple):
    """How many lines had to be read, how many were, and what was read wrongly, of how many lines in all."""

    readable: int
    found: int
    wrong: list[str]
    missed: list[str]
    lines: int


def blocks(path: Path) -> list[list[Printed]]:
    """The blocks of a file."""
    made: list[list[Printed]] = []
    style = ""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("# "):
            style = line[2:].removeprefix("style: ")
            made.append([])
        elif line.startswith("=> ") and "loaded checkpoint" not in line:
            made[-1][-1] = made[-1][-1]._replace(wanted=reading(line[3:]))
        elif line:
            made[-1].append(Printed(style, unescaped(line), None))
    return made


def reading(text: str) -> Found:
    """`12 loss=0.5`."""
    step, *pairs = text.split()
    values = {name: float(value) for name, value in (pair.rsplit("=", 1) for pair in pairs if not pair.endswith("%"))}
    values.update({name: float(value[:-1]) for name, value in (pair.rsplit("=", 1) for pair in pairs if pair.endswith("%"))})
    return (None if step == "-" else int(step)), values


def unescaped(line: str) -> str:
    """The line as it is printed."""
    for written, meant in (("\\t", "\t"), ("\\r", "\r"), ("\\x1b", "\x1b"), ("\\x08", "\x08")):
        line = line.replace(written, meant)
    return line


def read(parser: Parser, lines: Lines, text: str) -> Found:
    """What a line says: of the pieces that overwrite each other, the last that has values, or only a step."""
    found = [parser.parse(piece) for piece in lines.feed(text.encode() + b"\n") if piece]
    said = [one for one in found if one is not None]
    return next((one for one in reversed(said) if one[1]), said[-1] if said else None)


def score(names: list[str]) -> Score:
    """How well the lines of some files are read. A line may be reported up to `_LATE` lines later."""
    readable = right = count = 0
    wrong, missed = [], []
    for name in names:
        for block in blocks(PLACE / name):
            parser, lines = Parser(), Lines(LINE_MAX)
            found = [read(parser, lines, printed.text) for printed in block] + [parser.rest()]
            count += len(block)
            for index, printed in enumerate(block):
                readable += printed.wanted is not None
                late = range(index, min(index + 1 + _LATE, len(found)))
                at = next((at for at in late if same(found[at], printed.wanted)), None) if printed.wanted is not None else None
                if at is not None:
                    right += 1
                    found[at] = None
                elif printed.wanted is not None:
                    missed.append(f"{name} [{printed.style}] {printed.text!r}: {found[index]}, not {printed.wanted}")
            for index, one in enumerate(found[:-1]):
                if one is not None and not within(one, block[index].wanted):
                    wrong.append(f"{name} [{block[index].style}] {block[index].text!r}: {one}, not {block[index].wanted}")
    return Score(readable, right, wrong, missed, count)


def same(found: Found, wanted: Found) -> bool:
    """Whether both say the same. NaN is equal to itself here."""
    if found is None or wanted is None:
        return found is wanted
    return found[0] == wanted[0] and found[1].keys() == wanted[1].keys() and all(near(found[1][name], wanted[1][name]) for name in wanted[1])


def within(found: tuple[int | None, dict[str, float]], wanted: Found) -> bool:
    """Whether nothing was read that is not so."""
    if wanted is None:
        return False
    return found[0] in (None, wanted[0]) and all(name in wanted[1] and near(value, wanted[1][name]) for name, value in found[1].items())


def near(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or one == other or abs(one - other) <= 1e-9 * abs(other)
