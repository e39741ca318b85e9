"""Processes that the ranks leave behind when they end: which of them may still be saving, and how they are described.

A process in a rank's own session may still be saving, and so may one that has a file of the work directory open for
writing. Both get the grace period to end by themselves. A daemon (a session of its own) gets only a moment.
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


class Leftovers:
    """Processes left by ranks that have all ended. `beside`: roles and commands, which are not ended here."""

    def __init__(self, launch: Launch, ranks: Sequence[Child], beside: Sequence[Child]) -> None:
        self._work = os.path.realpath(launch["work"])
        self._ranks = {rank.pid for rank in ranks}
        self._beside = {child.pid for child in beside}

    def left(self) -> list[int]:
        """The pids of all left processes."""
        return [pid for pid in descendants(os.getpid()) if _session(pid) not in self._beside | {None}]

    def saving(self) -> list[int]:
        """The pids of the left processes that may still be saving."""
        return [pid for pid in self.left() if _session(pid) in self._ranks or writes_below(pid, self._work)]


def described(pids: list[int]) -> str:
    """`2 processes (python, pid 17; sleep, pid 18)`."""
    shown = "; ".join(f"{_name(pid)}, pid {pid}" for pid in pids[:_NAMED]) + ("; ..." if len(pids) > _NAMED else "")
    return f"{len(pids)} process{'' if len(pids) == 1 else 'es'} ({shown})"


def _session(pid: int) -> int | None:
    """The session of a process; None if it has ended."""
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
