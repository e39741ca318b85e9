"""What goes where: data to standard output, every other word to standard error; colours on a terminal alone."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from trainmaster.cli.render import human
from trainmaster.cli.render.table import draw

_COLOURS = {"succeeded": "32", "running": "36", "failed": "31", "lost": "31", "cancelled": "33", "stopping": "33", "held": "33"}
_PLAIN = str.maketrans({"·": "-", "…": "~", "×": "x", "—": "-", "→": ">"})


def _escaped(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _columns() -> int:
    """The width of the terminal."""
    import shutil  # noqa: PLC0415  # on a terminal alone

    return shutil.get_terminal_size((80, 24)).columns


class Output:
    """One invocation's output. `json`: machine-readable; `quiet`: ids alone."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False
        self.terminal = sys.stdout.isatty()
        self.unicode = (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")
        self._colour = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None where the output is piped and nothing is shortened."""
        return _columns() if self.terminal else None

    def data(self, text: str, state: str = "") -> None:
        """A line of what was asked for; the word `state` in it is coloured where colours are wanted."""
        text = human.printable(text)
        colour = _COLOURS.get(state) if self._colour else None
        if colour is not None:
            text = text.replace(state, f"\x1b[{colour}m{state}\x1b[0m", 1)
        sys.stdout.write((text if self.unicode else text.translate(_PLAIN)) + "\n")

    def raw(self, text: str) -> None:
        """Text of a program, as it is; bytes that were no UTF-8 are shown as `\\xff`."""
        data = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").encode("utf-8", "backslashreplace")
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def value(self, value: Any) -> None:
        """One JSON value: laid out on a terminal, on one line elsewhere."""
        sys.stdout.write(self._as_json(value, 2 if self.terminal else None) + "\n")

    def stream(self, value: Any) -> None:
        """One JSON value of a stream: always one line, told at once."""
        sys.stdout.write(self._as_json(value) + "\n")
        sys.stdout.flush()

    def _as_json(self, value: Any, indent: int | None = None) -> str:
        """With escapes for what a terminal would not just show: JSON alone leaves everything behind ASCII as it is."""
        lines = json.dumps(value, ensure_ascii=not self.unicode, indent=indent).split("\n")
        return "\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines)

    def note(self, text: str) -> None:
        """A word to the person, on standard error; with --json there is none."""
        if not self.json:
            sys.stdout.flush()
            tell(text, sys.stderr)

    def warn(self, text: str) -> None:
        """What nobody may miss, on standard error, with --json too."""
        sys.stdout.flush()
        tell(f"WARNING: {text}", sys.stderr)

    def table(
        self, headers: Sequence[str], rows: Sequence[Sequence[str]], state: int | None = None, spare: Sequence[int] = ()
    ) -> None:
        """Aligned columns; `state` is the column that holds a state, by which lines are coloured, `spare` as in `draw`."""
        lines = draw(headers, rows, self.width, spare)
        self.data(lines[0])
        for line, row in zip(lines[1:], rows, strict=True):
            self.data(line, "" if state is None else row[state])


def tell(text: str, file: TextIO) -> None:
    """A line in whatever encoding `file` has."""
    text = human.printable(text)
    encoding = (file.encoding or "utf-8").lower()
    if not encoding.startswith("utf"):
        text = text.translate(_PLAIN)
    file.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    file.flush()
