"""File operations of `restore`: verify, copy beside, move aside (`set_aside`), rename into place. In this order a crash at any
instant leaves nothing half done that a retry would take for complete.
"""

import hashlib
import json
import os
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple, TypeVar

from trainmaster.agent.checkpoints import pointers
from trainmaster.agent.checkpoints.candidate_files import leads_out
from trainmaster.agent.checkpoints.set_aside import beside, move, set_aside
from trainmaster.agent.files.globs import Glob, files_below, links_below, topmost
from trainmaster.agent.files.stage import CHUNK_BYTES, has_holes, put
from trainmaster.wire import disks
from trainmaster.wire.launch import Launch, ResumePoint
from trainmaster.wire.messages import FileEntry, Manifest, PointerEntry
from trainmaster.wire.names import MANIFEST, stored_name

_Read = TypeVar("_Read")
_TEMPORARY = ".trainmaster-part"  # suffix of files that are not verified yet
PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # between the tries to read a checkpoint


class Chosen(NamedTuple):
    """The restored checkpoint; the fields of `restore.Restored`."""

    id: str
    step: Optional[int]
    path: str
    resume_dir: str
    read: bool


class Unreadable(OSError):
    """`checkpoint` could not be read. It may be good: the store or this machine may be the cause."""

    def __init__(self, point: ResumePoint, error: OSError) -> None:
        super().__init__(error.errno, str(error))
        step = "" if point["step"] is None else f" of {'about ' if point['approximate'] else ''}step {point['step']}"
        self.checkpoint = point["id"]
        self._text = f"checkpoint {point['id']}{step} could not be read: {error}"

    def __str__(self) -> str:
        return self._text


class PathBlocked(OSError):
    """Something else is where a directory must be. A person must decide what to do with it; the text says how."""

    advised = True

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(error.errno, str(error))
        linked = os.path.islink(path)
        what = "is a link that leads to no directory" if linked else "is not a directory, but must be one"
        todo = "mount what it leads to, or move the link away" if linked else "move it away"
        self._text = f"{path} {what}: {todo}, and the next try continues"

    def __str__(self) -> str:
        return self._text


class _Corrupt(Exception):
    """The digest of the stored content is not the recorded one: proof of corruption."""


class _Part(NamedTuple):
    """This node's part of one candidate."""

    point: ResumePoint
    place: str  # its directory in the store
    manifest: Manifest

    @property
    def roots(self) -> List[str]:
        """The matched paths: top-level directories, and files outside of them."""
        return topmost([*self.manifest["directories"], *(file["path"] for file in self.manifest["files"])])


def restore_first(launch: Launch, bad: List[str], tell: Callable[[str], None]) -> Optional[Chosen]:
    """Restore the first candidate that verifies, and return it. `bad` gets the ids of those proven corrupt.

    `tell` gets a message while a candidate cannot be read. Raises: Unreadable if one stays unreadable; PathBlocked, OSError.
    """
    for index, point in enumerate(launch["resume"]):
        try:
            return _with_retries(launch, index, tell)
        except _Corrupt:
            bad.append(point["id"])
    return None


def _with_retries(launch: Launch, index: int, tell: Callable[[str], None]) -> Chosen:
    """Retry reading. Raises: _Corrupt if it was read twice and wrong both times; Unreadable, OSError if all tries failed."""
    wrong = False

    def tried() -> Chosen:
        nonlocal wrong
        while True:
            try:
                return _put_fetched(launch, index, wrong) if launch.get("remote") else _put(launch, index)
            except _Corrupt:
                if wrong:
                    raise
                wrong = True  # a bit may have flipped during the transfer, or in the cached copy

    return retried(tried, tell)


def retried(read: Callable[[], _Read], tell: Callable[[str], None]) -> _Read:
    """What `read` returns, tried for a quarter of a minute. Raises: OSError if all tries failed."""
    pauses, told = list(PAUSES_S), ""
    while True:
        try:
            return read()
        except OSError as error:
            if not pauses or error.errno is None:  # without errno: `remote_store` has already retried
                raise
            if told != str(error):
                told = str(error)
                tell(f"retries to restore its checkpoint: {told}")
            time.sleep(pauses.pop(0))


def _put(launch: Launch, index: int) -> Chosen:
    """Raises: _Corrupt, OSError."""
    part = _open(launch, launch["resume"][index])
    if part.manifest["kind"] != "sdk":
        return _in_place(launch, part, launch["resume"][index + 1 :])
    chosen = _as_directory(launch, part)
    set_aside(launch, _kept(launch, launch["resume"][index:]))
    return chosen


def _put_fetched(launch: Launch, index: int, anew: bool) -> Chosen:
    """Restore from a remote store. Raises: _Corrupt, OSError."""
    from trainmaster.agent.transport import download  # noqa: PLC0415  # HTTP: only for a remote store

    point = launch["resume"][index]
    with download.pinned(launch, point):
        try:
            fetched = download.part(launch, point, anew)
        except download.DigestMismatch as error:
            raise _Corrupt(str(error)) from error
        except OSError as error:
            raise Unreadable(point, error) from error
        return _put(launch, index)._replace(read=fetched)  # else it is what this node's cache holds


def _open(launch: Launch, point: ResumePoint) -> _Part:
    """This node's part of a checkpoint, or node 0's part, with a verified manifest. Raises: _Corrupt, Unreadable."""
    name = f"n{launch['node_index']}"
    name = name if name in point["digests"] else "n0"
    place = os.path.join(point["root"], name)
    try:
        with open(os.path.join(place, MANIFEST), "rb") as file:
            data = file.read()
    except OSError as error:
        raise Unreadable(point, error) from error
    if hashlib.sha256(data).hexdigest() != point["digests"].get(name):
        raise _Corrupt(place)
    manifest: Manifest = json.loads(data.decode("utf-8", "surrogateescape"))  # a file name may hold any bytes
    return _Part(point, place, manifest)


def _as_directory(launch: Launch, part: _Part) -> Chosen:
    """Restore an SDK checkpoint as a verified copy outside the work directory."""
    target = beside(launch, "resume", part.point["id"])
    temporary = target + _TEMPORARY
    for old in (target, temporary):
        disks.discard(old)  # our own copy for an earlier start
    _fill(part, {file["path"]: os.path.join(temporary, file["path"]) for file in part.manifest["files"]})
    for directory in ["", *part.manifest["directories"]]:
        os.makedirs(os.path.join(temporary, directory), exist_ok=True)
    for path, said in part.manifest.get("links", {}).items():
        os.symlink(said, os.path.join(temporary, path))
    os.rename(temporary, target)
    return Chosen(part.point["id"], part.manifest["step"], target, target, True)


def _in_place(launch: Launch, part: _Part, behind: List[ResumePoint]) -> Chosen:
    """Restore a collected checkpoint to its original paths. Equal files stay; the others are first copied beside."""
    work = launch["work"]
    entries = {root: _entries(part.manifest, root) for root in part.roots}
    wanted = [root for root in part.roots if not _equal(work, root, part.manifest)]
    temporary, read = {root: _temporary(os.path.join(work, root)) for root in wanted}, len(wanted) == len(part.roots)
    try:
        _fill(part, {file["path"]: temporary[root] + file["path"][len(root) :] for root in wanted for file in entries[root]})
    except BaseException:
        for path in temporary.values():
            _remove(path)
        raise
    for root in wanted:
        for directory in part.manifest["directories"]:
            if (directory + "/").startswith(root + "/"):
                os.makedirs(temporary[root] + directory[len(root) :], exist_ok=True)
        for path, said in _links(part.manifest, root):
            os.symlink(said, temporary[root] + path[len(root) :])
    for root in [root for root in wanted if _equal(work, root, part.manifest)]:
        wanted.remove(root)  # meanwhile another node of the gang has restored it in the shared directory
        _remove(temporary[root])
    named = {**_pointers(launch, part.roots), **part.manifest.get("pointers", {})}
    set_aside(launch, _kept(launch, behind, set(part.roots) - set(wanted)))
    for root in wanted:
        target = os.path.join(work, root)
        if os.path.lexists(target):  # not matched by the current glob, so not set aside yet
            move(launch, root)
        os.rename(temporary[root], target)
    _point(launch, named)
    return Chosen(part.point["id"], part.manifest["step"], *_place(work, part.roots), read)


def _pointers(launch: Launch, roots: List[str]) -> Dict[str, PointerEntry]:
    """What the pointers that are in place must say if the checkpoint that has these matches is restored."""
    if not launch["checkpoint_path"]:
        return {}
    glob = Glob(launch["checkpoint_path"], launch["work"])
    matches = sorted({*glob.expand(), *roots})
    found = pointers.pointers(glob, matches)
    return {path: entry for root in roots for path, entry in pointers.entries_for(glob, found, root).items()}


def _point(launch: Launch, named: Dict[str, PointerEntry]) -> None:
    """Let the pointers name the restored checkpoint."""
    work = launch["work"]
    for path, entry in named.items():
        if not pointers.is_written(work, path, entry):
            move(launch, path)
            pointers.write(work, path, entry, _temporary(os.path.join(work, path)))


def keep_in_place(launch: Launch, roots: List[str]) -> Tuple[str, str]:
    """Keep the complete files in place, and set aside what the store does not hold. Returns path and directory as `Chosen`."""
    named = _pointers(launch, roots)
    set_aside(launch, _kept(launch, launch["resume"], set(roots)))
    _point(launch, named)
    return _place(launch["work"], roots)


def _place(work: str, roots: List[str]) -> Tuple[str, str]:
    """The value of `{path}`, and the directory of the checkpoint."""
    single = os.path.join(work, roots[0]) if len(roots) == 1 else os.path.join(work, os.path.commonpath(roots))
    if len(roots) > 1 and not os.path.isdir(single):
        single = os.path.dirname(single)
    resume_dir = single if os.path.isdir(single) else os.path.dirname(single)
    shown = os.path.relpath(single, work) if not leads_out(work, single) else single
    return shown, resume_dir


def _entries(manifest: Manifest, root: str) -> List[FileEntry]:
    return [file for file in manifest["files"] if file["path"] == root or file["path"].startswith(root + "/")]


def _links(manifest: Manifest, root: str) -> List[Tuple[str, str]]:
    return sorted((path, said) for path, said in manifest.get("links", {}).items() if path.startswith(root + "/"))


def _temporary(target: str) -> str:
    """A hidden name beside the target, on the same file system, that no other process uses."""
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
        there = os.path.dirname(target)
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if os.path.isdir(there):
            raise
        raise PathBlocked(there, error) from error
    path = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}{_TEMPORARY}")
    _remove(path)
    return path


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        disks.discard(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _fill(part: _Part, targets: Dict[str, str]) -> None:
    """Copy the given files to their targets and verify each while copying. Raises: _Corrupt, Unreadable, OSError."""
    for file in part.manifest["files"]:
        target = targets.get(file["path"])
        if target is None:
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        digest = hashlib.sha256()
        with open(target, "wb", buffering=0) as writing:
            try:
                reading = open(os.path.join(part.place, stored_name(file["path"])), "rb", buffering=0)  # noqa: SIM115
            except OSError as error:
                raise Unreadable(part.point, error) from error
            with reading:
                sparse = has_holes(reading.fileno())
                while True:
                    try:
                        data = reading.read(CHUNK_BYTES)
                    except OSError as error:
                        raise Unreadable(part.point, error) from error
                    if not data:
                        break
                    digest.update(data)
                    put(writing.fileno(), data, sparse)
                if sparse:
                    writing.truncate(file["bytes"])
            os.fchmod(writing.fileno(), file["mode"])
        if digest.hexdigest() != file["sha256"]:
            raise _Corrupt(file["path"])


def _equal(work: str, root: str, manifest: Manifest) -> bool:
    """Whether the files in place are exactly, byte for byte, what the manifest lists."""
    place, files = os.path.join(work, root), _entries(manifest, root)
    if os.path.islink(place) or not (os.path.isfile(place) or os.path.isdir(place)):
        return False  # missing, or a pipe or the like, which must not be opened
    try:
        names, directories = files_below(work, root) if os.path.isdir(place) else ([root], [])
        links = links_below(work, directories)
    except OSError:
        return False  # unknown: a copy is restored beside it, and the files in place are set aside
    if sorted(names) != sorted(file["path"] for file in files):
        return False
    if "links" in manifest and links != _links(manifest, root):
        return False
    return all(_same(os.path.join(work, file["path"]), file) for file in files)


def _same(path: str, file: FileEntry) -> bool:
    try:
        with open(path, "rb", buffering=0) as reading:
            if os.fstat(reading.fileno()).st_size != file["bytes"]:
                return False
            digest = hashlib.sha256()
            while True:
                data = reading.read(CHUNK_BYTES)
                if not data:
                    return digest.hexdigest() == file["sha256"]
                digest.update(data)
    except OSError:
        return False


def _kept(launch: Launch, points: List[ResumePoint], roots: Optional[Set[str]] = None) -> Set[str]:
    """Roots in place that may stay: `roots`, and those equal to the content of one of `points`."""
    kept = set(roots or ())
    for point in points:
        try:
            part = _open(launch, point)
        except (_Corrupt, OSError):
            continue  # not needed now; it is verified if it is tried itself
        if part.manifest["kind"] != "sdk":
            for root in set(part.roots) - kept:
                if _equal(launch["work"], root, part.manifest):
                    kept.add(root)
    return kept
