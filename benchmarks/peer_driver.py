"""Drives one peer for `peers.py`, in the venv that has it: a JSON line in, a JSON line out, warm in between.

`{"verb": "start", "argv", "mark"}` -> `{"began_s"}`; `{"verb": "many", "n", "argv"}` -> `{"took_s"}`.
Each peer is asked in the way its own documentation shows, with what makes it fastest.
"""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

AT_A_TIME = 2


class HyperQueue:
    """A server and a worker of two cores on this machine; one job whose tasks are the runs."""

    def __init__(self, directory: Path) -> None:
        from hyperqueue import Job, LocalCluster  # noqa: PLC0415 - only the one peer that is asked for
        from hyperqueue.cluster import WorkerConfig  # noqa: PLC0415

        self._job, self._directory = Job, directory
        self._cluster = LocalCluster(server_dir=str(directory / "server"))  # it takes text alone
        self._cluster.start_worker(WorkerConfig(cores=AT_A_TIME))
        self._client = self._cluster.client()

    def start(self, argv: list[str], mark: str) -> float:
        return self._run(1, argv)[0]

    def many(self, n: int, argv: list[str]) -> float:
        began_s, ended_s = self._run(n, argv)
        return ended_s - began_s

    def _run(self, n: int, argv: list[str]) -> tuple[float, float]:
        began_s = time.monotonic()
        job = self._job(max_fails=0)
        for _ in range(n):
            job.program(argv, stdout=None, stderr=None, cwd=str(self._directory))
        submitted = self._client.submit(job)
        self._client.wait_for_jobs([submitted])
        return began_s, time.monotonic()

    def close(self) -> None:
        self._cluster.stop()


class Submitit:
    """Its local executor. It runs Python functions: the first line of the function is what is timed."""

    def __init__(self, directory: Path) -> None:
        import submitit  # noqa: PLC0415

        self._executor = submitit.LocalExecutor(folder=directory / "log")

    def start(self, argv: list[str], mark: str) -> float:
        began_s = time.monotonic()
        self._executor.submit(_note, mark).result()
        return began_s

    def many(self, n: int, argv: list[str]) -> float:
        work = _nothing if argv[-1] == "pass" else _call
        began_s = time.monotonic()
        with ThreadPoolExecutor(AT_A_TIME) as threads:  # it has no limit of its own
            list(threads.map(lambda _: self._executor.submit(work, argv).result(), range(n)))
        return time.monotonic() - began_s

    def close(self) -> None:
        pass


def _note(mark: str) -> None:
    Path(mark).write_text(repr(time.clock_gettime(time.CLOCK_MONOTONIC)))


def _nothing(argv: list[str]) -> None:
    """A trivial function in place of a trivial program."""


def _call(argv: list[str]) -> None:
    subprocess.run(argv, check=True)


class TorchX:
    """Its local scheduler, from Python."""

    def __init__(self, directory: Path) -> None:
        from torchx.runner import get_runner  # noqa: PLC0415
        from torchx.specs import AppDef, Role  # noqa: PLC0415

        self._app, self._role, self._directory = AppDef, Role, directory
        self._runner = get_runner()

    def start(self, argv: list[str], mark: str) -> float:
        began_s = time.monotonic()
        role = self._role(name="bench", image=str(self._directory), entrypoint=argv[0], args=argv[1:])
        app, settings = self._app(name="bench", roles=[role]), {"log_dir": str(self._directory)}
        handle = self._runner.run(app, scheduler="local_cwd", cfg=settings)
        self._runner.wait(handle, wait_interval=0.05)
        return began_s

    def many(self, n: int, argv: list[str]) -> float:
        raise NotImplementedError("TorchX hands jobs over and keeps no queue")

    def close(self) -> None:
        self._runner.close()


class Ray:
    """A head of two CPUs on this machine and its job submission client, warm."""

    def __init__(self, directory: Path) -> None:
        from ray.job_submission import JobSubmissionClient  # noqa: PLC0415

        port = free_port()
        ports = [f"--port={free_port()}", f"--dashboard-port={port}"]
        rest = [f"--num-cpus={AT_A_TIME}", "--disable-usage-stats", f"--temp-dir={directory}"]
        command = ["ray", "start", "--head", "--block", *ports, *rest]
        self._head = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
        until_s = time.monotonic() + 120
        while True:
            try:
                self._client = JobSubmissionClient(f"http://127.0.0.1:{port}")
                break
            except (ConnectionError, RuntimeError, OSError):
                if time.monotonic() > until_s or self._head.poll() is not None:
                    raise
                time.sleep(0.2)

    def start(self, argv: list[str], mark: str) -> float:
        began_s = time.monotonic()
        self._await(self._client.submit_job(entrypoint=line(argv)))
        return began_s

    def many(self, n: int, argv: list[str]) -> float:
        began_s = time.monotonic()
        for job in [self._client.submit_job(entrypoint=line(argv), entrypoint_num_cpus=1) for _ in range(n)]:
            self._await(job)
        return time.monotonic() - began_s

    def _await(self, job: str) -> None:
        while not (status := self._client.get_job_status(job)).is_terminal():
            time.sleep(0.05)
        if status.value != "SUCCEEDED":
            raise RuntimeError(f"{job}: {status.value}: {self._client.get_job_logs(job)}")

    def close(self) -> None:
        self._head.terminate()
        self._head.wait(15)


def line(argv: list[str]) -> str:
    """One line for a shell."""
    return shlex.join(argv)


def free_port() -> int:
    """A TCP port that is free at this instant."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PEERS: dict[str, Callable[[Path], Any]] = {"hyperqueue": HyperQueue, "submitit": Submitit, "torchx": TorchX, "ray": Ray}


def main(name: str, directory: str) -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what peers print is no answer
    peer = PEERS[name](Path(directory))
    answers.write("{}\n")
    for request in map(json.loads, sys.stdin):
        if request["verb"] == "start":
            answers.write(json.dumps({"began_s": peer.start(request["argv"], request["mark"])}) + "\n")
        else:
            answers.write(json.dumps({"took_s": peer.many(request["n"], request["argv"])}) + "\n")
    peer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
