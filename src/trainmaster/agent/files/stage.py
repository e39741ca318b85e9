"""Stages one part of a checkpoint durably in the store: copy, digest, sync, and then make it visible by a rename.

`<store>/<id>/n<i>.part/` becomes `<store>/<id>/n<i>/` with its MANIFEST.json. A failure before the rename leaves nothing
behind. Staging does not commit: an event of control commits the manifest.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from trainmaster.agent.files.globs import Signature, files_below, signature
from trainmaster.wire import disks, failpoint
from trainmaster.wire.launch import Launch
from trainmaster.wire.messages import FileEntry, Manifest, PointerEntry
from trainmaster.wire.names import MANIFEST, printable, stored_name

CHUNK_BYTES = 1 << 20
_ZEROS = bytes(CHUNK_BYTES)


class Source(NamedTuple):
    """A file to stage: its path, its path in the manifest, and its expected state while it is copied.

    `signature`: None if it is appended to all the time. Then it is stored as it is by now.
    """

    path: str
    name: str
    signature: Optional[Signature]


class Content(NamedTuple):
    """The content of a part and its metadata."""

    kind: str  # "glob" or "sdk"
    step: Optional[int]
    approximate: bool
    parts_expected: int
    directories: List[str]
    sources: List[Source]
    links: Tuple[Tuple[str, str], ...] = ()  # (path, target) of links that lead to no file
    name: str = ""  # what the program calls it: a path
    pointers: Optional[Dict[str, PointerEntry]] = None  # see `checkpoints.pointers`
    temporary: Tuple[str, ...] = ()  # see `Manifest.temporary`


class Raced(Exception):
    """The source changed while it was copied; nothing was staged."""


class Incomplete(Exception):
    """The copy fails the check; nothing was staged."""


class Check:
    """Checks a staging before it becomes visible; this base class accepts everything."""

    def placed(self, stored: str, path: str, size: int) -> None:
        """A file of the part is complete at `path` (`stored` in the part) and must not change; its digest may be pending."""

    def file(self, copy: str) -> bool:
        """Whether the copied file is complete."""
        return True

    def settled(self) -> bool:
        """Whether the whole source is unchanged after it was copied."""
        return True


def disk_full(error: OSError) -> bool:
    """Whether the disk or the quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def stage(launch: Launch, identifier: str, content: Content, check: Check) -> Dict[str, Any]:
    """Stage the part. Returns the fields of `wire.messages.Staged` except kind and n.

    Raises: Raced, Incomplete, OSError (also for a full disk); then nothing is left behind.
    """
    root = os.path.join(launch["checkpoint_store"], identifier)
    final = os.path.join(root, f"n{launch['node_index']}")
    part = f"{final}.part"
    disks.discard(part)
    make_directories(root)
    os.mkdir(part)
    try:
        files = [_take(source, part, content.kind == "sdk", check) for source in content.sources]
        if not check.settled():
            raise Raced(identifier)
        data = _manifest(launch, identifier, content, files)
        _write_durably(os.path.join(part, MANIFEST), data)
        for directory in ("", *files_below(part, "")[1]):
            sync_directory(os.path.join(part, directory))
        failpoint.passing("checkpoint.manifest.before")
        os.rename(part, final)
        failpoint.passing("checkpoint.manifest.after")
        for directory in (root, launch["checkpoint_store"], os.path.dirname(launch["checkpoint_store"])):
            sync_directory(directory)
    except BaseException:
        disks.discard(part)
        if os.path.isdir(root) and not os.listdir(root):
            os.rmdir(root)
        raise
    return {
        "id": identifier,
        "step": content.step,
        "approximate": content.approximate,
        "parts_expected": content.parts_expected,
        "digest": hashlib.sha256(data).hexdigest(),
        "files": len(files),
        "bytes": sum(file["bytes"] for file in files),
        "name": printable(content.name),
    }


def clean(launch: Launch) -> List[str]:
    """Remove unfinished parts of killed agents of this node; returns the ids in the store."""
    store = launch["checkpoint_store"]
    names = os.listdir(store) if os.path.isdir(store) else []
    for name in names:
        part = os.path.join(store, name, f"n{launch['node_index']}.part")
        if os.path.isdir(part):
            disks.discard(part)
    return names


def _manifest(launch: Launch, identifier: str, content: Content, files: List[FileEntry]) -> bytes:
    manifest: Manifest = {
        "id": identifier,
        "job": launch["job"],
        "attempt": launch["attempt"],
        "node_index": launch["node_index"],
        "step": content.step,
        "approximate": content.approximate,
        "kind": content.kind,
        "directories": content.directories,
        "files": files,
    }
    if content.links:
        manifest["links"] = dict(content.links)
    if content.pointers:
        manifest["pointers"] = content.pointers
    if content.temporary:
        manifest["temporary"] = list(content.temporary)
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()  # ASCII: a file name may hold any bytes


def _take(source: Source, part: str, linked: bool, check: Check) -> FileEntry:
    """Put one file into the part. SDK files are hard-linked if possible; all others are copied."""
    target = os.path.join(part, stored_name(source.name))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    reading = _open(source.path)
    try:
        before = os.fstat(reading)
        size, fixed = before.st_size, source.signature is not None
        if fixed and signature(before) != source.signature:
            raise Raced(source.name)
        linked = linked and before.st_nlink == 1 and _link(source.path, target)
        if linked:
            check.placed(stored_name(source.name), target, size)
            digest = _digest(reading)
            os.fsync(reading)
        else:
            digest = _copy(reading, target, size)
            size = os.stat(target).st_size
            check.placed(stored_name(source.name), target, size)
        if fixed and signature(os.fstat(reading)) != source.signature:
            raise Raced(source.name)
    finally:
        os.close(reading)
    if fixed and not check.file(target):
        raise Incomplete(source.name)
    return {"path": source.name, "bytes": size, "sha256": digest, "mode": before.st_mode & 0o777}


def _open(path: str) -> int:
    """Open a file for reading, without blocking if a pipe has replaced it. Raises: Raced, OSError."""
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(reading).st_mode):
        os.close(reading)
        raise Raced(path)
    return reading


def _link(source: str, target: str) -> bool:
    if os.path.islink(source):
        return False  # the target of the link may be shared
    try:
        os.link(source, target)
    except OSError:
        return False  # another file system, or one without hard links
    return True


def _digest(reading: int) -> str:
    digest = hashlib.sha256()
    while True:
        data = os.read(reading, CHUNK_BYTES)
        if not data:
            return digest.hexdigest()
        digest.update(data)


def _copy(reading: int, target: str, size: int) -> str:
    """Copy the first `size` bytes to a new file durably; returns the SHA-256 of the written bytes."""
    digest = hashlib.sha256()
    writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    sparse = has_holes(reading)
    try:
        while size > 0:
            data = os.read(reading, min(size, CHUNK_BYTES))
            if not data:
                break
            size -= len(data)
            digest.update(data)
            put(writing, data, sparse)
        if sparse:
            os.ftruncate(writing, os.lseek(writing, 0, os.SEEK_CUR))
        os.fsync(writing)
    finally:
        os.close(writing)
    return digest.hexdigest()


def has_holes(descriptor: int) -> bool:
    """Whether the file uses less disk space than its size."""
    status = os.fstat(descriptor)
    return status.st_blocks * 512 < status.st_size


def put(writing: int, data: bytes, sparse: bool) -> None:
    """Write all of `data`. `sparse`: blocks of zeros are skipped, and the caller sets the file's size at the end."""
    if sparse and data == (_ZEROS if len(data) == CHUNK_BYTES else bytes(len(data))):
        os.lseek(writing, len(data), os.SEEK_CUR)
        return
    while data:
        data = data[os.write(writing, data) :]


def copy_durably(source: str, target: str) -> Tuple[str, os.stat_result]:
    """Copy a file to a new one; returns its SHA-256 and the status of the source. Raises: Raced, OSError."""
    reading = _open(source)
    try:
        before = os.fstat(reading)
        digest = _copy(reading, target, os.fstat(reading).st_size)
        if signature(os.fstat(reading)) != signature(before):
            raise Raced(source)
        return digest, before
    finally:
        os.close(reading)


def _write_durably(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_directories(path: str) -> None:
    """Create a directory and its missing parents durably. Raises: OSError."""
    above = os.path.dirname(path)
    if os.path.isdir(path):
        return
    make_directories(above)
    with contextlib.suppress(FileExistsError):  # another process has created it meanwhile
        os.mkdir(path)
    sync_directory(above)


def sync_directory(path: str) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
