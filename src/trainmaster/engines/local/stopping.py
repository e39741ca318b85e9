"""Stops an agent and all its processes. Each call does what is due, so repeated calls escalate.

The order is first written to disk (the tombstone, with its time). So it also applies to an agent that is still starting, and
to a later engine object. A live agent ends its ranks itself; the processes of a dead agent are ended here.
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

HANG_S = 10.0  # after the grace period: an agent that still runs is hanging
_PASSES = 5  # per call, because processes may fork while they are killed


class Stopper:
    """Stops agents of one home. Remembers which processes had a SIGTERM, so that none gets a second one."""

    def __init__(self, attempts: Attempts, observer: Observer, cgroups: Cgroups) -> None:
        self._attempts = attempts
        self._observer = observer
        self._cgroups = cgroups
        self._asked: dict[AgentKey, set[tuple[int, int]]] = {}  # (pid, start ticks) of processes that had SIGTERM
        self._lock = threading.Lock()  # for `_asked`: an observation and a stop may run at the same time

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """Order the stop and do what is due now."""
        stone, news = self._attempts.order_stop(key, grace_s)
        if news:
            self._asked.pop(key, None)
        left_s = stone.due_s(time.monotonic(), processes.boot_id())
        agent = self._observer.agent(key)
        if agent is None or not agent.alive:  # an agent that starts later finds the tombstone
            self._end_tree(key, left_s)
        elif left_s + HANG_S <= 0:
            leftovers.send(agent.pid, agent.ticks, signal.SIGKILL)
            self._end_tree(key, left_s)
        elif self._attempts.ended(key) is not None:
            self._end_recorded(key, left_s)
        else:
            self._term(key, agent.pid, agent.ticks)

    def sweep(self, key: AgentKey, stone: Tombstone | None) -> None:
        """End processes that outlived their agent's exit record, within its tombstone's grace period if there is one."""
        left_s = 0.0 if stone is None else stone.due_s(time.monotonic(), processes.boot_id())
        self._end_recorded(key, left_s)

    def forget(self, key: AgentKey) -> None:
        """Drop the state of this key, because its end is known."""
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
