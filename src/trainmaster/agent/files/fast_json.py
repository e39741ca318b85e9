"""Reads JSON with only the interpreter's C scanner: `import json` takes longer than all else before the ranks' start."""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


class _Context:
    """The attributes that the C scanner reads: the defaults of `json.loads`."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def loads(text: str) -> Any:
    """Like `json.loads`. Raises: ValueError."""
    try:
        import _json  # noqa: PLC0415 - private to CPython, so it may be missing

        scan: Callable[[str, int], tuple[Any, int]] = getattr(_json, "make_scanner")(_Context())  # noqa: B009 - and untyped
        value, end = scan(text.strip(), 0)
        if end == len(text.strip()):
            return value
        broken = "text after the value"
    except (ImportError, AttributeError, TypeError, StopIteration) as error:
        broken = repr(error)
    import json  # noqa: PLC0415 - only if the fast way failed

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error} ({broken})") from error


def read_json(path: str) -> Any:
    """The value in a JSON file, read with `read`. Raises: OSError, ValueError."""
    return loads(read(path).decode())


def read(path: str) -> bytes:
    """A whole file. If a program has put a pipe in its place, the result is EINVAL instead of blocking. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        data = b""
        while True:
            part = os.read(descriptor, 1 << 20)
            if not part:
                return data
            data += part
    finally:
        os.close(descriptor)
