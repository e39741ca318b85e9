"""Files of published traces, opened and read by the line; a file that ends in `.gz` is unpacked on the way."""

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO, TypeVar

from trainmaster.errors import UsageError

T = TypeVar("T")


def read(path: Path, reader: Callable[[TextIO], T]) -> T:
    """What `reader` makes of a file. Raises: UsageError where it cannot be read."""
    try:
        with _opened(path) as file:
            return reader(file)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return io.StringIO(gzip.decompress(path.read_bytes()).decode())
    return path.open(encoding="utf-8")


def rows(file: TextIO) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV with their line's number."""
    reader = csv.DictReader(file)
    for row in reader:
        yield reader.line_num, row
