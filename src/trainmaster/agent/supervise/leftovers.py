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
    from trainmaster.agent.transport.outbox import Outbox
    from trainmaster.wire.launch import Launch

_NAMED = 3  # processes
_LINGER_S = 0.2  # for processes that ranks leave behind to end by themselves, if they cannot be saving
_REPORTED_S = 2.0  # after so long, waiting for those that may be saving is reported
_TOPIC, _WAITS = "processes", "every rank has ended"


class Leftovers:
    """Processes left by ranks, the last of which has ended at `now_s`. `beside`: roles and commands, which do not count."""

    def __init__(self, launch: Launch, ranks: Sequence[Child], beside: Sequence[Child], outbox: Outbox, now_s: float) -> None:
        self._outbox = outbox
        self._work = os.path.realpath(launch["work"])
        self._grace_s = launch["grace_s"]
        self._ranks = {rank.pid for rank in ranks}
        self._beside = {child.pid for child in beside}
        self._began_s = now_s
        self.check_s = now_s + _LINGER_S  # when to check them again
        self.swept = False  # whether they have been told to end

    def may_save(self, now_s: float) -> bool:
        """Whether some of them may still be saving, within the grace period. If not, those that are left are reported."""
        saving = self._saving()
        if saving and now_s < self._began_s + self._grace_s:
            if now_s > self._began_s + _REPORTED_S:
                self._outbox.warn(_TOPIC, f"{_WAITS}; waits for {_described(saving)} for {self._grace_s:g} s at most")
            self.check_s = now_s + _LINGER_S
            return True
        left = self._left()
        self._outbox.warn(_TOPIC, f"still ran when every rank had ended, and was ended: {_described(left)}" if left else "")
        return False

    def ended_by_themselves(self) -> bool:
        """Whether none had to be ended, now that all have ended. Then the report that they are waited for is withdrawn."""
        told = self._outbox.warned.get(_TOPIC)
        if told is not None and told["text"].startswith(_WAITS):
            self._outbox.warn(_TOPIC, "")
            return True
        return told is None or not told["text"]

    def _left(self) -> list[int]:
        return [pid for pid in descendants(os.getpid()) if _session(pid) not in self._beside | {None}]

    def _saving(self) -> list[int]:
        return [pid for pid in self._left() if _session(pid) in self._ranks or writes_below(pid, self._work)]


def _described(pids: list[int]) -> str:
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
