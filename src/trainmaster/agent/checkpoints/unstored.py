"""Checkpoints that are not in the store: told to a person, and noted for a restart on this node where they are whole.

The note lies beside the work directory and names every file with its inode, size and time of modification: whoever finds them
so finds what was whole when it could not be stored. One job, one node: of a gang every node would need it.
"""

from __future__ import annotations

import json
import os
import sys
import time

from trainmaster.agent.files.fast_json import read_json
from trainmaster.wire.names import printable

TYPE_CHECKING = False  # as in `typing`, whose import is too dear before the ranks' start
if TYPE_CHECKING:
    from typing import AbstractSet, Callable, Dict, List, Optional

    from trainmaster.agent.checkpoints.candidate_files import Candidate, State
    from trainmaster.wire.launch import Launch


TELL_AFTER_S = 30.0  # that a checkpoint may take to become whole before somebody is told
_FILES_MAX = 10_000  # of one note


class Left:
    """What a note names."""

    def __init__(self, key: str, step: Optional[int], roots: List[str], state: State) -> None:
        self.key, self.step, self.roots, self.state = key, step, roots, state


class Unstored:
    """What one agent tells of its checkpoints.

    `tell` gets a text, or "" when it no longer holds; `lost` the name of a checkpoint that never will be stored, and why.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._since: Dict[str, float] = {}  # not stored since it was first seen
        self._said: Optional[str] = "" if launch["attempt"] == 1 else None  # None: what an attempt before told may still stand
        self.begins = "from the beginning"  # where a restart would
        self.tell: Callable[[str], None] = lambda text: None
        self.lost: Callable[[str, str], None] = lambda name, why: None

    def missed(self, name: str, why: str) -> None:
        """It is not in the store."""
        self._say(f"checkpoint {printable(name)} is not in the store: {printable(why)}; a restart begins {self.begins}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.tell(text)

    def refused(self, candidate: Candidate, step: Optional[int], error: OSError) -> None:
        """It is whole, and could not be stored."""
        sys.stderr.write(f"checkpoint {printable(candidate.key)} could not be staged: {error}\n")
        if self._note(candidate, step):
            self.begins = _at(step, candidate.key) + " if it is on this node again"
        self.missed(candidate.key, str(error))

    def waits(self, key: str, why: str, now: bool = False) -> None:
        """It is not whole yet; `now`: nobody will make it so any more."""
        since_s = self._since.setdefault(key, time.monotonic())
        if now or time.monotonic() - since_s >= TELL_AFTER_S:
            self.missed(key, why)

    def stored(self, key: str, step: Optional[int]) -> None:
        """It is in the store, the newest there."""
        self._since.pop(key, None)
        self.begins = _at(step, key)
        self._say("")
        forget(self._launch)

    def gone(self, keys: AbstractSet[str]) -> None:
        """Only `keys` are still there."""
        for key in [key for key in self._since if key not in keys]:
            del self._since[key]

    def _note(self, candidate: Candidate, step: Optional[int]) -> bool:
        if self._launch["nodes"] > 1 or len(candidate.state) > _FILES_MAX:
            return False
        note = {
            "job": self._launch["job"], "attempt": self._launch["attempt"], "step": step,
            "key": candidate.key, "roots": candidate.roots, "state": candidate.state,
        }  # fmt: skip
        path = _path(self._launch)
        try:
            if os.path.lexists(f"{path}.part"):
                os.unlink(f"{path}.part")  # one that was broken off, or a pipe, for whose reader it would wait
            with open(f"{path}.part", "x") as file:
                json.dump(note, file)
            os.rename(f"{path}.part", path)
        except OSError:
            return False  # a full disk, or nothing may be made there: it is told all the same
        return True


def _at(step: Optional[int], key: str) -> str:
    return f"at step {step}" if step is not None else f"with {printable(key)}"


def left(launch: Launch) -> Optional[Left]:
    """What an attempt before could not store and has left whole, if every file of it is as it was then."""
    from trainmaster.agent.files.globs import signature  # noqa: PLC0415  # only for a restart

    try:
        note = read_json(_path(launch))
        if note["job"] != launch["job"] or launch["nodes"] > 1 or _overtaken(launch, note["attempt"], note["step"]):
            return None
        state = tuple((str(path), tuple(signed)) for path, signed in note["state"])
        if not state or any(signature(os.stat(os.path.join(launch["work"], path))) != signed for path, signed in state):
            return None
        return Left(note["key"], note["step"], list(note["roots"]), state)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none, or one of another time


def _overtaken(launch: Launch, attempt: int, step: Optional[int]) -> bool:
    """Whether the store has a newer one: of a later attempt, or of the same one and a higher step."""
    own = [point for point in launch["resume"] if os.path.dirname(point["root"]) == launch["checkpoint_store"]]
    for point in own:
        stored = int(point["id"].partition("-")[0])
        if stored > attempt:
            return True
        if stored == attempt and step is not None and point["step"] is not None and point["step"] > step:
            return True
    return False


def forget(launch: Launch) -> None:
    """A newer one is in the store, or it is."""
    try:
        os.unlink(_path(launch))
    except OSError:
        return


def _path(launch: Launch) -> str:
    return f"{launch['work']}.unstored.json"
