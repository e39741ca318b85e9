"""The production scheduler as a replay uses it: the jobs that it sees, and their service so far."""

from dataclasses import dataclass, field
from heapq import heappush
from math import floor

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.cycle import cycle, kept
from trainmaster.scheduling.model.jobs import Past, Run, Task
from trainmaster.scheduling.model.request import service_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.model.usage import Account, Member, charged
from trainmaster.scheduling.moments import BEAT_S
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.predictor import foresee
from trainmaster.scheduling.state.cluster import ClusterState

ARRIVED, STARTED = "arrived", "started"


@dataclass(slots=True)
class Scheduler:
    """Waiting and running jobs. `over`: the jobs that have ended. `usage`: the charges of ended attempts."""

    waiting: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    promised: dict[str, Grant] = field(default_factory=dict)  # remaining nodes of jobs that were shrunk
    over: list[Past] = field(default_factory=list)
    usage: dict[Member, Account] = field(default_factory=dict)
    news: list[tuple[str, str]] = field(default_factory=list)  # (ARRIVED or STARTED, id), since it was last emptied
    moments: list[float] = field(default_factory=list)  # a heap: when to decide though nothing happens
    _state: ClusterState | None = None

    def snapshot(self, now_s: float, sites: tuple[Site, ...], rules: Cluster) -> Snapshot:
        """What a decision is based on."""
        return Snapshot(now_s, sites, self.waiting, self.running, 0, self.over, rules, self.usage, self.promised)

    def decide(self, snapshot: Snapshot, policy: Policy) -> Plan:
        """Run one cycle."""
        self._state = kept(self._state, snapshot, policy)
        plan = cycle(snapshot, policy, self._state)
        if plan.reservations and self._state is not None:
            self._await_ends(snapshot, policy, self._state)
        return plan

    def _await_ends(self, snapshot: Snapshot, policy: Policy, state: ClusterState) -> None:
        """Decide when the first job runs for longer than expected: then reservations are later, and others fit before them."""
        unknown = [run for run in self.running.values() if run.task.estimate_s is None or not policy.trusts]
        if unknown:
            now_s, foresight = snapshot.now_s, foresee(snapshot, state.learned)
            over_s = now_s + min(foresight.held_s(run.at(now_s)) for run in unknown)
            heappush(self.moments, floor(over_s / BEAT_S + 1.0) * BEAT_S)

    def queue(self, task: Task) -> None:
        """A job arrives, or returns to the queue."""
        self.waiting[task.id] = task
        self.news.append((ARRIVED, task.id))
        if task.kind.wish.prefer_s:
            heappush(self.moments, task.since_s + task.kind.wish.prefer_s)  # it waits no longer for a better place
        if self._state is not None:
            self._state.arrive(task)

    def start(self, id: str, grant: Grant, now_s: float, keeps_work: bool = False) -> Task:
        """A waiting job gets its nodes; returns it as it waited. `keeps_work`: it saves checkpoints from its start."""
        task = self.waiting.pop(id)
        self.promised.pop(id, None)
        run = self.running[id] = Run(task, grant, now_s, saved_s=now_s if keeps_work else None)
        self.news.append((STARTED, id))
        if self._state is not None:
            self._state.start(run)
        return task

    def stop(self, id: str, now_s: float, rules: Cluster) -> Run:
        """A running job gives its nodes back, and its attempt is charged."""
        run = self.running.pop(id)
        if self._state is not None:
            self._state.end(id)
        kind = run.task.kind
        member, rate = (kind.project, kind.member), service_of(run.grant.ask, rules.cpu_weight)
        self.usage[member] = charged(self.usage.get(member, Account()), rate, (run.placed_s, now_s), rules.half_life_s)
        return run
