"""Candidates for checkpoints: what `checkpoint.path` matches in one scan. With `{step}`, all matches of a step are one.

Not included: names of files still being written, files inside another match, files that only name another match
(`pointers`), and symbolic links to another match or out of the work directory.
"""

import errno
import os
import re
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from trainmaster.agent.checkpoints.pointers import pointers
from trainmaster.agent.files.globs import Glob, Signature, files_below, signature, topmost
from trainmaster.wire.messages import PointerEntry

State = Tuple[Tuple[str, Signature], ...]
Shape = FrozenSet[Tuple[str, int]]
_DIGITS = re.compile(r"\d+")
_START = re.compile(  # when the run of a program began, in the names of its files: a date, and the time to the second
    r"(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d[-_.T ]{0,2}[0-2]\d[-_.:]?[0-5]\d[-_.:]?[0-5]\d"
)
_NO_LETTERS = re.compile(r"[^a-z]+")


class Candidate(NamedTuple):
    """The files that make up one checkpoint. Paths are relative to the work directory."""

    key: str  # the match, or the step if {step} groups matches
    step: Optional[int]  # from the path
    roots: Tuple[str, ...]
    directories: Tuple[str, ...]
    state: State  # signature of every file
    many: bool  # a directory, or a step that may have several files
    without: FrozenSet[str] = frozenset()  # matches of the same step that belong to an earlier checkpoint
    logs: Tuple[str, ...] = ()  # files inside a directory that programs append to all the time: stored as they are by then

    @property
    def name(self) -> str:
        """Its path; for several files what their paths begin and end with, the step between them, and `*` for the rest."""
        if len(self.roots) == 1:
            return self.roots[0]
        begin = beginning(self.roots)
        rests = [root[len(begin) :] for root in self.roots]
        end = beginning([rest[::-1] for rest in rests])[::-1]
        if any(int(digits) == self.step for digits in _DIGITS.findall(end)):
            return f"{begin}*{end}"
        shared = _written(self.step, [rest[: len(rest) - len(end)] for rest in rests])
        return f"{begin}*{shared}*{end}" if shared else f"{begin}*{end}"

    @property
    def order(self) -> Tuple[int, int]:
        """Lowest step first; without steps, oldest first."""
        return (-1 if self.step is None else self.step, max(signed[3] for _, signed in self.state))

    @property
    def written_s(self) -> float:
        """When its newest file was last written, in seconds since the epoch."""
        return max(signed[3] for _, signed in self.state) / 1e9

    @property
    def shape(self) -> Shape:
        """Names of its files without digits, and a count for equal names. A later checkpoint should have the same shape.

        Those of one directory are relative to it: `model-best` and `model-last` have the same files.
        """
        counts: Dict[str, int] = {}
        shape = set()
        inside = len(self.roots[0]) + 1 if len(self.roots) == 1 and self.directories else 0
        for path, _ in self.state:
            name = _DIGITS.sub("#", path[inside:])
            counts[name] = counts.get(name, 0) + 1
            shape.add((name, counts[name]))
        return frozenset(shape)

    @property
    def mixed(self) -> bool:
        """Whether the names of its files have different times of a start: it may be more than one checkpoint."""
        return len(_starts([path for path, _ in self.state])) > 1


def candidates(glob: Glob, unreadable: Optional[Callable[[str, OSError], None]] = None) -> List[Candidate]:
    """All candidates, lowest step first. Empty ones and those that change during the scan are left out.

    `unreadable` is called with the key of a candidate that cannot be read completely, and the error.
    """
    matches = topmost(path for path in glob.expand() if not glob.unfinished(path))
    if not glob.has_step:
        beside = {one.path for one in pointers(glob, matches)}
        matches = [path for path in matches if path not in beside]
    places = {path: os.path.join(glob.root, path) for path in matches}
    plain = {os.path.realpath(place) for place in places.values() if not os.path.islink(place)}
    groups: Dict[str, List[str]] = {}
    for path, place in places.items():
        if os.path.islink(place) and (os.path.realpath(place) in plain or leads_out(glob.root, place)):
            continue
        if glob.has_step and glob.step(path) is None:
            continue  # `{step}` occurs twice in the pattern, with two different numbers
        groups.setdefault(f"{{step}}={glob.step(path)}" if glob.has_step else path, []).append(path)
    found = (_candidate(glob, key, roots, unreadable) for key, roots in groups.items())
    return sorted((candidate for candidate in found if candidate is not None), key=lambda candidate: candidate.order)


def leads_out(root: str, place: str) -> bool:
    """Whether `place`, with links resolved, is outside the directory `root`."""
    return not (os.path.realpath(place) + "/").startswith(os.path.realpath(root) + "/")


class Behind:
    """Where the matches of a candidate that are links lead: its files are stored under that path, and the links beside them.

    A program replaces its link at the next save, which fails if a directory has taken its place.
    """

    def __init__(self, root: str, candidate: Candidate) -> None:
        self.links: Dict[str, PointerEntry] = {}
        self._targets: Dict[str, str] = {}
        for match in candidate.roots:
            place = os.path.join(root, match)
            if os.path.islink(place):
                text = os.path.relpath(os.path.realpath(place), os.path.realpath(os.path.dirname(place)))
                target = os.path.normpath(os.path.join(os.path.dirname(match), text))
                above = target.startswith(("/", "..")) or target == "." or match.startswith(f"{target}/")
                if not above:
                    self.links[match], self._targets[match] = {"text": text, "linked": True}, target

    def path(self, path: str) -> str:
        """The path of a file or directory of the candidate without the link."""
        match = next((one for one in self._targets if path == one or path.startswith(f"{one}/")), None)
        return path if match is None else self._targets[match] + path[len(match) :]


def _names(paths: Sequence[str]) -> FrozenSet[str]:
    return frozenset(_DIGITS.sub("#", os.path.basename(path)) for path in paths)


def beginning(paths: Sequence[str]) -> str:
    """What all paths begin with."""
    low, high = min(paths), max(paths)
    pairs = zip(low, high)  # noqa: B905 - Python 3.9
    return low[: next((at for at, (one, other) in enumerate(pairs) if one != other), len(low))]


def _written(step: Optional[int], texts: Sequence[str]) -> str:
    """The step as all texts have it, with what stands beside it in all of them: `5` is in `50`, too. Else empty."""
    first = texts[0]
    for found in _DIGITS.finditer(first):
        if int(found[0]) == step:
            before, after = max(0, found.start() - 1), found.end() + 1
            for text in (first[before:after], first[before : found.end()], first[found.start() : after], found[0]):
                if all(text in other for other in texts):
                    return text
    return ""


def again(glob: Glob, candidate: Candidate) -> Optional[Candidate]:
    """Scan the same candidate again. Its step is unknown if it was: its number may be none."""
    if not glob.has_step:
        now = _candidate(glob, candidate.key, list(candidate.roots))
        return now if now is None or candidate.step is not None else now._replace(step=None)
    now = next((now for now in candidates(glob) if now.key == candidate.key), None)
    return now if now is None or not candidate.without else excluding(glob, now, candidate.without)


def excluding(glob: Glob, candidate: Candidate, without: FrozenSet[str]) -> Optional[Candidate]:
    """The candidate without some of its matches."""
    left = _candidate(glob, candidate.key, [root for root in candidate.roots if root not in without])
    return None if left is None else left._replace(without=without)


def elsewhere(candidate: Candidate, before: State) -> FrozenSet[str]:
    """The matches of an earlier checkpoint of this step, if what is new is of another start of the program; else empty.

    Then it lies in other directories, or its names have the time of another start. StyleGAN counts from 0 after a restart, and
    saves into a new directory: `00001-run/snapshot-000012.pkl`. EvoTorch: `Problem_2026-11-27-16.53.31_29_generation12.pickle`.
    """
    known = dict(before)
    new, old = [path for path, _ in candidate.state if path not in known], [path for path, _ in before]
    apart = {os.path.dirname(one) for one in new}.isdisjoint(map(os.path.dirname, old)) or _other_start(new, old)
    unchanged = set(before) <= set(candidate.state)
    if not new or not apart or not unchanged or not _names(new) >= _names(old):  # or a file beside them: all are the checkpoint
        return frozenset()
    return frozenset(root for root in candidate.roots if any(path == root or path.startswith(f"{root}/") for path in old))


def _other_start(new: Sequence[str], old: Sequence[str]) -> bool:
    """Whether the names of all files have the time of a start, and no file of the one list has that of one of the other."""
    of_new, of_old = _starts(new), _starts(old)
    return of_new.isdisjoint(of_old) and "" not in of_new | of_old


def _starts(paths: Sequence[str]) -> FrozenSet[str]:
    return frozenset(found[0] if found else "" for found in map(_START.search, paths))


def _is_log(name: str) -> bool:
    """Whether programs append to files of this name all the time."""
    if name.endswith(".txt"):
        return "log" in _NO_LETTERS.split(name.lower())  # not `logistic.txt`
    return name.endswith(".log") or name.startswith("events.out.tfevents.")


def _candidate(
    glob: Glob, key: str, roots: List[str], unreadable: Optional[Callable[[str, OSError], None]] = None
) -> Optional[Candidate]:
    files: List[str] = []
    logs: List[str] = []
    directories: List[str] = []
    try:
        for root in roots:
            place = os.path.join(glob.root, root)
            if os.path.isdir(place):
                below, inside = files_below(glob.root, root)
                appended = [path for path in below if _is_log(os.path.basename(path))]
                rest = [path for path in below if path not in appended]
                alone = not any(os.stat(os.path.join(glob.root, path)).st_size for path in rest)
                files += below if alone else rest
                logs += [] if alone else appended
                directories += inside
            elif os.path.isfile(place):
                files.append(root)
        state = tuple((path, signature(os.stat(os.path.join(glob.root, path)))) for path in files)
    except OSError as error:
        if unreadable is not None and error.errno != errno.ENOENT:
            unreadable(key, error)
        return None  # it is changing or not readable: the files seen may not be all
    if not any(signed[2] for _, signed in state):
        return None
    many = bool(directories) or len(roots) > 1 or (glob.has_step and not glob.one_per_step)
    return Candidate(key, glob.step(roots[0]), tuple(roots), tuple(directories), state, many, logs=tuple(logs))
