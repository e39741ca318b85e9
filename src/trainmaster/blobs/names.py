"""Validates blob names: slash-separated components that cannot escape the store."""

import os

from trainmaster.errors import UsageError

PART = ".part"  # suffix of incomplete files, which listings leave out
_NAME_MAX = 1024  # bytes
_PART_MAX = 255


def check_name(name: str) -> str:
    """The name itself. Raises: UsageError if it is invalid."""
    if not name or len(os.fsencode(name)) > _NAME_MAX or "\0" in name:
        raise UsageError(f"{name[:80]!r} is not a blob's name: empty, longer than {_NAME_MAX} bytes, or with a NUL")
    if any(part in ("", ".", "..") or len(os.fsencode(part)) > _PART_MAX for part in name.split("/")):
        raise UsageError(f"{name[:80]!r} is not a blob's name: slash-separated parts, none of them empty, '.' or '..'")
    return name
