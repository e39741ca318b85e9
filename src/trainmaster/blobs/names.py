"""Blob names: slash-separated components that cannot escape the store, and digests in the names of immutable blobs."""

import os
import re

from trainmaster.errors import UsageError

PART = ".part"  # suffix of incomplete files; garbage collection removes those that are left behind
_NAME_MAX = 1024  # bytes
_PART_MAX = 255
_OBJECT = re.compile(r"code/objects/([0-9a-f]{2})/([0-9a-f]{62})\Z")
_NAMED = re.compile(r"(?:code/trees/|artifacts/[^/]+/|provenance/[a-z]+/)([0-9a-f]{64})(?:\.json|\.patch)?\Z")


def check_name(name: str) -> str:
    """The name itself. Raises: UsageError if it is invalid."""
    if not name or len(os.fsencode(name)) > _NAME_MAX or "\0" in name:
        raise UsageError(f"{name[:80]!r} is not a blob's name: empty, longer than {_NAME_MAX} bytes, or with a NUL")
    if any(part in ("", ".", "..") or len(os.fsencode(part)) > _PART_MAX for part in name.split("/")):
        raise UsageError(f"{name[:80]!r} is not a blob's name: slash-separated parts, none of them empty, '.' or '..'")
    return name


def digest_of(name: str) -> str | None:
    """The SHA-256 in a blob's name; None for a blob that is not named by its content."""
    found = _OBJECT.match(name)
    if found:
        return found.group(1) + found.group(2)
    named = _NAMED.match(name)
    return named.group(1) if named else None
