"""A file that a person named is written whole or not at all; a pipe stays a pipe."""

import os
import threading
from pathlib import Path

import pytest

from trainmaster.cli.whole_file import whole_file


def test_a_file_is_replaced_at_the_end_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with whole_file(path) as file:
        file.write(b"first")
        assert not path.exists()

    def fails() -> None:
        with whole_file(path) as file:
            file.write(b"sec")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fails()
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"first", ["out"])


def test_a_pipe_is_written_itself(tmp_path: Path) -> None:
    """`tm get -o /dev/null` by root replaced the device by a file."""
    pipe, found = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    with whole_file(pipe) as file:
        file.write(b"all")
    reader.join(10.0)
    assert (found, pipe.is_fifo(), os.listdir(tmp_path)) == ([b"all"], True, ["pipe"])
