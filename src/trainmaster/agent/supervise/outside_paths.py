"""Finds the path that a failed program did not find in its work directory, although it exists in the submitter's directory."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, Optional

    from trainmaster.wire.launch import Launch

_SEPARATORS = re.compile(r"""[\s'"`,;()\[\]{}<>|]+""")
_WORDS_MAX = 200  # of one line
_LINES = 10  # from the end
_PATH_MAX = 300
_MISSING = re.compile(r"no such file|not found|does not exist|cannot find|can't open|cannot open|FileNotFound", re.IGNORECASE)


def outside(launch: Launch, last_lines: list[str]) -> Optional[str]:
    """The path, relative to the work directory; None if there is none. For example `../data`, without what is below it."""
    code = launch["code"]
    if code is None or not any(map(_MISSING.search, last_lines)):
        return None
    for path in _relative(reversed(last_lines[-_LINES:]), launch["work"]):
        if not os.path.lexists(os.path.join(launch["work"], path)) and os.path.exists(os.path.join(code["source"], path)):
            return _top(path) if path.startswith("../") else path
    return None


def _relative(lines: Iterable[str], work: str) -> Iterator[str]:
    """The words of these lines that may be paths: relative to `work`, normalized, not the directory itself."""
    home = os.path.dirname(work)
    for line in lines:
        for word in _SEPARATORS.split(line, _WORDS_MAX)[:_WORDS_MAX]:
            path = os.path.normpath(word.rstrip(".:")) if "/" in word else ""
            if path.startswith(home + "/"):
                path = os.path.relpath(path, work)  # the program made it absolute
            if 0 < len(path) <= _PATH_MAX and not path.startswith("/") and path.strip("./"):
                yield path


def _top(path: str) -> str:
    """The first directory or file of a path that begins with `../`."""
    parts = path.split("/")
    up = next(index for index, part in enumerate(parts) if part != "..")
    return "/".join(parts[: up + 1])
