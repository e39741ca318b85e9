"""Moves files away that a restart must not find: to `<work>.aside/<attempt>/`. Nothing is deleted.

In a directory that is the user's own (`Launch.in_place`), only what the job wrote is moved. What the pattern matches before the
first ranks start is noted, with inode, size and modification time of every file (a reboot may change the device). What is
still the same later is not the job's. What was overwritten is.
"""

import errno
import json
import os
import shutil
from typing import Dict, List, Optional, Set

from trainmaster.agent.checkpoints import pointers
from trainmaster.agent.files.fast_json import read_json
from trainmaster.agent.files.formats import is_database
from trainmaster.agent.files.globs import Glob, files_below, signature, topmost
from trainmaster.wire.launch import Launch
from trainmaster.wire.names import printable, stored_name

_NAMED_MAX = 3
_UNKNOWN: List[int] = []  # the state of what could not be read


def set_aside(launch: Launch, kept: Set[str]) -> List[str]:
    """Move away every match except those in `kept`, links that lead to them, and what is the user's own. Returns what moved."""
    own = _users_own(launch)
    if not launch["checkpoint_path"] or own is None:
        return []
    work, glob = launch["work"], Glob(launch["checkpoint_path"], launch["work"])
    real = {os.path.realpath(os.path.join(work, root)) for root in kept}
    matches, moved = glob.expand(), set()
    naming = pointers.pointers(glob, matches)
    for match in topmost(matches):
        place = os.path.join(work, match)
        if match in kept or os.path.realpath(place) in real or any(root.startswith(match + "/") for root in kept):
            continue
        if match in own or is_database(place):
            continue  # a database is whole after a crash, and the only copy of what its program knows
        move(launch, match)
        moved.add(match)
    for one in naming:
        if moved.issuperset(topmost(one.named)):
            move(launch, one.path)  # a program that follows it would look for what is gone
    return sorted(moved)


def told_aside(launch: Launch, moved: List[str]) -> str:
    """What a person should know if this was moved away and nothing restored."""
    more = f" and {len(moved) - _NAMED_MAX} more" if len(moved) > _NAMED_MAX else ""
    named = ", ".join(map(printable, moved[:_NAMED_MAX])) + more
    place = beside(launch, "aside", str(launch["attempt"]), "x").rpartition("/")[0]
    return f"what matches --checkpoint was not known to be complete and was moved to {printable(place)}: {named}"


def move(launch: Launch, path: str) -> None:
    """Move one path, relative to the work directory, to a free name. Raises: OSError."""
    place = os.path.join(launch["work"], path)
    target = beside(launch, "aside", str(launch["attempt"]), stored_name(path))
    free, count = target, 0
    while os.path.lexists(free):
        count += 1
        free = f"{target}~{count}"
    try:
        os.rename(place, free)
    except FileNotFoundError:
        return  # another node of the gang has already moved it in the shared directory
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(place, free)


def beside(launch: Launch, kind: str, *names: str) -> str:
    """A path below `<work>.<kind>/`, with its directory created; inside the work directory if that is not permitted."""
    for root in (f"{launch['work']}.{kind}", os.path.join(launch["work"], ".trainmaster", kind)):
        path = os.path.join(root, *names)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except PermissionError:
            continue
        return path
    raise PermissionError(f"nothing can be set aside beside or in {launch['work']}")


def note_before(launch: Launch) -> None:
    """Note what is there before the job runs in place, unless an earlier attempt has done it. Raises: OSError."""
    path = launch.get("before")
    if not launch["in_place"] or not launch["checkpoint_path"] or not path or _before(launch) is not None:
        return
    glob = Glob(launch["checkpoint_path"], launch["work"])
    states: Dict[str, List[int]] = {}
    for match in topmost(glob.expand()):
        states.update(_states(glob.root, match))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w") as file:
        json.dump({"pattern": launch["checkpoint_path"], "states": states}, file)
    os.rename(part, path)


def _users_own(launch: Launch) -> Optional[Set[str]]:
    """Paths of the user's own files, and of the directories above them; None if everything may be the user's.

    Raises: OSError if that cannot be read now.
    """
    if not launch["in_place"]:
        return set()
    states = _before(launch)
    if states is None:
        return None
    own: Set[str] = set()
    for path, state in states.items():
        if state == _UNKNOWN or _state(os.path.join(launch["work"], path)) in (state, _UNKNOWN):
            while path and path not in own:
                own.add(path)
                path = os.path.dirname(path)
    return own


def _before(launch: Launch) -> Optional[Dict[str, List[int]]]:
    """The state of each path; None if nobody listed them, or for another pattern. Raises: OSError."""
    path = launch.get("before")
    try:
        found = read_json(path) if path else {}
        return dict(found["states"]) if found.get("pattern") == launch["checkpoint_path"] else None
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # it is damaged


def _states(root: str, match: str) -> Dict[str, List[int]]:
    place = os.path.join(root, match)
    try:
        files = files_below(root, match)[0] if os.path.isdir(place) and not os.path.islink(place) else []
    except OSError:
        return {match: _UNKNOWN}
    states = {path: _state(os.path.join(root, path)) for path in files or [match]}
    return {path: state for path, state in states.items() if state is not None}


def _state(place: str) -> Optional[List[int]]:
    """None if nothing is there."""
    try:
        return list(signature(os.lstat(place))[1:])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNKNOWN
