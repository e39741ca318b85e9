"""What the benchmarks of scale share: a home whose jobs are ended fast however many wait, its processes, sleeping jobs."""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import common

from trainmaster import daemons, live_processes
from trainmaster.client.api import Client
from trainmaster.home import Home
from trainmaster.store.events import SqlEventStore

ORIGIN = {"user": "benchmark", "variables": {"PATH": os.environ.get("PATH", os.defpath)}}
WAIT_S = 120.0
LIVE = ("starting", "running", "stopping")


@contextmanager
def fresh_home() -> Iterator[Home]:
    """An empty home, removed afterwards with whatever still runs on it."""
    with common.scratch() as root:
        home = common.own_home(root)
        try:
            yield home
        finally:
            if home.events_db.exists() and (live_processes.running(home) or lives(home)):
                end(home)


def lives(home: Home) -> bool:
    """Whether the log of a stopped server knows of jobs that have not ended."""
    with closing(SqlEventStore(home.events_db, read_only=True)) as events:
        return bool(events.load_live().jobs)


def start(home: Home) -> Client:
    """Bring the server up; a client of it."""
    daemons.start(home)
    return Client(start=False)


def submission(command: str, **spec: Any) -> dict[str, Any]:
    """What `POST /jobs` takes, with no code copy."""
    return {"spec": {"command": command, **spec}, "origin": ORIGIN, "code": {}}


def wait_for(what: str, question: Callable[[], bool], timeout_s: float = WAIT_S, every_s: float = 0.05) -> None:
    """Ask until it is so. Raises: RuntimeError when it does not come to be."""
    end_s = time.monotonic() + timeout_s
    while not question():
        if time.monotonic() > end_s:
            raise RuntimeError(f"waited {timeout_s:g} s for {what}")
        time.sleep(every_s)


def in_state(client: Client, *states: str) -> list[dict[str, Any]]:
    """All jobs in these states."""
    return [job for state in states for job in client.jobs(all=1, state=state)]


def end(home: Home) -> None:
    """Place nothing more, end what runs, stop the server; what only waits is left as it is."""
    with start(home) as client:
        for node in client.nodes():
            client.set_node(node["name"], "drain", "the measurement is over")
        drained = {"drained"}
        wait_for("the nodes to be drained", lambda: {node["state"] for node in client.nodes()} <= drained)
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


def processor_s(pid: int) -> float:
    """What all threads of a process have computed, to the nanosecond."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            used += int((task / "schedstat").read_text().split()[0])
    return used / 1e9


def cost_s(pid: int, ask: Callable[[], object], times: int, rounds: int = 7) -> list[float]:
    """The processor time of `pid` for one `ask`, in rounds of `times`; waiting and other processes are not in it."""
    ask()
    costs = []
    for _ in range(rounds):
        before_s = processor_s(pid)
        for _ in range(times):
            ask()
        costs.append((processor_s(pid) - before_s) / times)
    return costs


def occupy(client: Client, count: int, witness: Path) -> list[str]:
    """`count` running jobs that each write the pid of their rank and then sleep; their ids once all of them run."""
    witness.mkdir(parents=True, exist_ok=True)
    command = f'echo $$ >>"{witness}/$TRAINMASTER_JOB"; exec sleep 600'
    ids = client.submit_batch([submission(command, name="sleeper", resources={"cpus": 0.01})] * count)
    wait_for(f"{count} jobs to run", lambda: len(in_state(client, "running")) >= count)
    wait_for("their ranks to say so", lambda: sum(path.stat().st_size > 0 for path in witness.iterdir()) >= count)
    return ids
