"""Path globs as a spec writes them: `*`, `?` and `[…]` within a name, `**` over directories, `{step}` for digits.

Rules: names that begin with a dot are matched only by a pattern that does; a wildcard never leads through a symbolic
link to a directory (a literal name does), so that what is linked into a work directory is not taken for the job's own.
"""

import os
import re
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Pattern, Tuple

# How programs name a file that is not finished yet; a pattern that ends so itself means them.
TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".incomplete", "~")

_STEP = "{step}"
_WILD = r"[*?\[]|\{step\}"
_NUMBER = r"\d+(?:\.\d+)?"


Signature = Tuple[int, int, int, int]  # device, inode, bytes, time of modification in ns


class _Name(NamedTuple):
    """One component of a pattern."""

    text: str
    wild: bool
    pattern: Pattern[str]


class Glob:
    """One pattern, relative to `root` (an absolute one inside `root` becomes relative; one outside stays absolute)."""

    def __init__(self, pattern: str, root: str) -> None:
        pattern = os.path.normpath(pattern)
        if os.path.isabs(pattern) and (pattern + "/").startswith(os.path.normpath(root) + "/"):
            pattern = os.path.relpath(pattern, root)
        self.root = root
        self.absolute = os.path.isabs(pattern)
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        self._names = [_Name(part, bool(re.search(_WILD, part)), re.compile(_translate(part))) for part in parts]
        self._whole = re.compile(("/" if self.absolute else "") + _translate_path(parts))
        self.has_step = _STEP in pattern
        # Where {step} is the only wildcard, a step has one match; otherwise several may belong together.
        self.one_per_step = not re.search(_WILD, pattern.replace(_STEP, ""))
        self._leaf_is_temporary = bool(parts) and parts[-1].endswith(TEMPORARY)
        self._anything = not re.search(r"[^\W_]", re.sub(r"\[[^]]*\]", "", pattern.replace(_STEP, "")))

    @property
    def prefix(self) -> str:
        """The deepest directory, absolute, that every match lies in."""
        names: List[str] = []
        for name in self._names[:-1]:
            if name.wild:
                break
            names.append(name.text)
        return os.path.join("/" if self.absolute else self.root, *names)

    def owns(self, path: str) -> bool:
        """Whether `path` matches or lies in what matches. A pattern with no letter or digit in it (`**`) owns nothing."""
        if self._anything:
            return False
        parts = path.split("/")
        return any(self._whole.fullmatch("/".join(parts[:count])) for count in range(1, len(parts) + 1))

    def leads_through(self, path: str) -> bool:
        """Whether `path`, a directory, may hold a match: it is on the way of a pattern that begins with a literal name."""
        if self._anything or self.absolute or not self._names or self._names[0].wild:
            return False
        for index, part in enumerate(path.split("/")):
            if index >= len(self._names) - 1:
                return False  # as deep as a match: `owns` has decided
            if self._names[index].text == "**":
                return True
            if not self._names[index].pattern.fullmatch(part):
                return False
        return True

    def expand(self) -> List[str]:
        """All matches, sorted, relative to the root (absolute for an absolute pattern); unfinished ones included."""
        found: Dict[str, None] = {}
        self._descend("/" if self.absolute else self.root, "/" if self.absolute else "", 0, found)
        return sorted(found)

    def _descend(self, directory: str, shown: str, index: int, found: Dict[str, None]) -> None:
        if index >= len(self._names):
            return
        name, last = self._names[index], index == len(self._names) - 1
        if name.text == "**" and not last:
            self._descend(directory, shown, index + 1, found)
        if not name.wild:
            path = os.path.join(directory, name.text)
            if last:
                if os.path.lexists(path):
                    found[os.path.join(shown, name.text)] = None
            elif os.path.isdir(path):
                self._descend(path, os.path.join(shown, name.text), index + 1, found)
            return
        for entry in _entries(directory):
            matched = not entry.name.startswith(".") if name.text == "**" else bool(name.pattern.fullmatch(entry.name))
            if not matched:
                continue
            if last:
                found[os.path.join(shown, entry.name)] = None
            if (not last or name.text == "**") and entry.is_dir(follow_symlinks=False):
                deeper = index if name.text == "**" else index + 1
                self._descend(entry.path, os.path.join(shown, entry.name), deeper, found)

    def unfinished(self, path: str) -> bool:
        """Whether a match bears the name of a file still being written (`ckpt.pt.tmp`)."""
        return not self._leaf_is_temporary and path.endswith(TEMPORARY)

    def step(self, path: str) -> Optional[int]:
        """The step a match names: `{step}`, else the last whole number in the part of the name that a wildcard covers."""
        if self.has_step:
            match = self._whole.fullmatch(path)
            return int(match.group("step")) if match else None
        for part, name in zip(reversed(path.split("/")), reversed(self._names)):  # noqa: B905  # `strict` came after 3.9
            if name.wild:
                stem = os.path.splitext(part)[0]
                whole = [number for number in re.findall(_NUMBER, stem) if "." not in number]
                return int(whole[-1]) if whole else None
        return None


def signature(status: os.stat_result) -> Signature:
    """What tells two states of a file apart."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def topmost(paths: Iterable[str]) -> List[str]:
    """Sorted, without those that lie in another."""
    kept: List[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not kept or not path.startswith(kept[-1] + "/"):
            kept.append(path)
    return kept


def files_below(root: str, path: str) -> Tuple[List[str], List[str]]:
    """Regular files (a link to one counts) and directories of the directory `path`, itself included; relative to `root`."""
    files: List[str] = []
    directories = [path]
    for place in directories:  # grows as it is walked
        for entry in sorted(_entries(os.path.join(root, place)), key=lambda entry: entry.name):
            shown = os.path.join(place, entry.name)
            if entry.is_dir(follow_symlinks=False):
                directories.append(shown)
            elif entry.is_file():
                files.append(shown)
    return files, directories


def _entries(directory: str) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(directory) as entries:
            yield from list(entries)
    except OSError:  # gone meanwhile, or not ours to read: nothing matches in it
        return


def _translate_path(parts: List[str]) -> str:
    pieces: List[str] = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            pieces.append(r"[^/].*" if last else r"(?:[^/]+/)*")
            continue
        piece = _translate(part, "(?P<step>[0-9]+)" if _STEP not in "/".join(parts[:index]) else "(?P=step)")
        pieces.append(piece if last else piece + "/")
    return "".join(pieces)


def _translate(name: str, step: str = "[0-9]+") -> str:
    """A regular expression for one component; `step` is what its first `{step}` becomes."""
    out = [] if name.startswith(".") or not re.match(_WILD, name) else [r"(?!\.)"]
    at = 0
    while at < len(name):
        if name.startswith(_STEP, at):
            out.append(step)
            step = step if "?P<" not in step else "(?P=step)"
            at += len(_STEP)
            continue
        character = name[at]
        at += 1
        end = name.find("]", at + 1) if character == "[" else -1
        if character == "*":
            out.append("[^/]*")
        elif character == "?":
            out.append("[^/]")
        elif end > 0:
            inside = name[at:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append("[" + ("^" + inside[1:] if inside.startswith("!") else inside) + "]")
            at = end + 1
        else:
            out.append(re.escape(character))
    return "".join(out)
