"""`tm` as a person runs it, on a home of its own: real processes, their words and exit codes, and what is asked of them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waiting import deadline

from trainmaster import daemons, live_processes
from trainmaster.client.api import Client
from trainmaster.errors import UnreachableError
from trainmaster.home import Home
from trainmaster.wire.processes import start_ticks

ENDED = ("succeeded", "failed", "cancelled")
_RANK = re.compile(rb"TRAINMASTER_SDK=.*/rank(\d+)\.sdk\Z")  # only a gang has RANK


@dataclass(frozen=True)
class Said:
    """What one command answered."""

    code: int
    out: str
    err: str

    @property
    def refusal(self) -> tuple[int, str]:
        """Exit code and the words on standard error."""
        return self.code, self.err


class Tm:
    """The command line on one home, run in a work directory."""

    def __init__(self, directory: Path, home: Path | None = None) -> None:
        self.home = Home(home or directory / "home")
        self.work = directory / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        self.environment = {**os.environ, "TRAINMASTER_HOME": str(self.home.root), "PATH": path}
        self.environment.pop("TRAINMASTER_SERVER", None)

    def __call__(self, *arguments: str, timeout_s: float = 60.0) -> Said:
        """Run one command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster", *arguments], cwd=self.work, env=self.environment, capture_output=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        return Said(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def ok(self, *arguments: str) -> str:
        """What a command prints that must succeed."""
        said = self(*arguments)
        assert said.code == 0, f"tm {' '.join(arguments)}: {said}"
        return said.out

    def json(self, *arguments: str) -> Any:
        """What a command answers in JSON."""
        return json.loads(self.ok(*arguments, "--json"))

    def submit(self, *arguments: str) -> str:
        """Submit a job; its id."""
        return self.ok("submit", "-q", *arguments).strip()

    def show(self, job: str) -> dict[str, Any]:
        """Everything about one job: what `tm show --json` prints, asked without a process, which a poll would start by the dozen."""
        info = live_processes.running(self.home)
        if info is not None:
            with suppress(UnreachableError), Client(info.url, self.home.token_file.read_text().strip()) as client:
                return client.job(job)
        self.ok("up")  # a server that died
        shown: dict[str, Any] = self.json("show", job)
        return shown

    def state(self, job: str, *wanted: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """The job, once it is in one of these states."""
        last: dict[str, Any] = {}

        def arrived() -> bool:
            last.update(self.show(job))
            return last["state"] in wanted

        deadline(arrived, f"{job} to be {' or '.join(wanted)}; it is {last.get('state')}", timeout_s, 0.1)
        return last

    def ended(self, job: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """The job, once it is over."""
        return self.state(job, *ENDED, timeout_s=timeout_s)

    def file(self, name: str, text: str) -> Path:
        """A file of the work directory."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@contextmanager
def server(directory: Path, *up: str, home: Path | None = None) -> Iterator[Tm]:
    """A home whose server runs; with everything that ran on it gone afterwards."""
    tm = Tm(directory, home)
    tm.ok("up", *up)
    try:
        yield tm
    finally:
        said = tm("down", "--cancel", timeout_s=100.0)
        daemons.stop(tm.home)
        assert said.code == 0, said


def cleared(tm: Tm) -> None:
    """Nothing runs or waits any more: the next test may take the server as its own."""
    tm.ok("cancel", "--all", "--now", "--yes")
    deadline(lambda: all(job["state"] in ENDED for job in tm.json("ps", "--all")), "all jobs to end", 30.0, 0.2)


def attempts(job: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    """These fields of each attempt."""
    return [tuple(attempt[name] for name in names) for attempt in job["attempts"]]


def ranks_of(tm: Tm, job: str) -> dict[int, int]:
    """The training processes that run for a job now: rank -> process number, of each rank the one that started first.

    Of this home alone: tests that run at the same time have jobs of the same name.
    """
    ours = f"TRAINMASTER_SDK={tm.home.root}{os.sep}".encode()
    found: dict[int, tuple[int, int]] = {}  # rank -> start, process number
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        mine = f"TRAINMASTER_JOB={job}".encode() in variables and any(value.startswith(ours) for value in variables)
        started = start_ticks(int(entry)) if mine else None
        rank = next((found[1] for found in map(_RANK.match, variables) if found), None)
        if started is not None and rank is not None:
            found[int(rank)] = min(found.get(int(rank), (sys.maxsize, 0)), (started, int(entry)))
    return {rank: pid for rank, (_, pid) in found.items()}


def agent_of(tm: Tm, job: str, attempt: int = 1, node: int = 0) -> int:
    """The process number of an agent."""
    record = json.loads((tm.home.attempt(job, attempt, node) / "agent.json").read_bytes())
    return int(record["pid"])


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signal a process that must be there."""
    os.kill(pid, number)


def gone(pid: int, timeout_s: float = 10.0) -> None:
    """Wait until no such process runs."""
    deadline(lambda: start_ticks(pid) is None, f"the end of process {pid}", timeout_s)
