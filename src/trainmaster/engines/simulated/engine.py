"""An engine in memory under a virtual clock, with the laws of real engines and seeded faults.

Each method first plays the events that were due by `clock.now_s()`. `due_reports` returns reports of agents, delayed and
duplicated by the faults. `next_s` is the time of the next event. `truth.violations` collects states that the control plane
must never cause (two live attempts of a job, a device held twice). The same seed gives the same history.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from trainmaster.engines.simulated.agent import Agent, Start
from trainmaster.engines.simulated.network import Network
from trainmaster.engines.simulated.scripts import (
    Chooser,
    End,
    Faults,
    Script,
    SimulatedCrash,
    always,
    ended_report,
    outcome,
)
from trainmaster.engines.simulated.truth import Truth, full_name
from trainmaster.errors import OperationError
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Outcome
from trainmaster.model.nodes import Node
from trainmaster.ports.clock import Clock
from trainmaster.ports.engine import Capabilities, Observation, Phase, Submission

_LAUNCH_MAX_S = 0.5  # from submit to the start of the ranks
_SIXTY_SECONDS = always(Script())
_NO_FAULTS = Faults()
_ROUNDING = 1e-9  # of a GPU


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
        self.faults = faults
        self._rng = rng
        self._clock = clock
        self._script = script
        self._agents: dict[AgentKey, Agent] = {}
        self._stopped: dict[AgentKey, float] = {}  # tombstones: key -> end of the grace period
        self._seen_ended: set[AgentKey] = set()
        self.network = Network(rng)
        self.truth = Truth(rng)
        self.stored: Callable[[AgentKey, Mapping[str, object]], None] = lambda key, report: None  # before `staged` is sent

    def render(self, submission: Submission) -> str:
        """Only the command."""
        return f"{submission.key}: {submission.job.spec.command}"

    def submit(self, submission: Submission) -> None:
        """Raises: SimulatedCrash if the faults crash control during the call; OperationError if they reject it."""
        self._advance()
        self.truth.asked.add(submission.key)
        refused = self._rng.random() < self.faults.refused
        if refused and self._rng.random() < 0.5:
            raise OperationError("the spawner does not answer", "look at its log")
        crash = self._rng.random() < self.faults.submit_crash
        if crash and self._rng.random() < 0.5:
            raise SimulatedCrash(f"before the submit of {submission.key}")
        if submission.key not in self._agents and submission.key not in self._stopped:
            now_s = self._clock.now_s()
            script = self._script(submission, self._rng)
            starts_s = now_s + self._rng.uniform(0.0, _LAUNCH_MAX_S)
            if self._rng.random() < self.faults.skewed:
                starts_s += self._rng.uniform(0.0, self.faults.late_s)
            agent = Agent(submission, script, starts_s, self._find(submission))
            if self.network.is_lost(agent.node):
                agent.begun, agent.agent_alive = True, False  # the node is lost, so nothing starts
            if self._rng.random() < self.faults.agent_crash:
                agent.dies_s = agent.starts_s + self._rng.uniform(0.0, script.runs_s)
            self._check(agent)
            self._agents[submission.key] = agent
        if crash:
            raise SimulatedCrash(f"after the submit of {submission.key}")
        if refused:
            raise OperationError("the spawner answered too late", "look at its log")

    def _find(self, submission: Submission) -> Start:
        """The conditions of a start: drawn from the faults, else the first checkpoint with a correct digest."""
        key, attempt = submission.key, submission.job.attempt
        resume = attempt.resume if attempt is not None else ()
        if self._rng.random() < self.faults.hangs:
            return Start(hangs=True)
        if self._rng.random() < self.faults.doubts:
            return Start(failed=Outcome(machine_error="the store answered: Input/output error", doubted=resume[:1]))
        bad: list[str] = []
        for ref in resume:
            name = full_name(key.job, ref)
            if not self.truth.damaged(name, key.node_index, self.faults.damaged):
                return Start(ref, self.truth.steps.get(name), tuple(bad))
            bad.append(ref)
        if bad:
            return Start(failed=Outcome(launch_error="no checkpoint has the digest that it was stored with", bad=tuple(bad)))
        return Start()

    def observe(self, keys: Sequence[AgentKey] | None) -> dict[AgentKey, Observation]:
        """The current phases. Partitioned nodes and faulty probes give unknown."""
        self._advance()
        asked = [key for key in self._agents if key not in self._seen_ended] if keys is None else keys
        seen = {key: self._look(key) for key in asked}
        self._seen_ended |= {key for key, what in seen.items() if what.phase in (Phase.ENDED, Phase.GONE)}
        return seen

    def stop(self, key: AgentKey, grace_s: float) -> None:
        """SIGTERM now, SIGKILL at the end of the shortest grace period given."""
        self._advance()
        now_s = self._clock.now_s()
        self._stopped[key] = min(now_s + grace_s, self._stopped.get(key, now_s + grace_s))
        agent = self._agents.get(key)
        if agent is not None and agent.outcome is None:
            agent.term_s = now_s if agent.term_s is None else agent.term_s
            agent.kill_s = self._stopped[key]
            self._advance()

    def clear(self, job: str, kind: str) -> int:
        """Remove nothing: there are no files. Law: directories of running ranks must not be removed."""
        self._advance()
        if kind in ("work", "logs"):
            living = [key for key, agent in self._agents.items() if key.job == job and agent.ranks_alive]
            self.truth.violations += [f"the {kind} of {job} was removed while {key} lives" for key in living]
        return 1

    def logs(self, key: AgentKey) -> str:
        """Always empty."""
        return ""

    def inventory(self) -> list[Node]:
        """All nodes, lost ones included."""
        return list(self.network.nodes)

    def due_reports(self) -> list[tuple[AgentKey, Mapping[str, object]]]:
        """Reports that have arrived since the last call, in order of arrival."""
        self._advance()
        return self.network.deliver(self._clock.now_s())

    def told(self, surely: bool = False) -> list[tuple[AgentKey, Mapping[str, object]]]:
        """The truth: every checkpoint and artifact that an agent reported. `surely`: only those no lost node can have taken."""
        told = [(key, report) for key, agent in self._agents.items() for report in agent.told]
        return [(key, report) for key, report in told if not surely or not self.network.may_have_lost(key, report)]

    def next_s(self) -> float | None:
        """Time of the next event, for a clock that jumps; None if there is none."""
        times = self.network.arrivals_s()
        for agent in self._agents.values():
            if not agent.begun:
                times.append(agent.starts_s)
            elif agent.ranks_alive:
                times.append(agent.end().at_s)
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
        """`kill -9` of the agent; its ranks continue."""
        self._advance()
        self._agents[key].agent_alive = False

    def partition(self, node: str, for_s: float) -> None:
        """Cut the connection to a node for some time; its processes continue."""
        self.network.partition(node, self._clock.now_s() + for_s)

    def reboot(self, node: str) -> None:
        """Restart a node: everything on it is gone, without an exit record."""
        self._advance()
        for agent in self._agents.values():
            if agent.node == node and agent.outcome is None:
                agent.begun, agent.agent_alive, agent.ranks_alive = True, False, False

    def lose(self, node: str) -> None:
        """Lose a node permanently, with all unsent reports; nothing is heard of it until `find`."""
        self.reboot(node)
        self.network.lose(node, {key: agent for key, agent in self._agents.items() if agent.node == node})

    def find(self, node: str) -> None:
        """A lost node is back, with its state of agents."""
        self.network.find(node)

    def _advance(self) -> None:
        """Play the due events in the order in which ranks end, because one end breaks others of its gang."""
        open = {key: agent for key, agent in self._agents.items() if agent.open}
        for key, agent in sorted(open.items(), key=lambda one: one[1].end().at_s):
            self._play(key, agent, self._clock.now_s())

    def _play(self, key: AgentKey, agent: Agent, now_s: float) -> None:
        if not agent.begun and agent.agent_alive and agent.starts_s <= now_s:
            self._begin(key, agent)
        if agent.start.hangs and agent.begun and key in self._stopped and agent.outcome is None and agent.agent_alive:
            self._end(agent, now_s, Outcome())
        if not agent.ranks_alive:
            return
        end = agent.end()
        if agent.dies_s is not None and agent.dies_s <= min(now_s, end.at_s):
            agent.agent_alive = False
        if agent.agent_alive:
            for after_s, report in agent.script.reports[len(agent.told) :]:
                if agent.starts_s + after_s <= min(now_s, end.at_s):
                    agent.told.append(self._send(agent, agent.starts_s + after_s, self._further(key, agent, report)))
        if end.at_s <= now_s:
            agent.ranks_alive = False
            self._break(key, agent, end)
            if agent.agent_alive:
                ran_s, asked = end.at_s - agent.starts_s, agent.term_s is not None
                self._end(agent, end.at_s, outcome(agent.submission, end, ran_s, asked))

    def _further(self, key: AgentKey, agent: Agent, report: Mapping[str, object]) -> Mapping[str, object]:
        """A report with its step shifted by the step of the restored checkpoint."""
        step = report.get("step")
        if report["kind"] != "staged" or not isinstance(step, int):
            return report
        step += agent.start.step or 0
        self.truth.steps[full_name(key.job, str(report["id"]))] = step
        self.stored(key, report)
        return {**report, "step": step}

    def _begin(self, key: AgentKey, agent: Agent) -> None:
        agent.begun = True
        if key in self._stopped:
            agent.agent_alive = False  # it found the tombstone
        elif agent.start.failed is not None:
            self._end(agent, agent.starts_s, agent.start.failed)
        elif not agent.start.hangs:
            agent.ranks_alive = True
            self.truth.starts[key] = self.truth.starts.get(key, 0) + 1
            self._send(agent, agent.starts_s, agent.started)

    def _end(self, agent: Agent, at_s: float, result: Outcome) -> None:
        agent.outcome = result
        self._send(agent, at_s, ended_report(0, result))

    def _break(self, key: AgentKey, agent: Agent, end: End) -> None:
        """A bad end of ranks breaks the others of their gang: these lose their connections and exit with 1."""
        if end.asked or end.exit_code == 0:
            return
        self.truth.ended_badly(key, end)
        for other_key, other in self._agents.items():
            if other is not agent and (other_key.job, other_key.attempt) == (key.job, key.attempt) and other.broken_s is None:
                other.broken_s = end.at_s + self._rng.uniform(0.02, 0.5)

    def _send(self, agent: Agent, at_s: float, report: Mapping[str, object]) -> Mapping[str, object]:
        return self.network.send(agent, at_s, report, self.faults)

    def _look(self, key: AgentKey) -> Observation:
        agent = self._agents.get(key)
        if self._rng.random() < self.faults.unknown:
            return Observation(Phase.UNKNOWN, evidence="the probe timed out")
        if agent is None:
            return Observation(Phase.GONE if key in self._stopped else Phase.ABSENT)
        if self.network.is_silent(agent.node, self._clock.now_s()):
            return Observation(Phase.UNKNOWN, evidence="the node does not answer")
        if agent.outcome is not None:
            started = ({**agent.started, "n": 0},) if agent.outcome.ranks else ()
            return Observation(Phase.ENDED, agent.outcome, (*started, *agent.told))
        if not agent.begun:
            return Observation(Phase.UNKNOWN, evidence="launched just now")
        if agent.agent_alive:
            return Observation(Phase.RUNNING)
        if agent.ranks_alive:
            return Observation(Phase.LOST, evidence="the agent is gone")
        spooled = tuple(report for report in agent.told if self.network.carries(key, report))
        return Observation(Phase.GONE, reports=spooled, evidence="the agent is gone")

    def _check(self, new: Agent) -> None:
        """Laws: a job has one live attempt, and no device is allocated more than once."""
        key = new.submission.key
        mine = self._devices(new)
        left = {device: 1.0 - part for device, part in mine.items()}
        for other_key, other in self._agents.items():
            if not other.ranks_alive and (other.begun or other_key in self._stopped):
                continue
            if other_key.job == key.job and other_key.attempt != key.attempt:
                self.truth.violations.append(f"{key} started while {other_key} lives")
                continue
            held = {device: part for device, part in self._devices(other).items() if device in mine}
            for device, part in held.items():
                left[device] -= part
            if twice := sorted(device for device in held if left[device] < -_ROUNDING):
                self.truth.violations.append(f"{key} was given {twice}, which {other_key} holds")

    def _devices(self, agent: Agent) -> dict[tuple[str, int], float]:
        assert agent.submission.job.attempt is not None
        share = agent.submission.job.attempt.allocation.shares[agent.submission.key.node_index]
        return {(share.node, index): share.held(index) for index in share.devices}
