"""Observes agents through their files and the process table, without changing anything.

A round costs a few reads per live agent, and one scan of `/proc` for all agents that are dead without an exit record.
"""

import contextlib
from collections.abc import Sequence

from trainmaster.backup import RESTORED
from trainmaster.engines.local import exits, leftovers
from trainmaster.engines.local.attempts import Attempts, Identity
from trainmaster.engines.local.cgroups import Cgroups
from trainmaster.engines.local.watch import Watcher
from trainmaster.model.ids import AgentKey
from trainmaster.ports.engine import Observation, Phase
from trainmaster.wire import names, processes

LAUNCH_S = 5.0  # after a launch this recent, an agent may still appear
REPORT_S = 10.0  # after its exit record, an agent may so long report to a server that is slow
_INDEX_ROUNDS = 600  # about ten minutes


class Observer:
    """Observes the agents of one home. Caches only what cannot change."""

    def __init__(self, attempts: Attempts, cgroups: Cgroups, watcher: Watcher) -> None:
        self._attempts = attempts
        self._cgroups = cgroups
        self._watcher = watcher
        self._identities: dict[AgentKey, Identity] = {}
        self._rounds = 0

    def due(self, keys: Sequence[AgentKey] | None) -> list[AgentKey]:
        """The keys to observe in the next round: these, or None for all that are not known to have ended.

        Sometimes the whole index is examined: an agent that reported its end is not asked for any more, and would stay in
        it.
        """
        self._rounds += 1
        index = self._own() if keys is None or self._rounds % _INDEX_ROUNDS == 0 else []
        return list(dict.fromkeys((*(keys or ()), *index)))

    def _own(self) -> list[AgentKey]:
        """The index without agents of other homes. An unreadable entry is included, and is observed as unknown."""
        found = []
        for key in self._attempts.live():
            with contextlib.suppress(OSError):
                if self._attempts.is_foreign(key):
                    continue
            found.append(key)
        return found

    def observe(self, keys: Sequence[AgentKey]) -> dict[AgentKey, Observation]:
        """The phase of every key. If a key's files cannot be read, its phase is unknown."""
        seen: dict[AgentKey, Observation] = {}
        dead: list[AgentKey] = []
        for key in keys:
            try:
                observation = self._look(key)
            except (OSError, ValueError) as error:
                observation = _unreadable(error)
            if observation is None:
                dead.append(key)
            else:
                seen[key] = observation
        if dead:
            seen |= self._dead(dead)
        for key, observation in seen.items():
            if observation.phase in (Phase.ENDED, Phase.GONE, Phase.ABSENT):
                self._identities.pop(key, None)
        return seen

    def agent(self, key: AgentKey) -> Identity | None:
        """The agent that took this key, alive or not."""
        known = self._identities.get(key)
        if known is None:
            known = self._attempts.identity(key)
            if known is not None:
                self._identities[key] = known
        return known

    def outlived(self, key: AgentKey) -> list[leftovers.Process]:
        """Processes that still run although the agent has written its exit record. A few reads, no scan."""
        agent = self.agent(key)
        recorded = {}
        if agent is not None and agent.boot == processes.boot_id():
            recorded = self._attempts.tree(key)
            recorded.pop(agent.pid, None)
        return leftovers.alive(recorded, self._cgroups.members(key))

    def tree(self, key: AgentKey) -> leftovers.Tree:
        """What to search for a dead agent. Its records are valid only on the boot on which they were made."""
        agent = self.agent(key)
        here = agent is not None and agent.boot == processes.boot_id()
        return leftovers.Tree(
            str(key),
            self._attempts.directory(key),
            agent.pid if here and agent is not None else None,
            self._attempts.tree(key) if here else {},
            self._cgroups.members(key),
        )

    def _look(self, key: AgentKey) -> Observation | None:
        """The phase from the key's files; None if its agent is dead and `/proc` must be scanned."""
        ended, agent = self._ended(key), self.agent(key)
        if ended is not None and not (ended.phase is Phase.ENDED and self._reports(key, agent)):
            return ended
        if agent is None:
            return self._not_begun(key)
        if agent.alive:
            self._watcher.watch(key, agent)
            return Observation(Phase.RUNNING)
        ended = self._ended(key)  # it may have ended between the two checks
        if ended is not None:
            return ended
        if agent.boot == RESTORED:
            return self._gone(key, "the server was restored from a backup since")
        if agent.boot != processes.boot_id():
            return self._gone(key, "the machine was started again since")
        return None

    def _reports(self, key: AgentKey, agent: Identity | None) -> bool:
        """Whether the agent may still be sending its last points: an attempt ends once they are stored."""
        written_s_ago = self._attempts.written_s_ago(key, names.EXIT)
        return agent is not None and written_s_ago is not None and written_s_ago < REPORT_S and agent.alive

    def _ended(self, key: AgentKey) -> Observation | None:
        record = self._attempts.ended(key)
        if record is None:
            return None
        try:
            waited_s = self._attempts.written_s_ago(key, names.EXIT) or 0.0
            outcome, spooled = exits.outcome(record).recorded_later(waited_s), exits.spooled(self._attempts.spool(key))
            # The record does not repeat the rendezvous address, which other nodes of the gang may still need.
            rendezvous = tuple(report for report in spooled if report.get("kind") == "rendezvous")
            reports = (*rendezvous, *exits.reports(record))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return None  # incomplete, so no evidence: the process table decides
        left = len(self.outlived(key))
        if left:
            return Observation(Phase.RUNNING, evidence=f"ended, but {left} of its processes still run")
        return Observation(Phase.ENDED, outcome, reports)

    def _not_begun(self, key: AgentKey) -> Observation | None:
        if self._attempts.is_foreign(key):
            return Observation(Phase.ABSENT, evidence="the directory belongs to another home")
        launched_s_ago = self._attempts.written_s_ago(key, names.LAUNCH)
        if self._watcher.watching(key) or self._attempts.lock_holder(key) is not None:
            return Observation(Phase.UNKNOWN, evidence="its agent is starting")
        if self._attempts.tombstone(key) is not None:
            return None  # it was stopped before its start, or its records were removed
        if launched_s_ago is None:
            return Observation(Phase.ABSENT)
        if launched_s_ago < LAUNCH_S:
            return Observation(Phase.UNKNOWN, evidence="launched just now")
        if self._attempts.was_used(key):
            return None  # an agent has run here, but its record cannot be read
        return Observation(Phase.ABSENT, evidence="launched, but no agent came up")

    def _dead(self, keys: Sequence[AgentKey]) -> dict[AgentKey, Observation]:
        seen: dict[AgentKey, Observation] = {}
        trees = {}
        for key in keys:
            try:
                trees[key] = self.tree(key)
            except (OSError, ValueError) as error:
                seen[key] = _unreadable(error)
        try:
            left = leftovers.find(trees.values())
        except (OSError, ValueError) as error:
            return seen | {key: _unreadable(error) for key in trees}
        for key in trees:
            count = len(left[str(key)])
            try:
                seen[key] = (
                    Observation(Phase.LOST, evidence=f"the agent is gone; {count} of its processes still run")
                    if count
                    else self._gone(key, "the agent is gone; nothing of it runs")
                )
            except (OSError, ValueError) as error:
                seen[key] = _unreadable(error)
        return seen

    def _gone(self, key: AgentKey, evidence: str) -> Observation:
        """The phase of an agent that is gone, with the reports that no server has acknowledged."""
        return Observation(Phase.GONE, reports=exits.spooled(self._attempts.spool(key)), evidence=evidence)


def _unreadable(error: Exception) -> Observation:
    """No evidence either way; a person may have to repair it."""
    return Observation(Phase.UNKNOWN, evidence=f"its files cannot be read: {error}", unreadable=True)
