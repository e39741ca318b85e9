"""An engine in memory under a virtual clock, with the laws of the real ones and faults by seed.

The world goes on when time does: every verb first plays what was due by `clock.now_s()`. `due_reports` gives what agents
say, late and twice where the faults will it; `next_s` says when something happens next; `violations` collects what no
control plane may ever cause (two live attempts of a job, a device held twice). The same seed gives the same history.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.engines.simulated.scripts import (
    Chooser,
    Faults,
    Script,
    SimulatedCrash,
    always,
    ended_report,
    machines,
    outcome,
)
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Outcome
from trainmaster.model.nodes import Node
from trainmaster.ports.clock import Clock
from trainmaster.ports.engine import Capabilities, Observation, Phase, Submission

_LAUNCH_MAX_S = 0.5  # from submit to the ranks' start
_SIXTY_SECONDS = always(Script())
_NO_FAULTS = Faults()
_ROUNDING = 1e-9  # of a GPU


@dataclass(slots=True)
class _Agent:
    """One agent and its ranks."""

    submission: Submission
    script: Script
    starts_s: float
    dies_s: float | None = None  # of an agent that will crash
    begun: bool = False
    agent_alive: bool = True
    ranks_alive: bool = False
    term_s: float | None = None
    kill_s: float | None = None
    outcome: Outcome | None = None
    told: list[Mapping[str, object]] = field(default_factory=list)  # the script's reports, as they were sent
    sent: int = 0  # number of its last report
    arrived_s: float = 0.0  # when what it said last arrives: one connection, so nothing overtakes

    @property
    def started(self) -> dict[str, object]:
        """What it tells of its start: the best checkpoint that it was given is put back."""
        attempt = self.submission.job.attempt
        restored = attempt.resume[0] if attempt is not None and attempt.resume else None
        return {"kind": "started", "restored": restored, "step": None, "bad": []}

    def end_s(self) -> tuple[float, int | None]:
        """When its ranks end as things stand, and the signal of ours that ends them."""
        ends: list[tuple[float, int | None]] = [(self.starts_s + self.script.runs_s, None)]
        if self.term_s is not None and self.script.term_s is not None:
            ends.append((max(self.term_s, self.starts_s) + self.script.term_s, 15))
        if self.kill_s is not None:
            ends.append((max(self.kill_s, self.starts_s), 9))
        return min(ends, key=lambda end: end[0])


class SimulatedEngine:
    """Implements `trainmaster.ports.engine.Engine` without processes."""

    name = "simulated"
    capabilities = Capabilities(places=True, proves_gone=True, shares_files=True)

    def __init__(
        self,
        rng: random.Random,
        clock: Clock,
        script: Chooser = _SIXTY_SECONDS,
        faults: Faults = _NO_FAULTS,
    ) -> None:
        self.nodes: tuple[Node, ...] = machines()
        self.faults = faults
        self.violations: list[str] = []
        self.starts: dict[AgentKey, int] = {}
        self._rng = rng
        self._clock = clock
        self._script = script
        self._agents: dict[AgentKey, _Agent] = {}
        self._stopped: dict[AgentKey, float] = {}  # tombstones: when the grace is over
        self._seen_ended: set[AgentKey] = set()
        self._silent_until_s: dict[str, float] = {}  # node -> end of its partition
        self._mail: list[tuple[float, int, AgentKey, Mapping[str, object]]] = []
        self._numbers = 0

    def render(self, submission: Submission) -> str:
        """The command alone."""
        return f"{submission.key}: {submission.job.spec.command}"

    def submit(self, submission: Submission) -> None:
        """Raises: SimulatedCrash where the faults say that control dies in it."""
        self._advance()
        crash = self._rng.random() < self.faults.submit_crash
        if crash and self._rng.random() < 0.5:
            raise SimulatedCrash(f"before the submit of {submission.key}")
        if submission.key not in self._agents and submission.key not in self._stopped:
            now_s = self._clock.now_s()
            script = self._script(submission, self._rng)
            agent = _Agent(submission, script, now_s + self._rng.uniform(0.0, _LAUNCH_MAX_S))
            if self._rng.random() < self.faults.agent_crash:
                agent.dies_s = agent.starts_s + self._rng.uniform(0.0, script.runs_s)
            self._check(agent)
            self._agents[submission.key] = agent
        if crash:
            raise SimulatedCrash(f"after the submit of {submission.key}")

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        """Phases as of now; partitioned nodes and faulty probes are unknown."""
        self._advance()
        asked = [key for key in self._agents if key not in self._seen_ended] if keys is None else keys
        seen = {key: self._look(key) for key in asked}
        self._seen_ended |= {key for key, what in seen.items() if what.phase in (Phase.ENDED, Phase.GONE)}
        return seen

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """TERM now, KILL when the earliest grace given is over."""
        self._advance()
        now_s = self._clock.now_s()
        self._stopped[key] = min(now_s + grace_s, self._stopped.get(key, now_s + grace_s))
        agent = self._agents.get(key)
        if agent is not None and agent.outcome is None:
            agent.term_s = now_s if agent.term_s is None else agent.term_s
            agent.kill_s = self._stopped[key]
            self._advance()

    def logs(self, key: AgentKey) -> str:
        """Nothing is said here."""
        return ""

    def inventory(self) -> list[Node]:
        """The nodes as last set."""
        return list(self.nodes)

    def due_reports(self) -> list[tuple[AgentKey, Mapping[str, object]]]:
        """What has arrived from agents since the last call, in order of arrival."""
        self._advance()
        now_s = self._clock.now_s()
        due = sorted((mail for mail in self._mail if mail[0] <= now_s), key=lambda mail: mail[:2])
        self._mail = [mail for mail in self._mail if mail[0] > now_s]
        return [(key, report) for _, _, key, report in due]

    def told(self) -> list[tuple[AgentKey, Mapping[str, object]]]:
        """The truth: every checkpoint and artifact that an agent ever told of."""
        return [(key, report) for key, agent in self._agents.items() for report in agent.told]

    def next_s(self) -> float | None:
        """When something happens next, for a clock that jumps; None when nothing will."""
        times = [mail[0] for mail in self._mail]
        for agent in self._agents.values():
            if not agent.begun:
                times.append(agent.starts_s)
            elif agent.ranks_alive:
                times.append(agent.end_s()[0])
                times.extend(agent.starts_s + after_s for after_s, _ in agent.script.reports[len(agent.told) :])
                if agent.agent_alive and agent.dies_s is not None:
                    times.append(agent.dies_s)
        later = [time_s for time_s in times if time_s > self._clock.now_s()]
        return min(later, default=None)

    def running(self, key: AgentKey) -> bool:
        """The truth: whether ranks of this agent run."""
        self._advance()
        return key in self._agents and self._agents[key].ranks_alive

    def kill_agent(self, key: AgentKey) -> None:
        """`kill -9` of the agent: its ranks live on."""
        self._advance()
        self._agents[key].agent_alive = False

    def partition(self, node: str, for_s: float) -> None:
        """Nothing is heard of a node for so long; what runs there runs on."""
        self._silent_until_s[node] = self._clock.now_s() + for_s

    def reboot(self, node: str) -> None:
        """The node starts anew: everything on it is gone, without a record."""
        self._advance()
        for agent in self._agents.values():
            if self._node(agent) == node and agent.outcome is None:
                agent.begun, agent.agent_alive, agent.ranks_alive = True, False, False

    def _advance(self) -> None:
        for key, agent in self._agents.items():
            self._play(key, agent, self._clock.now_s())

    def _play(self, key: AgentKey, agent: _Agent, now_s: float) -> None:
        if not agent.begun and agent.agent_alive and agent.starts_s <= now_s:
            agent.begun = True
            if key in self._stopped:
                agent.agent_alive = False  # it found the tombstone
                return
            agent.ranks_alive = True
            self.starts[key] = self.starts.get(key, 0) + 1
            self._send(key, agent.starts_s, agent.started)
        if not agent.ranks_alive:
            return
        end_s, killed_by = agent.end_s()
        if agent.dies_s is not None and agent.dies_s <= min(now_s, end_s):
            agent.agent_alive = False
        if agent.agent_alive:
            for after_s, report in agent.script.reports[len(agent.told) :]:
                if agent.starts_s + after_s <= min(now_s, end_s):
                    agent.told.append(self._send(key, agent.starts_s + after_s, report))
        if end_s <= now_s:
            agent.ranks_alive = False
            if agent.agent_alive:
                agent.outcome = outcome(
                    agent.submission, agent.script, end_s - agent.starts_s, killed_by, agent.term_s is not None
                )
                self._send(key, end_s, ended_report(0, agent.outcome))

    def _send(self, key: AgentKey, at_s: float, report: Mapping[str, object]) -> Mapping[str, object]:
        """Put a report into the mail under its agent's next number; returns it as it was sent."""
        agent = self._agents[key]
        agent.sent += 1
        self._numbers += 1
        numbered = {**report, "n": agent.sent}
        held_s = self._rng.uniform(0.0, self.faults.late_s) if self._rng.random() < self.faults.late else 0.0
        agent.arrived_s = max(at_s + held_s, self._silent_until_s.get(self._node(agent), 0.0), agent.arrived_s)
        self._mail.append((agent.arrived_s, self._numbers, key, numbered))
        if self._rng.random() < self.faults.duplicate:
            again_s = agent.arrived_s + self._rng.uniform(0.0, self.faults.late_s)
            self._mail.append((again_s, self._numbers, key, numbered))
        return numbered

    def _look(self, key: AgentKey) -> Observation:
        agent = self._agents.get(key)
        if self._rng.random() < self.faults.unknown:
            return Observation(Phase.UNKNOWN, evidence="the probe timed out")
        if agent is None:
            return Observation(Phase.GONE if key in self._stopped else Phase.ABSENT)
        if self._silent_until_s.get(self._node(agent), 0.0) > self._clock.now_s():
            return Observation(Phase.UNKNOWN, evidence="the node does not answer")
        if agent.outcome is not None:
            return Observation(Phase.ENDED, agent.outcome, ({**agent.started, "n": 0}, *agent.told))
        if not agent.begun:
            return Observation(Phase.UNKNOWN, evidence="launched just now")
        if agent.agent_alive:
            return Observation(Phase.RUNNING)
        if agent.ranks_alive:
            return Observation(Phase.LOST, evidence="the agent is gone")
        spooled = tuple(report for report in agent.told if any(mail[2:] == (key, report) for mail in self._mail))
        return Observation(Phase.GONE, reports=spooled, evidence="the agent is gone")

    def _node(self, agent: _Agent) -> str:
        assert agent.submission.job.attempt is not None
        return agent.submission.job.attempt.allocation.shares[agent.submission.key.node_index].node

    def _check(self, new: _Agent) -> None:
        """Law: one live attempt of a job; of no device is more given than there is of it."""
        key = new.submission.key
        mine = self._devices(new)
        left = {device: 1.0 - part for device, part in mine.items()}
        for other_key, other in self._agents.items():
            if not other.ranks_alive and (other.begun or other_key in self._stopped):
                continue
            if other_key.job == key.job and other_key.attempt != key.attempt:
                self.violations.append(f"{key} started while {other_key} lives")
                continue
            held = {device: part for device, part in self._devices(other).items() if device in mine}
            for device, part in held.items():
                left[device] -= part
            if twice := sorted(device for device in held if left[device] < -_ROUNDING):
                self.violations.append(f"{key} was given {twice}, which {other_key} holds")

    def _devices(self, agent: _Agent) -> dict[tuple[str, int], float]:
        assert agent.submission.job.attempt is not None
        share = agent.submission.job.attempt.allocation.shares[agent.submission.key.node_index]
        return {(share.node, index): share.held(index) for index in share.devices}
