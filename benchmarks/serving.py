"""A real server of its own for each measurement: a fresh home, both processes, and nothing left behind."""

import os
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainmaster import daemons
from trainmaster.client.api import Client
from trainmaster.home import Home
from trainmaster.wire.names import ENV_FAILPOINT

ORIGIN = {"user": "benchmark", "variables": {"PATH": os.environ.get("PATH", os.defpath)}}
END_TIMEOUT_S = 120.0
LIVE = ("starting", "running", "stopping")


@contextmanager
def fresh_home() -> Iterator[Home]:
    """An empty home on a real disk, removed afterwards with whatever still runs on it."""
    os.environ.pop(ENV_FAILPOINT, None)
    root = Path(tempfile.mkdtemp(prefix="trainmaster-benchmark-"))
    home = Home(root / "home")
    try:
        yield home
    finally:
        if home.root.exists():
            end(home)
        shutil.rmtree(root, ignore_errors=True)


def start(home: Home) -> Client:
    """Bring the server up; a client of it."""
    return connect(daemons.start(home), home)


def connect(info: daemons.ServerInfo, home: Home) -> Client:
    """A client of this very server, whatever the environment names."""
    return Client(info.url, home.token_file.read_text().strip())


def submission(command: str, **spec: Any) -> dict[str, Any]:
    """What `POST /jobs` takes, with no code copy."""
    return {"spec": {"command": command, **spec}, "origin": ORIGIN, "code": {}}


def wait_for(what: str, question: Callable[[], bool], timeout_s: float = END_TIMEOUT_S, every_s: float = 0.05) -> None:
    """Ask until it is so. Raises: SystemExit when it does not come to be."""
    end_s = time.monotonic() + timeout_s
    while not question():
        if time.monotonic() > end_s:
            raise SystemExit(f"waited {timeout_s:g} s for {what}")
        time.sleep(every_s)


def in_state(client: Client, *states: str) -> list[dict[str, Any]]:
    """All jobs in these states."""
    return [job for state in states for job in client.jobs(all=1, state=state)]


def end(home: Home) -> None:
    """Start nothing more, end what runs, stop the server."""
    with start(home) as client:
        for node in client.nodes():
            client.set_node(node["name"], "drain", "the measurement is over")
        wait_for("no job to be starting", lambda: not client.jobs(state="starting", limit=1))
        for job in in_state(client, "running"):
            client.cancel(job["id"])
        wait_for("the jobs to end", lambda: not any(client.jobs(state=state, limit=1) for state in LIVE))
    daemons.stop(home)


def server_pids(home: Home) -> dict[str, int]:
    """All processes of the server by name; the spawner is whoever listens on its socket."""
    record = home.read_json(home.server_json) or {}
    pids = dict(record["pids"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.fspath(home.socket("spawner")))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pids["spawner"] = struct.unpack("3i", credentials)[0]
    return pids


def occupy(client: Client, count: int, witness: Path) -> list[str]:
    """`count` running jobs that each write the pid of their rank and then sleep; their ids once all of them run."""
    witness.mkdir(parents=True, exist_ok=True)
    command = f'echo $$ >>"{witness}/$TRAINMASTER_JOB"; exec sleep 600'
    jobs = [submission(command, name="sleeper", resources={"cpus": 0.01}) for _ in range(count)]
    ids = client.submit_batch(jobs)
    wait_for(f"{count} jobs to run", lambda: len(in_state(client, "running")) >= count)
    wait_for("their ranks to say so", lambda: len(list(witness.iterdir())) >= count)
    return ids
