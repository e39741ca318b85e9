"""Reads trace files line by line: decompression, line numbers and checked values; never the whole file in memory."""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import TextIO, TypeVar

from trainmaster.errors import UsageError

LINE_MAX = 1 << 20  # characters
WHOLE_MAX = 1_000_000  # maximum of nodes, GPUs or processors in one job or one cluster
_Row = TypeVar("_Row")
_Made = TypeVar("_Made")


class Lines:
    """An iterator over lines that knows the number of the last one. Raises: UsageError for a line that is too long."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path, self.number = path, 0
        self.passed = 0  # jobs that were skipped since their run time is unknown
        self._file = file

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(LINE_MAX)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) == LINE_MAX:
            raise wrong(self.path, self.number, f"a line of more than {LINE_MAX:,} characters", "a trace is text in lines")
        return line

    def first(self) -> str:
        """The first line, without consuming it. Raises: UsageError for an empty file."""
        line = self._file.readline(LINE_MAX)
        self._file.seek(0)
        if not line.strip():
            raise wrong(self.path, 1, "the file is empty" if not line else "the first line is empty", KNOWN)
        return line


KNOWN = (
    "known forms: SWF (lines of 18 numbers), CSV with the columns of Muri or of Philly, what `tm export` writes; "
    "of openb: tm simulate openb --help"
)


def reading(path: Path, work: Callable[[Lines], _Made]) -> _Made:
    """The result of `work` on a file's lines. Raises: UsageError for a file that cannot be read, with the last line read."""
    lines = None
    try:
        with _opened(path) as file:
            lines = Lines(path, file)
            return work(lines)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        at = f" after line {lines.number:,}" if lines is not None and lines.number else ""
        raise UsageError(f"{path}: cannot be read{at}: {_words(error)}", _hint(error)) from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _words(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, EOFError):
        return "the archive is cut off"
    if isinstance(error, zlib.error):
        return "the archive is damaged"
    return getattr(error, "strerror", None) or str(error)


def _hint(error: Exception) -> str:
    return "download it again" if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile) else "check the path"


def wrong(path: Path, number: int, what: str, hint: str = "") -> UsageError:
    """The error for a line."""
    return UsageError(f"{path}:{number}: {what}", hint)


def rows(lines: Lines) -> Iterator[dict[str, str]]:
    """Rows of a CSV with a header."""
    yield from csv.DictReader(lines)


def each(lines: Lines, items: Iterator[_Row], make: Callable[[_Row, int], _Made | None]) -> list[_Made]:
    """The results of `make` for each item and its line number, without those that are None.

    Raises: UsageError with the line, for an item that `make` rejects with a ValueError.
    """
    found = []
    for item in items:
        try:
            made = make(item, lines.number)
        except ValueError as error:
            raise wrong(lines.path, lines.number, f"not a job: {error}") from error
        if made is None:
            lines.passed += 1
        else:
            found.append(made)
    return found


def amount(row: dict[str, str], name: str, least: float = 0.0) -> float:
    """The number in column `name`. Raises: ValueError."""
    text = row.get(name)
    if text is None:
        raise ValueError(f"it has no {name}")
    try:
        value = float(text)
    except (ValueError, TypeError):
        raise ValueError(f"{name} is {text!r}, not a number") from None
    return checked(value, name, least)


def checked(value: float, name: str, least: float = 0.0) -> float:
    """Check a number of a trace. Raises: ValueError."""
    if not isfinite(value):
        raise ValueError(f"{name} is {value}, which is not finite")
    if value < least:
        raise ValueError(f"{name} is {value:g}; it must be {least:g} or more")
    return value


def whole(row: dict[str, str], name: str, least: int = 1) -> int:
    """The integer in column `name`. Raises: ValueError."""
    value = amount(row, name, least)
    if value != int(value) or value > WHOLE_MAX:
        raise ValueError(f"{name} is {row[name]}; it must be a whole number of at most {WHOLE_MAX:,}")
    return int(value)
