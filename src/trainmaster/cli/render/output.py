"""Separates output: data goes to standard output, messages to standard error; colors only on a terminal."""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from trainmaster.cli.render import human
from trainmaster.cli.render.table import draw
from trainmaster.errors import OperationError

_COLOURS = {"succeeded": "32", "running": "36", "failed": "31", "lost": "31", "cancelled": "33", "stopping": "33", "held": "33"}
_PLAIN = str.maketrans({"·": "-", "…": "~", "×": "x", "—": "-", "→": ">"})


def _escaped(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _columns() -> int:
    """The width of the terminal."""
    import shutil  # noqa: PLC0415  # used on a terminal only

    return shutil.get_terminal_size((80, 24)).columns


class Output:
    """The output of one invocation. `json`: machine-readable; `quiet`: only what `-q` of the command says."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False
        self.terminal = sys.stdout.isatty()
        self.unicode = (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")
        self._colour = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int | None:
        """The terminal's columns; None if the output is piped, and nothing is shortened."""
        return _columns() if self.terminal else None

    def data(self, text: str, state: str = "") -> None:
        """Print a line of data. The word `state` in it is colored on a terminal."""
        text = human.printable(text)
        colour = _COLOURS.get(state) if self._colour else None
        if colour is not None:
            text = re.sub(rf"(?<![\w/.-]){state}(?![\w/.-])", f"\x1b[{colour}m{state}\x1b[0m", text, count=1)
        sys.stdout.write((text if self.unicode else text.translate(_PLAIN)) + "\n")

    def raw(self, text: str) -> None:
        """Print a program's text unchanged; invalid UTF-8 is shown as `\\xff`."""
        data = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").encode("utf-8", "backslashreplace")
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def file(self, data: bytes) -> None:
        """Print a file: unchanged, unless it goes to a terminal, where invalid UTF-8 is shown as `\\xff`."""
        if self.terminal:
            self.raw(data.decode("utf-8", "surrogateescape"))
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def value(self, value: Any) -> None:
        """Print one JSON value, indented on a terminal, else on one line."""
        sys.stdout.write(self._as_json(value, 2 if self.terminal else None) + "\n")

    def stream(self, value: Any) -> None:
        """Print one JSON value of a stream on one line, and flush it."""
        sys.stdout.write(self._as_json(value) + "\n")
        sys.stdout.flush()

    def _as_json(self, value: Any, indent: int | None = None) -> str:
        """JSON text with all characters escaped that a terminal might interpret. (JSON itself escapes ASCII ones only.)"""
        lines = json.dumps(value, ensure_ascii=not self.unicode, indent=indent).split("\n")
        return "\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines)

    def note(self, text: str) -> None:
        """Print a message on standard error; not with --json."""
        if not self.json:
            sys.stdout.flush()
            tell(text, sys.stderr)

    def warn(self, text: str) -> None:
        """Print a warning on standard error, also with --json."""
        sys.stdout.flush()
        tell(f"WARNING: {text}", sys.stderr)

    @contextmanager
    def accepted(self, ids: Sequence[str]) -> Iterator[None]:
        """Around what is said of jobs that were just accepted: if that cannot be written, the error names them.

        Raises: OperationError.
        """
        try:
            yield
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            which = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
            message = f"{which} was submitted, but standard output cannot be written: {error.strerror}"
            raise OperationError(message, f"do not submit it again; look: tm show {ids[0]}") from error

    def table(
        self, headers: Sequence[str], rows: Sequence[Sequence[str]], state: int | None = None, spare: Sequence[int] = ()
    ) -> None:
        """Print aligned columns. `state`: the column with a state, which colors the line; `spare`: see `draw`."""
        lines = draw(headers, rows, self.width, spare)
        self.data(lines[0])
        for line, row in zip(lines[1:], rows, strict=True):
            self.data(line, "" if state is None else row[state])


def tell(text: str, file: TextIO) -> None:
    """Print a line in the encoding of `file`. A message that cannot be written, for example to a full disk, stops nothing."""
    text = human.printable(text)
    encoding = (file.encoding or "utf-8").lower()
    if not encoding.startswith("utf"):
        text = text.translate(_PLAIN)
    try:
        file.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        file.flush()
    except BrokenPipeError:
        raise
    except OSError:
        return
