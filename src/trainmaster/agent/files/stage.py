"""Making one part of a checkpoint durable in the store: copied, digested, synced, and only then visible by a rename.

`<store>/<id>/n<i>.part/` becomes `<store>/<id>/n<i>/` with its MANIFEST.json in it. Whatever goes wrong before that
leaves nothing behind. Whether the part counts is decided elsewhere: control's event commits the manifest.
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
from trainmaster.wire.messages import FileEntry, Manifest
from trainmaster.wire.names import MANIFEST, stored_name

CHUNK_BYTES = 1 << 20
_ZEROS = bytes(CHUNK_BYTES)


class Source(NamedTuple):
    """A file to stage: where it is, its path in the manifest, and what it must still be while it is copied."""

    path: str
    name: str
    signature: Signature


class Content(NamedTuple):
    """What a part shall hold, and what is said of it."""

    kind: str  # "glob" or "sdk"
    step: Optional[int]
    approximate: bool
    parts_expected: int
    directories: List[str]
    sources: List[Source]
    links: Tuple[Tuple[str, str], ...] = ()  # path and target of those that lead to no file


class Raced(Exception):
    """The source changed while it was copied; nothing was staged."""


class NotWhole(Exception):
    """The copy does not stand up to the check; nothing was staged."""


class Check:
    """What a staging must stand up to before it becomes visible; this one lets everything pass."""

    def placed(self, stored: str, path: str, size: int) -> None:
        """A file lies at `path` of the part, `stored` below it, and nobody is to write to it; perhaps not digested yet."""

    def file(self, copy: str) -> bool:
        """Whether the copied file is whole."""
        return True

    def settled(self) -> bool:
        """Whether the whole source, now copied, is still what it was."""
        return True


def disk_full(error: OSError) -> bool:
    """Whether the disk or the quota is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def stage(launch: Launch, identifier: str, content: Content, check: Check) -> Dict[str, Any]:
    """Make the part durable. Returns the fields of `wire.messages.Staged` but kind and n.

    Raises: Raced, NotWhole, OSError (disk full among them); nothing is left behind then.
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
    }


def clean(launch: Launch) -> List[str]:
    """Remove what agents of this node, killed while they staged, left half-made; returns the ids in the store."""
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
    return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()  # ASCII: a name may hold any bytes


def _take(source: Source, part: str, linked: bool, check: Check) -> FileEntry:
    """Bring one file into the part. What the SDK staged for us is linked where it can be, everything else copied."""
    target = os.path.join(part, stored_name(source.name))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    reading = _open(source.path)
    try:
        before = os.fstat(reading)
        if signature(before) != source.signature:
            raise Raced(source.name)
        linked = linked and before.st_nlink == 1 and _link(source.path, target)
        if linked:
            check.placed(stored_name(source.name), target, before.st_size)
            digest = _digest(reading)
            os.fsync(reading)
        else:
            digest = _copy(reading, target)
            check.placed(stored_name(source.name), target, before.st_size)
        if signature(os.fstat(reading)) != source.signature:
            raise Raced(source.name)
    finally:
        os.close(reading)
    if not check.file(target):
        raise NotWhole(source.name)
    return {"path": source.name, "bytes": before.st_size, "sha256": digest, "mode": before.st_mode & 0o777}


def _open(path: str) -> int:
    """A descriptor to read it. A pipe that took its place since it was listed is not waited for. Raises: Raced, OSError."""
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(reading).st_mode):
        os.close(reading)
        raise Raced(path)
    return reading


def _link(source: str, target: str) -> bool:
    if os.path.islink(source):
        return False  # what it leads to is not ours
    try:
        os.link(source, target)
    except OSError:
        return False  # another file system, or one without links
    return True


def _digest(reading: int) -> str:
    digest = hashlib.sha256()
    while True:
        data = os.read(reading, CHUNK_BYTES)
        if not data:
            return digest.hexdigest()
        digest.update(data)


def _copy(reading: int, target: str) -> str:
    """Copy to a new file, durably; returns the SHA-256 of what was written."""
    digest = hashlib.sha256()
    writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    sparse = has_holes(reading)
    try:
        while True:
            data = os.read(reading, CHUNK_BYTES)
            if not data:
                break
            digest.update(data)
            put(writing, data, sparse)
        if sparse:
            os.ftruncate(writing, os.lseek(writing, 0, os.SEEK_CUR))
        os.fsync(writing)
    finally:
        os.close(writing)
    return digest.hexdigest()


def has_holes(descriptor: int) -> bool:
    """Whether the file takes less room than its size says."""
    status = os.fstat(descriptor)
    return status.st_blocks * 512 < status.st_size


def put(writing: int, data: bytes, sparse: bool) -> None:
    """Write all of it. `sparse`: zeros are left out, and the end of the file is to be set afterwards."""
    if sparse and data == (_ZEROS if len(data) == CHUNK_BYTES else bytes(len(data))):
        os.lseek(writing, len(data), os.SEEK_CUR)
        return
    while data:
        data = data[os.write(writing, data) :]


def copy_durably(source: str, target: str) -> Tuple[str, os.stat_result]:
    """Copy a file to a new one; returns its SHA-256 and what the source was. Raises: Raced, OSError."""
    reading = _open(source)
    try:
        before = os.fstat(reading)
        digest = _copy(reading, target)
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
    """Make a directory and those above it that are missing, durably. Raises: OSError."""
    above = os.path.dirname(path)
    if os.path.isdir(path):
        return
    make_directories(above)
    with contextlib.suppress(FileExistsError):  # somebody else was quicker
        os.mkdir(path)
    sync_directory(above)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
