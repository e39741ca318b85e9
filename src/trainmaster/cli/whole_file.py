"""Writes a file that a person named, whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that replaces it when the block ends without an error. Raises: OSError.

    Where `path` is a pipe or a device, such as /dev/stdout, it is written itself: root would replace the device by a file.
    """
    renamed = path.is_file() or not path.exists()
    part = path.with_name(f".{path.name}.{os.getpid()}.part") if renamed else path
    try:
        with part.open("wb") as file:
            yield file
        if renamed:
            part.replace(path)
    finally:
        if renamed:
            with suppress(OSError):
                part.unlink(missing_ok=True)
