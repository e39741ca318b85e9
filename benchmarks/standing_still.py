"""How long control and submits stand still: garbage collection, a delete of many files, an engine that does not answer.

Goals: the gate closed for 100 ms at most with 100,000 jobs on record; a tick of 50 ms at most while a checkpoint of 20,000
files is deleted, or while the spawner is stopped and ten jobs wait to be launched.
"""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
import seeding
import serving

from trainmaster.blobs.fs import FsBlobs
from trainmaster.blobs.garbage_collection import Collecting, collect
from trainmaster.client.api import Client
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.world import World
from trainmaster.home import Home
from trainmaster.lifecycle.effects import DeleteCheckpoint
from trainmaster.locks import holder, inode
from trainmaster.server.storage.storage import ServerRecords
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox

GATE_S, TICK_S = 0.1, 0.05
OLD_S = 200_000.0


def gate(root: Path, jobs: int, orphans: int) -> list[float]:
    """How long the gate was closed, each time, while so many orphaned blobs were removed."""
    home = Home(root / "collected")
    seeding.seed(home, jobs)
    for number in range(orphans):
        digest = hashlib.sha256(b"%d" % number).hexdigest()
        path = home.blobs / "code" / "objects" / digest[:2] / digest[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (time.time() - OLD_S,) * 2)
    closed: list[float] = []

    @contextmanager
    def shut() -> Iterator[None]:
        began = time.monotonic()
        yield
        closed.append(time.monotonic() - began)

    services: Any = SimpleNamespace(events=SqlEventStore(home.events_db), inbox=SqlInbox(home.inbox_db))
    done = collect(FsBlobs(home.blobs), ServerRecords(services), Collecting(closed=shut))
    assert done.blobs == orphans, f"{done.blobs} of {orphans} were removed"
    return closed


def delete(root: Path, files: int) -> float:
    """How long control's thread is held by the order to delete a checkpoint of so many files."""
    part = root / "store" / "checkpoints" / "x-1" / "0001-00001" / "n0"
    for number in range(files):
        path = part / f"shard{number // 500:03d}" / f"c{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 2000)
    unused: Any = None  # the engine: a delete does not ask it
    runner = EffectRunner(unused, FsBlobs(root / "store"), str)
    began = time.monotonic()
    runner.run([DeleteCheckpoint("x-1", "0001-00001")], World())
    held_s = time.monotonic() - began
    serving.wait_for("the delete", lambda: not part.exists())
    return held_s


def stopped_spawner(client: Client, home: Home, n: int) -> list[float]:
    """With the spawner stopped and ten jobs to launch: how long a cancel of another, held job takes until it is on record."""
    client.wait(client.submit(serving.submission("true"), "first"))  # for which the spawner is started
    spawner = holder(home.lock("spawner"), inode(home.lock("spawner")))
    assert spawner is not None
    held = [client.submit({**serving.submission("true"), "hold": "x"}, f"held-{number}") for number in range(n)]
    os.kill(spawner, signal.SIGSTOP)
    took: list[float] = []
    launched: list[str] = []
    try:
        launched += [client.submit(serving.submission("true"), f"launched-{number}") for number in range(10)]
        time.sleep(1.0)
        for id in held:
            began = time.monotonic()
            client.cancel(id)
            serving.wait_for(f"{id} to be cancelled", lambda: client.job(id)["state"] == "cancelled", every_s=0.005)  # noqa: B023
            took.append(time.monotonic() - began)
    finally:
        os.kill(spawner, signal.SIGCONT)
    for id in launched:
        client.wait(id)
    return took


def main() -> None:
    """Each, several times."""
    given = common.options(__doc__ or "", n=5, quick_n=2)
    report = common.Report("standing_still", "How long control and submits stand still", given)
    jobs, orphans, files = (2_000, 600, 1_000) if given.quick else (100_000, 3_000, 20_000)
    with common.scratch() as root:
        closed = gate(root, jobs, orphans)
        deletes = [delete(root / str(number), files) for number in range(given.n)]
    with serving.fresh_home() as home:
        cancels = stopped_spawner(serving.start(home), home, given.n)
    rows = [
        (f"gate closed by garbage collection, {jobs:,} jobs", closed),
        (f"a tick that orders a delete of {files:,} files", deletes),
        ("a cancel while the spawner is stopped", cancels),
    ]
    for name, samples in rows:
        report.keep(name, samples)
    table = [(name, common.ms(common.median(samples)), common.ms(max(samples)), str(len(samples))) for name, samples in rows]
    report.table(("", "median", "longest", "n"), table)
    report.goal("the gate is closed", max(closed), GATE_S)
    report.goal("a tick that orders a delete", max(deletes), TICK_S)
    report.finish()


if __name__ == "__main__":
    main()
