"""Lays out the code copy in the work directory of a job on a node. This happens once; attempts share the directory.

It is built beside its final path and renamed; the marker `<work>.layout` is written last. A directory without a marker was
left by a crash: it is moved aside, never used and never deleted. Paths that the job itself will write (matches of the
checkpoint path or an artifact glob, and their parents) are neither linked nor copied: they start empty. The digests of the
tree and of what was copied are checked: a damaged copy is never run.
"""

from __future__ import annotations

import errno
import hashlib
import os

from trainmaster.agent.files.fast_json import loads, read
from trainmaster.agent.processes.spawn import LaunchError

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set

    from trainmaster.agent.files.globs import Glob
    from trainmaster.wire.launch import CodeLayout, Launch

_SMALL_BYTES = 65536  # up to this size one read and one write are faster than a copy inside the kernel


class DamagedError(LaunchError):
    """The stored code copy has other bytes than were submitted."""

    def __init__(self, what: str, place: str) -> None:
        again = "submit it again from its directory: what is damaged is then stored anew"
        super().__init__(f"the stored copy of {what} is damaged: its bytes do not have their digest ({place}); {again}")


def lay_out(launch: Launch) -> None:
    """Prepare `launch["work"]`. Does nothing if the job runs in place, or if it is laid out already and not `fresh`.

    Raises: OSError (disk full, an object missing), DamagedError, ValueError (an invalid tree).
    """
    work, code = launch["work"], launch["code"]
    if launch["in_place"]:
        return
    marker = f"{work}.layout"
    if laid_out(launch):
        return
    if code is None and not launch["fresh"]:
        os.makedirs(work, exist_ok=True)
        return
    part = f"{work}.laying-out"
    for path in (part, work, marker):
        _move_away(path, launch)
    os.makedirs(part)
    if code is not None:
        _fill(part, code, launch)
    os.rename(part, work)
    written = f"{marker}.part"
    _move_away(written, launch)  # left by an interrupted write, or a pipe, on which `open` would block
    with open(written, "w") as file:
        file.write(_digest(launch))
    os.rename(written, marker)


def laid_out(launch: Launch) -> bool:
    """Whether an earlier attempt on this node completed the work directory."""
    work = launch["work"]
    return not launch["fresh"] and _read(f"{work}.layout") == _digest(launch) and os.path.isdir(work)


def _digest(launch: Launch) -> str:
    code = launch["code"]
    return os.path.splitext(os.path.basename(code["tree"]))[0] if code else ""


def _read(path: str) -> str:
    try:
        return read(path).decode(errors="replace")
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EINVAL):
            raise
        return "\n"  # equals no digest


def _move_away(path: str, launch: Launch) -> None:
    """Move what is at `path` to a free name below `<work>.aside/`; processes that still run in it are not disturbed."""
    if not os.path.lexists(path):
        return
    if os.path.isdir(path) and not os.listdir(path):
        os.rmdir(path)
        return
    aside = f"{launch['work']}.aside"
    os.makedirs(aside, exist_ok=True)
    count = 0
    while True:
        free = os.path.join(aside, f"{launch['attempt']}-{count}{path[len(launch['work']) :] or '.work'}")
        if not os.path.lexists(free):
            os.rename(path, free)
            return
        count += 1


def _fill(part: str, code: CodeLayout, launch: Launch) -> None:
    tree = read(code["tree"])
    if hashlib.sha256(tree).hexdigest() != _digest(launch):
        raise DamagedError("the list of its files", code["tree"])
    entries = loads(tree.decode())["entries"]
    globs = _own(launch)
    made: Set[str] = set()
    umask = os.umask(0o022)
    os.umask(umask)
    for entry in entries:
        path, kind = entry["path"], entry["type"]
        if globs and any(glob.owns(path) for glob in globs):
            while path and any(glob.owns(path) for glob in globs):
                path = os.path.dirname(path)
            _directory(part, path, made)
            continue
        if globs and kind != "file" and any(glob.leads_through(path) for glob in globs):
            _directory(part, path, made)
            continue
        _directory(part, os.path.dirname(path), made)
        target = f"{part}/{path}"
        if kind == "file":
            _copy(f"{code['objects']}/{entry['sha256'][:2]}/{entry['sha256'][2:]}", target, entry, umask)
        elif kind == "symlink":
            os.symlink(entry["target"], target)
        elif kind == "link":
            os.symlink(os.path.join(code["source"], path), target)
        elif kind == "directory":
            _directory(part, path, made)
        else:
            raise ValueError(f"the tree {code['tree']} has an entry of unknown type {kind!r}: {path}")


def _own(launch: Launch) -> List[Glob]:
    patterns = [pattern for pattern in [launch["checkpoint_path"], *launch["artifacts"]] if pattern]
    if not patterns:
        return []
    from trainmaster.agent.files.globs import Glob  # noqa: PLC0415  # only for a job with a checkpoint path or artifacts

    return [Glob(pattern, launch["work"]) for pattern in patterns]


def _directory(root: str, path: str, made: Set[str]) -> None:
    """Create a directory and its ancestors below `root`; rejects a path that leads out of it."""
    if path in made:
        return
    if os.path.isabs(path) or ".." in path.split("/"):
        raise ValueError(f"a path of the code copy leads out of it: {path}")
    os.makedirs(f"{root}/{path}" if path else root, exist_ok=True)
    made.add(path)


def _copy(source: str, target: str, entry: Dict[str, Any], umask: int) -> None:
    size, mode = entry["bytes"], entry["mode"]
    reading = os.open(source, os.O_RDONLY)
    try:
        writing = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            if _copy_bytes(reading, writing, size) != entry["sha256"]:
                raise DamagedError(entry["path"], source)
            if mode & umask:
                os.fchmod(writing, mode)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_bytes(reading: int, writing: int, size: int) -> str:
    """Copy the whole file, `size` bytes expected, sharing blocks if the file system can (reflink). Returns its SHA-256."""
    if size > _SMALL_BYTES and hasattr(os, "copy_file_range"):
        copied = 0
        try:
            while True:
                count = os.copy_file_range(reading, writing, 1 << 30)
                copied += count
                if count == 0:
                    return _written(writing)
        except OSError:
            if copied:
                raise  # it is supported here, so this is a real failure, such as a full disk
    digest = hashlib.sha256()
    chunk = 1 << 20 if size > _SMALL_BYTES else size + 1
    while True:
        data = os.read(reading, chunk)
        digest.update(data)
        ended = len(data) < chunk  # a short read means the end of a file
        while data:
            data = data[os.write(writing, data) :]
        if ended:
            return digest.hexdigest()


def _written(descriptor: int) -> str:
    """The SHA-256 of what was written."""
    digest, at = hashlib.sha256(), 0
    while data := os.pread(descriptor, 1 << 20, at):
        digest.update(data)
        at += len(data)
    return digest.hexdigest()
