"""The code store: objects by the SHA-256 of their bytes, trees by the digest of their canonical form.

All input comes from a client and is verified: an object's name is its digest, a tree's paths stay inside it, and nothing
unpacks to more than its limits.
"""

import hashlib
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

from trainmaster.agent.files.formats import DIRECTORY_MAX, zip_directory
from trainmaster.errors import ConflictError, TooLargeError, UsageError
from trainmaster.ports.blobs import Blobs
from trainmaster.wire import rest
from trainmaster.wire.code import Tree, canonical, digest

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_ENTRIES_MAX = 100_000
_PATH_MAX = 4096  # bytes
_NAME_MAX = 255
_FILE_MAX_BYTES = 2**40
_CHUNK = 1024 * 1024
_PUTS = 4  # concurrent writes: each waits for the disk, which handles several together
_WHOLE_BYTES = 4 * 1024 * 1024  # larger members are streamed
_HELD_BYTES = 32 * 1024 * 1024  # unpacked, and not yet stored
_FIELDS = {
    "file": {"path", "type", "sha256", "mode", "bytes"},
    "symlink": {"path", "type", "target"},
    "link": {"path", "type"},
    "directory": {"path", "type"},
}


@dataclass(frozen=True, slots=True)
class ZipLimits:
    """Limits of one upload, unpacked."""

    members: int = 50_000
    member_bytes: int = 512 * 1024 * 1024
    bytes: int = 2 * 1024 * 1024 * 1024


def object_name(sha256: str) -> str:
    """The blob name of an object."""
    return f"code/objects/{sha256[:2]}/{sha256[2:]}"


def tree_name(tree_digest: str) -> str:
    """The blob name of a tree."""
    return f"code/trees/{tree_digest}.json"


def missing(blobs: Blobs, tree: Tree) -> list[str]:
    """The objects of `tree` that the store lacks, sorted. Raises: UsageError for an invalid tree."""
    check_tree(tree)
    names = sorted({entry["sha256"] for entry in tree["entries"] if entry["type"] == "file"})
    there = blobs.exists([object_name(sha256) for sha256 in names])
    return [sha256 for sha256, known in zip(names, there, strict=True) if not known]


def lacking(blobs: Blobs, tree_digest: str) -> str | None:
    """What of a stored code copy is not there, or is known to be damaged: a path, or "the list of its files"; else None."""
    if not blobs.exists([tree_name(tree_digest)])[0]:
        return "the list of its files"
    with blobs.open(tree_name(tree_digest)) as file:
        tree: Tree = json.loads(file.read())
    files = [entry for entry in tree["entries"] if entry["type"] == "file"]
    there = blobs.exists([object_name(entry["sha256"]) for entry in files])
    return next((entry["path"] for entry, known in zip(files, there, strict=True) if not known), None)


def store_tree(blobs: Blobs, tree: Tree) -> str:
    """Store `tree`, whose objects must exist, and return its digest. Raises: UsageError, ConflictError, DiskFullError."""
    lacking = missing(blobs, tree)
    if lacking:
        hint = f"send them first: POST {rest.address('/code')}"
        raise ConflictError(f"{len(lacking)} objects of the tree are not stored yet", hint)
    name = digest(tree)
    if not blobs.exists([tree_name(name)])[0]:
        blobs.put(tree_name(name), canonical(tree))
    return name


def store_zip(blobs: Blobs, source: bytes | BinaryIO, limits: ZipLimits | None = None) -> int:
    """Store the members of a zip, each named by its SHA-256, and return their number.

    Raises: UsageError for an invalid zip, TooLargeError beyond `limits`, DiskFullError.
    """
    limits = limits or ZipLimits()
    try:
        file: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source
        _check_directory(file)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_members(members, limits)
            with ThreadPoolExecutor(_PUTS, "code") as pool:
                held, storing = 0, list[Future[None]]()
                for member in members:
                    if member.file_size > _WHOLE_BYTES:
                        blobs.put_stream(object_name(member.filename), _pieces(archive, member))
                        continue
                    if held + member.file_size > _HELD_BYTES:
                        held = _settle(storing)
                    held += member.file_size
                    storing.append(pool.submit(blobs.put, object_name(member.filename), b"".join(_pieces(archive, member))))
                _settle(storing)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UsageError(f"the upload is not a readable zip: {error}") from error
    return len(members)


def _settle(storing: list[Future[None]]) -> int:
    """Wait until all are stored, and release their bytes. Raises: any error of a put."""
    for one in storing:
        one.result()
    storing.clear()
    return 0


def _check_directory(file: BinaryIO) -> None:
    """Check the zip's directory before it is read into memory. Raises: UsageError, TooLargeError."""
    directory = zip_directory(file, file.seek(0, os.SEEK_END))
    file.seek(0)
    if directory is None:
        raise UsageError("the upload is not a readable zip: it has no directory at its end")
    if directory[1] > DIRECTORY_MAX:
        size = f"{directory[1]:,} bytes; at most {DIRECTORY_MAX:,} are taken at once"
        raise TooLargeError(f"the upload's list of members has {size}")


def _check_members(members: list[zipfile.ZipInfo], limits: ZipLimits) -> None:
    if len(members) > limits.members:
        raise TooLargeError(f"the upload has {len(members):,} members; at most {limits.members:,} are taken at once")
    total = sum(member.file_size for member in members)
    if total > limits.bytes:
        raise TooLargeError(f"the upload unpacks to {total:,} bytes; at most {limits.bytes:,} are taken at once")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UsageError("the zip's members must be stored or deflated: others unpack without a limit on memory")
        if _SHA256.match(member.filename) is None:
            raise UsageError(f"the zip's member {member.filename[:80]!r} is not named by a SHA-256")
        if member.file_size > limits.member_bytes:
            size = f"{member.file_size:,} bytes; the limit is {limits.member_bytes:,}"
            raise TooLargeError(f"the object {member.filename} has {size}")


def _pieces(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """The member's bytes: no more than its header declares, and with the digest in its name. Raises: UsageError."""
    size, sha256 = 0, hashlib.sha256()
    with archive.open(member) as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            if size > member.file_size:
                raise UsageError(f"the zip's member {member.filename} unpacks to more than it declares")
            sha256.update(chunk)
            yield chunk
    if sha256.hexdigest() != member.filename:
        raise UsageError(f"the zip's member {member.filename} has a different SHA-256 than its name")


def check_tree(tree: Any) -> None:
    """Raises: UsageError unless `tree` is a `Tree` whose paths stay inside it and do not contradict each other."""
    if not isinstance(tree, dict) or set(tree) != {"entries"} or not isinstance(tree["entries"], list):
        raise UsageError("a tree is {'entries': [...]}")
    if len(tree["entries"]) > _ENTRIES_MAX:
        raise TooLargeError(f"the tree has {len(tree['entries']):,} entries; the limit is {_ENTRIES_MAX:,}")
    previous = ""
    directories: set[str] = set()
    paths: set[str] = set()
    for entry in tree["entries"]:
        path = _check_entry(entry)
        if path <= previous:
            raise UsageError(f"the tree's entries are not sorted by path, or {path!r} is there twice")
        previous = path
        paths.add(path)
        above = path.rpartition("/")[0]
        while above and above not in directories:
            directories.add(above)
            above = above.rpartition("/")[0]
    clash = paths & directories
    if clash:
        raise UsageError(f"the tree has {min(clash)!r} both as an entry and as a directory of entries")


def _check_entry(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str) or entry["type"] not in _FIELDS:
        raise UsageError("an entry of the tree has no known type: file, symlink, link or directory")
    if set(entry) != _FIELDS[entry["type"]]:
        raise UsageError(f"an entry of type {entry['type']} has exactly {', '.join(sorted(_FIELDS[entry['type']]))}")
    path = _check_path(entry["path"])
    if entry["type"] == "file":
        size, mode = entry["bytes"], entry["mode"]
        if not isinstance(entry["sha256"], str) or _SHA256.match(entry["sha256"]) is None:
            raise UsageError(f"{path}: sha256 is not 64 hexadecimal digits")
        if type(size) is not int or not 0 <= size <= _FILE_MAX_BYTES or type(mode) is not int or mode not in (0o644, 0o755):
            raise UsageError(f"{path}: bytes must be a size, mode 0o644 or 0o755")
    elif entry["type"] == "symlink":
        _check_text(entry["target"], f"{path}: a symbolic link's target")
    return path


def _check_path(path: Any) -> str:
    _check_text(path, "a path")
    parts: list[str] = path.split("/")
    if any(part in ("", ".", "..") or len(part.encode()) > _NAME_MAX for part in parts):
        raise UsageError(f"{path[:200]!r} is not a path inside the tree: relative, no '.' and no '..'")
    if ".git" in parts:
        raise UsageError(f"{path[:200]!r}: .git is never part of a code copy")
    return str(path)


def _check_text(value: Any, what: str) -> None:
    try:
        good = isinstance(value, str) and 0 < len(value.encode()) <= _PATH_MAX and "\0" not in value
    except UnicodeEncodeError:
        good = False
    if not good:
        raise UsageError(f"{what} must be 1 to {_PATH_MAX} bytes of UTF-8 text without NUL")
