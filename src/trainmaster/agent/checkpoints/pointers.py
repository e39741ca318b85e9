"""Pointer files: small files beside checkpoints that name the newest one, by which a program finds it when it starts.

Megatron writes `latest_checkpointed_iteration.txt`, DeepSpeed `latest`, OpenMMLab and Detectron2 `last_checkpoint`, TensorFlow
`checkpoint`, big_vision `checkpoint.bv-LAST`; others keep a symbolic link `latest`. A pointer is in no checkpoint, but a
restart needs one that names what was restored. A manifest holds its content, and a restore writes it. What names a checkpoint
that is set aside is set aside too.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from trainmaster.agent.files.globs import Glob
from trainmaster.wire.messages import PointerEntry

_NAME = re.compile(r"(?:latest|last)(?:[-_.]|\Z)|checkpoint\Z|(.+[-_.])(?:latest|last)\Z", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_TENSORFLOW = re.compile(r'model_checkpoint_path: *"([^"\n]+)"')
_BYTES_MAX = 4096
_ENTRIES_MAX = 2_000  # examined per directory
_WORK = "\0"  # stands for the work directory in a manifest: a fork or another node has its own


class Pointer(NamedTuple):
    """One pointer file. `before`, `name` and `after` are its content."""

    path: str  # relative to the work directory
    before: str
    name: str  # what names the checkpoint: a step, or the name of a file or directory
    after: str
    linked: bool  # a symbolic link: its target is the content
    written_ns: int
    named: Tuple[str, ...]  # the matches that it names
    begin: str = ""  # what its own name and those of the matches begin with, where it says only the rest of theirs

    def saying(self, base: str, step: Optional[int]) -> Optional[str]:
        """What it says, as `name`, if it names what is called `base`; None if it cannot name that."""
        if self.begin:
            return base[len(self.begin) :] or None if base.startswith(self.begin) else None
        return _name_of(self.name, base, step)

    def naming(self, base: str, step: Optional[int], work: str) -> Optional[PointerEntry]:
        """The same pointer for another checkpoint, with a match or its directory called `base`; None if it cannot name that."""
        name = self.saying(base, step)
        if name is None:
            return None
        text = f"{self.before}{name}{self.after}"
        return {"text": text.replace(os.path.normpath(work) + "/", _WORK), "linked": self.linked}


def pointers(glob: Glob, matches: Iterable[str]) -> List[Pointer]:
    """All pointers that name one of `matches`, which are paths relative to the work directory."""
    by_directory: Dict[str, List[Tuple[str, str]]] = {}
    for path in matches:
        for directory, base in _places(glob, path):
            by_directory.setdefault(directory, []).append((path, base))
    found = []
    for directory, places in by_directory.items():
        for name, begin in _named_like_one(os.path.join(glob.root, directory)):
            shown = os.path.join(directory, name)
            one = _read(os.path.join(glob.root, shown), shown)
            if one is None:
                continue
            for either in (one._replace(begin=begin), one):
                named = [path for path, base in places if path != shown and either.saying(base, glob.step(path)) == one.name]
                if named:
                    found.append(either._replace(named=tuple(named)))
                    break
    return found


def names_finished(glob: Glob, roots: Iterable[str], newest_ns: int) -> bool:
    """Whether a pointer names the checkpoint and was written after all its files: the program says that it is complete.

    `newest_ns`: when the newest of its files was written.
    """
    return any(one.written_ns >= newest_ns for one in pointers(glob, roots))


def entries_for(glob: Glob, found: Iterable[Pointer], root: str) -> Dict[str, PointerEntry]:
    """Those of the pointers that are beside the match `root`, made to name it."""
    places, made = dict(_places(glob, root)), {}
    for one in found:
        base = places.get(os.path.dirname(one.path))
        entry = None if base is None else one.naming(base, glob.step(root), glob.root)
        if entry is not None:
            made[one.path] = entry
    return made


def _places(glob: Glob, match: str) -> List[Tuple[str, str]]:
    """(directory of a pointer, what it calls the match). `ckpt/latest` names the directory of `ckpt/global_step10/model.pt`."""
    directory, base = os.path.split(match)
    return [(directory, base), *([os.path.split(directory)] if glob.in_wild_directory else ())]


def is_written(work: str, path: str, entry: PointerEntry) -> bool:
    """Whether the pointer in place has this content."""
    place = os.path.join(work, path)
    if not os.path.lexists(place) or os.path.islink(place) != entry["linked"]:
        return False
    try:
        return _content(place, entry["linked"]) == entry["text"].replace(_WORK, os.path.normpath(work) + "/")
    except (OSError, ValueError):
        return False


def write(work: str, path: str, entry: PointerEntry, temporary: str) -> None:
    """Write the pointer under a free name, and rename it into place. Raises: OSError."""
    text = entry["text"].replace(_WORK, os.path.normpath(work) + "/")
    if entry["linked"]:
        os.symlink(text, temporary)
    else:
        with open(temporary, "x", newline="") as file:
            file.write(text)
    os.rename(temporary, os.path.join(work, path))


def _named_like_one(directory: str) -> List[Tuple[str, str]]:
    """(name, what is before its word `last` or `latest`), sorted."""
    names = []
    try:
        with os.scandir(directory) as entries:
            for count, entry in enumerate(entries):
                if count >= _ENTRIES_MAX:
                    break
                match = _NAME.match(entry.name)
                if match:
                    names.append((entry.name, match[1] or ""))
    except OSError:
        return []  # gone or not readable: what it may say is unknown
    return sorted(names)


def _content(place: str, linked: bool) -> str:
    """The text of a file, or the target of a link. Raises: OSError; ValueError if it is no text."""
    if linked:
        return os.readlink(place)
    reading = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not block on a pipe
    try:
        status = os.fstat(reading)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _BYTES_MAX:
            raise ValueError(place)
        return os.read(reading, _BYTES_MAX + 1).decode()
    finally:
        os.close(reading)


def _read(place: str, shown: str) -> Optional[Pointer]:
    try:
        status = os.lstat(place)
        linked = stat.S_ISLNK(status.st_mode)
        text = _content(place, linked)
    except (OSError, ValueError):
        return None
    tensorflow = _TENSORFLOW.match(text)
    begin, end = tensorflow.span(1) if tensorflow else (len(text) - len(text.lstrip()), len(text.rstrip()))
    value = text[begin:end].rstrip("/")
    name = value[value.rfind("/") + 1 :]
    if not name or "\n" in value or _WORK in text:
        return None
    at = begin + len(value) - len(name)
    return Pointer(shown, text[:at], name, text[at + len(name) :], linked, status.st_mtime_ns, ())


def _name_of(name: str, base: str, step: Optional[int]) -> Optional[str]:
    """What stands in place of `name` if the pointer names what is called `base`; None if it cannot name that."""
    if name.isascii() and name.isdigit():
        return None if step is None else str(step).zfill(len(name) if name.startswith("0") else 1)
    shape = _DIGITS.sub("#", name)
    ends = [at for at, letter in enumerate(base) if letter == "."] + [len(base)]
    return next((base[:end] for end in reversed(ends) if _DIGITS.sub("#", base[:end]) == shape), None)
