"""Putting the last good checkpoint back before a start, verified, and setting aside what is not known to be good.

Rules: nothing is deleted: what is set aside moves to `<work>.aside/<attempt>/`. What is in place and equal to the
checkpoint chosen, or to one behind it in the order, stays. A checkpoint is put back only when every file of it has been
copied and verified; a corrupt or missing one is named in `bad` and the next is tried. An error of this machine (a full
disk, a store that cannot be reached at all) is raised: it says nothing about the checkpoint.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `typing`, whose import is too dear before the ranks' start
if TYPE_CHECKING:
    from typing import List, Optional

    from trainmaster.wire.launch import Launch


class Restored:
    """What was put back. `id` and `step` are the manifest's, None if nothing was; a plain class, for the same reason."""

    __slots__ = ("bad", "id", "path", "resume_dir", "step")

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
        self.bad = bad or []  # checkpoints that were tried before and are missing or corrupt
        self.path = path  # what `{path}` becomes: relative to the work directory if inside it
        self.resume_dir = resume_dir  # the checkpoint as a directory, absolute

    def __repr__(self) -> str:
        return f"Restored({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Restored) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def restore(launch: Launch) -> Restored:
    """Make the work directory what the start may find: the best of `launch["resume"]` and nothing unproven.

    In a person's own directory an attempt with nothing to put back touches nothing. Raises: OSError; ValueError where the
    checkpoint that a job was forked from is no longer whole: from the beginning it would be another job.
    """
    first = launch["attempt"] <= 1
    if not launch["resume"] and (first or launch["in_place"] or not launch["checkpoint_path"]):
        return Restored()
    stores = {os.path.dirname(point["root"]) for point in launch["resume"]}  # one job's, and its parent's of a fork
    if stores and not launch.get("remote") and not any(os.path.isdir(store) for store in stores):
        raise FileNotFoundError(f"the checkpoint store cannot be reached: {', '.join(sorted(stores))}")
    from trainmaster.agent.putback import put_back  # noqa: PLC0415  # hashing and the rest: only for a restart

    chosen, bad = put_back(launch)
    if chosen is None and launch["forked"]:
        raise ValueError(f"what it was forked from is missing or corrupt in the store ({', '.join(bad)})")
    if chosen is None:
        return Restored(bad=bad)
    return Restored(chosen.id, chosen.step, bad, chosen.path, chosen.resume_dir)
