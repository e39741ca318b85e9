"""Putting the last good checkpoint back before a start, verified, and setting aside what is not known to be good.

Rules: nothing is deleted: what is set aside moves to `<work>.aside/<attempt>/`. What is in place and equal to the
checkpoint chosen, or to one behind it in the order, stays. A checkpoint is put back only when every file of it has been
copied and verified. One whose digest differs is corrupt: it is named in `bad` and the next is tried. One that cannot be
read (a missing file, an I/O error, a store that is away) is tried again for a quarter of a minute, then the attempt ends as
a failure of the machine: it says nothing about the checkpoint. With checkpoints on record nothing starts from the beginning.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import is too dear before the ranks' start
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from trainmaster.wire.launch import Launch


LEFT = "work:"  # begins the id of what is in the work directory and not in the store


class Restored:
    """What was put back. `id` and `step` are the manifest's, None if nothing was; a plain class, for the same reason."""

    __slots__ = ("bad", "doubted", "id", "path", "resume_dir", "step")

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
        self.bad = bad or []  # checkpoints that were tried before and are corrupt
        self.doubted: List[str] = []  # the one that could not be read, so that nothing was put back
        self.path = path  # what `{path}` becomes: relative to the work directory if inside it
        self.resume_dir = resume_dir  # the checkpoint as a directory, absolute

    def __repr__(self) -> str:
        return f"Restored({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Restored) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def restore(
    launch: Launch, found: Optional[Restored] = None, tell: Optional[Callable[[str], None]] = None
) -> Restored:
    """Make the work directory what the start may find: the best of `launch["resume"]` and nothing unproven.

    What was put back, and what would not do, is put into `found`, with an error too, and returned; `tell` gets a sentence
    while a checkpoint cannot be read. In a person's own directory an attempt with nothing to put back touches nothing.

    Raises: OSError for what another try may change; ValueError where every checkpoint on record is corrupt.
    """
    found = found if found is not None else Restored()
    if launch["attempt"] > 1 and _unstored(launch, found):
        return found
    first = launch["attempt"] <= 1
    if not launch["resume"] and (first or launch["in_place"] or not launch["checkpoint_path"]):
        return found
    from trainmaster.agent.checkpoints import restore_files  # noqa: PLC0415  # hashing and the rest: only for a restart

    try:
        chosen = restore_files.put_back(launch, found.bad, tell or _silent)
    except restore_files.Unread as error:
        found.doubted.append(error.checkpoint)
        raise
    if chosen is not None:
        found.id, found.step, found.path, found.resume_dir = chosen
    elif found.bad:
        what = "what it was forked from is" if launch["forked"] else "every checkpoint on record is"
        ids = ", ".join(found.bad)
        raise ValueError(
            f"{what} corrupt: what the store holds differs from its digest ({ids}). It does not start from the beginning by "
            f"itself; to do that: tm requeue {launch['job']}"
        )
    return found


def _unstored(launch: Launch, found: Restored) -> bool:
    """Whether what an attempt before left whole on this node, and could not store, is used."""
    from trainmaster.agent.checkpoints.unstored import left  # noqa: PLC0415  # only for a restart

    there = left(launch)
    if there is None:
        return False
    from trainmaster.agent.checkpoints import restore_files  # noqa: PLC0415  # as above

    found.path, found.resume_dir = restore_files.keep_in_place(launch, there.roots)
    found.id, found.step = f"{LEFT}{there.key}", there.step
    return True


def _silent(text: str) -> None:
    """For those who tell nobody."""
