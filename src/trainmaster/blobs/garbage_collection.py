"""Garbage collection of a blob store. It never removes a referenced blob.

A blob is removed only if all of this holds while the gate that blocks new references is closed (`closed`): (a) no record and
no inbox row refers to it, (b) it is older than the grace period, and (c) both were already so when it was marked. Blobs that a
live attempt may still write, and kinds of blobs that this version does not know, are never removed. Blobs of jobs that are not
on record are removed only on request, as are those that the lost home of a restored one may have stored after the backup. Code
trees are removed before everything else, so that an existing tree always has all its objects. If a tree in use cannot be read,
every object of code stays. The listing is streamed: only one batch of marked blobs and the names of code in use are in memory.

The whole record is read once, with the gate open. While the gate is closed, only newer records are read. The gate is opened
again after `closed_s`, even if part of the batch is left.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Protocol

from trainmaster.blobs.code import tree_name
from trainmaster.errors import DamagedError, NotFoundError
from trainmaster.lifecycle.checkpoints import spare
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.commands import AgentReport, SubmitJob
from trainmaster.model.job import Attempt, Job
from trainmaster.model.lineage import Lineage
from trainmaster.ports.blobs import Blobs, Stored
from trainmaster.wire.names import restored_mark

GRACE_S = 86400.0
SHARED = "(shared)"  # project of blobs that belong to several
UNKNOWN = "(unknown)"  # project of blobs of jobs that are not on record, or perhaps of a lost home's attempts
_TREES = "code/trees"
_NONE = "?"  # in no checkpoint's id
_JOBS_CACHED = 1024  # jobs whose artifacts are cached: more than a batch refers to
_STEP, _STEP_MAX = 8, 256  # blobs removed between two checks of the time


class Records(Protocol):
    """The records that refer to blobs. Every call reads them again."""

    def home(self) -> str:
        """The id of the server's home; empty if it is not known."""
        ...

    def waiting(self, after: int) -> Iterable[tuple[int, str, SubmitJob | AgentReport]]:
        """Accepted jobs and agents' reports that control has not processed, with their row numbers, in order.

        `after`: only rows after this one. Law: always read before `jobs` and `changed`, so that nothing is in neither.
        """
        ...

    def position(self) -> int:
        """The current end of the log."""
        ...

    def jobs(self) -> Iterable[Job]:
        """Every job."""
        ...

    def changed(self, after: int) -> Iterable[Job]:
        """Every job with an event after the position `after`, in its current value."""
        ...

    def artifacts(self, job: str) -> Iterable[Artifact]:
        """The artifacts of a job."""
        ...

    def attempts(self, job: str) -> Iterable[Attempt]:
        """All attempts of a job."""
        ...


@dataclass(frozen=True, slots=True)
class _JobReferences:
    """The references of one job."""

    project: str
    over: bool
    live: str | None  # prefix of the checkpoints that its attempt may still write; None if there are none
    checkpoints: frozenset[str]
    spare: frozenset[str]  # those of `checkpoints` that an ended job does not need


@dataclass(slots=True)
class References:
    """All references at one or several moments. References of earlier moments are kept."""

    of: dict[str, _JobReferences] = field(default_factory=dict)
    trees: set[str] = field(default_factory=set)
    inherited: set[tuple[str, str]] = field(default_factory=set)  # (job, checkpoint) that other jobs start from
    objects: set[bytes] = field(default_factory=set)  # of `trees`
    diffs: set[str] = field(default_factory=set)  # patches
    environments: set[str] = field(default_factory=set)  # of current attempts, and of reports in the inbox
    again: set[str] = field(default_factory=set)  # jobs with more than one attempt
    row: int = 0  # last inbox row that was read
    position: int | None = None  # last log position that was read; None: nothing was read yet

    @classmethod
    def read(cls, records: Records) -> "References":
        """The references now."""
        found = cls()
        found.update(records)
        return found

    def update(self, records: Records) -> set[str]:
        """Read newer records. Returns the jobs that they are about."""
        before, self.position = self.position, records.position()
        for row, job_id, command in records.waiting(self.row):
            self.row = max(self.row, row)
            if isinstance(command, AgentReport):
                self.environments.add(str(command.report.get("environment")))
                continue
            self.of[job_id] = _JobReferences(command.spec.project, False, "", frozenset(), frozenset())
            self._refer(command.code.digest, command.origin.git_diff, command.lineage)
        newer = set()
        for job in records.jobs() if before is None else records.changed(before):
            newer.add(job.id)
            self.of[job.id] = _job_references(job)
            self._refer(job.code.digest, job.origin.git_diff, job.lineage)
            if job.attempt is not None:
                self.environments.update(_environments(job.attempt))
                if job.attempt.number > 1:
                    self.again.add(job.id)
        return newer

    def _refer(self, tree: str | None, diff: str | None, lineage: Lineage | None) -> None:
        if tree is not None:
            self.trees.add(tree)
        if diff is not None:
            self.diffs.add(diff)
        if lineage is not None and lineage.checkpoint is not None and lineage.owner is not None:
            self.inherited.add((lineage.owner, lineage.checkpoint.id))


def _environments(attempt: Attempt) -> list[str]:
    return [node.environment for node in attempt.nodes if node.environment is not None]


def _job_references(job: Job) -> _JobReferences:
    kept = [checkpoint.id for checkpoint in job.checkpoints]
    attempt = job.attempt
    over = attempt is not None and attempt.ended_s is not None
    live = None if job.state.ended or over else f"{attempt.number if attempt is not None else 1:04d}-"
    all_of_it = frozenset([*kept, *(checkpoint.id for checkpoint in job.staged), *job.deleting])
    spared = frozenset(checkpoint.id for checkpoint in spare(job))
    return _JobReferences(job.spec.project, job.state.ended, live, all_of_it, spared)


@dataclass(frozen=True, slots=True)
class Place:
    """The owner of a blob, and whether anything refers to it."""

    project: str
    kind: str  # checkpoints, artifacts, code, provenance, other
    referenced: bool
    spare: bool = False  # an older checkpoint of a job that is over


class ReferenceChecker:
    """Tells of each blob whether it is referenced. With `unknown`, blobs of the project `UNKNOWN` are not."""

    def __init__(self, references: References, records: Records, blobs: Blobs, unknown: bool = False) -> None:
        self._references, self._records, self._blobs = references, records, blobs
        home = records.home()
        self._unknown, self._mark = unknown, restored_mark(home) if home else _NONE  # without an id, it may be a restored one
        self._read_trees: set[str] = set()  # trees whose objects are in `references`
        self.unread: set[str] = set()  # trees that are damaged or cannot be read now: they may have any object
        self._earlier: set[str] | None = None  # environments of earlier attempts
        self._digests = lru_cache(_JOBS_CACHED)(lambda job: frozenset(kept.digest for kept in records.artifacts(job)))
        self.refer(())

    def catch_up(self, fresh: Iterable[str]) -> None:
        """Read newer records. `fresh`: digests of trees that were stored since the last call."""
        newer = self._references.update(self._records)
        if newer:
            self._digests.cache_clear()
        if self._earlier is not None:
            for job in newer & self._references.again:
                self._earlier.update(self._environments_of(job))
        self.refer(fresh)

    def refer(self, trees: Iterable[str]) -> None:
        """Add references to these trees, and to the objects of all referenced trees."""
        self._references.trees.update(trees)
        for tree in self._references.trees - self._read_trees:
            self._read_trees.add(tree)
            try:
                self._references.objects.update(_objects(self._blobs, tree))
            except (DamagedError, OSError):
                self.unread.add(tree)

    def place(self, name: str) -> Place:
        """The owner and reference of a blob, by its name."""
        kind, *rest = name.split("/")
        if kind == "checkpoints" and len(rest) >= 3:
            return self._checkpoint(rest[0], rest[1])
        if kind == "artifacts" and len(rest) == 2:
            return self._artifact(rest[0], rest[1])
        if kind == "code" and len(rest) == 2 and rest[0] == "trees":
            return Place(SHARED, kind, rest[1].removesuffix(".json") in self._references.trees)
        if kind == "code" and len(rest) == 3 and rest[0] == "objects":
            return Place(SHARED, kind, bool(self.unread) or _key(rest[1] + rest[2]) in self._references.objects)
        if kind == "provenance" and len(rest) == 2:
            return Place(SHARED, kind, self._provenance(rest[0], rest[1]))
        return Place(SHARED, kind if kind == "provenance" else "other", True)

    def _provenance(self, kind: str, name: str) -> bool:
        digest = name.partition(".")[0]
        if kind == "diffs":
            return digest in self._references.diffs
        return kind != "environments" or digest in self._references.environments or digest in self._earlier_ones()

    def _earlier_ones(self) -> set[str]:
        """Environments of earlier attempts. Read only if a blob belongs to no current one, since it reads every job."""
        if self._earlier is None:
            self._earlier = {name for job in self._references.again for name in self._environments_of(job)}
        return self._earlier

    def _environments_of(self, job: str) -> set[str]:
        return {name for attempt in self._records.attempts(job) for name in _environments(attempt)}

    def _checkpoint(self, job: str, identifier: str) -> Place:
        of = self._references.of.get(job)
        if of is None:
            return Place(UNKNOWN, "checkpoints", not self._unknown)
        needed = (job, identifier) in self._references.inherited
        writing = of.live is not None and identifier.startswith(of.live)
        referenced = needed or writing or identifier in of.checkpoints
        if not referenced and self._mark and not identifier.partition("-")[2].startswith(f"{self._mark}-"):
            return Place(UNKNOWN, "checkpoints", not self._unknown)
        return Place(of.project, "checkpoints", referenced, identifier in of.spare and not needed)

    def _artifact(self, job: str, digest: str) -> Place:
        of = self._references.of.get(job)
        if of is None:
            return Place(UNKNOWN, "artifacts", not self._unknown)
        referenced = not of.over or digest in self._digests(job)
        if not referenced and self._mark:
            return Place(UNKNOWN, "artifacts", not self._unknown)
        return Place(of.project, "artifacts", referenced)


def _key(digest: str) -> bytes:
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return digest.encode()


def reference_checker(blobs: Blobs, records: Records, oldest_s: float, unknown: bool = False) -> ReferenceChecker:
    """A checker for this moment. Trees written after `oldest_s` count as referenced: a submission may be in progress."""
    references = References.read(records)
    for stored in blobs.walk(_TREES):
        if stored.modified_s > oldest_s:
            references.trees.add(stored.name.rpartition("/")[2].removesuffix(".json"))
    return ReferenceChecker(references, records, blobs, unknown)


def _objects(blobs: Blobs, tree: str) -> Iterator[bytes]:
    try:
        with blobs.open(tree_name(tree)) as file:
            entries = json.loads(file.read())["entries"]
    except NotFoundError:
        return
    for entry in entries:
        if entry["type"] == "file":
            yield _key(entry["sha256"])


@dataclass(slots=True)
class Collected:
    """The result of a collection, or of a dry run."""

    blobs: int = 0
    bytes: int = 0
    uploads: int = 0  # unfinished ones that were aborted
    young_bytes: int = 0  # unreferenced, but younger than the grace period
    by_kind: dict[str, int] = field(default_factory=dict)  # bytes
    unread_trees: int = 0  # damaged or unreadable ones, for which every object of code was kept


@dataclass(frozen=True, slots=True)
class Collecting:
    """Parameters of one collection. While `closed` is entered, nothing can create references."""

    grace_s: float = GRACE_S
    dry_run: bool = False
    closed: Callable[[], AbstractContextManager[object]] = nullcontext
    fresh: Callable[[], Iterable[str]] = tuple  # digests of trees that were stored since the collection began
    now_s: Callable[[], float] = time.time
    unknown: bool = False  # treat blobs of the project `UNKNOWN` as unreferenced
    batch: int = 500  # blobs marked before they are checked again and removed
    closed_s: float = 0.04  # longest time for which the gate stays closed, plus the step in progress


def collect(blobs: Blobs, records: Records, rules: Collecting) -> Collected:
    """Mark unreferenced blobs batch by batch, check them again with the gate closed, and remove those that still are."""
    done = Collected()
    oldest_s = rules.now_s() - rules.grace_s
    checker, batch = reference_checker(blobs, records, oldest_s, rules.unknown), list[Stored]()
    sweep = Sweep(blobs, checker, rules, done)
    everything = (stored for stored in blobs.walk("") if not stored.name.startswith(f"{_TREES}/"))
    for stored in chain(blobs.walk(_TREES), everything):  # a submission may refer to an existing tree between two batches
        if checker.place(stored.name).referenced:
            continue
        if stored.modified_s > oldest_s:
            done.young_bytes += stored.bytes
            continue
        batch.append(stored)
        if len(batch) == rules.batch:
            sweep.remove(batch)
            batch.clear()
    sweep.remove(batch)
    _give_up_uploads(blobs, checker, rules, done)
    done.unread_trees = len(checker.unread)
    return done


class Sweep:
    """Removes marked blobs that are still unreferenced and old enough, in steps that are short with any store."""

    def __init__(self, blobs: Blobs, checker: ReferenceChecker, rules: Collecting, done: Collected) -> None:
        self._blobs, self._checker, self._rules, self._done = blobs, checker, rules, done
        self._step = _STEP  # blobs; adapted to what the store removes within a quarter of `closed_s`

    def remove(self, marked: Iterable[Stored]) -> None:
        """Law: while the gate is closed no reference can be created, and all newer records have been read."""
        self._checker.catch_up(self._rules.fresh())  # with the gate open, so that little is left to read once it is closed
        left = [stored for stored in marked if not self._checker.place(stored.name).referenced]
        while left:
            with nullcontext() if self._rules.dry_run else self._rules.closed():
                self._checker.catch_up(self._rules.fresh())
                until_s = time.monotonic() + self._rules.closed_s
                while True:
                    taken, left = left[: self._step], left[self._step :]
                    began_s = time.monotonic()
                    self._take(taken)
                    self._adapt(time.monotonic() - began_s)
                    if not left or time.monotonic() >= until_s:
                        break

    def _take(self, step: Sequence[Stored]) -> None:
        oldest_s, taken = self._rules.now_s() - self._rules.grace_s, list[Stored]()
        for marked in step:
            place = self._checker.place(marked.name)
            stored = None if place.referenced else self._blobs.stat(marked.name)
            if stored is None or stored.modified_s > oldest_s:
                continue
            taken.append(stored)
            self._done.by_kind[place.kind] = self._done.by_kind.get(place.kind, 0) + stored.bytes
        if not self._rules.dry_run:
            self._blobs.delete([stored.name for stored in taken])  # trees come first, even if the process dies in between
        self._done.blobs += len(taken)
        self._done.bytes += sum(stored.bytes for stored in taken)

    def _adapt(self, took_s: float) -> None:
        if took_s > self._rules.closed_s / 4:
            self._step = max(1, self._step // 2)
        elif took_s < self._rules.closed_s / 16:
            self._step = min(_STEP_MAX, self._step * 2)


def _give_up_uploads(blobs: Blobs, checker: ReferenceChecker, rules: Collecting, done: Collected) -> None:
    """Abort unfinished multipart uploads of attempts that are over: stores keep, and bill, their parts for ever."""
    direct = blobs.direct
    if direct is None:
        return
    checker.catch_up(rules.fresh())
    for name, upload, begun_s in direct.uploads(""):
        if begun_s <= rules.now_s() - rules.grace_s and not checker.place(name).referenced:
            done.uploads += 1
            if not rules.dry_run:
                direct.abort(name, upload)


@dataclass(frozen=True, slots=True)
class Older:
    """Checkpoints of an ended job beside its last good one, from which no other job starts."""

    job: str
    ids: tuple[str, ...]
    bytes: int


def older(records: Records, ended_before_s: float) -> list[Older]:
    """Older checkpoints of jobs that had ended by then, sorted by job id."""
    inherited, found = References.read(records).inherited, list[Older]()
    for job in records.jobs():
        if job.ended_s is None or job.ended_s > ended_before_s:
            continue
        ones = [one for one in spare(job) if (job.id, one.id) not in inherited]
        if ones:
            size = sum(part.bytes for one in ones for part in one.parts)
            found.append(Older(job.id, tuple(one.id for one in ones), size))
    return sorted(found, key=lambda one: one.job)
