"""Looks up and fingerprints a spec's `data` at submit, so that a run can be reproduced.

A fingerprint is exact up to `BYTES_MAX`: the SHA-256 over all paths and contents. Beyond that, or if something cannot be read
or has too many entries, it covers paths, sizes and modification times, and is marked as not exact. URLs are recorded unchanged.
By the stamp, the agent sees at the start whether the data has changed since.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from trainmaster.client.code_copy.digests import Digests
from trainmaster.errors import UsageError
from trainmaster.wire import data
from trainmaster.wire.names import is_url, printable

BYTES_MAX = 256 * 1024 * 1024  # bytes read at submit, per entry
_CACHE = "data"
_NAME_MAX = 100  # characters of a name in a doubt


def versions(spec: Mapping[str, Any], directory: Path) -> list[dict[str, Any]]:
    """The versions of all entries (`model.spec.DataVersion`), with paths relative to `directory`.

    The validator reports other faults in `data`. Raises: UsageError for a path that does not exist or cannot be read.
    """
    declared = spec.get("data")
    if not isinstance(declared, Mapping):
        return []
    entries = [(name, uri) for name, uri in declared.items() if isinstance(name, str) and isinstance(uri, str) and uri]
    return [_version(name, uri, directory) for name, uri in entries]


def _version(name: str, uri: str, directory: Path) -> dict[str, Any]:
    if is_url(uri):
        return {"name": name, "uri": uri}
    path = os.path.normpath(os.path.join(directory, os.path.expanduser(uri)))
    if not os.path.exists(path):
        if "@" in uri and "/" not in uri:  # a name and a version: the validator has an error for that
            return {"name": name, "uri": path}
        hint = "a path is absolute, or relative to the directory that is submitted; URLs are not checked"
        raise UsageError(f"data.{name}: there is no {path}", hint)
    try:
        return {"name": name, "uri": path, **_fingerprint(path)}
    except OSError as error:
        raise UsageError(f"data.{name}: {error.filename or path} cannot be read: {error.strerror}", "") from error


def _fingerprint(path: str) -> dict[str, Any]:
    """Digest, exactness and size of a file, or of all files below a directory; no digest of pipes and devices alone."""
    real = os.path.realpath(path)
    found = data.find(real)
    size = sum(status.st_size for status in found.files.values())
    doubt = _doubt(found)
    if not found.files and found.special:
        return {"doubt": doubt}
    exact = size <= BYTES_MAX and not doubt
    digests = Digests(real if os.path.isdir(real) else os.path.dirname(real), _CACHE)
    told = partial(_content, digests) if exact else lambda _, status: f"{status.st_size} {status.st_mtime_ns}"
    version = {"digest": data.digest(real, found.files, told), "exact": exact, "files": len(found.files), "bytes": size}
    if exact:
        digests.save()
    stamp = "" if found.unread else data.stamp(found.files, strict=exact)
    return {**version, "stamp": stamp, "listing": data.listing(found), **({"doubt": doubt} if doubt else {})}


def _doubt(found: data.Found) -> str:
    """What was not looked at; "" if everything was."""
    if found.cut:
        return f"only the first {data.ENTRIES_MAX:,} of its entries were looked at"
    if found.unread:
        return f"{_named(found.unread[0]) or 'its directory'} cannot be read"
    if found.special:
        return f"{_named(found.special[0])} is a pipe, a socket or a device, whose bytes are not read"
    return ""


def _named(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in printable(name)[:_NAME_MAX])


def _content(digests: Digests, name: str, _: os.stat_result) -> str:
    """The SHA-256 of a file or of a link's target."""
    full = os.path.join(digests.root, name)
    return data.sha256(full) if os.path.islink(full) else digests.of(name)[0]
