"""Reads the whole store, and compares every blob with its digest: in its name, or in the manifest of its checkpoint.

Only a digest that differs in two reads proves damage, and only whole bytes disprove it. What cannot be read now is counted, and
may be whole. What code copies and records name and the store lacks is listed, too.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from trainmaster.blobs.cached_store import CachedBlobs
from trainmaster.blobs.checkpoints import artifact_name, checkpoint_name
from trainmaster.blobs.code import object_name, tree_name
from trainmaster.blobs.fs import FsBlobs
from trainmaster.blobs.garbage_collection import Records
from trainmaster.blobs.names import digest_of
from trainmaster.blobs.verifying import Damage
from trainmaster.errors import DamagedError, NotFoundError, TrainmasterError
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.job import Job
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.ports.blobs import Blobs, diff_blob, environment_blob
from trainmaster.troubles import Register
from trainmaster.wire.names import MANIFEST, blob_name, printable, stored_name

_READ_BYTES = 1024 * 1024
_PREFIXES = ("code", "provenance", "artifacts")
_DAMAGED_MAX = 1000  # listed
_JOBS_MAX = 5  # listed for each
_ASKED = 500  # blobs in one question
_MANIFEST_MAX = 64 * 1024 * 1024  # bytes; a longer one is damaged


@dataclass(slots=True)
class Damaged:
    """A damaged blob: what it is, and jobs that it belongs to."""

    name: str
    what: str
    jobs: list[str]
    repaired: bool = False


@dataclass(slots=True)
class Verification:
    """Progress and result. One thread writes it, others read."""

    repair: bool = False
    blobs: int = 0
    bytes: int = 0
    unreadable: int = 0  # that could not be read now
    damaged: list[Damaged] = field(default_factory=list)
    damaged_total: int = 0
    ended: bool = False
    error: str = ""  # why it ended early
    checkpoints: dict[str, set[str]] = field(default_factory=dict)  # job -> ids of its damaged checkpoints


def verify(blobs: Blobs, records: Records, into: Verification, repair: Callable[[str], bool]) -> None:
    """Read everything. `repair` is called with the name of a damaged blob: whether it was replaced by a good copy."""
    store = blobs.store if isinstance(blobs, CachedBlobs) else blobs
    damage = blobs.damage if isinstance(blobs, CachedBlobs | FsBlobs) else Damage(Register())
    reader, again = _Reader(store, into), _Reader(store, Verification())
    bad = list(_wrong_blobs(reader))
    wrong = list(_wrong_checkpoints(reader, again, records))
    bad = [name for name in bad if again.state(name, digest_of(name) or "") is _State.DAMAGED]  # not stored anew meanwhile
    copies = CodeCopies(store, records)
    needed = copies.names() | set(_recorded(records))
    gone = _missing(store, needed - set(bad))  # a store says of what it knows to be damaged that it is not there
    if gone:
        copies = CodeCopies(store, records)  # a job that was removed meanwhile needs nothing
        needed = copies.names() | set(_recorded(records))
        gone = _missing(store, needed & set(gone))
    # The store says so, too, of what it has just read and found damaged.
    states = {name: again.state(name, digest_of(name) or "") for name in gone}
    bad += [name for name, state in states.items() if state is _State.DAMAGED]
    gone = [name for name, state in states.items() if state is _State.GONE]
    unread = reader.unread | again.unread  # nothing is proven of what only the first look could read
    unread -= {name for name, state in states.items() if state is not _State.UNKNOWN}
    into.unreadable = len(unread)
    damaged = [*bad, *(one.stored for one in wrong if not one.gone)]
    missing = [*gone, *(one.stored for one in wrong if one.gone)]
    damage.only(damaged, missing, unread | reader.unseen)  # before the repair, which takes out what it stores anew
    for name in [*bad, *gone]:
        into.damaged_total += 1
        repaired = into.repair and (_from_cache(blobs, name) or repair(name))
        if repaired and again.state(name, digest_of(name) or "") is not _State.WHOLE:
            repaired = False  # the store took the good copy, and does not give it back
            damage.found(name)
        if len(into.damaged) < _DAMAGED_MAX:
            what, jobs = _belongs(copies, records, name)
            into.damaged.append(Damaged(name, f"{what}: missing" if name in gone else what, jobs, repaired))
    for one in wrong:
        into.damaged_total += 1
        if not one.gone:  # what is missing may be on a disk that is not mounted, or was moved away: that is no proof
            into.checkpoints.setdefault(one.job, set()).add(one.checkpoint.id)
        if len(into.damaged) < _DAMAGED_MAX:
            what = f"{one.checkpoint.label}: {printable(one.path)}" + (": missing" if one.gone else "")
            into.damaged.append(Damaged(f"{one.root}/{one.path}", what, [one.job]))


def _from_cache(blobs: Blobs, name: str) -> bool:
    """Replace a damaged blob by the copy in this machine's cache of the store, if that is whole."""
    if not isinstance(blobs, CachedBlobs) or not blobs.cache.has(name):
        return False
    data = blobs.cache.path(name).read_bytes()
    if hashlib.sha256(data).hexdigest() != digest_of(name):
        return False
    blobs.put(name, data)
    return True


class _State(Enum):
    WHOLE = "whole"
    DAMAGED = "damaged"
    GONE = "gone"
    UNKNOWN = "unknown"  # it cannot be read now


_WRONG = (_State.DAMAGED, _State.GONE)


class _Reader:
    """Compares blobs with their digests."""

    def __init__(self, store: Blobs, into: Verification) -> None:
        self.store, self.into = store, into
        self.unread: set[str] = set()  # what could not be read now
        self.unseen: set[str] = set()  # parts of checkpoints whose files are not known now

    def state(self, name: str, wanted: str) -> _State:
        """What its bytes say, if they can be read."""
        digest, into = hashlib.sha256(), self.into
        into.blobs += 1
        try:
            with self.store.open(name) as file:
                while data := file.read(_READ_BYTES):
                    digest.update(data)
                    into.bytes += len(data)
        except DamagedError:
            return _State.DAMAGED
        except NotFoundError:
            into.blobs -= 1
            return _State.GONE
        except (OSError, TrainmasterError):
            self.fail(name)
            return _State.UNKNOWN
        return _State.WHOLE if digest.hexdigest() == wanted else _State.DAMAGED

    def fail(self, name: str) -> None:
        """It could not be read."""
        self.unread.add(name)
        self.into.unreadable = len(self.unread)


def _wrong_blobs(reader: _Reader) -> Iterator[str]:
    """The blobs that do not have the digest in their name."""
    for prefix in _PREFIXES:
        for stored in reader.store.walk(prefix):
            wanted = digest_of(stored.name)
            if wanted is not None and reader.state(stored.name, wanted) is _State.DAMAGED:
                yield stored.name


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A file of a checkpoint that is damaged or gone."""

    job: str
    checkpoint: Checkpoint
    root: str
    path: str
    stored: str  # the name of its blob
    digest: str
    gone: bool  # it was not there at one look or both


def _wrong_checkpoints(reader: _Reader, again: _Reader, records: Records) -> Iterator[_Wrong]:
    """Seen twice, of checkpoints that are on record both times: a checkpoint that was removed meanwhile needs nothing."""
    seen = [
        one
        for job in records.jobs()
        for checkpoint in (*job.checkpoints, *job.staged)
        for one in _wrong_files(reader, job, checkpoint)
    ]
    known = {(job.id, one.id) for job in records.jobs() for one in (*job.checkpoints, *job.staged)} if seen else set()
    for one in seen:
        if (one.job, one.checkpoint.id) not in known:
            continue
        state = again.state(one.stored, one.digest)
        if state in _WRONG:
            yield replace(one, gone=one.gone or state is _State.GONE)


def _wrong_files(reader: _Reader, job: Job, checkpoint: Checkpoint) -> Iterator[_Wrong]:
    for part in checkpoint.parts:
        root = f"checkpoints/{job.id}/{checkpoint.id}/n{part.node_index}"
        name = f"{root}/{MANIFEST}"
        state = reader.state(name, part.digest)
        if state in _WRONG:
            yield _Wrong(job.id, checkpoint, root, MANIFEST, name, part.digest, state is _State.GONE)
        if state is not _State.WHOLE:
            reader.unseen.add(root)
            continue
        for path, stored, digest in list(_files(reader, root, name)):
            state = reader.state(stored, digest)
            if state in _WRONG:
                yield _Wrong(job.id, checkpoint, root, path, stored, digest, state is _State.GONE)


def _files(reader: _Reader, root: str, name: str) -> Iterator[tuple[str, str, str]]:
    """(path, blob, digest) of each file in a manifest whose digest is right."""
    naming = stored_name if reader.store.local_path(root) is not None else blob_name
    try:
        with reader.store.open(name) as file:
            manifest = json.loads(file.read(_MANIFEST_MAX))
    except (OSError, TrainmasterError, ValueError):
        reader.fail(name)
        reader.unseen.add(root)
        return
    for entry in manifest["files"]:
        yield entry["path"], f"{root}/{naming(entry['path'])}", entry["sha256"]


def is_stored(blobs: Blobs, job: str, checkpoint: Checkpoint) -> bool:
    """Whether all that its manifests name is in the store, each file of its size. Only the manifests are read."""
    store = blobs.store if isinstance(blobs, CachedBlobs) else blobs
    for part in checkpoint.parts:
        root = f"{checkpoint_name(job, checkpoint.id)}/n{part.node_index}"
        name = f"{root}/{MANIFEST}"
        naming = stored_name if store.local_path(root) is not None else blob_name
        try:
            with store.open(name) as file:
                data = file.read(_MANIFEST_MAX)
            if hashlib.sha256(data).hexdigest() != part.digest:
                return False
            sizes = {f"{root}/{naming(entry['path'])}": entry["bytes"] for entry in json.loads(data)["files"]}
            found = {name: store.stat(name) for name in sizes}
        except (OSError, TrainmasterError):  # it may be there, and nobody knows
            return False
        if any(there is None or there.bytes != sizes[name] for name, there in found.items()):
            return False
    return True


def _recorded(records: Records) -> Iterator[str]:
    """Artifacts, patches and environment records that jobs name, without artifacts that were removed on purpose."""
    for job in records.jobs():
        if StorageKind.ARTIFACTS not in job.removed:
            yield from (artifact_name(job.id, one.digest) for one in records.artifacts(job.id))
        if job.origin.git_diff is not None:
            yield diff_blob(job.origin.git_diff)
        nodes = (node for attempt in records.attempts(job.id) for node in attempt.nodes)
        yield from (environment_blob(node.environment) for node in nodes if node.environment is not None)


def _missing(store: Blobs, names: set[str]) -> list[str]:
    """Those that are not in the store."""
    found: list[str] = []
    wanted = sorted(names)
    for at in range(0, len(wanted), _ASKED):
        asked = wanted[at : at + _ASKED]
        found += [name for name, there in zip(asked, store.exists(asked), strict=True) if not there]
    return found


class CodeCopies:
    """What the code copies of all jobs consist of. Each list of files is read once."""

    def __init__(self, store: Blobs, records: Records) -> None:
        self._jobs: dict[str, list[str]] = {}  # tree -> the newest of its jobs
        self._trees: dict[str, tuple[str, list[str]]] = {}  # object -> its path, and some trees that have it
        for job in records.jobs():
            if job.code.digest is not None and len(self._jobs.setdefault(job.code.digest, [])) < _JOBS_MAX:
                self._jobs[job.code.digest].append(job.id)
        for tree in self._jobs:
            for path, sha256 in _entries(store, tree):
                _, trees = self._trees.setdefault(sha256, (path, []))
                if len(trees) < _JOBS_MAX:
                    trees.append(tree)

    def names(self) -> set[str]:
        """All blobs that they need."""
        return {*map(tree_name, self._jobs), *map(object_name, self._trees)}

    def of(self, digest: str) -> tuple[str, list[str]]:
        """What the blob is, and the newest jobs that need it."""
        if digest in self._jobs:
            return "list of the files of a code copy", self._jobs[digest]
        path, trees = self._trees.get(digest, ("", []))
        jobs = dict.fromkeys(job for tree in trees for job in self._jobs[tree])
        return f"code {printable(path)}".rstrip(), list(jobs)[:_JOBS_MAX]


def _belongs(copies: CodeCopies, records: Records, name: str) -> tuple[str, list[str]]:
    """What a damaged blob is, and the newest jobs that it belongs to."""
    kind, _, rest = name.partition("/")
    digest = digest_of(name) or ""
    if kind == "artifacts":
        job = rest.partition("/")[0]
        path = next((one.path for one in records.artifacts(job) if one.digest == digest), "")
        return f"artifact {printable(path)}" if path else "artifact", [job]
    if kind == "code":
        return copies.of(digest)
    if rest.startswith("diffs/"):
        return "patch", _jobs(records, lambda job: job.origin.git_diff == digest)
    named = lambda job: any(node.environment == digest for one in records.attempts(job.id) for node in one.nodes)  # noqa: E731
    return "environment record", _jobs(records, named)


def _entries(store: Blobs, tree: str) -> Iterator[tuple[str, str]]:
    try:
        with store.open(tree_name(tree)) as file:
            entries = json.loads(file.read())["entries"]
    except (OSError, TrainmasterError, ValueError):
        return
    yield from ((entry["path"], entry["sha256"]) for entry in entries if entry["type"] == "file")


def _jobs(records: Records, among: Callable[[Job], bool]) -> list[str]:
    """The newest jobs for which `among` holds."""
    found: list[str] = []
    for job in records.jobs():
        if among(job):
            found.append(job.id)
            if len(found) == _JOBS_MAX:
                break
    return found
