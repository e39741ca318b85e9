"""One decision. `carry` is a cache that may be thrown away: any reachable one gives the plan of an empty one."""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush, heapreplace

from trainmaster.scheduling.carry import Carry, Head
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.order import STILL_S, Key
from trainmaster.scheduling.policy import Policy, Sharing
from trainmaster.scheduling.pools import Parts
from trainmaster.scheduling.snapshot import Placement, Plan, Snapshot
from trainmaster.scheduling.task import Task
from trainmaster.scheduling.trying import Tries

__all__ = ["Carry", "cycle", "ordered"]


def cycle(snapshot: Snapshot, policy: Policy, carry: Carry | None = None) -> tuple[Plan, Carry]:
    """Start what fits in the policy's order, keep room for as many of the rest as it says, and say why they wait."""
    carry = carry or Carry()
    if policy.parts:
        parts = Parts(snapshot, policy)
        for seen, one in parts:
            parts.took(_planned(seen, one, Carry()))
        return parts.whole(), carry
    return _planned(snapshot, policy, carry), carry


def _planned(snapshot: Snapshot, policy: Policy, carry: Carry) -> Plan:
    fresh, decision = carry.follow(snapshot, policy), carry.last
    if fresh is None or not isinstance(decision, _Decision) or not decision.go_on(snapshot, fresh):
        decision = carry.last = _Decision(snapshot, policy, carry)
        decision.go()
    return decision.plan()


class _Decision(Tries):
    """One pass over the queue."""

    def go_on(self, snapshot: Snapshot, fresh: list[Task]) -> bool:
        """Look only at what has arrived since, where that gives the same as beginning anew; False where it may not.

        It does where the arrivals are last in order, places in it do not change by themselves, and nothing has ended or was
        expected to end: whoever was refused would be refused again, for the same reason.
        """
        policy, order, now_s = self.policy, self.policy.order, snapshot.now_s
        if not policy.steady or policy.preempt is not None or self.resting or self.told_early or snapshot.promised:
            return False
        if any(one.at_s <= now_s for one in self.reserved.kept) or not self.tally.idle or now_s >= self.turn_s:
            return False
        if policy.taste(snapshot, self.carry.kept) is not self.space.cells.taste:
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
                self.attempt(task)
        self._remember(keys)
        self.grow()
        return True

    def _remember(self, keys: list[tuple[Key, int]]) -> None:
        if keys:
            self.carry.latest = max(self.carry.latest, keys[-1])

    def go(self) -> None:
        """Try the head of each kind's queue, the first in order first; a kind that is refused is not tried again."""
        self._promised()
        if self.policy.sharing is not None:
            self._go_sharing(self.policy.sharing)
            self.grow()
            return
        order, view = self.policy.order, self.view
        heads = [(order(view, queue[0][2]), queue[0][1], queue, 0) for queue in self.carry.queues.values()]
        if self.policy.steady:
            self.turn_s = min((queue[0][2].since_s for queue in self.carry.queues.values()), default=FOREVER) + STILL_S
            self._remember(sorted((order(view, queue[-1][2]), queue[-1][1]) for queue in self.carry.queues.values()))
        heapify(heads)
        while heads:
            _, _, queue, at = heads[0]
            if self._goes_on(queue[at][2]) and at + 1 < len(queue):
                heapreplace(heads, (order(view, queue[at + 1][2]), queue[at + 1][1], queue, at + 1))
            else:
                heappop(heads)
        self.grow()

    def _go_sharing(self, sharing: Sharing) -> None:
        """The same, owner by owner: after each start they are held against each other anew."""
        view, groups = self.view, self._groups(sharing, sharing.early_s(self.view))
        claims = [(sharing.claim(view, heads[0][2][0][2]), heads[0][1], 0, group) for group, heads in groups.items()]
        heapify(claims)
        while claims:
            _, _, charges, group = claims[0]
            heads = groups[group]
            if not heads:
                heappop(claims)
                continue
            _, seq, queue, at = heads[0]
            task = queue[at][2]
            if charges != self.charges:  # others of its project may have been started meanwhile
                heapreplace(claims, (sharing.claim(view, task), seq, self.charges, group))
                continue
            heappop(heads)
            if task.kind.ask in self.lost and task.kind.choices is None and self._is_lost(task):
                self.passed[task.kind.ask] = self.carry.busy[task.kind.ask]
                continue
            if self._goes_on(task) and at + 1 < len(queue):
                task = queue[at + 1][2]
                other = (task.since_s <= sharing.early_s(view), group[1])
                fresh = other not in groups
                heappush(groups.setdefault(other, []), (sharing.rank(task), task.seq, queue, at + 1))
                if fresh or other != group:
                    heappush(claims, (sharing.claim(view, task), task.seq, self.charges, other))

    def _groups(self, sharing: Sharing, early_s: float) -> dict[tuple[bool, Hashable], list[Head]]:
        """Heads of queues by whose they are, each list a heap; who is there since `early_s` apart from others."""
        groups: dict[tuple[bool, Hashable], list[Head]] = {}
        for owner, heads in self.carry.owned.items():
            if any(head[2][0][2].since_s <= early_s for head in heads):
                for head in heads:
                    groups.setdefault((head[2][0][2].since_s <= early_s, owner), []).append(head)
            elif heads:
                groups[False, owner] = heads.copy()
        return groups

    def _is_lost(self, task: Task) -> bool:
        """Whether it need not even be looked at: it does not fit, nobody may be stopped for it, no room is kept for more."""
        return (
            self.reserved.full
            and task.not_before_s <= self.now_s
            and task.id not in self.promises.settled
            and (self.policy.preempt is None or not self.policy.preempt(self.stage, task))
        )

    def _goes_on(self, task: Task) -> bool:
        """Whether those behind it of its kind are to be tried too: it started, or waits for something of its own."""
        resting = task.not_before_s > self.now_s
        self.resting = self.resting or resting
        return resting or task.id in self.promises.settled or self.attempt(task) or task.id in self.patient

    def _promised(self) -> None:
        """What was handed over comes first: who finds it free starts, what is still to come is taken out."""
        for task, grant in self.promises.begin():
            self.placements.append(Placement(task.id, grant))
        for task in self.promises.settled.values():
            self.charge(task)

    def plan(self) -> Plan:
        """What was decided. What is to be handed over is not free yet: the space is left as those that run have it."""
        kinds = self.snapshot.waiting
        for handover in self.handovers:
            self.space.give(handover.grant)
            self.tally.enter(kinds[handover.job].kind, handover.grant, -1)
        self.promises.end()
        placements, handovers, reservations = tuple(self.placements), tuple(self.handovers), tuple(self.reserved.made)
        told, broken = self.promises.told, tuple(self.promises.broken)
        name, lost, patient = self.policy.name, self.passed, self.patient
        return Plan(placements, handovers, reservations, self.refused, self.depth, name, told, broken, lost, patient)


def ordered(snapshot: Snapshot, policy: Policy) -> list[Task]:
    """The waiting jobs as the policy wants them tried."""
    if policy.parts:
        found = [task for seen, one in Parts(snapshot, policy) for task in ordered(seen, one)]
        return list({task.id: task for task in found}.values())
    view = policy.study(snapshot, {})
    return sorted(snapshot.waiting.values(), key=lambda task: (policy.order(view, task), task.seq))
