"""Restores the last good checkpoint before a start, verified, and sets aside files that are not known to be good.

Rules: Nothing is deleted: files that are set aside move to `<work>.aside/<attempt>/`. Files in place stay if they equal the
chosen checkpoint or one after it in the order, or if the user put them there (`set_aside`). A checkpoint is put into place
only when every file was copied and verified. If a digest differs, the checkpoint is corrupt: it is listed in `bad` and the next
one is tried. If it cannot be read (a missing file, an I/O error, an unreachable store), it is retried for a quarter of a
minute. Then the attempt ends as a machine failure, because that says nothing about the checkpoint. A job with checkpoints on
record never starts from the beginning.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` is too slow before the ranks are started
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional

    from trainmaster.wire.launch import Launch


UNSTORED = "work:"  # prefix of the id of a checkpoint that is in the work directory but not in the store


class Restored:
    """What was restored. `id` and `step` are from the manifest, None if nothing was. A plain class, for a fast import."""

    __slots__ = ("approximate", "aside", "bad", "doubted", "id", "path", "read", "resume_dir", "step")

    def __init__(
        self,
        id: Optional[str] = None,
        step: Optional[int] = None,
        bad: Optional[List[str]] = None,
        path: Optional[str] = None,
        resume_dir: Optional[str] = None,
    ) -> None:
        self.id = id
        self.step = step
        self.approximate = False  # whether the step is
        self.bad = bad or []  # checkpoints that were tried first and are corrupt
        self.doubted: List[str] = []  # the checkpoint that could not be read; nothing was restored because of it
        self.aside = ""  # what was moved away although nothing was restored, as a warning
        self.read = False  # whether all of it was read from the store: files that equal its manifest may be in place already
        self.path = path  # the value of `{path}`: relative to the work directory if inside it
        self.resume_dir = resume_dir  # the directory of the checkpoint, absolute

    def marks(self) -> Dict[str, bool]:
        """What else reports say of it: only what is true."""
        return {name: True for name in ("approximate", "read") if getattr(self, name)}

    def __repr__(self) -> str:
        return f"Restored({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Restored) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def restore(
    launch: Launch, found: Optional[Restored] = None, tell: Optional[Callable[[str], None]] = None
) -> Restored:
    """Prepare the work directory for the start: restore the best of `launch["resume"]`, and set unproven files aside.

    The result is returned, and also stored in `found` so that it is known if an error is raised. `tell` gets a message
    while a checkpoint cannot be read. An attempt that runs in place and has nothing to restore changes no file.

    Raises: OSError for an error that a retry may solve; ValueError if every checkpoint on record is corrupt.
    """
    found = found if found is not None else Restored()
    if launch["attempt"] > 1 and _unstored(launch, found, tell or _silent):
        return found
    first = launch["attempt"] <= 1
    if not launch["resume"] and (first or launch["in_place"] or not launch["checkpoint_path"]):
        return found
    from trainmaster.agent.checkpoints import restore_files  # noqa: PLC0415  # hashing: only for a restart

    try:
        chosen = restore_files.restore_first(launch, found.bad, tell or _silent)
    except restore_files.Unreadable as error:
        found.doubted.append(error.checkpoint)
        raise
    if chosen is not None:
        found.id, found.step, found.path, found.resume_dir, found.read = chosen
        found.approximate = any(point["approximate"] for point in launch["resume"] if point["id"] == found.id)
    elif found.bad:
        what = "what it was forked from is" if launch["forked"] else "every checkpoint on record is"
        parent = found.bad[-1].partition(":")[0]
        other = f"submit it again, from an earlier checkpoint (--from {parent}) or without one"
        todo = other if launch["forked"] else f"to do that: tm rerun {launch['job']}"
        raise ValueError(
            f"{what} corrupt: what the store holds differs from its digest ({', '.join(found.bad)}). It does not start from "
            f"the beginning by itself; {todo}"
        )
    else:
        from trainmaster.agent.checkpoints.set_aside import set_aside, told_aside  # noqa: PLC0415  # likewise

        moved = set_aside(launch, set())
        found.aside = told_aside(launch, moved) if moved else ""
    return found


def _unstored(launch: Launch, found: Restored, tell: Callable[[str], None]) -> bool:
    """Whether a complete checkpoint is used that an earlier attempt left on this node and could not store. Raises: OSError."""
    from trainmaster.agent.checkpoints import restore_files  # noqa: PLC0415  # only for a restart
    from trainmaster.agent.checkpoints.unstored import find_unstored  # noqa: PLC0415  # likewise

    there = restore_files.retried(lambda: find_unstored(launch), tell)
    if there is None:
        return False
    found.path, found.resume_dir = restore_files.keep_in_place(launch, there.roots)
    found.id, found.step, found.approximate = f"{UNSTORED}{there.key}", there.step, there.approximate
    return True


def _silent(text: str) -> None:
    """Used if the caller gives no `tell`."""
