"""Jobs that would wait for an input that they do not have are refused."""

import os
from contextlib import nullcontext

import pytest

from trainmaster.cli.jobs.standard_input import check_input
from trainmaster.errors import UsageError


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        *((line, True) for line in ("bash", "python3 -u", "/bin/bash -eux -l", "python3 -u -", "bash -s one", "sh -x /dev/stdin")),
        *((line, False) for line in ("bash -l job.sh", "python3 -u t.py -", "bash -lc x", "perl -e 1", "python3 -m x", "python3 -V", "cat")),
    ],
)
def test_an_interpreter_that_would_read_its_program_from_the_input_is_refused(
    line: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat(os.devnull))  # nothing is piped into this process
    with pytest.raises(UsageError, match="reads its program from its input") if refused else nullcontext():
        assert check_input(line.split()) == ""
