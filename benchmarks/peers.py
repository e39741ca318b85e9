"""Other programs of the kind, each driven by `peer_driver.py` in the interpreter of the venv that has them.

`$TRAINMASTER_BENCH_PEERS` names that venv; default `.venv-peers` beside this directory. One that is not there is said to
be "not installed", and has no figure.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

DRIVER = Path(__file__).parent / "peer_driver.py"
VENV = Path(os.environ.get("TRAINMASTER_BENCH_PEERS") or Path(__file__).parent.parent / ".venv-peers")
TITLES = {"hyperqueue": "HyperQueue", "submitit": "submitit, local", "torchx": "TorchX, local_cwd", "ray": "Ray Jobs"}


def installed(name: str) -> str | None:
    """The version of a peer; None where it is not installed."""
    python = VENV / "bin" / "python"
    if not python.exists():
        return None
    ask = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def tool(name: str) -> str:
    """A command of that venv."""
    return str(VENV / "bin" / name)


class Peer:
    """One peer at work, up and warm. Use it as a context manager: afterwards nothing of it runs."""

    def __init__(self, name: str, directory: Path) -> None:
        self.directory = directory / name
        self.directory.mkdir()
        log = (self.directory / "driver.log").open("w")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINMASTER_")}
        environment["PATH"] = f"{VENV / 'bin'}{os.pathsep}{environment['PATH']}"
        self._process = subprocess.Popen(
            [tool("python"), str(DRIVER), name, str(self.directory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=self.directory,
        )  # fmt: skip
        log.close()

    def __enter__(self) -> "Peer":
        try:
            self._answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the driver, then whatever is left of the peer."""
        assert self._process.stdin is not None
        try:
            family = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        end([*family, *_mentioning(str(self.directory))])

    def start(self, argv: Sequence[str], mark: Path) -> float:
        """Submit a program that writes `mark`, wait for its end; when the submit was begun, on the monotonic clock."""
        return float(self._ask("start", argv=list(argv), mark=str(mark))["began_s"])

    def many(self, n: int, argv: Sequence[str]) -> float:
        """Seconds for `n` runs of a program, two at a time, from the submit to the last one's end."""
        return float(self._ask("many", n=n, argv=list(argv))["took_s"])

    def _ask(self, verb: str, **what: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **what}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = (self.directory / "driver.log").read_text()[-2000:]
            raise RuntimeError(f"{self.directory.name} did not answer:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _mentioning(text: str) -> list[psutil.Process]:
    """Processes whose command line names our directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(text in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found


def end(processes: Sequence[psutil.Process]) -> None:
    """End these very processes and wait until they are gone."""
    living = [process for process in processes if process.is_running()]
    for process in living:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, left = psutil.wait_procs(living, 5)
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, 5)


def end_all_of(directory: Path) -> None:
    """End whatever names this directory on its command line, and its children."""
    found = _mentioning(str(directory))
    end([*found, *(child for process in found if process.is_running() for child in process.children(recursive=True))])
