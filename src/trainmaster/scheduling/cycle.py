"""One decision. `carry` is a cache that may be thrown away: any reachable one gives the plan of an empty one."""

from bisect import insort
from heapq import heapify, heappop, heapreplace

from trainmaster.scheduling.ahead import Kept, choose, earliest
from trainmaster.scheduling.ask import Ask, Shape
from trainmaster.scheduling.carry import Carry
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.explain import kept_back, refusal
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.policy import Policy
from trainmaster.scheduling.preempt import victims
from trainmaster.scheduling.snapshot import Handover, Placement, Plan, Refusal, Reservation, Snapshot
from trainmaster.scheduling.task import Kind, Run, Task

__all__ = ["Carry", "cycle", "ordered"]


def cycle(snapshot: Snapshot, policy: Policy, carry: Carry | None = None) -> tuple[Plan, Carry]:
    """Start what fits in the policy's order, keep room for as many of the rest as it says, and say why they wait."""
    carry = carry or Carry()
    fresh, decision = carry.follow(snapshot, policy), carry.last
    if fresh is None or decision is None or not decision.go_on(snapshot, fresh):
        decision = carry.last = _Decision(snapshot, policy, carry)
        decision.go()
    return decision.plan(), carry


class _Decision:
    """One pass over the queue."""

    def __init__(self, snapshot: Snapshot, policy: Policy, carry: Carry) -> None:
        self.snapshot, self.policy, self.carry = snapshot, policy, carry
        self.space, self.now_s = carry.space, snapshot.now_s
        self.placements: list[Placement] = []
        self.refused: dict[Kind, Refusal] = {}
        self.kept: list[Kept] = []
        self.reservations: list[Reservation] = []
        self.handovers: list[Handover] = []
        self.stopped: set[str] = set()  # of those that run: they make way
        self.freed: dict[int, list[str]] = {}  # nodes that come back, and whose they are until then
        self.able: dict[Shape, int] = {}  # how many nodes can give it, while nothing is taken
        self.depth = policy.depth(snapshot)
        self.ends = carry.ends
        self.weakest: list[tuple[Key, Run]] | None = None
        self.view = policy.study(snapshot, carry.kept)
        self.resting = False  # somebody's back-off is not over
        self.kept_back = False
        self.told_early = False  # who was kept back from something that has been given away since: now it is just not there

    def go_on(self, snapshot: Snapshot, fresh: list[Task]) -> bool:
        """Look only at what has arrived since, where that gives the same as beginning anew; False where it may not.

        It does where the arrivals are last in order, places in it do not change by themselves, and nothing has ended or was
        expected to end: whoever was refused would be refused again, for the same reason.
        """
        policy, order, now_s = self.policy, self.policy.order, snapshot.now_s
        if not policy.steady or policy.preempt is not None or self.resting or self.told_early:
            return False
        if any(one.at_s <= now_s for one in self.kept):
            return False
        view = policy.study(snapshot, self.carry.kept)
        keys = sorted((order(view, task), task.seq) for task in fresh)
        if keys and keys[0] <= self.carry.latest:
            return False
        self.snapshot, self.view, self.now_s, self.ends = snapshot, view, now_s, self.carry.ends
        self.placements, self.refused = [], dict(self.refused)
        for task in sorted(fresh, key=lambda task: (order(view, task), task.seq)):
            if task.not_before_s > now_s:
                self.resting = True
            elif task.kind not in self.refused:
                self._try(task)
        self._remember(keys)
        return True

    def _remember(self, keys: list[tuple[Key, int]]) -> None:
        if keys:
            self.carry.latest = max(self.carry.latest, keys[-1])

    def go(self) -> None:
        """Try the head of each kind's queue, the first in order first; a kind that is refused is not tried again."""
        order, view = self.policy.order, self.view
        self.weakest = self._weakest() if self.policy.preempt is not None else None
        heads = [(order(view, queue[0][2]), queue[0][1], queue, 0) for queue in self.carry.queues.values()]
        if self.policy.steady:
            self._remember(sorted((order(view, queue[-1][2]), queue[-1][1]) for queue in self.carry.queues.values()))
        heapify(heads)
        while heads:
            _, _, queue, at = heads[0]
            task = queue[at][2]
            resting = task.not_before_s > self.now_s
            self.resting = self.resting or resting
            if resting or self._try(task):
                at += 1
                if at < len(queue):
                    heapreplace(heads, (order(view, queue[at][2]), queue[at][1], queue, at))
                    continue
            heappop(heads)

    def _weakest(self) -> list[tuple[Key, Run]]:
        """Those that run, the last in order first."""
        order, view = self.policy.order, self.view
        runs = [run for run in self.carry.runs.values() if not run.stopping]
        keys = [((*order(view, run.at(self.now_s)), run.task.seq), run) for run in runs]
        return sorted(keys, key=lambda one: one[0], reverse=True)

    def _try(self, task: Task) -> bool:
        ask = task.kind.ask
        able = self.able.get(ask.each)
        if able is None:
            able = self.able[ask.each] = self.space.count(ask.each)
        if able < ask.nodes:
            return self._refuse(task, False)
        end_s = FOREVER if task.estimate_s is None else self.now_s + task.estimate_s
        kept = [one for one in self.kept if one.at_s < end_s]
        chosen = choose(self.space, ask, self.policy.place(self.space, ask), kept)
        if chosen is None:
            return self._refuse(task, bool(kept))
        self._spend(kept, chosen, ask)
        grant = self.space.take(ask, chosen)
        self.able.clear()
        for one in {id(one.then): one for one in self.kept}.values():  # the parts of one gang see one space
            one.then.placed(grant, one.at_s >= end_s)
        before = {victim for node in grant.nodes for victim in self.freed.get(node, ())}
        if before:
            self.handovers.append(Handover(task.id, grant, tuple(sorted(before))))
            return True
        self.told_early = self.told_early or self.kept_back
        self.placements.append(Placement(task.id, grant))
        self.carry.expected[task.id] = grant
        if self.depth:
            self.ends = self.ends if self.ends is not self.carry.ends else self.carry.ends.copy()
            insort(self.ends, (end_s, task.seq, Run(task, grant, self.now_s)))
        return True

    def _refuse(self, task: Task, kept: bool) -> bool:
        """It waits, unless others make way for it; whether it starts after all."""
        if self.weakest is not None and self._hand_over(task):
            return True
        ask, busy = task.kind.ask, self.carry.busy
        if kept:
            self.kept_back = True
            self.refused[task.kind] = kept_back(ask)
        else:
            if ask not in busy:
                busy[ask] = refusal(ask, self.snapshot.sites)
            self.refused[task.kind] = busy[ask]
        self._keep(task)
        return False

    def _hand_over(self, task: Task) -> bool:
        """Stop those behind it in order whose nodes it needs, if that is enough to start it."""
        key, may = (*self.policy.order(self.view, task), task.seq), self.policy.preempt
        assert self.weakest is not None
        assert may is not None
        behind = []
        for other, run in self.weakest:
            if other <= key:
                break
            if run.task.id not in self.stopped and may(self.snapshot, run, task):
                behind.append(run)
        ask = task.kind.ask
        chosen = victims(self.space, ask, behind) if behind else None
        if chosen is None:
            return False
        for run in chosen:
            self.stopped.add(run.task.id)
            self.space.give(run.grant)
            for node in run.grant.nodes:
                self.freed.setdefault(node, []).append(run.task.id)
        nodes = choose(self.space, ask, self.policy.place(self.space, ask), ())
        assert nodes is not None, "the gain was tried before"
        before = {run.task.id for run in chosen} | {victim for node in nodes for victim in self.freed.get(node, ())}
        self.handovers.append(Handover(task.id, self.space.take(ask, nodes), tuple(sorted(before))))
        self.able.clear()
        return True

    def _spend(self, kept: list[Kept], chosen: list[int], ask: Ask) -> None:
        for one in kept:
            for index, node in enumerate(chosen):
                one.spare -= one.spoils_on(self.space, node, ask.first if index == 0 else ask.each)

    def _keep(self, task: Task) -> None:
        """A reservation for one that cannot start, as long as the policy wants more."""
        if len(self.reservations) >= self.depth:
            return
        ask = task.kind.ask
        found = earliest(self.space, ask, self.ends, self.now_s)
        if found is not None:
            self.reservations.append(Reservation(task.id, found.at_s))
            self.kept.append(Kept(task.id, ask.each, found.at_s, found.able - ask.nodes, found.then))
            if ask.lead is not None:
                self.kept.append(Kept(task.id, ask.lead, found.at_s, found.led - 1, found.then))

    def plan(self) -> Plan:
        """What was decided. What is to be handed over is not free yet: the space is left as those that run have it."""
        for handover in self.handovers:
            self.space.give(handover.grant)
        for id in self.stopped:
            self.space.hold(self.carry.runs[id].grant)
        placements, handovers, reservations = tuple(self.placements), tuple(self.handovers), tuple(self.reservations)
        return Plan(placements, handovers, reservations, self.refused, self.depth, self.policy.name)


def ordered(snapshot: Snapshot, policy: Policy) -> list[Task]:
    """The waiting jobs as the policy wants them tried."""
    view = policy.study(snapshot, {})
    return sorted(snapshot.waiting.values(), key=lambda task: (policy.order(view, task), task.seq))
