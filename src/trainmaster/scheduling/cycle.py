"""One decision. `carry` is a cache that may be thrown away: any reachable one gives the plan of an empty one."""

from bisect import insort
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.carry import Carry, Queue
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.explain import sought
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.policy import Policy, Sharing
from trainmaster.scheduling.pools import Parts
from trainmaster.scheduling.preempt import shrinkable
from trainmaster.scheduling.snapshot import Placement, Plan, Refusal, Snapshot
from trainmaster.scheduling.task import Herd, Kind, Task
from trainmaster.scheduling.trying import Tries
from trainmaster.scheduling.turns import Turns

__all__ = ["Carry", "cycle"]


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
    line = carry.lined_up(snapshot, policy)
    if line is not None:
        return line.plan(snapshot.now_s)
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
        policy, now_s = self.policy, snapshot.now_s
        if policy.steady is None or policy.preempt is not None or self.resting or self.fleeting or self.told_early:
            return False
        if any(one.at_s <= now_s for one in self.reserved.kept) or now_s >= self.carry.turn_s(now_s):
            return False
        if snapshot.promised or not self.tally.idle or self.carry.wide:
            return False
        if policy.taste(snapshot, self.carry.kept) is not self.space.cells.taste:
            return False
        arrived = sorted((policy.steady(task), task.seq, task) for task in fresh)
        if arrived and arrived[0] <= self.carry.latest:
            return False
        self.view, self.snapshot = policy.study(snapshot, self.carry.kept), snapshot
        self.now_s, self.placements = now_s, []
        self.forget_ends()
        self.refused, self.passed = dict(self.refused), dict(self.passed)
        for _, _, task in arrived:
            if task.not_before_s > now_s:
                self.resting = True
            elif task.kind not in self.refused and task.kind not in self.over and not self._passes(task):
                self.attempt(task)
        self.grow()
        return True

    def go(self) -> None:
        """Try the head of each kind's queue, the first in order first; a kind that is refused is not tried again."""
        self._promised()
        if self.policy.sharing is not None:
            self._go_sharing(self.policy.sharing)
            self.grow()
            return
        key: Callable[[Task], Key] = partial(self.policy.order, self.view)
        passing = self.policy.preempt is None
        if self.policy.steady is not None and self.now_s < self.carry.turn_s(self.now_s):
            key = self.policy.steady
            heads = [*chain(*self.carry.owned.values())]
        else:
            heads = sorted((key(queue[0][2]), queue[0][1], queue, 0) for queue in self._hopeful())
        for place, (_, _, queue, at) in enumerate(heads):
            task = queue[at][2]
            if passing and self._passes(task):
                continue
            if self._goes_on(task) and at + 1 < len(queue):
                insort(heads, (key(queue[at + 1][2]), queue[at + 1][1], queue, at + 1), place + 1)
        self.grow()

    def _hopeful(self) -> Iterable[Queue]:
        """The queues to put in order: where no room is kept for anybody, not those of whom it is clear that they do not fit.

        Their place in an order that is costly to find out would come to nothing.
        """
        queues = self.carry.queues.values()
        if self.policy.preempt is not None or not self.reserved.full:
            return queues
        return [queue for queue in queues if not self._passes(queue[0][2])]

    def _go_sharing(self, sharing: Sharing) -> None:
        """The same, owner by owner: after each start they are held against each other anew."""
        turns = Turns(sharing, self.view, self.carry.owned, self.now_s >= self.carry.turn_s(self.now_s))
        while not self._all_pass() and (head := turns.next(self._passes)) is not None:
            task = head[2][head[3]][2]
            if not (self._goes_on(task) and turns.behind(head)):
                self.over.add(task.kind)
        if self._all_pass():
            self._pass_all()

    def _all_pass(self) -> bool:
        """Whether everybody who is left would be passed over: then they are, and nobody is looked at."""
        if self.herds is None or not self.reserved.full or self.promises.settled or self.stage.wide or self.space.closing:
            return False
        while self.herds and self._passes_all(self.herds[-1]):
            self.herds.pop()
        return not self.herds and (self.policy.preempt is None or not self.tally.borrowers)

    def _pass_all(self) -> None:
        """Say of those who have not had a turn why they wait."""
        for herd, queues in (self.carry.herds or {}).items():
            if herd is not None and not self.over.issuperset(queues):
                if herd.ask in self.lost:
                    self.passed[herd.ask] = self.busy(herd.ask)
                else:
                    self.held_back[herd.ask] = self.carry.kept_back(herd.ask)

    def _passes_all(self, herd: Herd | None) -> bool:
        """Whether everybody of them would be passed over from now on, as long as nobody borrows."""
        if herd is None or not (self.policy.preempt is None or self.stage.spares(herd.tier, herd.work)):
            return False
        until_s = self.held_off.get(herd.ask, FOREVER)
        return herd.ask in self.lost or (self.policy.trusts and self.now_s + self.carry.least_s(herd) > until_s)

    def _passes(self, task: Task) -> bool:
        """Whether it need not even be looked at: it does not fit or what is free is kept for others, nobody may be stopped for
        it, no room is kept for more.
        """
        if not self.reserved.full:
            return False
        kind, ask = task.kind, task.kind.ask
        if self.plain and ask in self.passed and kind.plain and task.not_before_s <= self.now_s:
            return True  # the same again: most questions end here
        settled, preempt = self.promises.settled, self.policy.preempt
        lost = ask in self.lost or (ask not in self.held_off and self._too_many(ask))
        if (
            kind.choices is not None
            or (not lost and (ask not in self.held_off or not self.is_held_off(task, ask)))
            or task.not_before_s > self.now_s
            or (kind.wish.prefer is not None and sought(task, self.now_s, self.busy) is not ask)
            or (settled and task.id in settled)
            or self.leaving(task, ask) is not None
            or (preempt is not None and preempt(self.stage, task))
            or shrinkable(self.stage, task)
        ):
            return False
        self.over.add(kind)
        if not lost:
            self.refused[kind], self.kept_back = self.carry.kept_back(ask), True
        elif ask not in self.passed:
            self.passed[ask] = self.busy(ask)
        return True

    def _too_many(self, ask: Ask) -> bool:
        """Whether it asks for more nodes than can give a member's part, where that is all there is to say."""
        if self.space.closing or not self.tally.idle:
            return False
        if self.space.count(ask.each) < ask.nodes:
            self.lost.add(ask)
        return ask in self.lost

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
        name, patient, terms, busy = self.policy.name, self.patient, self.terms, self.carry.busy
        lost, back, refused = dict(self.passed), self.held_back, dict[Kind, Refusal]()
        for kind, found in self.refused.items():  # whether that was found out by trying, by counting or for all of a herd
            ask = kind.ask
            if busy.get(ask) is found:
                lost[ask] = found
            elif self.carry.kept_back(ask) is found:
                back[ask] = found
            else:
                refused[kind] = found
        return Plan(placements, handovers, reservations, refused, self.depth, name, told, broken, back | lost, patient, terms)
