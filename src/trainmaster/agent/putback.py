"""The work of `restore`: verify, copy beside, move aside, rename into place; in this order, so that a crash at any
instant leaves nothing half done that a second try would take for whole.
"""

import errno
import hashlib
import json
import os
import shutil
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from trainmaster.agent.found import leads_out
from trainmaster.agent.globs import Glob, files_below, topmost
from trainmaster.agent.stage import CHUNK_BYTES
from trainmaster.wire.launch import Launch, ResumePoint
from trainmaster.wire.messages import FileEntry, Manifest
from trainmaster.wire.names import MANIFEST, stored_name

_TEMPORARY = ".trainmaster-part"  # ends the name of what is not verified yet
# Of a store's file these say that it is bad; any other error is this machine's and says nothing.
_BAD = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ELOOP)


class Chosen(NamedTuple):
    """The checkpoint put back; the fields of `restore.Restored`."""

    id: str
    step: Optional[int]
    path: str
    resume_dir: str


class _Corrupt(Exception):
    """A file of the store is missing or not what its manifest says."""


class _Part(NamedTuple):
    """One candidate on this node."""

    point: ResumePoint
    place: str  # its directory in the store
    manifest: Manifest

    @property
    def roots(self) -> List[str]:
        """What matched: directories at the top, and files in none of them."""
        return topmost([*self.manifest["directories"], *(file["path"] for file in self.manifest["files"])])


def put_back(launch: Launch) -> Tuple[Optional[Chosen], List[str]]:
    """Put back the first candidate that verifies; returns it and the ids that did not. Raises: OSError."""
    bad: List[str] = []
    for index, point in enumerate(launch["resume"]):
        for again in (False, True) if launch.get("remote") else (False,):  # a copy in a cache may be bad by itself
            try:
                return (_put_fetched(launch, index, again) if launch.get("remote") else _put(launch, index)), bad
            except _Corrupt:
                continue
        bad.append(point["id"])
    _set_aside(launch, set())
    return None, bad


def _put(launch: Launch, index: int) -> Chosen:
    """Raises: _Corrupt, OSError."""
    part = _open(launch, launch["resume"][index])
    if part.manifest["kind"] != "sdk":
        return _in_place(launch, part, launch["resume"][index + 1 :])
    chosen = _as_directory(launch, part)
    _set_aside(launch, _kept(launch, launch["resume"][index:]))
    return chosen


def _put_fetched(launch: Launch, index: int, anew: bool) -> Chosen:
    """The same from a store that is no directory. Raises: _Corrupt, OSError."""
    from trainmaster.agent import fetch  # noqa: PLC0415  # HTTP: only for such a store

    point = launch["resume"][index]
    with fetch.pinned(launch, point):
        try:
            fetch.part(launch, point, anew)
        except fetch.Wrong as error:
            raise _Corrupt(str(error)) from error
        return _put(launch, index)


def _open(launch: Launch, point: ResumePoint) -> _Part:
    """This node's part of a checkpoint, or node 0's, its manifest verified. Raises: _Corrupt, OSError."""
    name = f"n{launch['node_index']}"
    name = name if name in point["digests"] else "n0"
    place = os.path.join(point["root"], name)
    try:
        with open(os.path.join(place, MANIFEST), "rb") as file:
            data = file.read()
    except OSError as error:
        raise _judged(error) from error
    if hashlib.sha256(data).hexdigest() != point["digests"].get(name):
        raise _Corrupt(place)
    manifest: Manifest = json.loads(data)
    return _Part(point, place, manifest)


def _judged(error: OSError) -> Exception:
    return _Corrupt(error.filename) if error.errno in _BAD else error


def _as_directory(launch: Launch, part: _Part) -> Chosen:
    """An SDK checkpoint: a verified copy of its own, outside the work directory."""
    target = _beside(launch, "resume", part.point["id"])
    temporary = target + _TEMPORARY
    for old in (target, temporary):
        shutil.rmtree(old, ignore_errors=True)  # ours: a copy made for an earlier start
    _fill(part, {file["path"]: os.path.join(temporary, file["path"]) for file in part.manifest["files"]})
    for directory in ["", *part.manifest["directories"]]:
        os.makedirs(os.path.join(temporary, directory), exist_ok=True)
    os.rename(temporary, target)
    return Chosen(part.point["id"], part.manifest["step"], target, target)


def _in_place(launch: Launch, part: _Part, behind: List[ResumePoint]) -> Chosen:
    """A collected checkpoint: where it was. What is there and equal stays; the rest is copied beside first."""
    work = launch["work"]
    entries = {root: _entries(part.manifest, root) for root in part.roots}
    wanted = [root for root in part.roots if not _equal(work, root, entries[root])]
    temporary = {root: _temporary(os.path.join(work, root)) for root in wanted}
    try:
        _fill(part, {file["path"]: temporary[root] + file["path"][len(root) :] for root in wanted for file in entries[root]})
    except _Corrupt:
        for path in temporary.values():
            _remove(path)
        raise
    for root in wanted:
        for directory in part.manifest["directories"]:
            if (directory + "/").startswith(root + "/"):
                os.makedirs(temporary[root] + directory[len(root) :], exist_ok=True)
    for root in [root for root in wanted if _equal(work, root, entries[root])]:
        wanted.remove(root)  # meanwhile another node of the gang, in the same directory, has put it back
        _remove(temporary[root])
    _set_aside(launch, _kept(launch, behind, set(part.roots) - set(wanted)))
    for root in wanted:
        target = os.path.join(work, root)
        if os.path.lexists(target):  # outside the glob as it is now
            _move(launch, root)
        os.rename(temporary[root], target)
    step, first = part.manifest["step"], part.roots[0]
    single = os.path.join(work, first) if len(part.roots) == 1 else os.path.join(work, os.path.commonpath(part.roots))
    if len(part.roots) > 1 and not os.path.isdir(single):
        single = os.path.dirname(single)
    resume_dir = single if os.path.isdir(single) else os.path.dirname(single)
    shown = os.path.relpath(single, work) if not leads_out(work, single) else single
    return Chosen(part.point["id"], step, shown, resume_dir)


def _entries(manifest: Manifest, root: str) -> List[FileEntry]:
    return [file for file in manifest["files"] if file["path"] == root or file["path"].startswith(root + "/")]


def _temporary(target: str) -> str:
    """A hidden name beside the target, on the same file system, and no one else's."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    path = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}{_TEMPORARY}")
    _remove(path)
    return path


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def _fill(part: _Part, targets: Dict[str, str]) -> None:
    """Copy the files named to their targets, each verified on the way. Raises: _Corrupt, OSError."""
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
                raise _judged(error) from error
            with reading:
                while True:
                    try:
                        data = reading.read(CHUNK_BYTES)
                    except OSError as error:
                        raise _judged(error) from error
                    if not data:
                        break
                    digest.update(data)
                    while data:
                        data = data[writing.write(data) :]
            os.fchmod(writing.fileno(), file["mode"])
        if digest.hexdigest() != file["sha256"]:
            raise _Corrupt(file["path"])


def _equal(work: str, root: str, files: List[FileEntry]) -> bool:
    """Whether what is in place is, byte for byte, what the manifest lists, and nothing more."""
    place = os.path.join(work, root)
    if os.path.islink(place) or not os.path.lexists(place):
        return False
    names = files_below(work, root)[0] if os.path.isdir(place) else [root]
    if sorted(names) != sorted(file["path"] for file in files):
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
    """Roots in place that may stay: `roots`, and those equal to what one of `points` holds."""
    kept = set(roots or ())
    for point in points:
        try:
            part = _open(launch, point)
        except (_Corrupt, OSError):
            continue  # not needed now; it is judged when its turn comes
        if part.manifest["kind"] != "sdk":
            for root in set(part.roots) - kept:
                if _equal(launch["work"], root, _entries(part.manifest, root)):
                    kept.add(root)
    return kept


def _set_aside(launch: Launch, kept: Set[str]) -> None:
    """Move away every match but those `kept` and the links that lead to them."""
    if not launch["checkpoint_path"]:
        return
    work = launch["work"]
    real = {os.path.realpath(os.path.join(work, root)) for root in kept}
    for match in topmost(Glob(launch["checkpoint_path"], work).expand()):
        place = os.path.join(work, match)
        if match in kept or os.path.realpath(place) in real or any(root.startswith(match + "/") for root in kept):
            continue
        _move(launch, match)


def _move(launch: Launch, path: str) -> None:
    place = os.path.join(launch["work"], path)
    target = _beside(launch, "aside", str(launch["attempt"]), stored_name(path))
    free, count = target, 0
    while os.path.lexists(free):
        count += 1
        free = f"{target}~{count}"
    try:
        os.rename(place, free)
    except FileNotFoundError:
        return  # another node of the gang, in the same directory, was quicker
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(place, free)


def _beside(launch: Launch, kind: str, *names: str) -> str:
    """A path below `<work>.<kind>/`, its directory made; in the work directory where nothing can be made beside it."""
    for root in (f"{launch['work']}.{kind}", os.path.join(launch["work"], ".trainmaster", kind)):
        path = os.path.join(root, *names)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except PermissionError:
            continue
        return path
    raise PermissionError(f"nothing can be set aside beside or in {launch['work']}")
