"""Looks up and fingerprints a spec's `data` at submit, so that a run can be reproduced.

A fingerprint is exact up to `BYTES_MAX`: the SHA-256 over all paths and contents. Beyond that, or if a directory cannot be
read, it covers paths, sizes and modification times, and is marked as not exact. URLs are recorded unchanged.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainmaster.client.code_copy.digests import Digests
from trainmaster.errors import UsageError
from trainmaster.wire.names import is_url

BYTES_MAX = 256 * 1024 * 1024  # bytes read at submit, per entry
FILES_MAX = 200_000  # files examined, per entry
_CACHE = "data"


def versions(spec: Mapping[str, Any], directory: Path) -> list[dict[str, Any]]:
    """The versions of all entries (`model.spec.DataVersion`), with paths relative to `directory`.

    The validator reports other faults in `data`. Raises: UsageError for a path that does not exist or cannot be read.
    """
    data = spec.get("data")
    if not isinstance(data, Mapping):
        return []
    return [
        _version(name, uri, directory) for name, uri in data.items() if isinstance(name, str) and isinstance(uri, str) and uri
    ]


def _version(name: str, uri: str, directory: Path) -> dict[str, Any]:
    if is_url(uri):
        return {"name": name, "uri": uri}
    path = os.path.normpath(os.path.join(directory, os.path.expanduser(uri)))
    if not os.path.exists(path):
        if "@" in uri and "/" not in uri:  # a name and a version: the validator has an error for that
            return {"name": name, "uri": path}
        hint = "a path is absolute, or relative to the work directory; URLs are not checked"
        raise UsageError(f"data.{name}: there is no {path}", hint)
    try:
        return {"name": name, "uri": path, **_fingerprint(path)}
    except OSError as error:
        raise UsageError(f"data.{name}: {error.filename or path} cannot be read: {error.strerror}", "") from error


def _fingerprint(path: str) -> dict[str, Any]:
    """Digest, exactness and size of a file, or of all files below a directory."""
    real = os.path.realpath(path)
    root = real if os.path.isdir(real) else os.path.dirname(real)
    unread: list[str] = []
    names = [os.path.basename(real)] if root != real else sorted(_below(root, unread))
    statuses = {name: os.stat(os.path.join(root, name)) for name in names if os.path.exists(os.path.join(root, name))}
    regular = {name: status for name, status in statuses.items() if stat.S_ISREG(status.st_mode)}
    size = sum(status.st_size for status in regular.values())
    exact = size <= BYTES_MAX and len(names) < FILES_MAX and not unread
    digests, digest = Digests(root, _CACHE), hashlib.sha256()
    for name, status in regular.items():
        shown = name if root == real else ""  # the name of a single file is not part of its content
        told = _content(digests, root, name) if exact else f"{status.st_size} {status.st_mtime_ns}"
        digest.update(f"{shown}\0{told}\n".encode(errors="surrogateescape"))
    if exact:
        digests.save()
    return {"digest": digest.hexdigest(), "exact": exact, "files": len(regular), "bytes": size}


def _content(digests: Digests, root: str, name: str) -> str:
    """The SHA-256 of a file or of a link's target."""
    full = os.path.join(root, name)
    if not os.path.islink(full):
        return digests.of(name)[0]
    with open(full, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _below(root: str, unread: list[str]) -> Iterator[str]:
    """Relative paths of the files below a directory, at most `FILES_MAX`. Links to directories are followed, but in no circle.

    `unread` gets the directories that cannot be read.
    """
    seen, left = 0, [("", frozenset((_identity(root),)))]
    while left:
        inside, above = left.pop()
        try:
            entries = sorted(os.scandir(os.path.join(root, inside)), key=lambda entry: entry.name)
        except OSError:
            unread.append(inside)
            continue
        further = []
        for entry in entries:
            if seen == FILES_MAX:
                return
            seen += 1
            name = os.path.join(inside, entry.name)
            try:
                directory = entry.is_dir()
            except OSError:
                directory = False  # a link that cannot be followed
            if not directory:
                yield name
                continue
            identity = _identity(os.path.join(root, name))
            if identity not in above:
                further.append((name, above | {identity}))
        left += reversed(further)


def _identity(directory: str) -> tuple[int, int]:
    status = os.stat(directory)
    return status.st_dev, status.st_ino
