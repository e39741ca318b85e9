"""One decision. `carry` is a cache that may be thrown away: any reachable one gives the plan of an empty one."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import chain

from trainmaster.scheduling.ahead import Kept
from trainmaster.scheduling.ask import Ask, Shape
from trainmaster.scheduling.carry import Carry
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.explain import patience, refusal, sought
from trainmaster.scheduling.fragmentation import typical
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.places import STRATEGIES, Places, anchors, given, least_fragments, nearest
from trainmaster.scheduling.policy import Policy, Sharing
from trainmaster.scheduling.pools import Parts
from trainmaster.scheduling.predict import Foresight, foresee
from trainmaster.scheduling.preempt import Stage, victims
from trainmaster.scheduling.promise import Promises
from trainmaster.scheduling.quota import closed
from trainmaster.scheduling.snapshot import Handover, Placement, Plan, Refusal, Reservation, Snapshot
from trainmaster.scheduling.task import Kind, Run, Task
from trainmaster.scheduling.timeline import Booking, End, Ends, Walk, earliest, named
from trainmaster.scheduling.turns import Turns

__all__ = ["Carry", "cycle"]

WINDOW_MIN_S = 3600.0  # before a node leaves nothing is begun on it that would probably have to be stopped


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


class _Decision:
    """One pass over the queue."""

    def __init__(self, snapshot: Snapshot, policy: Policy, carry: Carry) -> None:
        self.snapshot, self.policy, self.carry = snapshot, policy, carry
        self.space, self.now_s, self.tally = carry.space, snapshot.now_s, carry.tally
        self.placements: list[Placement] = []
        self.refused: dict[Kind, Refusal] = {}
        self.kept: list[Kept] = []
        self.booked: list[Booking] = []
        self.reservations: list[Reservation] = []
        self.handovers: list[Handover] = []
        self.able: dict[Shape, int] = {}  # how many nodes can give it, while nothing is taken
        self.depth = policy.depth(snapshot)
        self.view = policy.study(snapshot, carry.kept)
        self.foresight = self.view if isinstance(self.view, Foresight) else None
        self.ends: Ends | None = None  # of those that run, as the policy thinks of them: once somebody asks
        self.space.cells.prefer(policy.taste(snapshot, carry.kept))
        self.stage = Stage(snapshot, carry.runs, carry.tally, partial(policy.order, self.view))
        self.promises = Promises(snapshot, carry)
        self.walk: Walk | None = None  # through the ends, as long as the space is the same
        self.begun: list[End] = []  # those that are not among `ends` yet
        self.terms: dict[str, Mapping[str, float]] = {}  # of those that start, where the order is a sum
        self.lost: set[Ask] = set()  # what does not fit any more
        self.passed: dict[Ask, Refusal] = {}  # the same, of jobs that were passed over for it
        self.held_off: dict[Ask, float] = {}  # what fits and is kept for others: for whom would end after that
        self.vain: set[Hashable] = set()  # who has found that it would not help if all made way who may
        self.resting = False  # somebody's back-off is not over
        self.patient: dict[str, Refusal] = {}  # who waits for a better place
        self.kept_back = False
        self.told_early = False  # who was kept back from something that has been given away since: now it is just not there

    def go_on(self, snapshot: Snapshot, fresh: list[Task]) -> bool:
        """Look only at what has arrived since, where that gives the same as beginning anew; False where it may not.

        It does where the arrivals are last in order, places in it do not change by themselves, and nothing has ended or was
        expected to end: whoever was refused would be refused again, for the same reason.
        """
        policy, now_s = self.policy, snapshot.now_s
        if policy.steady is None or policy.preempt is not None or self.resting or self.told_early or snapshot.promised:
            return False
        if any(one.at_s <= now_s for one in self.kept) or not self.tally.idle or now_s >= self.carry.turn_s(now_s):
            return False
        if policy.taste(snapshot, self.carry.kept) is not self.space.cells.taste:
            return False
        arrived = sorted((policy.steady(task), task.seq, task) for task in fresh)
        if arrived and arrived[0] <= self.carry.latest:
            return False
        self.view, self.snapshot = policy.study(snapshot, self.carry.kept), snapshot
        self.now_s, self.ends, self.begun, self.walk, self.placements = now_s, None, [], None, []
        self.refused, self.passed = dict(self.refused), dict(self.passed)
        for _, _, task in arrived:
            if task.not_before_s > now_s:
                self.resting = True
            elif task.kind not in self.refused and not self._passes(task):
                self._try(task)
        return True

    def go(self) -> None:
        """Try the head of each kind's queue, the first in order first; a kind that is refused is not tried again."""
        self._promised()
        if self.policy.sharing is not None:
            self._go_sharing(self.policy.sharing)
            return
        key: Callable[[Task], Key] = partial(self.policy.order, self.view)
        passing = self.policy.preempt is None
        if self.policy.steady is not None and self.now_s < self.carry.turn_s(self.now_s):
            key = self.policy.steady
            heads = [*chain(*self.carry.owned.values())]
        else:
            heads = sorted((key(queue[0][2]), queue[0][1], queue, 0) for queue in self.carry.queues.values())
        for place, (_, _, queue, at) in enumerate(heads):
            task = queue[at][2]
            if passing and self._passes(task):
                continue
            if self._goes_on(task) and at + 1 < len(queue):
                insort(heads, (key(queue[at + 1][2]), queue[at + 1][1], queue, at + 1), place + 1)

    def _go_sharing(self, sharing: Sharing) -> None:
        """The same, owner by owner: after each start they are held against each other anew."""
        turns = Turns(sharing, self.view, self.carry.owned, self.now_s >= self.carry.turn_s(self.now_s))
        while (head := turns.next(self._passes)) is not None:
            if self._goes_on(head[2][head[3]][2]):
                turns.behind(head)

    def _passes(self, task: Task) -> bool:
        """Whether it need not even be looked at: it does not fit or what is free is kept for others, nobody may be stopped for
        it, no room is kept for more.
        """
        ask = task.kind.ask
        lost = ask in self.lost
        if (
            (not lost and not self._is_held_off(task, ask))
            or len(self.reservations) < self.depth
            or task.not_before_s > self.now_s
            or (task.kind.wish.prefer is not None and sought(task, self.now_s, self._busy) is not ask)
            or task.id in self.promises.settled
            or (self.policy.preempt is not None and self.policy.preempt(self.stage, task))
        ):
            return False
        if lost:
            self.passed[ask] = self.carry.busy[ask]
        else:
            self.refused[task.kind], self.kept_back = self.carry.kept_back(ask), True
        return True

    def _is_held_off(self, task: Task, ask: Ask) -> bool:
        """Whether one of the same request has been refused for the sake of those whom this one would harm as well."""
        return ask in self.held_off and self.now_s + self._holds_s(task) > self.held_off[ask]

    def _goes_on(self, task: Task) -> bool:
        """Whether those behind it of its kind are to be tried too: it started, or waits for something of its own."""
        resting = task.not_before_s > self.now_s
        self.resting = self.resting or resting
        return resting or task.id in self.promises.settled or self._try(task) or task.id in self.patient

    def _promised(self) -> None:
        """What was handed over comes first: who finds it free starts, what is still to come is taken out."""
        for task, grant in self.promises.begin():
            self.placements.append(Placement(task.id, grant))
        for task in self.promises.settled.values():
            self._charge(task)

    def _charge(self, task: Task) -> None:
        if self.policy.terms is not None:
            self.terms[task.id] = self.policy.terms(self.view, task)._asdict()
        if self.policy.sharing is not None:
            self.policy.sharing.charge(self.view, task)

    def _try(self, task: Task) -> bool:
        ask, space = sought(task, self.now_s, self._busy), self.space
        end_s = self.now_s + self._holds_s(task)
        space.until_s = self._stays_s(task) if space.closing else 0.0
        if ask in self.lost:
            return self._refuse(task, ask, ())
        if self._is_held_off(task, ask):
            return self._refuse(task, ask, self.kept)
        barrier = self.tally.barrier(task.kind)
        if barrier is not None:
            return self._refuse(task, ask, (), barrier)
        able = None if space.closing else self.able.get(ask.each)
        if able is None:
            able = self.able[ask.each] = space.count(ask.each)
        if able < ask.nodes:
            return self._refuse(task, ask, ())
        kept = [one for one in self.kept if one.at_s < end_s]
        shut = self.tally.shut(task.kind)
        chosen = given(space, ask, self._places(task, shut), kept, task.kind.wish)
        if chosen is None:
            if shut:
                return self._refuse(task, ask, kept, closed(task.kind, shut))
            if kept and given(space, ask, self._places(task, shut), (), task.kind.wish) is None:
                kept = []  # it would not fit either if nothing were kept
            if kept:  # nor will one that harms the same, or more
                self.held_off[ask] = min(max(one.at_s for one in kept), self.held_off.get(ask, FOREVER))
            return self._refuse(task, ask, kept)
        self._start(task, chosen, end_s)
        return True

    def _holds_s(self, task: Task) -> float:
        """How long it will hold its nodes, as far as one thinks."""
        if task.estimate_s is not None and self.policy.trusts:
            return task.estimate_s
        if not self.depth:
            return FOREVER  # nobody is waited for, so nobody asks
        if self.foresight is None:
            self.foresight = foresee(self.snapshot, self.carry.kept)
        self.resting = True  # time alone changes what is foreseen
        return self.foresight.held_s(task)

    def _ends(self) -> Ends:
        """The ends of those that run, and of those that have just been started, as the policy thinks of them."""
        if self.ends is None:
            ends, now_s = self.carry.ends, self.now_s
            said = bisect_left(ends, (FOREVER,)) if self.policy.trusts else 0
            rest = [(now_s + self._holds_s(run.at(now_s)), seq, run) for _, seq, run in ends[said:]]
            self.ends = sorted([*ends[:said], *rest]) if rest else ends
        if self.begun:
            self.ends, self.begun = sorted([*self.ends, *self.begun]), []
        return self.ends

    def _stays_s(self, task: Task) -> float:
        """Until when its nodes must stay: who may be stopped and says no time goes on elsewhere when its nodes leave."""
        if task.estimate_s is not None:
            return self.now_s + task.estimate_s
        return self.now_s + WINDOW_MIN_S if self.snapshot.rules.work(task.kind.work).preemptible else FOREVER

    def _busy(self, ask: Ask) -> Refusal:
        busy = self.carry.busy
        if ask not in busy:
            busy[ask] = refusal(ask, self.carry.groups)
        return busy[ask]

    def _places(self, task: Task, shut: frozenset[str]) -> Places:
        """Nodes that it may be given, the best first: none with GPUs of a kind that is shut."""
        ask, wish, place = task.kind.ask, task.kind.wish, self.policy.place
        if wish.strategy is not None:
            taste = typical(self.snapshot, self.carry.kept) if wish.strategy not in STRATEGIES else None
            place = STRATEGIES[wish.strategy] if taste is None else least_fragments(taste)
        found, values = place(self.space, ask), self.space.cells.values
        if wish.near is not None or wish.group is not None:
            new = (Run(self.snapshot.waiting[one.job], one.grant, self.now_s) for one in self.placements)
            found = nearest(self.space, found, anchors(self.space, task, chain(self.carry.runs.values(), new)))
        return found if not shut else [one for one in found if shut.isdisjoint(values[one[0]].kinds)]

    def _start(self, task: Task, chosen: list[int], end_s: float, stopped: Sequence[Run] = ()) -> None:
        """Take what was chosen: for a start now, or, where others still have part of it, for one when they are gone."""
        ask, space = task.kind.ask, self.space
        self._spend([one for one in self.kept if one.at_s < end_s], chosen, ask)
        grant = space.take(ask, chosen)
        self.able.clear()
        self.walk = None
        self._charge(task)
        for one in {id(one.then): one for one in self.kept}.values():  # the parts of one gang see one space
            one.then.placed(grant, one.at_s >= end_s)
        before = self.promises.before(task, grant) | {run.task.id for run in stopped}
        if before:
            self.tally.enter(task.kind, grant)
            self.handovers.append(Handover(task.id, grant, tuple(sorted(before))))
        else:
            self.told_early = self.told_early or self.kept_back
            self.placements.append(Placement(task.id, grant))
            self.carry.take(task, grant)
        if len(self.reservations) < self.depth:
            self.begun.append((end_s, task.seq, Run(task, grant, self.now_s)))

    def _refuse(self, task: Task, ask: Ask, kept: Sequence[Kept], barrier: Refusal | None = None) -> bool:
        """It waits, unless others make way for it; whether it starts after all."""
        if self.policy.preempt is not None and self._hand_over(task, ask, kept):
            return True
        if barrier is not None:
            found = barrier
        elif kept:
            self.kept_back = True
            found = self.carry.kept_back(ask)
        else:
            if not self.space.closing:  # else it may do for one that takes less long
                self.lost.add(ask)
            found = self._busy(ask)
        if ask is task.kind.ask:
            self.refused[task.kind] = found
        else:
            self.patient[task.id] = found if barrier is not None else patience(found, task.kind.wish)
            self.resting = True  # time alone changes that
        if barrier is None and found.kind != "impossible":
            self._keep(task, ask)
        return False

    def _hand_over(self, task: Task, ask: Ask, kept: Sequence[Kept]) -> bool:
        """Stop those who may be stopped for it and whose nodes it needs, if that is enough to start it."""
        assert self.policy.preempt is not None
        candidates = self.policy.preempt(self.stage, task)
        if not candidates:
            return False
        vain = (ask, task.kind.tier, task.kind.project, task.kind.member, len(candidates))
        chosen = victims(self.space, task, ask, candidates, self.tally) if vain not in self.vain else None
        if chosen is None:
            self.vain.add(vain)  # nor for those behind it: what is free only becomes less
            return False
        self.walk = None
        for run in chosen:
            self.promises.let_go(run)
        nodes = given(self.space, ask, self._places(task, self.tally.shut(task.kind)), kept, task.kind.wish)
        if nodes is None:  # what comes back is kept for one ahead of it
            for run in chosen:
                self.promises.keep(run)
            return False
        self.lost.clear()
        self.held_off.clear()
        self.stage.stopped.update(run.task.id for run in chosen)
        self._start(task, nodes, self.now_s + self._holds_s(task), chosen)
        return True

    def _spend(self, kept: list[Kept], chosen: list[int], ask: Ask) -> None:
        for one in kept:
            for index, node in enumerate(chosen):
                one.spare -= one.spoils_on(self.space, node, ask.first if index == 0 else ask.each)

    def _keep(self, task: Task, ask: Ask) -> None:
        """A reservation for one that cannot start, as long as the policy wants more."""
        if len(self.reservations) >= self.depth:
            return
        if self.walk is None:
            self.walk = Walk(self.space, self._ends(), self.depth == 1)
        walk, booked, patient_s = self.walk, self.booked, task.since_s + task.kind.wish.prefer_s
        found = earliest(walk, ask, self.now_s, booked)
        if ask is not task.kind.ask and (found is None or found.at_s > patient_s):  # it will have given up waiting by then
            ask = task.kind.ask
            found = earliest(walk, ask, self.now_s, booked)
            found = None if found is None else found._replace(at_s=max(found.at_s, patient_s))
        if found is None:
            return
        nodes = named(self.space, ask, found, booked) if self.depth > 1 or ask.within is not None else None
        if nodes is not None:
            self.booked.append(Booking(found.at_s + self._holds_s(task), nodes))
        self.reservations.append(Reservation(task.id, found.at_s))
        spare = (0, 0) if nodes is not None else (found.able - ask.nodes, found.led - 1)
        self.kept.append(Kept(task.id, ask.each, found.at_s, spare[0], found.then, nodes))
        if ask.lead is not None:
            self.kept.append(Kept(task.id, ask.lead, found.at_s, spare[1], found.then, nodes))

    def plan(self) -> Plan:
        """What was decided. What is to be handed over is not free yet: the space is left as those that run have it."""
        kinds = self.snapshot.waiting
        for handover in self.handovers:
            self.space.give(handover.grant)
            self.tally.enter(kinds[handover.job].kind, handover.grant, -1)
        self.promises.end()
        placements, handovers, reservations = tuple(self.placements), tuple(self.handovers), tuple(self.reservations)
        told, broken = self.promises.told, tuple(self.promises.broken)
        name, lost, patient = self.policy.name, self.passed, self.patient
        terms = self.terms
        return Plan(placements, handovers, reservations, self.refused, self.depth, name, told, broken, lost, patient, terms)
