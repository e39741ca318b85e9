"""What `checkpoint.path` matches at one look, as candidates: each match one, or with `{step}` all matches of a step one.

Left out: names of files still being written, what lies in another match, and symbolic links to another match or out of
the work directory.
"""

import errno
import os
import re
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from trainmaster.agent.files.globs import Glob, Signature, files_below, signature, topmost

State = Tuple[Tuple[str, Signature], ...]
Shape = FrozenSet[Tuple[str, int]]
_DIGITS = re.compile(r"\d+")


class Candidate(NamedTuple):
    """What one checkpoint is made of. Paths are relative to the work directory."""

    key: str  # the match, or the step where {step} groups matches
    step: Optional[int]  # named by the path
    roots: Tuple[str, ...]
    directories: Tuple[str, ...]
    state: State  # of every file
    many: bool  # a directory, or a step that may have several files

    @property
    def order(self) -> Tuple[int, int]:
        """Lowest step first; without steps, oldest first."""
        return (-1 if self.step is None else self.step, max(signed[3] for _, signed in self.state))

    @property
    def written_s(self) -> float:
        """When the youngest of its files was last written, in seconds since the epoch."""
        return max(signed[3] for _, signed in self.state) / 1e9

    @property
    def shape(self) -> Shape:
        """The names of its files with digits left out, equal ones counted: what a later checkpoint should have too."""
        counts: Dict[str, int] = {}
        shape = set()
        for path, _ in self.state:
            name = _DIGITS.sub("#", path)
            counts[name] = counts.get(name, 0) + 1
            shape.add((name, counts[name]))
        return frozenset(shape)


def candidates(glob: Glob, unreadable: Optional[Callable[[str, OSError], None]] = None) -> List[Candidate]:
    """All there is now, lowest step first; empty ones and those that change under the look are left out.

    `unreadable` is told the key of one of which not everything can be read, and why.
    """
    matches = topmost(path for path in glob.expand() if not glob.unfinished(path))
    places = {path: os.path.join(glob.root, path) for path in matches}
    plain = {os.path.realpath(place) for place in places.values() if not os.path.islink(place)}
    groups: Dict[str, List[str]] = {}
    for path, place in places.items():
        if os.path.islink(place) and (os.path.realpath(place) in plain or leads_out(glob.root, place)):
            continue
        if glob.has_step and glob.step(path) is None:
            continue  # `{step}` twice, and two numbers
        groups.setdefault(f"{{step}}={glob.step(path)}" if glob.has_step else path, []).append(path)
    found = (_candidate(glob, key, roots, unreadable) for key, roots in groups.items())
    return sorted((candidate for candidate in found if candidate is not None), key=lambda candidate: candidate.order)


def leads_out(root: str, place: str) -> bool:
    """Whether `place`, links resolved, is outside the directory `root`."""
    return not (os.path.realpath(place) + "/").startswith(os.path.realpath(root) + "/")


def again(glob: Glob, candidate: Candidate) -> Optional[Candidate]:
    """The same candidate as it is now."""
    if not glob.has_step:
        return _candidate(glob, candidate.key, list(candidate.roots))
    return next((now for now in candidates(glob) if now.key == candidate.key), None)


def _candidate(
    glob: Glob, key: str, roots: List[str], unreadable: Optional[Callable[[str, OSError], None]] = None
) -> Optional[Candidate]:
    files: List[str] = []
    directories: List[str] = []
    try:
        for root in roots:
            place = os.path.join(glob.root, root)
            if os.path.isdir(place):
                below, inside = files_below(glob.root, root)
                files += below
                directories += inside
            elif os.path.isfile(place):
                files.append(root)
        state = tuple((path, signature(os.stat(os.path.join(glob.root, path)))) for path in files)
    except OSError as error:
        if unreadable is not None and error.errno != errno.ENOENT:
            unreadable(key, error)
        return None  # changing right now, or not to be read: what is seen of it may not be all
    if not any(signed[2] for _, signed in state):
        return None
    many = bool(directories) or len(roots) > 1 or (glob.has_step and not glob.one_per_step)
    return Candidate(key, glob.step(roots[0]), tuple(roots), tuple(directories), state, many)
