"""Faulty stores of a simulated world: full disks, a blob store that fails to delete, an api that writes while control works,
unreadable rows.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainmaster.blobs.fs import FsBlobs
from trainmaster.engines.simulated.scripts import Script
from trainmaster.errors import DiskFullError
from trainmaster.model.commands import AgentReport
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.model.nodes import Node
from trainmaster.ports.engine import Submission
from trainmaster.ports.store import InboxRow, NewEvent
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox

_DIGEST = "0" * 64


class FaultyEvents(SqlEventStore):
    """An event log on a disk that is sometimes full, with probability `full`."""

    def __init__(self, path: Path, rng: random.Random, full: float) -> None:
        super().__init__(path)
        self.full = full
        self._rng = rng

    def append(
        self, now_s: float, events: Sequence[NewEvent], jobs: Mapping[str, Job], nodes: Sequence[Node], inbox_cursor: int
    ) -> int:
        """Raises: DiskFullError."""
        if self._rng.random() < self.full:
            raise DiskFullError("no space left for the events: nothing was written")
        return super().append(now_s, events, jobs, nodes, inbox_cursor)


class BusyInbox(SqlInbox):
    """An inbox into which the api writes right after control has read it."""

    def __init__(self, path: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(path)
        self._meanwhile = meanwhile

    def drain(self, after_seq: int, limit: int) -> list[InboxRow]:
        """The current rows. More arrive before the caller has processed them."""
        rows = super().drain(after_seq, limit)
        self._meanwhile()
        return rows


class FaultyBlobs(FsBlobs):
    """A blob store that sometimes fails to remove something, and remembers what it removed."""

    def __init__(self, root: Path, rng: random.Random, refuses: float) -> None:
        super().__init__(root)
        self.refuses = refuses
        self.removed: set[str] = set()
        self.removing: Callable[[str], None] = lambda prefix: None  # called before anything is removed
        self._rng = rng

    def delete_tree(self, prefix: str) -> None:
        """Raises: PermissionError."""
        if self._rng.random() < self.refuses:
            raise PermissionError(13, "not now", prefix)
        self.removing(prefix)
        super().delete_tree(prefix)
        self.removed.add(prefix)


def any_script(submission: Submission, rng: random.Random) -> Script:
    """A program of random length and end, with checkpoints and artifacts. Some ignore TERM."""
    exits = rng.choices([(0, None), (1, None), (0, 9), (0, 11)], [6, 1, 2, 1])[0]
    runs_s = rng.uniform(0.1, 40.0) if rng.random() < 0.95 else 3000.0
    times = sorted(rng.uniform(0.0, runs_s) for _ in range(rng.choice([0, 2, 5, 8])))
    reports = tuple((after_s, _report(submission, step, rng)) for step, after_s in enumerate(times, 1))
    return Script(runs_s, exits[0], exits[1], rng.choice([0.5, 0.5, None]), reports)


def _report(submission: Submission, step: int, rng: random.Random) -> dict[str, object]:
    """A checkpoint of this node, this node's part of a gang's checkpoint, an artifact, or a warning."""
    key, attempt = submission.key, submission.job.attempt
    gang = 1 if attempt is None else len(attempt.allocation.shares)
    if rng.random() < 0.1:
        return {"kind": "warned", "topic": f"trouble {key.attempt}-{step}", "text": "the disk is full"}
    if rng.random() < 0.3:
        name = f"{key.attempt}-{key.node_index}-{step}.png"
        return {"kind": "kept", "path": name, "digest": _DIGEST, "bytes": 1}
    own = {"id": f"{key.attempt:04d}-{key.node_index}{step:04d}", "parts_expected": 1}
    shared = {"id": f"{key.attempt:04d}-s{step}", "parts_expected": gang}
    told = {"kind": "staged", "step": step, "approximate": False, "digest": _DIGEST, "files": 1, "bytes": 1}
    return {**told, **(own if rng.random() < 0.5 else shared)}


def garbage(key: AgentKey, rng: random.Random) -> AgentReport:
    """Reports that no agent of this version sends: incomplete, with wrong types, or of a newer version."""
    reports: list[dict[str, object]] = [
        {"kind": "started", "n": 2, "restored": [], "step": "x", "bad": None},
        {"kind": "staged", "n": "7", "id": "../x"},
        {"kind": "ended", "n": 3, "ranks": [{}]},
        {"kind": "dreamt", "n": 4},
        {"n": None},
    ]
    return AgentReport(str(key), rng.choice(reports))
