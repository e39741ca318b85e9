"""The queue played forward: the same `cycle`, over drawn run times, gives the start of each job.

Nothing arrives meanwhile; nodes stay as they are.
"""

from collections.abc import Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.cycle import cycle, kept
from trainmaster.scheduling.model.jobs import Run
from trainmaster.scheduling.model.request import service_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.model.usage import Account, Accounts, Member, charged
from trainmaster.scheduling.moments import beat_s, moments_of
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.state.cluster import ClusterState

_TURNS = 40  # decisions for each job: one that has not started by then never does


def starts(snapshot: Snapshot, policy: Policy, lives: Mapping[str, float], wanted: Collection[str]) -> dict[str, float]:
    """When each of `wanted` would start, if every job ran from now, or from its start, as long as `lives` says.

    Those that would never start are left out. Times are seconds on the snapshot's clock. The cost is a decision for each end.
    """
    world = _World(snapshot, policy, lives)
    missing, began_s = set(wanted), dict[str, float]()
    for _ in range(_TURNS * (len(snapshot.waiting) + len(snapshot.running) + 1)):
        started = world.decide()
        began_s |= dict.fromkeys(started & missing, world.now_s)
        missing -= started
        if not missing or not world.advance():
            break
    return {id: began_s[id] for id in wanted if id in began_s}


def settled(usage: Accounts, run: Run, now_s: float, rules: Cluster) -> tuple[Member, Account]:
    """The account that an attempt is charged to when it ends, and its new balance."""
    owner = (run.task.kind.project, run.task.kind.member)
    account = usage.get(owner, Account(0.0, now_s))
    return owner, charged(account, service_of(run.grant.ask, rules.cpu_weight), (run.placed_s, now_s), rules.half_life_s)


class _World:
    """The cluster as time goes on from a snapshot."""

    def __init__(self, snapshot: Snapshot, policy: Policy, lives: Mapping[str, float]) -> None:
        self.snapshot, self.policy = snapshot, policy
        self.waiting, self.running = dict(snapshot.waiting), dict(snapshot.running)
        self.promised, self.usage = dict(snapshot.promised), dict(snapshot.usage)
        self.now_s = snapshot.now_s
        self.left_s = {id: lives[id] for id in (*self.waiting, *self.running)}
        self.ends = [(self.now_s + self.left_s[id], run.task.seq, id, run.placed_s) for id, run in self.running.items()]
        self.ends += [moment for run in self.running.values() for moment in self._moments_of(run)]
        heapify(self.ends)
        self.state: ClusterState | None = None

    def decide(self) -> set[str]:
        """One decision, carried out. Returns the jobs that started."""
        now = self.snapshot._replace(
            now_s=self.now_s,
            waiting=self.waiting,
            running=self.running,
            usage=self.usage,
            promised=self.promised,
        )
        self.state = kept(self.state, now, self.policy)
        plan = cycle(now, self.policy, self.state)
        started = self._carry_out(plan)
        return started | self.decide() if any(one.shrunk for one in plan.handovers) else started  # they go on at once

    def _carry_out(self, plan: Plan) -> set[str]:
        for handover in plan.handovers:
            for victim in handover.victims:
                if victim in self.running:
                    self._evict(victim, victim in handover.shrunk)
            self._start(handover.job, handover.grant)
        for placement in plan.placements:
            self._start(placement.job, placement.grant)
        return {one.job for one in plan.handovers} | {one.job for one in plan.placements}

    def advance(self) -> bool:
        """Go to the next moment at which something may change; False: there is none."""
        due = [self.ends[0][0]] if self.ends else []
        due += [turn_s for task in self.waiting.values() for turn_s in task.turns_s if turn_s > self.now_s]
        every_s = beat_s(self.policy)
        if every_s is not None and self.ends:
            due.append(self.now_s + every_s)
        if not due:
            return False
        self.now_s = max(self.now_s, min(due))
        while self.ends and self.ends[0][0] <= self.now_s:
            _, _, id, placed_s = heappop(self.ends)
            run = self.running.get(id)
            if run is not None and run.placed_s == placed_s:  # else it made way before
                self._leave(id, run)
        return True

    def _start(self, id: str, grant: Grant) -> None:
        task = self.waiting.pop(id)
        self.promised.pop(id, None)
        run = self.running[id] = Run(task, grant, self.now_s)
        if self.state is not None:
            self.state.start(run)
        for moment in self._moments_of(run):
            heappush(self.ends, moment)
        heappush(self.ends, (self.now_s + self.left_s[id], task.seq, id, self.now_s))

    def _moments_of(self, run: Run) -> Iterator[tuple[float, int, str, float]]:
        """When time alone changes a decision: in the list of ends, as that of no job."""
        later = (at_s for at_s in moments_of(run, self.policy, self.snapshot.rules) if at_s > self.now_s)
        return ((at_s, -1, "", at_s) for at_s in later)

    def _leave(self, id: str, run: Run) -> None:
        del self.running[id]
        if self.state is not None:
            self.state.end(id)
        owner, account = settled(self.usage, run, self.now_s, self.snapshot.rules)
        self.usage[owner] = account

    def _evict(self, id: str, shrunk: bool) -> None:
        """Return a job to the queue with its remaining run time. If it shrinks, the nodes that it keeps are promised to it."""
        run = self.running[id]
        self._leave(id, run)
        self.left_s[id] = max(0.0, self.left_s[id] - (self.now_s - max(run.placed_s, self.snapshot.now_s)))
        task = run.at(self.now_s)._replace(since_s=run.again_since_s(self.now_s), running=False, keeps=shrunk)
        task = task._replace(shrinks=task.shrinks + 1) if shrunk else task._replace(evictions=task.evictions + 1)
        self.waiting[id] = task
        if shrunk:
            self.promised[id] = run.least
        if self.state is not None:
            self.state.arrive(task)
