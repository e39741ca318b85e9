"""What of a store is used, by whom, and what may be removed: garbage collection that never takes a referenced blob.

A blob is taken only if, with the door closed to whoever makes references (`closed`), (a) nothing on record or waiting in the
inbox refers to it, (b) it is older than the grace, and (c) both were so when it was marked before. What an attempt that is
not over may still write, and everything of a kind or a job that is not known here, is never taken. The store is listed as a
stream; only what is marked of one batch, and the names of code in use, are in memory.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from trainmaster.blobs.code import tree_name
from trainmaster.errors import NotFoundError
from trainmaster.model.checkpoints import Artifact
from trainmaster.model.commands import SubmitJob
from trainmaster.model.job import Job
from trainmaster.model.lineage import Lineage
from trainmaster.ports.blobs import Blobs, Stored

GRACE_S = 86400.0
SHARED = "(shared)"  # the project of what belongs to several
_BATCH = 500


class Records(Protocol):
    """What refers to blobs, read afresh at each call."""

    def waiting(self) -> Iterable[tuple[str, SubmitJob]]:
        """Jobs that are accepted and not taken up yet; always asked before `jobs`, so that none is in neither."""
        ...

    def jobs(self) -> Iterable[Job]:
        """Every job."""
        ...

    def artifacts(self, job: str) -> Iterable[Artifact]:
        """What a job has kept."""
        ...


@dataclass(frozen=True, slots=True)
class _Of:
    """What one job refers to."""

    project: str
    over: bool
    live: str | None  # prefix of the checkpoints that its attempt may still write; None: it is over
    checkpoints: frozenset[str]
    spare: frozenset[str]  # those of `checkpoints` that a job which is over could do without


@dataclass(slots=True)
class References:
    """All references at one moment."""

    of: dict[str, _Of] = field(default_factory=dict)
    trees: set[str] = field(default_factory=set)
    inherited: set[tuple[str, str]] = field(default_factory=set)  # (job, checkpoint) that other jobs start from
    objects: set[bytes] = field(default_factory=set)  # of the trees, and of those younger than the grace

    @classmethod
    def read(cls, records: Records) -> "References":
        """As they are now."""
        found = cls()
        for job_id, command in records.waiting():
            found.of[job_id] = _Of(command.spec.project, False, "", frozenset(), frozenset())
            found._refer(command.code.digest, command.lineage)
        for job in records.jobs():
            found.of[job.id] = _of(job)
            found._refer(job.code.digest, job.lineage)
        return found

    def _refer(self, tree: str | None, lineage: Lineage | None) -> None:
        if tree is not None:
            self.trees.add(tree)
        if lineage is not None and lineage.checkpoint is not None and lineage.owner is not None:
            self.inherited.add((lineage.owner, lineage.checkpoint.id))


def _of(job: Job) -> _Of:
    kept = [checkpoint.id for checkpoint in job.checkpoints]
    good = [checkpoint.id for checkpoint in job.good_checkpoints]
    attempt = job.attempt
    over = attempt is not None and attempt.ended_s is not None
    live = None if job.state.ended or over else f"{attempt.number if attempt is not None else 1:04d}-"
    all_of_it = frozenset([*kept, *(checkpoint.id for checkpoint in job.staged), *job.deleting])
    spare = frozenset(kept) - frozenset(good[-1:]) if job.state.ended else frozenset()
    return _Of(job.spec.project, job.state.ended, live, all_of_it, spare)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose a blob is, and whether anything refers to it."""

    project: str
    kind: str  # checkpoints, artifacts, code, provenance, other
    referenced: bool
    spare: bool = False  # an older checkpoint of a job that is over


class Judge:
    """Says of each blob whether something refers to it. Pure, given the references."""

    def __init__(self, references: References, artifacts: Callable[[str], Iterable[Artifact]]) -> None:
        self._references = references
        self._digests = lru_cache(64)(lambda job: frozenset(kept.digest for kept in artifacts(job)))

    def place(self, name: str) -> Place:
        """Of a blob's name."""
        kind, *rest = name.split("/")
        if kind == "checkpoints" and len(rest) >= 3:
            return self._checkpoint(rest[0], rest[1])
        if kind == "artifacts" and len(rest) == 2:
            return self._artifact(rest[0], rest[1])
        if kind == "code" and len(rest) == 2 and rest[0] == "trees":
            return Place(SHARED, kind, rest[1].removesuffix(".json") in self._references.trees)
        if kind == "code" and len(rest) == 3 and rest[0] == "objects":
            return Place(SHARED, kind, _key(rest[1] + rest[2]) in self._references.objects)
        return Place(SHARED, kind if kind == "provenance" else "other", True)

    def _checkpoint(self, job: str, identifier: str) -> Place:
        of = self._references.of.get(job)
        if of is None:
            return Place("(unknown)", "checkpoints", True)
        needed = (job, identifier) in self._references.inherited
        writing = of.live is not None and identifier.startswith(of.live)
        referenced = needed or writing or identifier in of.checkpoints
        return Place(of.project, "checkpoints", referenced, identifier in of.spare and not needed)

    def _artifact(self, job: str, digest: str) -> Place:
        of = self._references.of.get(job)
        if of is None:
            return Place("(unknown)", "artifacts", True)
        return Place(of.project, "artifacts", not of.over or digest in self._digests(job))


def _key(digest: str) -> bytes:
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return digest.encode()


def judge(blobs: Blobs, records: Records, oldest_s: float) -> Judge:
    """A judge of this moment. Trees written after `oldest_s` count as referenced: a submit may be on its way."""
    references = References.read(records)
    for stored in blobs.walk("code/trees"):
        if stored.modified_s > oldest_s:
            references.trees.add(stored.name.rpartition("/")[2].removesuffix(".json"))
    for tree in references.trees:
        references.objects.update(_objects(blobs, tree))
    return Judge(references, records.artifacts)


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
class Use:
    """What one project keeps of one kind."""

    project: str
    kind: str
    blobs: int = 0
    bytes: int = 0
    orphaned_bytes: int = 0  # nothing refers to it: gc removes it once it is older than the grace
    spare_bytes: int = 0  # checkpoints of jobs that are over, but their last good ones


def use(blobs: Blobs, records: Records) -> list[Use]:
    """Everything in the store, by project and kind."""
    found: dict[tuple[str, str], Use] = {}
    judged = judge(blobs, records, time.time() - GRACE_S)
    for stored in blobs.walk(""):
        place = judged.place(stored.name)
        one = found.setdefault((place.project, place.kind), Use(place.project, place.kind))
        one.blobs += 1
        one.bytes += stored.bytes
        one.orphaned_bytes += 0 if place.referenced else stored.bytes
        one.spare_bytes += stored.bytes if place.spare else 0
    return [found[key] for key in sorted(found)]


@dataclass(slots=True)
class Collected:
    """What was removed, or would be."""

    blobs: int = 0
    bytes: int = 0
    uploads: int = 0  # unfinished ones, given up
    young_bytes: int = 0  # nothing refers to it, but it is younger than the grace
    by_kind: dict[str, int] = field(default_factory=dict)  # bytes


@dataclass(frozen=True, slots=True)
class Collecting:
    """One collection's rules. `closed` keeps everybody from making references while it is entered."""

    grace_s: float = GRACE_S
    dry_run: bool = False
    closed: Callable[[], AbstractContextManager[object]] = nullcontext
    now_s: Callable[[], float] = time.time


def collect(blobs: Blobs, records: Records, rules: Collecting) -> Collected:
    """Mark what nothing refers to, batch by batch, look again with the door closed, and remove what is still so."""
    done = Collected()
    oldest_s = rules.now_s() - rules.grace_s
    marking, batch = judge(blobs, records, oldest_s), list[Stored]()
    for stored in blobs.walk(""):
        if marking.place(stored.name).referenced:
            continue
        if stored.modified_s > oldest_s:
            done.young_bytes += stored.bytes
            continue
        batch.append(stored)
        if len(batch) == _BATCH:
            _sweep(blobs, records, rules, batch, done)
            batch.clear()
    _sweep(blobs, records, rules, batch, done)
    _give_up_uploads(blobs, records, rules, done)
    return done


def _sweep(blobs: Blobs, records: Records, rules: Collecting, batch: list[Stored], done: Collected) -> None:
    """Remove those of the batch that are still unreferenced and as old as they were: nobody can begin to need one now."""
    if not batch:
        return
    with nullcontext() if rules.dry_run else rules.closed():
        oldest_s = rules.now_s() - rules.grace_s
        again, taken = judge(blobs, records, oldest_s), list[Stored]()
        for marked in batch:
            place = again.place(marked.name)
            stored = None if place.referenced else blobs.stat(marked.name)
            if stored is None or stored.modified_s > oldest_s:
                continue
            taken.append(stored)
            done.by_kind[place.kind] = done.by_kind.get(place.kind, 0) + stored.bytes
        if not rules.dry_run:
            # A tree goes before what it names: one that is there has all its objects, whatever dies in between.
            blobs.delete([stored.name for stored in sorted(taken, key=lambda one: not one.name.startswith("code/trees/"))])
    done.blobs += len(taken)
    done.bytes += sum(stored.bytes for stored in taken)


def _give_up_uploads(blobs: Blobs, records: Records, rules: Collecting, done: Collected) -> None:
    """Unfinished multi-part uploads of attempts that are over; the store keeps, and bills, their parts for ever."""
    direct = blobs.direct
    if direct is None:
        return
    judged = judge(blobs, records, rules.now_s() - rules.grace_s)
    for name, upload, begun_s in direct.uploads(""):
        if begun_s <= rules.now_s() - rules.grace_s and not judged.place(name).referenced:
            done.uploads += 1
            if not rules.dry_run:
                direct.abort(name, upload)


class StoreRecords:
    """`Records` of a server's own stores."""

    def __init__(self, page: Callable[[int | None], list[Job]], waiting: Callable[[], list[tuple[str, SubmitJob]]],
                 kept: Callable[[str, str], list[Artifact]]) -> None:  # fmt: skip
        self._page, self._waiting, self._kept = page, waiting, kept

    def waiting(self) -> Iterable[tuple[str, SubmitJob]]:
        """See `Records`."""
        return self._waiting()

    def jobs(self) -> Iterator[Job]:
        """See `Records`; newest first, a page in memory."""
        before: int | None = None
        while page := self._page(before):
            yield from page
            before = page[-1].seq

    def artifacts(self, job: str) -> Iterator[Artifact]:
        """See `Records`."""
        after = ""
        while page := self._kept(job, after):
            yield from page
            after = page[-1].path
