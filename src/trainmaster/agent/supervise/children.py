"""The children of one agent: its ranks, its roles, commands beside them, and the processes that these leave behind.

Rules: A rank that ends by a signal ends the others at once. A failing exit ends them after a second, in which another rank's
signal may explain it. No process of the ranks' trees outlives the attempt.
"""

from __future__ import annotations

from trainmaster.agent.processes import spawn
from trainmaster.agent.supervise.leftovers import Leftovers
from trainmaster.agent.supervise.stopping import Stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from trainmaster.agent.launch.start import Startup
    from trainmaster.agent.processes.process_tree import File, Process
    from trainmaster.agent.processes.rank import Rank
    from trainmaster.agent.supervise.exec_commands import ExecCommands
    from trainmaster.agent.transport.outbox import Outbox

_EXPLAINED_S = 1.0  # how long a failing exit waits for another rank's signal
_REST_GRACE_S = 2.0  # from SIGTERM to SIGKILL for the others of a broken gang, and for processes that ranks leave behind
_NEVER_S = float("inf")


class Children:
    """Decides what the end of some children means for the others, and ends these."""

    def __init__(self, start: Startup, outbox: Outbox) -> None:
        self._start = start
        self._outbox = outbox
        self._ranks = start.ranks
        self._roles = start.roles  # those that are still needed
        self._execs: Optional[ExecCommands] = None  # commands beside the ranks; created for the first one
        self._leftovers: Optional[Leftovers] = None  # since the last rank ended
        self._stopping = Stopping(start.launch.get("contained", ()))

    @property
    def programs(self) -> list[Rank]:
        """The ranks, and the roles that are still needed."""
        return [*self._ranks, *self._roles]

    @property
    def well(self) -> bool:
        """Whether every rank has succeeded."""
        return all(rank.exit_code == 0 and not rank.stopped_by_us for rank in self._ranks)

    @property
    def stopping(self) -> bool:
        """Whether the rest is being stopped."""
        return self._stopping.active

    @property
    def deadline_s(self) -> Optional[float]:
        """When the grace period is over; None if nothing is being stopped."""
        return self._stopping.deadline_s

    def reap(self) -> bool:
        """Reap what has ended. False if no process is left."""
        return spawn.reap([*self.programs, *self._commands], self._start.began_s)

    def stop(self, now_s: float, grace_s: float, tell: Optional[Callable[[], None]] = None) -> None:
        """Stop ranks, roles and commands. Those that are running are marked as stopped by us. `tell`: see `Stopping.begin`."""
        _mark_stopped([*self.programs, *self._commands])
        self._stopping.begin(now_s, grace_s, tell)

    def run_commands(self, orders: list[dict[str, Any]], now_s: float) -> None:
        """Take the orders out of the list, and start and supervise commands beside the ranks."""
        if orders and self._execs is None:
            from trainmaster.agent.supervise.exec_commands import ExecCommands  # noqa: PLC0415 - most jobs never need it

            self._execs = ExecCommands(self._start, self._stopping.note)
        if self._execs is not None:
            while orders:
                self._execs.take(orders.pop(0))
            self._execs.step(now_s)

    def step(self, now_s: float) -> None:
        """Decide what the ends so far mean, and continue a stop."""
        if any(rank.running for rank in self._ranks):
            self._stop_broken_gang(now_s)
        else:
            self._end_rest(now_s)
        self._stopping.step(now_s)

    @property
    def due_s(self) -> float:
        """When `step` has something to do next, unless a child ends earlier."""
        due = [self._stopping.due_s, self._execs.due_s if self._execs is not None else None]
        if self._leftovers is not None and not self._leftovers.swept:
            due.append(self._leftovers.check_s)
        failed_s = self._failed_s()
        if failed_s is not None and not self._stopping.active:
            due.append(failed_s + _EXPLAINED_S)
        return min((at_s for at_s in due if at_s is not None), default=_NEVER_S)

    def finish_commands(self) -> None:
        """Every child has ended: wait for the last output of commands to be sent."""
        if self._execs is not None:
            self._execs.finish()

    def none_was_killed(self) -> bool:
        """Whether no process that the ranks left behind had to be ended. Call it when every child has ended."""
        return self._leftovers is None or self._leftovers.ended_by_themselves()

    @property
    def stopped_well(self) -> bool:
        """Whether every rank exited 0 after a stop, and nothing was left at the deadline."""
        exited = all(rank.exit_code == 0 for rank in self._ranks)
        return exited and not self.well and not self._stopping.killed

    @property
    def opened(self) -> dict[File, set[Process]]:
        """What processes had open for writing when they were told to end: ranks, and whatever ran beside or after them."""
        return self._stopping.opened

    @property
    def _commands(self) -> list[spawn.Child]:
        return self._execs.children if self._execs is not None else []

    @property
    def _roles_run(self) -> bool:
        return any(role.running for role in self._roles)

    def _failed_s(self) -> Optional[float]:
        """When the first rank or role failed by itself; None if none has."""
        failed = [rank.ended_after_s for rank in self.programs if rank.failed]
        return self._start.began_s + min(failed) if failed else None

    def _stop_broken_gang(self, now_s: float) -> None:
        """Some ranks run: stop them if another rank or a role has failed."""
        failed_s = self._failed_s()
        if failed_s is None or self._stopping.active:
            return
        by_signal = any(rank.failed and rank.signal is not None for rank in self.programs)
        if by_signal or now_s >= failed_s + _EXPLAINED_S:
            self.stop(now_s, _REST_GRACE_S)

    def _end_rest(self, now_s: float) -> None:
        """Every rank has ended: end what they left behind, the roles and the commands."""
        if self._leftovers is None:
            beside = [*self._roles, *self._commands]
            self._leftovers = Leftovers(self._start.launch, self._ranks, beside, self._outbox, now_s)
            _mark_stopped(beside)  # from here on they end because the ranks have ended
            if self._execs is not None:  # a shell that ignores SIGTERM must not hold the attempt's resources
                self._stopping.terminate(self._execs.processes())
                self._execs.hang_up(now_s)
        rest = self._leftovers
        if not rest.swept and now_s >= rest.check_s and not (self.well and not self._stopping.active and rest.may_save(now_s)):
            rest.swept = True
            if self._stopping.active:
                self._stopping.terminate()  # processes started since; the grace period of saving ones continues
            else:
                self._stopping.begin(now_s, self._start.launch["grace_s"] if self._roles_run else _REST_GRACE_S)
        elif rest.swept and self._roles and not self._roles_run:
            self._stopping.begin(now_s, _REST_GRACE_S)
            self._roles = []  # they are no longer needed


def _mark_stopped(children: list[spawn.Child]) -> None:
    for child in children:
        child.stopped_by_us = child.stopped_by_us or child.running
