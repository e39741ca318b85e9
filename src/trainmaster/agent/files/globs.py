"""Path globs of a spec: `*`, `?` and `[…]` within a name, `**` across directories, `{step}` for digits.

Rules: A name with a leading dot is matched only by a pattern with one. A wildcard does not follow a symbolic link to a
directory (a literal name does), so that linked data does not count as the job's own. `**` descends at most DEEPEST
directories, and a deeper directory is rejected as a whole.
"""

import errno
import os
import re
import stat
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

from trainmaster.agent.files.glob_names import STEP, Component, is_wild
from trainmaster.agent.files.path_steps import bounded, step_of

# Suffixes of files that are still being written. A pattern that itself ends in one matches such files.
TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".incomplete", "~")

DEEPEST = 500  # nesting of directories; some calls here fail on deeper trees

_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)  # it is gone, or an impossible path
_DENIED = (errno.EACCES, errno.EPERM)

Signature = Tuple[int, int, int, int]  # device, inode, size in bytes, modification time in ns


class Glob:
    """One pattern, relative to `root`. An absolute pattern inside `root` becomes relative; one outside stays absolute."""

    def __init__(self, pattern: str, root: str) -> None:
        pattern = os.path.normpath(pattern)
        if os.path.isabs(pattern) and (pattern + "/").startswith(os.path.normpath(root) + "/"):
            pattern = os.path.relpath(pattern, root)
        self.root = root
        self.absolute = os.path.isabs(pattern)
        parts: List[str] = []
        for part in pattern.split("/"):
            if part not in ("", ".") and not (part == "**" and parts[-1:] == ["**"]):
                parts.append(part)
        self._names = [Component(part) for part in parts]
        self._deep = "**" in parts
        self._several_steps = pattern.count(STEP) > 1
        self.has_step = STEP in pattern
        # If {step} is the only wildcard, a step has one match; otherwise several matches may belong together.
        self.one_per_step = not is_wild(pattern.replace(STEP, ""))
        self._temporary: Tuple[str, ...] = () if parts and parts[-1].endswith(TEMPORARY) else TEMPORARY
        self.denied: List[str] = []  # directories that the last `expand` had no permission to read; "." is the root
        self._anything = not re.search(r"[^\W_]", re.sub(r"\[[^]\[]*\]", "", pattern.replace(STEP, "")))

    @property
    def prefix(self) -> str:
        """The deepest directory, absolute, that contains every match."""
        names: List[str] = []
        for name in self._names[:-1]:
            if name.wild:
                break
            names.append(name.text)
        return os.path.join("/" if self.absolute else self.root, *names)

    @property
    def in_wild_directory(self) -> bool:
        """Whether a wildcard names the directory of each match, as in `ckpt/*/*.pt`."""
        return len(self._names) > 1 and self._names[-2].wild and not self._deep

    def owns(self, path: str) -> bool:
        """Whether `path` matches or is inside a match. A pattern without a letter or digit (`**`) owns nothing."""
        if self._anything:
            return False
        parts, names = self._parts(path), self._names
        if parts is None:
            return False
        if self._several_steps:
            return any(self._step(path) is not None for path in _prefixes(path))
        if not self._deep:
            return len(parts) >= len(names) and all(map(Component.matches, names, parts))
        return any(len(names) in reached for reached in _reach(names, parts))

    def leads_through(self, path: str) -> bool:
        """Whether the directory `path` may contain a match of a pattern that begins with a literal name."""
        if self._anything or self.absolute or not self._names or self._names[0].wild:
            return False
        for index, part in enumerate(path.split("/")):
            if index >= len(self._names) - 1:
                return False  # as deep as a match: `owns` decides
            if self._names[index].text == "**":
                return True
            if not self._names[index].matches(part):
                return False
        return True

    def expand(self) -> List[str]:
        """All matches, sorted, relative to the root (absolute for an absolute pattern); includes unfinished files.

        Raises: OSError if what matches is not known, but for directories in `denied`.
        """
        found: Dict[str, None] = {}
        self.denied = []
        top = "/" if self.absolute else ""
        todo, seen = [(top or self.root, top, 0)], set()
        while todo:
            directory, shown, index = todo.pop()
            if (shown, index) not in seen and index < len(self._names):
                seen.add((shown, index))
                todo += self._below(directory, shown, index, found)
        if self._several_steps:
            return sorted(path for path in found if self._step(path) is not None)
        return sorted(found)

    def _below(self, directory: str, shown: str, index: int, found: Dict[str, None]) -> List[Tuple[str, str, int]]:
        """Add matches of the last component to `found`. Returns where to continue: directory, displayed path, component."""
        name, last = self._names[index], index == len(self._names) - 1
        if not name.wild:
            path = os.path.join(directory, name.text)
            mode = self._mode(path, shown, last)
            if last and mode:
                found[os.path.join(shown, name.text)] = None
            return [(path, os.path.join(shown, name.text), index + 1)] if not last and stat.S_ISDIR(mode) else []
        deep = name.text == "**"
        further = [(directory, shown, index + 1)] if deep and not last else []
        for entry in self._entries(directory, shown):
            if not name.matches(entry.name):
                continue
            if last:
                found[os.path.join(shown, entry.name)] = None
            deeper = shown.count("/") < DEEPEST and (not last or deep)
            if deeper and entry.is_dir(follow_symlinks=False):
                further.append((entry.path, os.path.join(shown, entry.name), index if deep else index + 1))
        return further

    def _mode(self, path: str, shown: str, last: bool) -> int:
        """The mode of a literal name in the directory `shown`; 0: it matches nothing. `last`: a link is not followed."""
        try:
            return (os.lstat if last else os.stat)(path).st_mode
        except ValueError:  # a NUL
            return 0
        except OSError as error:
            self._pass_over(shown, error)
            return 0

    def _entries(self, directory: str, shown: str) -> "List[os.DirEntry[str]]":
        try:
            with os.scandir(directory) as entries:
                return list(entries)
        except OSError as error:
            self._pass_over(shown, error)
            return []

    def _pass_over(self, shown: str, error: OSError) -> None:
        """Nothing matches in this directory, or nobody may know. Raises: the error, if it says neither."""
        if error.errno in _DENIED:
            self.denied.append(shown or ".")
        elif error.errno not in _NOTHING:
            raise error

    def unfinished(self, path: str) -> bool:
        """Whether a match has the name of a file that is still being written (`ckpt.pt.tmp`)."""
        return path.endswith(self._temporary)

    def learn_temporary(self, suffix: str) -> None:
        """The program takes this end off a name when it has written what has it."""
        if suffix not in self._temporary:
            self._temporary += (suffix,)

    @property
    def learned(self) -> Tuple[str, ...]:
        """The ends that `learn_temporary` was told of."""
        return tuple(suffix for suffix in self._temporary if suffix not in TEMPORARY)

    def step(self, path: str) -> Optional[int]:
        """The step in a match: `{step}`, else a number beside a word that says so, in the parts that a wildcard matches."""
        if self.has_step:
            return bounded(self._step(path))
        parts = path.split("/")
        deep = max((index for index, name in enumerate(self._names) if name.text == "**"), default=-1)
        after = [name.wild for name in self._names[deep + 1 :]]
        before = (
            [True] * (len(parts) - len(after)) if deep >= 0 else []
        )  # parts of `**` and before it, which cannot be told apart
        return step_of(parts, before + after)

    def _parts(self, path: str) -> Optional[List[str]]:
        """The path's components; None if only one of path and pattern is absolute."""
        if path.startswith("/") != self.absolute:
            return None
        return path[self.absolute :].split("/")

    def _step(self, path: str) -> Optional[str]:
        """The digits that `{step}` matches, equal in all places; None if `path` is no match."""
        parts = self._parts(path)
        at = next((index for index, name in enumerate(self._names) if name.steps), -1)
        if parts is None or at < 0:
            return None
        reached = _reach(self._names[: at + 1], parts)
        for count in range(len(parts) - 1, -1, -1):
            if at not in reached[count]:
                continue
            digits = self._names[at].step(parts[count])
            if digits is not None:
                rest = [name.given(digits) if name.steps else name for name in self._names[at + 1 :]]
                if len(rest) in _reach(rest, parts[count + 1 :])[-1]:
                    return digits
        return None


def signature(status: os.stat_result) -> Signature:
    """Distinguishes two states of a file."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def topmost(paths: Iterable[str]) -> List[str]:
    """Sorted, without paths inside another one."""
    kept: List[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not kept or not path.startswith(kept[-1] + "/"):
            kept.append(path)
    return kept


def files_below(root: str, path: str) -> Tuple[List[str], List[str]]:
    """Regular files (also a link to one) and directories below the directory `path`, itself included; relative to `root`.

    Raises: OSError if a directory cannot be read, because the rest would look complete.
    """
    files: List[str] = []
    directories = [path]
    for place in directories:  # grows during the walk
        if place.count("/") > path.count("/") + DEEPEST:
            raise OSError(errno.ENAMETOOLONG, f"it is nested more than {DEEPEST} directories deep", path)
        with os.scandir(os.path.join(root, place)) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
        for entry in entries:
            shown = os.path.join(place, entry.name)
            if entry.is_dir(follow_symlinks=False):
                directories.append(shown)
            elif entry.is_file():
                files.append(shown)
    return files, directories


def links_below(root: str, directories: Iterable[str]) -> List[Tuple[str, str]]:
    """Symbolic links in these directories that do not lead to a regular file, with their targets. Raises: OSError."""
    links: List[Tuple[str, str]] = []
    for place in directories:
        with os.scandir(os.path.join(root, place)) as scanned:
            links += [(os.path.join(place, entry.name), os.readlink(entry.path)) for entry in scanned if _is_bare(entry)]
    return sorted(links)


def _is_bare(entry: "os.DirEntry[str]") -> bool:
    return entry.is_symlink() and not entry.is_file()


def _reach(names: List[Component], parts: List[str]) -> List[Set[int]]:
    """For each number of leading parts: how many leading `names` can match exactly these parts. O(names × parts)."""
    reached = [_skipping(names, {0})]
    for part in parts:
        further: Set[int] = set()
        for index in reached[-1]:
            if index == len(names):
                continue
            if names[index].text == "**" and part:
                further.update((index, index + 1) if index == len(names) - 1 else (index,))
            elif names[index].matches(part):
                further.add(index + 1)
        reached.append(_skipping(names, further))
    return reached


def _skipping(names: List[Component], reached: Set[int]) -> Set[int]:
    """Adds the indices reached if a `**` that is not last matches no directory."""
    more = {index + 1 for index in reached if index < len(names) - 1 and names[index].text == "**"}
    return reached | more


def _prefixes(path: str) -> Iterator[str]:
    """The directories that contain `path`, and `path` itself."""
    at = path.find("/", 1)
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)
    yield path
