"""Ends all processes below this agent: one SIGTERM to each, and SIGKILL at the deadline until none is left."""

from __future__ import annotations

import os

from trainmaster.agent.processes.process_tree import descendants, open_for_writing, send
from trainmaster.wire import cgroups
from trainmaster.wire.processes import start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import AbstractSet, Callable, Optional, Sequence

    from trainmaster.agent.processes.process_tree import File, Process
else:
    import _signal as signal  # `signal` itself creates enums at import, which costs a tenth of an interpreter's start

KILL_EVERY_S = 0.05


class Stopping:
    """The stop of one attempt. A second SIGTERM makes some programs abort their save, so each process gets only one."""

    def __init__(self, contained: Sequence[str] = ()) -> None:
        self._contained = contained  # cgroups whose processes are all to be ended
        self.deadline_s: Optional[float] = None  # when SIGKILL is due, on the monotonic clock
        self.opened: dict[File, set[Process]] = {}  # what the processes had open for writing when each got SIGTERM or SIGKILL
        self._terminated: set[tuple[int, Optional[int]]] = set()
        self._killed_s: Optional[float] = None

    @property
    def active(self) -> bool:
        """Whether stopping has begun."""
        return self.deadline_s is not None

    @property
    def killed(self) -> bool:
        """Whether something was left at the deadline."""
        return self._killed_s is not None

    def begin(self, now_s: float, grace_s: float, tell: Optional[Callable[[], None]] = None) -> None:
        """Send SIGTERM now and SIGKILL after `grace_s` (0: at once). A new deadline can only be earlier than the old one.

        `tell` is called right before the signals: a program that saves and ends at its word should get them before its end.
        """
        deadline_s = now_s + max(0.0, grace_s)
        self.deadline_s = deadline_s if self.deadline_s is None else min(self.deadline_s, deadline_s)
        if self.deadline_s > now_s:
            self.terminate(tell=tell)
        self.step(now_s)

    def terminate(self, among: Optional[AbstractSet[int]] = None, tell: Optional[Callable[[], None]] = None) -> None:
        """Send SIGTERM to every process (of `among`, if given) that has not had it from us."""
        running = [(pid, start_ticks(pid)) for pid in descendants(os.getpid()) if among is None or pid in among]
        new = [process for process in running if process[1] is not None and process not in self._terminated]
        self.note([pid for pid, _ in new])
        if tell is not None:
            tell()
        for pid, _ in new:
            send(pid, signal.SIGTERM)
        self._terminated.update(new)

    def note(self, pids: list[int]) -> None:
        """They are about to be ended: note what they have open for writing."""
        self.opened.update(open_for_writing(pids))

    def step(self, now_s: float) -> None:
        """Send SIGKILL to all that is left, when it is due (again)."""
        due_s = self.due_s
        if due_s is not None and now_s >= due_s:
            if self._killed_s is None:
                self.note(descendants(os.getpid()))
            self._killed_s = now_s
            for directory in self._contained:
                cgroups.kill(directory)
            for pid in descendants(os.getpid()):
                send(pid, signal.SIGKILL)

    @property
    def due_s(self) -> Optional[float]:
        """When `step` has something to do next."""
        return self.deadline_s if self._killed_s is None else self._killed_s + KILL_EVERY_S
