"""The simulated nodes, their connection to the server, and the reports of agents on their way."""

import math
import random
from collections.abc import Mapping

from trainmaster.engines.simulated.agent import Agent
from trainmaster.engines.simulated.scripts import Faults, machines
from trainmaster.model.ids import AgentKey
from trainmaster.model.nodes import Node

Report = Mapping[str, object]


class Network:
    """Carries reports. Partitions hold them back; faults delay and duplicate them. Those of one agent keep their order."""

    def __init__(self, rng: random.Random) -> None:
        self.nodes: tuple[Node, ...] = machines()
        self._rng = rng
        self._silent_until_s: dict[str, float] = {}  # node -> end of its partition
        self._mail: list[tuple[float, int, AgentKey, Report]] = []
        self._numbers = 0
        self._heard: set[tuple[AgentKey, object]] = set()  # numbers of reports that arrived
        self._burned: set[tuple[AgentKey, object]] = set()  # of reports that existed only on a lost node

    def partition(self, node: str, until_s: float) -> None:
        """Cut the connection to a node."""
        self._silent_until_s[node] = max(until_s, self._silent_until_s.get(node, 0.0))

    def lose(self, node: str, agents: Mapping[AgentKey, Agent]) -> None:
        """Lose a node permanently, with the unsent reports of these agents, which are on it."""
        self._mail = [mail for mail in self._mail if mail[2] not in agents]
        for key, agent in agents.items():
            self._burned |= {(key, report["n"]) for report in agent.told} - self._heard
        self._silent_until_s[node] = math.inf

    def find(self, node: str) -> None:
        """A lost node is back."""
        self._silent_until_s.pop(node, None)

    def is_silent(self, node: str, now_s: float) -> bool:
        """Whether nothing is heard of a node."""
        return self._silent_until_s.get(node, 0.0) > now_s

    def is_lost(self, node: str) -> bool:
        """Whether a node is lost."""
        return self._silent_until_s.get(node) == math.inf

    def send(self, agent: Agent, at_s: float, report: Report, faults: Faults) -> Report:
        """Mail a report with its agent's next number; returns the report as sent."""
        agent.sent += 1
        self._numbers += 1
        key, numbered = agent.submission.key, {**report, "n": agent.sent}
        held_s = self._rng.uniform(0.0, faults.late_s) if self._rng.random() < faults.late else 0.0
        agent.arrived_s = max(at_s + held_s, self._silent_until_s.get(agent.node, 0.0), agent.arrived_s)
        self._mail.append((agent.arrived_s, self._numbers, key, numbered))
        if self._rng.random() < faults.duplicate:
            again_s = agent.arrived_s + self._rng.uniform(0.0, faults.late_s)
            self._mail.append((again_s, self._numbers, key, numbered))
        return numbered

    def deliver(self, now_s: float) -> list[tuple[AgentKey, Report]]:
        """Reports that have arrived since the last call, in order of arrival."""
        due = sorted((mail for mail in self._mail if mail[0] <= now_s), key=lambda mail: mail[:2])
        self._mail = [mail for mail in self._mail if mail[0] > now_s]
        self._heard |= {(key, report["n"]) for _, _, key, report in due}
        return [(key, report) for _, _, key, report in due]

    def arrivals_s(self) -> list[float]:
        """When the reports on their way arrive."""
        return [mail[0] for mail in self._mail]

    def carries(self, key: AgentKey, report: Report) -> bool:
        """Whether a report is on its way."""
        return any(mail[2:] == (key, report) for mail in self._mail)

    def may_have_lost(self, key: AgentKey, report: Report) -> bool:
        """Whether a lost node can have taken a report with it."""
        return (key, report["n"]) in self._burned
