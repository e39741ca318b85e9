"""Ending an agent and everything of it: each call goes as far as is due, so calling again escalates.

The order is on disk first (the tombstone, with its time), so that it holds for an agent still on its way and for an
engine that comes after this one. A live agent ends its ranks itself; a dead one's processes are ended here.
"""

import signal
import threading
import time

from trainmaster.engines.local import leftovers
from trainmaster.engines.local.attempts import Attempts, Tombstone
from trainmaster.engines.local.cgroups import Cgroups
from trainmaster.engines.local.leftovers import Process
from trainmaster.engines.local.observing import Observer
from trainmaster.model.ids import AgentKey
from trainmaster.wire import processes

HANG_S = 10.0  # beyond the grace: an agent that still lives hangs
_PASSES = 5  # of one call, against processes that fork while they are ended


class Stopper:
    """Stops agents of one home; remembers whom it has asked already, so that nobody is asked every beat."""

    def __init__(self, attempts: Attempts, observer: Observer, cgroups: Cgroups) -> None:
        self._attempts = attempts
        self._observer = observer
        self._cgroups = cgroups
        self._asked: dict[AgentKey, set[tuple[int, int]]] = {}  # (pid, start ticks) that got their TERM
        self._lock = threading.Lock()  # of `_asked`: a look and a stop may go on at the same time

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """Order the stop and do what is due now."""
        stone, news = self._attempts.bury(key, grace_s)
        if news:
            self._asked.pop(key, None)
        left_s = stone.due_s(time.monotonic(), processes.boot_id())
        agent = self._observer.agent(key)
        if agent is None or not agent.alive:  # of none yet there is nothing: one that comes finds the tombstone
            self._end_tree(key, left_s)
        elif left_s + HANG_S <= 0:
            leftovers.send(agent.pid, agent.ticks, signal.SIGKILL)
            self._end_tree(key, left_s)
        elif self._attempts.ended(key) is not None:
            self._end_recorded(key, left_s)
        else:
            self._term(key, agent.pid, agent.ticks)

    def sweep(self, key: AgentKey, stone: Tombstone | None) -> None:
        """End what outlived an agent that has said its last word, under its tombstone's grace if there is one."""
        left_s = 0.0 if stone is None else stone.due_s(time.monotonic(), processes.boot_id())
        self._end_recorded(key, left_s)

    def forget(self, key: AgentKey) -> None:
        """The end of this key is known."""
        self._asked.pop(key, None)

    def _end_recorded(self, key: AgentKey, left_s: float) -> None:
        if left_s <= 0:
            self._cgroups.kill(key)
        for row in self._observer.outlived(key):
            self._signal(key, row, left_s)

    def _end_tree(self, key: AgentKey, left_s: float) -> None:
        if left_s <= 0:
            self._cgroups.kill(key)
        for _ in range(_PASSES):
            rows = leftovers.find([self._observer.tree(key)])[str(key)]
            for row in rows:
                self._signal(key, row, left_s)
            if not rows or left_s > 0:
                return

    def _signal(self, key: AgentKey, row: Process, left_s: float) -> None:
        if left_s <= 0:
            leftovers.send(row.pid, row.ticks, signal.SIGKILL)
        else:
            self._term(key, row.pid, row.ticks)

    def _term(self, key: AgentKey, pid: int, ticks: int) -> None:
        with self._lock:
            asked = self._asked.setdefault(key, set())
            if (pid, ticks) in asked:
                return
            asked.add((pid, ticks))
        leftovers.send(pid, ticks, signal.SIGTERM)
