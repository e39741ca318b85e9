"""Agents as real processes for tests: started on a directory, watched, ended with everything below them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launches import launch
from waiting import deadline

from trainmaster.agent.environment.detect import EnvironmentRecorder
from trainmaster.wire.processes import start_ticks


class Agent:
    """One agent and its directory."""

    def __init__(self, directory: Path, command: list[str] | str, **changes: Any) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        shell = isinstance(command, str)
        argv = ["bash", "-o", "pipefail", "-c", command] if isinstance(command, str) else command
        environment = {"PATH": os.environ["PATH"], **changes.pop("environment", {})}
        self.launch = launch(directory, command=argv, shell=shell, environment=environment, **changes)
        (directory / "launch.json").write_text(json.dumps(self.launch))
        EnvironmentRecorder(self.launch).record()  # as for every job but the first of its kind
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Agent":
        """Start it, its words going to agent.log."""
        with (self.directory / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainmaster.agent", str(self.directory)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self

    def send(self, number: int) -> None:
        """Signal the agent itself."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, grace_s: float) -> None:
        """As an engine does: the tombstone, then a TERM."""
        part = self.directory / "stop.part"
        part.write_text(json.dumps({"grace_s": grace_s, "reason": "cancel"}))
        part.rename(self.directory / "stop.json")
        if self.process is not None:
            self.send(signal.SIGTERM)

    def wait(self, timeout_s: float = 20.0) -> int:
        """Its exit code."""
        assert self.process is not None
        return self.process.wait(timeout_s)

    def ended(self) -> dict[str, Any]:
        """Its exit record, once it has gone."""
        code = self.wait()
        assert code == 0, self.words()
        record: dict[str, Any] = json.loads((self.directory / "exit.json").read_bytes())
        return record

    def words(self) -> str:
        """What the agent itself said."""
        return (self.directory / "agent.log").read_text()

    def log(self, rank: int = 0) -> str:
        """A rank's output."""
        return (self.directory / f"rank{rank}.log").read_text(errors="replace")

    def printed(self, text: str, rank: int = 0) -> str:
        """The rank's log, once it contains `text`."""
        path = self.directory / f"rank{rank}.log"
        return deadline(lambda: path.exists() and text in self.log(rank) and self.log(rank), f"{text!r} of rank {rank}")

    def pid_of(self, name: str) -> int:
        """A process number that the program wrote to a file of its work directory."""
        path = self.directory / "work" / name
        return int(deadline(lambda: (path.exists() and path.read_text().strip()) or None, f"the number in {name}"))

    def recorded(self) -> list[tuple[int, int]]:
        """(pid, start ticks) of every process in tree.pids."""
        path = self.directory / "tree.pids"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def gone(pid: int) -> bool:
    """Whether no such process runs."""
    return start_ticks(pid) is None


@contextmanager
def agent(directory: Path, command: list[str] | str, **changes: Any) -> Iterator[Agent]:
    """A started agent; whatever is left of it at the end of the block is killed."""
    made = Agent(directory, command, **changes).start()
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        for pid, ticks in made.recorded():
            if start_ticks(pid) == ticks:
                os.kill(pid, signal.SIGKILL)
