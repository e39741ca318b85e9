"""Ctrl-C before the server has answered that a command beside a job runs: the command is ended all the same."""

import os
import signal
from typing import Any

import pytest

from trainmaster.cli.jobs import exec as of_exec

BEGUN = {"job": "train-1", "id": "c1", "attempt": 1}


class Client:
    """A server that begins a command while its person presses Ctrl-C so often."""

    def __init__(self, presses: int) -> None:
        self.presses, self.stopped = presses, list[str]()

    def exec_begin(self, _job: str, _what: Any) -> dict[str, Any]:
        for _ in range(self.presses):
            os.kill(os.getpid(), signal.SIGINT)
        return BEGUN

    def exec_output(self, _job: str, _id: str, cursor: int) -> dict[str, Any]:
        over = {"exit_code": None, "signal": 15, "error": None, "with_attempt": False}
        return {"cursor": cursor, "chunks": [], "over": over if self.stopped else None}

    def exec_stop(self, _job: str, id: str) -> None:
        self.stopped.append(id)

    def close(self) -> None:
        """Nothing is open."""


def test_it_ends_the_command() -> None:
    before, client = signal.getsignal(signal.SIGINT), Client(1)
    assert of_exec._run(None, client, "train-1", {"command": ["sleep", "60"]}) == 130  # type: ignore[arg-type]
    assert client.stopped == ["c1"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_one_does_not_wait_for_the_answer() -> None:
    before, client = signal.getsignal(signal.SIGINT), Client(2)
    with pytest.raises(KeyboardInterrupt):
        of_exec._run(None, client, "train-1", {"command": ["sleep", "60"]})  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGINT) is before
