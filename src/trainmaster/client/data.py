"""Looks up and fingerprints a spec's `data` at submit, so that a run can be reproduced.

A fingerprint is exact up to `BYTES_MAX`: the SHA-256 over all paths and contents. Beyond that, or if a directory cannot be
read, it covers paths, sizes and modification times, and is marked as not exact. URLs are recorded unchanged. By the stamp, the
agent sees at the start whether the data has changed since.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainmaster.client.code_copy.digests import Digests
from trainmaster.errors import UsageError
from trainmaster.wire import disks
from trainmaster.wire.names import is_url

BYTES_MAX = 256 * 1024 * 1024  # bytes read at submit, per entry
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
    regular = disks.regular_files(real, unread)
    size = sum(status.st_size for status in regular.values())
    exact = size <= BYTES_MAX and len(regular) < disks.FOLLOWED_MAX and not unread
    digests, digest = Digests(root, _CACHE), hashlib.sha256()
    for name, status in regular.items():
        shown = name if root == real else ""  # the name of a single file is not part of its content
        told = _content(digests, root, name) if exact else f"{status.st_size} {status.st_mtime_ns}"
        digest.update(f"{shown}\0{told}\n".encode(errors="surrogateescape"))
    if exact:
        digests.save()
    stamp = "" if unread else disks.stamp(regular)
    return {"digest": digest.hexdigest(), "exact": exact, "files": len(regular), "bytes": size, "stamp": stamp}


def _content(digests: Digests, root: str, name: str) -> str:
    """The SHA-256 of a file or of a link's target."""
    full = os.path.join(root, name)
    if not os.path.islink(full):
        return digests.of(name)[0]
    with open(full, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
