"""What the ranks leave running when they have ended: who of it may still be saving, and what is said of the rest.

A process of a rank's own session, or one that has a file of the work directory open for writing, may still save, and gets the
grace period to end by itself. A daemon (a session of its own) gets a moment.
"""

from __future__ import annotations

import os

from trainmaster.agent.processes.process_tree import descendants, writes_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from trainmaster.agent.processes.spawn import Child
    from trainmaster.wire.launch import Launch

_NAMED = 3  # processes


class Remains:
    """Of the ranks that have all ended; `beside`: roles and commands, which end for reasons of their own."""

    def __init__(self, launch: Launch, ranks: Sequence[Child], beside: Sequence[Child]) -> None:
        self._work = os.path.realpath(launch["work"])
        self._ranks = {rank.pid for rank in ranks}
        self._beside = {child.pid for child in beside}

    def left(self) -> list[int]:
        """All that is left."""
        return [pid for pid in descendants(os.getpid()) if _session(pid) not in self._beside | {None}]

    def saving(self) -> list[int]:
        """Those that may still save."""
        return [pid for pid in self.left() if _session(pid) in self._ranks or writes_below(pid, self._work)]


def described(pids: list[int]) -> str:
    """`2 processes (python, pid 17; sleep, pid 18)`."""
    shown = "; ".join(f"{_name(pid)}, pid {pid}" for pid in pids[:_NAMED]) + ("; ..." if len(pids) > _NAMED else "")
    return f"{len(pids)} process{'' if len(pids) == 1 else 'es'} ({shown})"


def _session(pid: int) -> int | None:
    """None: it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().decode("utf-8", "backslashreplace").strip()
    except OSError:
        return "ended"
