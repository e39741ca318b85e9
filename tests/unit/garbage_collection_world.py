"""A store and its references: what a server has recorded, as far as garbage collection reads it."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from trainmaster.blobs import garbage_collection
from trainmaster.blobs.code import object_name, tree_name
from trainmaster.blobs.fs import FsBlobs
from trainmaster.model.checkpoints import Artifact, Checkpoint, Part
from trainmaster.model.commands import AgentReport, SubmitJob
from trainmaster.model.job import Attempt, Job
from trainmaster.ports.blobs import Stored, diff_blob, environment_blob
from trainmaster.wire.code import Entry, Tree

GRACE_S = 100.0
STRANGE = "checkpoints/strange-7/0001-00001/n0/x"  # of a job that is on record nowhere


class Died(Exception):
    """The collection was killed."""


class AgedBlobs(FsBlobs):
    """A store in memory, whose blobs are as old as a test's clock says. Only the latest instance works."""

    def __init__(self) -> None:
        MemoryFileSystem.store.clear()  # it is one for the whole process, and each listing looks at all of it
        MemoryFileSystem.pseudo_dirs[:] = [""]
        super().__init__("memory://collecting")
        self.now_s = 1000.0
        self.written: dict[str, float] = {}
        self.deleting: Callable[[], None] = lambda: None  # told before anything goes
        self.lives: int | None = None  # how many blobs may still go before the collection is killed
        self.fresh: set[str] = set()  # digests of the trees that were asked for since the collection began

    def put(self, name: str, data: bytes) -> None:
        """As written now; what is there stays as it was, as in a store with conditional writes."""
        if not self.exists([name])[0]:
            super().put(name, data)
            self.written[name] = self.now_s

    def stat(self, name: str) -> Stored | None:
        found = super().stat(name)
        return None if found is None else replace(found, modified_s=self.written[name])

    def walk(self, prefix: str) -> Iterator[Stored]:
        """By name, as S3 lists: objects of code before the trees that name them."""
        for stored in sorted(super().walk(prefix), key=lambda one: one.name):
            yield replace(stored, modified_s=self.written[stored.name])

    def delete(self, names: Sequence[str]) -> None:
        self.deleting()
        for name in names:
            if self.lives == 0:
                raise Died
            self.lives = None if self.lives is None else self.lives - 1
            super().delete([name])


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree_of(contents: Iterable[bytes]) -> Tree:
    return Tree(
        entries=[Entry(path=f"{n:03}", type="file", sha256=sha(c), mode=0o644, bytes=len(c)) for n, c in enumerate(contents)]
    )


def checkpoint(identifier: str, attempt: int = 1) -> Checkpoint:
    return Checkpoint(identifier, 1, attempt, (Part(0, "d", 1, 5),))


def bytes_of(job: str, identifier: str) -> str:
    return f"checkpoints/{job}/{identifier}/n0/x"


class World:
    """What a server has on record, and its store."""

    def __init__(self) -> None:
        self.blobs = AgedBlobs()
        self.recorded: dict[str, Job] = {}
        self.inbox: dict[str, SubmitJob | AgentReport] = {}
        self.rows: list[str] = []  # the keys of all that was ever accepted, in order
        self.before: list[dict[str, Job]] = []  # what was on record at each position that was asked for
        self.kept: dict[str, list[Artifact]] = {}
        self.earlier: dict[str, list[Attempt]] = {}
        self.uploaded: list[tuple[str, str]] = []  # checkpoints whose bytes are there, uncommitted
        self.sent: list[tuple[str, str]] = []  # artifacts likewise
        self.home_id = "server.1a2b3c4d"
        self.meanwhile: Callable[[], None] = lambda: None  # what control does after each reading of its records

    def home(self) -> str:
        return self.home_id

    def waiting(self, after: int) -> list[tuple[int, str, SubmitJob | AgentReport]]:
        found = [(self.rows.index(key) + 1, key, command) for key, command in self.inbox.items()]
        self.meanwhile()
        return [one for one in found if one[0] > after]

    def accept(self, key: str, command: SubmitJob | AgentReport) -> None:
        self.inbox[key] = command
        self.rows.append(key)

    def position(self) -> int:
        self.before.append(dict(self.recorded))
        return len(self.before)

    def changed(self, after: int) -> list[Job]:
        before = self.before[after - 1]
        found = [job for id, job in self.recorded.items() if before.get(id) is not job]
        self.meanwhile()
        return found

    def jobs(self) -> list[Job]:
        found = list(self.recorded.values())
        self.meanwhile()
        return found

    def artifacts(self, job: str) -> list[Artifact]:
        return self.kept.get(job, [])

    def attempts(self, job: str) -> list[Attempt]:
        last = self.recorded[job].attempt
        return [*self.earlier.get(job, []), *([last] if last is not None else [])]

    def needed(self) -> set[str]:
        """Every blob that is needed, computed in another way than the collection does."""
        names = {STRANGE} if STRANGE in self.blobs.written else set[str]()
        jobs = [*self.recorded.values(), *(one for one in self.inbox.values() if isinstance(one, SubmitJob))]
        for tree in {one.code.digest for one in jobs} - {None}:
            names |= {tree_name(str(tree)), *self._objects(str(tree))}
        names |= {diff_blob(one.origin.git_diff) for one in jobs if one.origin.git_diff is not None}
        held = {(one.lineage.owner, one.lineage.checkpoint.id) for one in jobs if one.lineage and one.lineage.checkpoint}
        for job in self.recorded.values():
            held |= {(job.id, one.id) for one in (*job.checkpoints, *job.staged)}
        names |= {bytes_of(str(job), identifier) for job, identifier in held}
        names |= {f"artifacts/{job}/{one.digest}" for job, kept in self.kept.items() for one in kept}
        live = {id for id, job in self.recorded.items() if not job.state.ended}  # may still commit what they sent
        names |= {bytes_of(job, identifier) for job, identifier in self.uploaded if job in live}
        names |= {f"artifacts/{job}/{name}" for job, name in self.sent if job in live}
        told = {str(one.report["environment"]) for one in self.inbox.values() if isinstance(one, AgentReport)}
        told |= {str(node.environment) for job in self.recorded for one in self.attempts(job) for node in one.nodes}
        return names | {environment_blob(one) for one in told - {"None"}}

    def torn(self) -> list[str]:
        """Trees that lack an object: a job that names one of them would be accepted."""
        trees = [stored.name.rpartition("/")[2].removesuffix(".json") for stored in self.blobs.walk("code/trees")]
        return [tree for tree in trees if not all(self.blobs.exists(sorted(self._objects(tree))))]

    def _objects(self, tree: str) -> set[str]:
        if not self.blobs.exists([tree_name(tree)])[0]:
            return set()
        with self.blobs.open(tree_name(tree)) as file:
            return {object_name(entry["sha256"]) for entry in json.loads(file.read())["entries"]}

    def collect(self, grace_s: float = GRACE_S, **rules: Any) -> garbage_collection.Collected:
        self.blobs.fresh.clear()
        given = garbage_collection.Collecting(grace_s, now_s=lambda: self.blobs.now_s, fresh=self.blobs.fresh.copy, **rules)
        return garbage_collection.collect(self.blobs, self, given)
