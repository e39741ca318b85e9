"""Checkpoints that are not in the store: reported to the user, and noted for a restart on this node if they are complete.

The note is beside the work directory and lists every file with its inode, size and modification time. If the files still
match, they are what was complete when it could not be stored. Only for jobs with one node: a gang would need it on all nodes.
With a remote store, a checkpoint is noted from its staging to the end of its upload.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from _thread import RLock

from trainmaster.agent.files.fast_json import read_json
from trainmaster.wire.names import printable

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import AbstractSet, Any, Callable, Dict, List, Optional

    from trainmaster.agent.checkpoints.candidate_files import Candidate, State
    from trainmaster.wire.launch import Launch


TELL_AFTER_S = 30.0  # an incomplete checkpoint is reported after so long
_FILES_MAX = 10_000  # of one note
# Nothing is there, or the program has put something else there: a pipe, a socket, a circular link.
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.ELOOP)


class UnstoredCheckpoint:
    """The content of a note."""

    def __init__(self, key: str, step: Optional[int], approximate: bool, roots: List[str], state: State) -> None:
        self.key, self.step, self.approximate, self.roots, self.state = key, step, approximate, roots, state


class _Complete:
    """A complete checkpoint. `at_ns`: when it was staged, or could not be."""

    def __init__(self, key: str, step: Optional[int], approximate: bool) -> None:
        self.key, self.step, self.approximate = key, step, approximate
        self.at_ns = time.monotonic_ns()

    @property
    def begins(self) -> str:
        """Where a restart from it begins."""
        return at_step(self.step, self.approximate, self.key)


class Unstored:
    """Reports of one agent about checkpoints that are not in the store.

    `tell` gets a text, or "" when it is no longer true. `lost` gets the name of a checkpoint that never will be stored, and
    the reason. The main loop calls `reported`, the thread that uploads `not_uploaded`, and the thread that stages all else.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._lock = RLock()
        self._since: Dict[str, float] = {}  # when each checkpoint that is not stored was first seen
        self._staged: Dict[str, _Complete] = {}  # by id: not yet reported as stored
        self._noted_ns = 0  # of the last one that was noted
        self._missing = (0, "")  # of what is said: when it was complete, which one it is and why it is not in the store
        self._said: Optional[str] = "" if launch["attempt"] == 1 else None  # None: an earlier report may still be shown
        self.begins = "from the beginning"  # where a restart would begin
        self.tell: Callable[[str], None] = lambda text: None
        self.lost: Callable[[str, str], None] = lambda name, why: None

    def missed(self, name: str, why: str, at_ns: Optional[int] = None) -> None:
        """Report that it is not in the store. `at_ns`: when it was complete; None: it is now, or is not yet."""
        with self._lock:
            at_ns = time.monotonic_ns() if at_ns is None else at_ns
            self._missing = at_ns, f"checkpoint {printable(name)} is not in the store: {printable(why)}"
            self._say_missing()

    def _say_missing(self) -> None:
        """Say it, or say it again: meanwhile a restart may begin elsewhere."""
        if self._missing[1]:
            self._say(f"{self._missing[1]}; a restart begins {self.begins}")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self.tell(text)

    def refused(self, candidate: Candidate, step: Optional[int], error: OSError) -> None:
        """It is complete, and could not be stored."""
        sys.stderr.write(f"checkpoint {printable(candidate.key)} could not be staged: {error}\n")
        with self._lock:
            self._note(_Complete(candidate.key, step, candidate.step is None), candidate)
            self.missed(candidate.key, str(error))

    def waits(self, key: str, why: str, now: bool = False) -> None:
        """It is not complete yet; `now`: it never will be."""
        since_s = self._since.setdefault(key, time.monotonic())
        if now or time.monotonic() - since_s >= TELL_AFTER_S:
            self.missed(key, why)

    def staged(self, id: str, key: str, step: Optional[int], candidate: Optional[Candidate] = None) -> None:
        """It is in the store, or waits for its upload if the store is remote. `candidate`: its files in the work directory."""
        self._since.pop(key, None)
        with self._lock:
            one = _Complete(key, step, candidate is not None and candidate.step is None)
            self._staged[id] = one
            if not self._launch.get("remote"):
                self._stored(one)
            elif candidate is not None:
                self._note(one, candidate, id)
                self._say_missing()

    def reported(self, id: str) -> None:
        """It is in the store, and the report of it is durable: a note is not needed any more."""
        with self._lock:
            one = self._settled(id)
            if one is not None:
                self._stored(one)
                if one.at_ns >= self._noted_ns:
                    forget(self._launch)

    def not_uploaded(self, id: str, error: Exception) -> None:
        """The remote store does not have it."""
        with self._lock:
            one = self._settled(id)
            if one is not None:
                self.missed(one.key, str(error) or type(error).__name__, one.at_ns)

    def _settled(self, id: str) -> Optional[_Complete]:
        """Which one it is, unless that is settled. Those before it are settled too, or were dropped."""
        one = self._staged.get(id)
        if one is not None:
            self._staged = {other: each for other, each in self._staged.items() if each.at_ns > one.at_ns}
        return one

    def _stored(self, one: _Complete) -> None:
        """It is in the store, and the newest checkpoint there. A later one may be noted, or be reported as missing."""
        if one.at_ns >= self._noted_ns:
            self.begins = one.begins
        if one.at_ns >= self._missing[0]:
            self._missing = (0, "")
            self._say("")
        else:
            self._say_missing()

    def gone(self, keys: AbstractSet[str]) -> None:
        """Only `keys` still exist."""
        for key in [key for key in self._since if key not in keys]:
            del self._since[key]

    def _note(self, one: _Complete, candidate: Candidate, id: str = "") -> None:
        """Note it for a restart on this node. `id`: it may get into the store under this one."""
        if self._launch["nodes"] > 1 or len(candidate.state) > _FILES_MAX:
            return
        note = {
            "job": self._launch["job"], "attempt": self._launch["attempt"], "step": one.step,
            "approximate": one.step is not None and one.approximate,
            "key": candidate.key, "roots": candidate.roots, "state": candidate.state, "id": id,
        }  # fmt: skip
        path = _path(self._launch)
        try:
            if os.path.lexists(f"{path}.part"):
                os.unlink(f"{path}.part")  # left by an interrupted write, or a pipe, on which `open` would block
            with open(f"{path}.part", "x") as file:
                json.dump(note, file)
            os.rename(f"{path}.part", path)
        except OSError:
            return  # a full disk, or no permission: the problem is still reported
        self._noted_ns = one.at_ns
        self.begins = f"{one.begins} if it is on this node again"


def at_step(step: Optional[int], approximate: bool, key: str) -> str:
    """Where a restart from a checkpoint begins."""
    return f"with {printable(key)}" if step is None else f"at {'about ' if approximate else ''}step {step}"


def find_unstored(launch: Launch) -> Optional[UnstoredCheckpoint]:
    """A complete checkpoint that an earlier attempt could not store, if none of its files has changed since.

    Raises: OSError if that cannot be read now. It may be the newest one, and an older one must not take its place.
    """
    from trainmaster.agent.files.globs import signature  # noqa: PLC0415  # only for a restart

    try:
        note = read_json(_path(launch))
        if note["job"] != launch["job"] or launch["nodes"] > 1 or _overtaken(launch, note):
            return None
        state = tuple((str(path), tuple(signed)) for path, signed in note["state"])
        if not state or any(signature(os.stat(os.path.join(launch["work"], path))) != signed for path, signed in state):
            return None
        about = bool(note.get("approximate", note["step"] is not None))  # an older agent did not say whether it is exact
        return UnstoredCheckpoint(note["key"], note["step"], about, list(note["roots"]), state)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        error.filename = error.filename or _path(launch)
        raise
    except (ValueError, KeyError, TypeError):
        return None  # the note is not valid


def _overtaken(launch: Launch, note: Dict[str, Any]) -> bool:
    """Whether the store has it, or a newer one: from a later attempt, or from the same attempt with a higher step."""
    attempt, step = note["attempt"], note["step"]
    own = [point for point in launch["resume"] if os.path.dirname(point["root"]) == launch["checkpoint_store"]]
    for point in own:
        stored = int(point["id"].partition("-")[0])
        if stored > attempt or point["id"] == note.get("id"):
            return True
        if stored == attempt and step is not None and point["step"] is not None and point["step"] > step:
            return True
    return False


def forget(launch: Launch) -> None:
    """Remove the note: this checkpoint, or a newer one, is in the store."""
    try:
        os.unlink(_path(launch))
    except OSError:
        return


def _path(launch: Launch) -> str:
    return f"{launch['work']}.unstored.json"
