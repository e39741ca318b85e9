"""Finds the new files of a directory, and a pattern for the names that such a file has at other steps and other starts.

The search is bounded in files and time, however large the directory is. So it may miss some.
"""

from __future__ import annotations

import os
import re
import stat
import time
from itertools import islice

from trainmaster.agent.files.glob_names import literal
from trainmaster.agent.files.globs import TEMPORARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

_DIRECTORY_MAX = 2_000  # entries examined per directory
_ENTRIES_MAX = 10_000  # and in total
_DEEPEST = 8
PATTERN_MAX = 120  # characters of a pattern that somebody may write
_SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages", "wandb", "mlruns"))
_DIGITS = re.compile(r"\d+")
_ANEW = re.compile(r"(?:version|run|exp|trial|try|train)[-_]?\d+\Z|\d{4}|\d\d([-_])\d\d\1\d\d", re.IGNORECASE)
_HASH = re.compile(r"(?<=[-_])(?=[a-f]{0,7}\d)(?=\d{0,7}[a-f])[0-9a-f]{8}(?=[-_]|\Z)")  # the beginning of a UUID
_VERSION = re.compile(r"-v\d{1,6}\Z")
_COUNTED = re.compile(r"(?<=[-_])\d+\Z")  # `CartPole-v1_1`, and `CartPole-v1_2` after a restart
_RANDOM = re.compile(  # 20261128_063145_7f9acb: of a run, another one at each start
    r"(?<![A-Za-z\d])(?:[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}|(?=\d{0,40}[a-f])(?=[a-f]{0,40}\d)[\da-f]{6,40})(?![A-Za-z\d])"
)
_COUNTED_ENDING = re.compile(r"\.(?:e|ep|epoch|it|iter|step)[-_=]?\d+\Z", re.IGNORECASE)
_STEPPED = re.compile(r"(?:ckpt|checkpoint|step|epoch|iter|iteration)[-_=]?\d+\Z", re.IGNORECASE)


def new_files(work: str, since_ns: int, until_s: float) -> Iterator[tuple[str, int]]:
    """Paths of files below `work`, modified at `since_ns` or later, with their modification times in ns.

    Relative to it; breadth first, changed directories first. `until_s`: when to give up, by the monotonic clock.
    """
    left, level = _ENTRIES_MAX, [""]
    for _ in range(_DEEPEST):
        further: list[tuple[int, str]] = []
        for directory in level:
            if left <= 0:
                return
            for entry in _entries(os.path.join(work, directory), min(_DIRECTORY_MAX, left)):
                left -= 1
                if time.monotonic() > until_s:
                    return
                name, path = entry.name, os.path.join(directory, entry.name)
                if name.startswith(".") or name.endswith(TEMPORARY) or name in _SKIPPED or not name.isprintable():
                    continue
                try:
                    status, deeper = entry.stat(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
                except OSError:
                    continue  # gone
                if deeper:
                    further.append((status.st_mtime_ns, path))
                elif stat.S_ISREG(status.st_mode) and status.st_size and status.st_mtime_ns >= since_ns:
                    yield path, status.st_mtime_ns
        level = [path for _, path in sorted(further, reverse=True)]


def _entries(directory: str, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(islice(entries, most))
    except OSError:
        return []  # gone, or not readable: it is not reported


def pattern_of(path: str) -> str:
    """A pattern that matches it and those of other steps: the directory of a step, else the file with `*` for numbers.

    A directory that has another name at each start, by a count, the time or a random number, is matched by each of them.
    """
    parts = without_random(literal(path)).split("/")
    parts[:-1] = [
        part if _STEPPED.search(part) else (_DIGITS if _ANEW.search(part) else _COUNTED).sub("*", _HASH.sub("*", part))
        for part in parts[:-1]
    ]
    for index, part in enumerate(parts[:-1]):
        if _STEPPED.search(part):
            return "/".join([*parts[:index], _DIGITS.sub("*", part)])
    stem, dot = os.path.splitext(parts[-1])
    if dot[1:].isdigit() or _COUNTED_ENDING.match(dot):
        stem, dot = parts[-1], ""  # params.00012, bert.model.ep2
    stem = _DIGITS.sub("*", without_version(stem) if dot == ".ckpt" else stem)
    name = stem + ("*" if dot == ".ckpt" and "*" not in stem else "") + dot
    if len("/".join([*parts[:-1], name])) > PATTERN_MAX:  # of the settings of a run, say
        parts = [part if part.count("*") < 2 else f"{part[: part.index('*')]}*{part[part.rindex('*') + 1 :]}" for part in parts]
    return "/".join([*parts[:-1], name])


def without_random(path: str) -> str:
    """It, with `*` for the random numbers in its names: hexadecimal ones and UUIDs."""
    return _RANDOM.sub("*", path)


def without_version(stem: str) -> str:
    """A name without the version that Lightning adds where an earlier process wrote that file: `last-v1.ckpt`."""
    return _VERSION.sub("", stem)
