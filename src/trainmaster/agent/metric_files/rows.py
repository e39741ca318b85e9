"""Metrics in a file that a program writes row by row: CSV, or one JSON object per line.

A CSV file without a header is of the metric that it is named after, `train/q_loss.csv`: its rows are a step and a value
(TorchRL), or an epoch, a step and a value (d3rlpy).

A program may begin its file again, or write all of it anew with one more row or column. So each row is told once: if there are
as many rows as were told, and the first is the same, only those that differ are told; else it is another file, and all of its
rows are told.
"""

from __future__ import annotations

import csv
import os
import re
import stat
from array import array
from itertools import islice

from trainmaster.agent.metrics import objects
from trainmaster.agent.metrics.pairs import head, under
from trainmaster.agent.metrics.vocabulary import measured, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Iterator, List, Optional, Tuple

    Row = Tuple[Optional[int], "dict[str, float]"]  # its step, its values
    Noted = Tuple[int, bytes]  # the size of a file, and its last bytes

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
_LINE_MAX = 1 << 20  # bytes; nothing is read behind a longer line
_END = 64  # bytes by which a file is recognized
_COLUMNS_MAX = 2_000
_TEXT_MAX = 250  # characters of a cell
_DELIMITERS = ",\t;"
_BEFORE_VALUE = (1, 2)  # cells: the step, or the epoch and the step


class Rows:
    """The lines of one file, in order. The header may come again, as when a restart appends to the file.

    What is measured in `val.csv` is named so, as in a line of output: `val_loss`.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        words = re.split(r"[^a-z]+", os.path.basename(path).lower())
        self._set = next((word for word in words if word in objects.SETS_BESIDE), "")
        self._names: List[str] = []
        self._delimiter = ","
        self._has_rows = False  # below its header
        self._bare: Optional[bool] = None  # whether it has no header

    def read(self, line: bytes) -> Optional[Row]:
        """What a line says; None if it is no row with a number."""
        row = self._read(line)
        if row is None or not self._set:
            return row
        return row[0], {under(self._set, name) if measured(name) else name: value for name, value in row[1].items()}

    def _read(self, line: bytes) -> Optional[Row]:
        if line.startswith(b"{"):
            found = objects.of_json(line)
            return _row(found) if found is not None else None
        text = line.decode(errors="replace").strip("\r\n\ufeff")
        if text.startswith("#"):  # Stable-Baselines3's monitor.csv
            return None
        delimiter = self._delimiter if self._names else max(_DELIMITERS, key=text.count)
        cells = _cells(text, delimiter)
        numbers = [number(cell) if cell and "," not in cell else None for cell in cells]
        known = {*filter(None, cells)}.intersection(self._names)
        if len(cells) > 1 and any(cells) and all(value is None for value in numbers) and (known or not self._has_rows):
            self._names, self._delimiter, self._has_rows = cells, delimiter, False
        *counts, value = numbers or [None]
        bare = not self._names and value is not None and len(counts) in _BEFORE_VALUE and all(map(_counts, counts))
        self._bare = bare if self._bare is None else self._bare  # as the first line is
        if bare and self._bare:
            return int(counts[-1] or 0), {named_by(self._path): value or 0.0}
        if len(cells) != len(self._names):
            return None
        pairs = zip(self._names, numbers)  # noqa: B905 - Python 3.9
        self._has_rows = self._has_rows or any(value is not None for value in numbers)
        return _row(objects.of_numbers({name: value for name, value in pairs if name and value is not None}))


def named_by(path: str) -> str:
    """The metric that a file of only one is named after: `q_loss`, and of `eval/reward.csv` `eval_reward`."""
    directory, name = os.path.split(os.path.splitext(path)[0])
    return under(head(f"{os.path.basename(directory)}:"), name)


def _counts(number_: Optional[float]) -> bool:
    return number_ is not None and number_.is_integer() and number_ >= 0


def _row(found: objects.Object) -> Optional[Row]:
    """With the step, else with the epoch if it is a whole one."""
    step = found.step
    if step is None and found.epoch is not None and found.epoch.is_integer():
        step = int(found.epoch)
        found.values.pop("epoch", None)
    return (step, found.values) if found.values else None


def _cells(text: str, delimiter: str) -> List[str]:
    try:
        cells = next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a NUL, a huge cell
        return []
    return [cell.strip() if len(cell) <= _TEXT_MAX else "" for cell in cells[:_COLUMNS_MAX]]


class RowFile:
    """One file. `noted`: what was in it when the attempt began, which is not told, as an earlier one may have written it."""

    def __init__(self, path: str, noted: Optional[Noted] = None) -> None:
        self._path = path
        self._noted = noted
        self._reader = _Reader(path)
        self._read = array("q")  # a number for each row
        self._old_bytes = 0  # that are not told again, whatever ends a read before them
        self._old_rows = array("q")  # likewise, unless they differ

    def news(self, last: bool = False) -> Iterator[Row]:
        """The rows that were not told yet, all to be taken. `last`: nothing follows, so the last line may lack its end.

        Raises: OSError; ValueError if the file cannot be read as rows.
        """
        with open(opened(self._path), "rb") as file:
            if self._noted is not None:
                self._old_bytes = self._noted[0] if _ends_so(file, *self._noted) else 0
                self._noted = None
            elif not _ends_so(file, self._reader.at, self._reader.end):
                known = self._read + self._old_rows[len(self._read) :]
                self._old_rows = known if self._has_as_many(file, known) else array("q")
                self._reader, self._read, self._old_bytes = _Reader(self._path), array("q"), 0
            for row in self._reader.read(file, last):
                at, number_of = len(self._read), hash(str(row))
                self._read.append(number_of)
                same = at < len(self._old_rows) and self._old_rows[at] == number_of
                if self._reader.begun >= self._old_bytes and not same:
                    yield row

    def _has_as_many(self, file: BinaryIO, known: array[int]) -> bool:
        rows = [hash(str(row)) for row in islice(_Reader(self._path).read(file), 1)]
        more = sum(1 for _ in islice(_Reader(self._path).read(file), len(known)))
        return rows == list(known[:1]) and more == len(known)


def noted(path: str) -> Noted:
    """What is in a file now. Raises: OSError, ValueError."""
    with open(opened(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return size, os.pread(file.fileno(), _END, max(0, size - _END))


class _Reader:
    """Reads a file's rows from where the last read ended: `at`, after the bytes `end`."""

    def __init__(self, path: str) -> None:
        self._rows = Rows(path)
        self.at, self.end = 0, b""
        self.begun = 0  # where the last line began: what an earlier attempt began is no row, also if a later one ended it

    def read(self, file: BinaryIO, last: bool = False) -> Iterator[Row]:
        """The rows of the lines that are complete."""
        file.seek(self.at)
        while line := file.readline(_LINE_MAX):
            if not line.endswith(b"\n"):
                if len(line) == _LINE_MAX:
                    raise ValueError(f"it has a line of over {_LINE_MAX >> 20} MiB")
                if not last:
                    return
            row = self._rows.read(line)
            self.begun = self.at
            self.at += len(line)
            self.end = (self.end + line)[-_END:]
            if row is not None:
                yield row


def _ends_so(file: BinaryIO, size: int, end: bytes) -> bool:
    """Whether the first `size` bytes still end with these."""
    return os.pread(file.fileno(), len(end), size - len(end)) == end


def opened(path: str) -> int:
    """A descriptor of a regular file: what it is, is asked without waiting for the writer of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is no regular file")
    return descriptor
