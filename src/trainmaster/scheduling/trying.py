"""Trying one job after the other within a decision: who starts where, who makes way, for whom room is kept, and who waits why.

In which order they are tried is the cycle's to say.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from trainmaster.scheduling.admission.feasible import joined
from trainmaster.scheduling.admission.quota import closed
from trainmaster.scheduling.fitting import Fitting, Waits
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Kind, Run, Task, alone
from trainmaster.scheduling.model.request import Ask, ask_of
from trainmaster.scheduling.model.snapshot import Handover, Placement, Plan, Refusal, Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.outlook import Outlook
from trainmaster.scheduling.placement.choices import cheapest, patience, sooner, sought
from trainmaster.scheduling.placement.fragmentation import typical
from trainmaster.scheduling.placement.strategies import STRATEGIES, Places, anchors, given, least_fragments, nearest
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.predictor import Foresight
from trainmaster.scheduling.preemption.handover import Promises
from trainmaster.scheduling.preemption.victims import Stage, shrinkable, victims
from trainmaster.scheduling.reservation.backfill import Kept
from trainmaster.scheduling.reservation.reserved import Option, Reserved, Times
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.state.queue import Line

STRICT_S = 3 * 86_400.0  # of a wait; from then on only who is sure to be gone in time starts beside it

_CLAIMLESS = frozenset(("impossible", "quota", "window"))  # who is refused for that would not start on what is free


class _Missed(NamedTuple):
    """A choice that cannot be had now: the job as if that were all it asks for, and what is in its way."""

    task: Task
    option: Option
    kept: Sequence[Kept]
    barrier: Refusal | None


class Tries:
    """What one decision has come to so far."""

    def __init__(self, snapshot: Snapshot, policy: Policy, state: ClusterState) -> None:
        self.snapshot, self.policy, self.state = snapshot, policy, state
        self.space, self.now_s, self.tally = state.space, snapshot.now_s, state.tally
        self.placements: list[Placement] = []
        self.refused: dict[Kind, Refusal] = {}
        self.handovers: list[Handover] = []
        self.depth = policy.depth(snapshot)
        self.reserved = Reserved(state.space, self.depth)
        self.view = policy.study(snapshot, state.learned)
        foresight = self.view if isinstance(self.view, Foresight) else None
        self.outlook = Outlook(snapshot, state, (policy.trusts, self.depth), foresight)
        self.space.cells.prefer(policy.taste(snapshot, state.learned))
        self.stage = Stage(snapshot, state, self.view)
        self.promises = Promises(snapshot, state)
        self.fitting = Fitting(snapshot, state, self.reserved)
        self.terms: dict[str, Mapping[str, float]] = {}  # of those that start, where the order is a sum
        self.vain: set[Hashable] = set()  # who has found that it would not help if all made way who may
        self.patient: dict[str, Refusal] = {}  # who waits for a better place
        self.curious = True  # everybody is looked at: by windows, promises or elastic jobs one may wait for reasons of its own

    def keep_promises(self) -> None:
        """What was handed over comes first: who finds it free starts, what is still to come is taken out."""
        for task, grant in self.promises.begin():
            self.placements.append(Placement(task.id, grant))
        for task in self.promises.settled.values():
            self.charge(task)
        self.curious = bool(self.promises.settled or self.state.running.wide) or self.space.closing

    def worth(self, task: Task, line: Line) -> bool:
        """Whether to look at a job: room may be kept for it, it may fit, others may make way, or it has reasons of its own."""
        if not self.reserved.full or self.curious or task.not_before_s > self.now_s:
            return True
        if self.fitting.may(task, line, self.outlook.holds_s):
            return True
        preempt = self.policy.preempt
        return preempt is not None and preempt.may_help(self.stage, task, line.request)

    def only_it(self, task: Task) -> bool:
        """Whether those behind it of its kind are to be tried though it does not start: it waits for something of its own."""
        return task.not_before_s > self.now_s or task.id in self.promises.settled or task.id in self.patient

    def charge(self, task: Task) -> None:
        """It is given what it asks for: whose share it is of has so much less to expect."""
        if self.policy.terms is not None:
            self.terms[task.id] = self.policy.terms(self.view, task)
        if self.policy.sharing is not None:
            self.policy.sharing.charge(self.view, task)

    def attempt(self, task: Task) -> bool:
        """Start it, or say why it waits; whether it starts."""
        if task.not_before_s > self.now_s or task.id in self.promises.settled:
            return False
        if task.kind.choices is not None:
            return self._try_any(task)
        ask, end_s = sought(task, self.now_s, self.state.inventory.busy), self.now_s + self.outlook.holds_s(task)
        nodes, kept, barrier = self._look(task, ask, end_s)
        if nodes is not None:
            self._start(task, nodes, end_s)
            return True
        return self._refuse(task, ask, kept, barrier)

    def _look(self, task: Task, ask: Ask, end_s: float) -> tuple[list[int] | None, Sequence[Kept], Refusal | None]:
        """Nodes for it; where there are none, the reservations that it would spoil, or the quota or window in its way."""
        space, fitting = self.space, self.fitting
        space.until_s = self.outlook.stays_s(task) if space.closing else 0.0
        if ask in fitting.lost:
            return None, (), None
        leaving = self.leaving(task, ask)
        if leaving is not None:
            return None, (), leaving
        if end_s > fitting.held_off.get(ask, FOREVER):
            return None, self.reserved.kept, None
        barrier = self.tally.barrier(task.kind)
        if barrier is not None:
            return None, (), barrier
        if space.count(ask.each) < ask.nodes:
            return None, (), None
        kept = [one for one in self.reserved.kept if one.at_s < end_s]
        shut = self.tally.shut(task.kind)
        chosen = given(space, ask, self._places(task, shut), kept, task.kind.wish)
        if chosen is not None:
            return chosen, kept, None
        if shut:
            return None, kept, closed(task.kind, shut)
        if kept and given(space, ask, self._places(task, shut), (), task.kind.wish) is None:
            kept = []  # it would not fit either if nothing were kept
        if kept:  # nor will one that harms the same, or more
            fitting.hold_off(ask, max(one.at_s for one in kept))
        return None, kept, None

    def _try_any(self, task: Task) -> bool:
        """One that leaves a choice: each is tried as if it were all that it asks for, the best first."""
        holds_s, kind, market = self.outlook.holds_s(task), task.kind, self.state.inventory.market
        market.ended = self.snapshot.ended
        ways = market.ways(kind)
        picky = len(ways) > 1 and kind.choices is not None and kind.choices.by_cost
        picky = picky and self.now_s < task.since_s + kind.wish.prefer_s
        missed: list[_Missed] = []
        for way in ways[: 1 if picky else None]:
            one, run_s = task._replace(kind=way.kind), way.run_s(task, holds_s)
            ask = sought(one, self.now_s, self.state.inventory.busy)
            nodes, kept, barrier = self._look(one, ask, self.now_s + holds_s)
            if nodes is None:
                missed.append(_Missed(one, Option(ask, run_s), kept, barrier))
            elif not self._ends_sooner(one, missed, run_s):
                self._start(one, nodes, self.now_s + holds_s)
                return True
            else:
                return False
        if any(not picky and self._shrink(one.task, one.option.ask, one.kept) for one in missed):
            return True
        if self.policy.preempt is not None and any(self._hand_over(one.task, one.option.ask, one.kept) for one in missed):
            return True
        told = [(one.option.ask, self._reason(one.option.ask, one.kept, one.barrier)) for one in missed]
        found = joined(told)
        early = any(self.leaving(one.task, one.option.ask) is not None for one in missed)  # nobody else of its kind, maybe
        if early and not picky and all(one.option.ask is one.task.kind.ask for one in missed):
            self.patient[task.id] = found
        elif picky or any(one.option.ask is not one.task.kind.ask for one in missed):
            self.patient[task.id] = cheapest(found, kind.wish) if picky else patience(found, kind)
        else:
            self.refused[kind] = found
        hoped = zip(missed, told, strict=True)
        wanted = [one.option for one, (_, why) in hoped if one.barrier is None and why.kind != "impossible"]
        if wanted:
            anyhow = [Option(way.kind.ask, way.run_s(task, holds_s)) for way in ways] if task.id in self.patient else wanted
            self._keep(task, wanted, anyhow)
        return False

    def _ends_sooner(self, task: Task, missed: Sequence["_Missed"], run_s: float) -> bool:
        """Whether it waits for one of the choices that it `missed`, and has room kept there, though it fits with this one."""
        whole = self.snapshot.waiting[task.id].kind.choices
        if not missed or whole is None or whole.by_cost or self.reserved.full:
            return False
        hoped = [one.option for one in missed if one.barrier is None]
        times = Times(self.now_s, self.outlook.need(task).least_s)
        found = self.reserved.soonest(hoped, self.outlook.walk(self.promises), times)
        if found is None or found[1].at_s <= self.now_s or found[1].at_s + found[0].run_s >= self.now_s + run_s:
            return False
        self.patient[task.id] = sooner(found[0].ask, task.kind.ask)
        self.reserved.keep(task.id, found[0].ask, found[1], self.outlook.holds_s(task))
        return True

    def grow(self) -> None:
        """Who leaves it open how many nodes it gets takes more, in the order of the starts, if nobody who waits has a claim."""
        tasks = {one.job: self.snapshot.waiting[one.job] for one in self.placements}
        elastic = [id for id, task in tasks.items() if task.kind.choices is not None and task.kind.choices.most]
        if not elastic or self.handovers or self.promises.told or self._claimed(tasks):
            return  # what is on its way to others is not there to be taken
        for at, one in enumerate(self.placements):
            choices = tasks[one.job].kind.choices
            if choices is not None and choices.most > one.grant.ask.nodes:
                self.placements[at] = Placement(one.job, self._grown(tasks[one.job], one.grant, choices.most))

    def _claimed(self, started: Mapping[str, Task]) -> bool:
        """Whether somebody waits who might start on what is free."""
        plan = self.plan_of(self.fitting.waits())
        left = (task for id, task in self.snapshot.waiting.items() if id not in started)
        return any(plan.reason(task, self.now_s).kind not in _CLAIMLESS for task in left)

    def _grown(self, task: Task, grant: Grant, most: int) -> Grant:
        """As many nodes more as there are and quotas allow, in the domain in which it is if it must stay there."""
        ask, space, found = grant.ask, self.space, grant
        space.until_s = self.outlook.stays_s(task) if space.closing else 0.0
        places = self._places(task._replace(kind=alone(task.kind, ask)), frozenset())
        able = [node for _, nodes in places for node in nodes if node not in grant.nodes]
        if ask.within is not None:
            of = space.domains(ask.within)[0]
            able = [node for node in able if of[node] == of[grant.nodes[0]]]
        self.tally.enter(task.kind, grant, -1)
        for count in range(min(most - ask.nodes, len(able)), 0, -1):
            more = space.take(ask_of(count, ask.each), able[:count])
            larger = ask_of(ask.nodes + count, ask.each, ask.lead, ask.within)
            found = Grant(larger, grant.nodes + more.nodes, grant.devices + more.devices)
            if self.tally.barrier(task.kind, found) is None:
                break
            space.give(more)
            found = grant
        self.state.plan(task, found)
        return found

    def leaving(self, task: Task, ask: Ask) -> Refusal | None:
        """Why windows keep it from starting on nodes that are empty; None: they do not."""
        if not self.space.closing:
            return None
        patient = ask not in task.kind.asks
        return self.state.inventory.staying.refusal(ask, self.outlook.need(task), self.now_s, patient=patient)

    def _places(self, task: Task, shut: frozenset[str]) -> Places:
        """Nodes that it may be given, the best first: none with GPUs of a kind that is shut."""
        ask, wish, place = task.kind.ask, task.kind.wish, self.policy.place
        if wish.strategy is not None:
            taste = typical(self.snapshot, self.state.learned) if wish.strategy not in STRATEGIES else None
            place = STRATEGIES[wish.strategy] if taste is None else least_fragments(taste)
        found, values = place(self.space, ask), self.space.cells.values
        if wish.near is not None or wish.group is not None:
            new = (Run(self.snapshot.waiting[one.job], one.grant, self.now_s) for one in self.placements)
            found = nearest(self.space, found, anchors(self.space, task, chain(self.state.running.all, new)))
        return found if not shut else [one for one in found if shut.isdisjoint(values[one[0]].kinds)]

    def _start(self, task: Task, chosen: list[int], end_s: float, stopped: Sequence[Run] = ()) -> None:
        """Take what was chosen: for a start now, or, where others still have part of it, for one when they are gone."""
        ask, space = task.kind.ask, self.space
        self.reserved.spend(chosen, ask, end_s)
        grant = space.take(ask, chosen)
        self.outlook.moved()
        self.charge(task)
        self.reserved.placed(grant, end_s)
        before = self.promises.before(task, grant) | {run.task.id for run in stopped}
        if before:
            self.tally.enter(task.kind, grant)
            self.handovers.append(Handover(task.id, grant, tuple(sorted(before)), self.promises.shrunk(before)))
        else:
            self.placements.append(Placement(task.id, grant))
            self.state.plan(self.snapshot.waiting[task.id], grant)
        if not self.reserved.full:
            self.outlook.begins(task, grant, end_s)

    def _refuse(self, task: Task, ask: Ask, kept: Sequence[Kept], barrier: Refusal | None = None) -> bool:
        """It waits, unless others make way for it; whether it starts after all."""
        if self._shrink(task, ask, kept) or (self.policy.preempt is not None and self._hand_over(task, ask, kept)):
            return True
        found = self._reason(ask, kept, barrier)
        if ask is task.kind.ask and barrier is not None and barrier is self.leaving(task, ask):
            self.patient[task.id] = found  # another of its kind may have less to do
        elif ask is task.kind.ask:
            self.refused[task.kind] = found
        else:
            waits = barrier is None or barrier.kind == "window"
            self.patient[task.id] = patience(found, task.kind) if waits else found
        if barrier is None and not self.reserved.full and found.kind != "impossible":
            wanted = (Option(ask),)
            self._keep(task, wanted, wanted if ask is task.kind.ask else (Option(task.kind.ask),))
        return False

    def _reason(self, ask: Ask, kept: Sequence[Kept], barrier: Refusal | None) -> Refusal:
        if barrier is not None:
            return barrier
        if kept:
            return self.state.inventory.kept_back(ask)
        if not self.space.closing:  # else it may do for one that takes less long
            self.fitting.missed(ask)
        return self.state.inventory.busy(ask)

    def _shrink(self, task: Task, ask: Ask, kept: Sequence[Kept]) -> bool:
        """Have those give back what they have beyond their least who may be told to, if that is enough to start it.

        Not for one that waits for a better place by its own wish.
        """
        return ask is task.kind.ask and self._take_back(task, ask, kept, shrinkable(self.stage, task))

    def _hand_over(self, task: Task, ask: Ask, kept: Sequence[Kept]) -> bool:
        """Stop those who may be stopped for it and whose nodes it needs, if that is enough to start it."""
        preempt = self.policy.preempt
        assert preempt is not None
        candidates = preempt.candidates(self.stage, task)
        if self._take_back(task, ask, kept, candidates):
            return True
        if candidates:
            preempt.in_vain(self.stage, task)
        return False

    def _take_back(self, task: Task, ask: Ask, kept: Sequence[Kept], candidates: Sequence[Run]) -> bool:
        if not candidates:
            return False
        whole = not candidates[0].shrinking
        kind = task.kind
        vain = (ask, whole, kind.tier, kind.work, kind.project, kind.member, len(candidates), self.space.until_s)
        chosen = victims(self.space, task, ask, candidates, self.tally) if vain not in self.vain else None
        if chosen is None:
            self.vain.add(vain)  # nor for those behind it: what is free only becomes less
            return False
        self.outlook.moved()
        self.promises.let_go(chosen)
        nodes = given(self.space, ask, self._places(task, self.tally.shut(task.kind)), kept, task.kind.wish)
        if nodes is None:  # what comes back is kept for one ahead of it
            self.promises.keep(chosen)
            return False
        self.stage.stop(chosen)
        self._start(task, nodes, self.now_s + self.outlook.holds_s(task), chosen)
        self.fitting.freed()
        return True

    def _keep(self, task: Task, wanted: Sequence[Option], anyhow: Sequence[Option]) -> None:
        """A reservation for one that cannot start, as long as the policy wants more; `anyhow` are what it takes in the end."""
        if self.reserved.full:
            return
        walk, soonest = self.outlook.walk(self.promises), self.reserved.soonest
        times = Times(self.now_s, self.outlook.need(task).least_s)
        patient_s = task.since_s + task.kind.wish.prefer_s
        found = soonest(wanted, walk, times)
        if anyhow is not wanted and (found is None or found[1].at_s > patient_s):  # it will have given up waiting by then
            found = soonest(anyhow, walk, times._replace(from_s=patient_s))
        if found is not None:
            self.reserved.keep(task.id, found[0].ask, found[1], self.outlook.holds_s(task))
            self.outlook.strict = self.outlook.strict or self.now_s - task.since_s >= STRICT_S

    def plan(self) -> Plan:
        """What was decided. What is to be handed over is not free yet: the space is left as those that run have it."""
        rest = self.fitting.waits()
        for handover in self.handovers:
            self.space.give(handover.grant)
            self.tally.enter(self.snapshot.waiting[handover.job].kind, handover.grant, -1)
        self.promises.end()
        return self.plan_of(rest)

    def plan_of(self, rest: Waits) -> Plan:
        """All of it as one plan."""
        placements, handovers, made = tuple(self.placements), tuple(self.handovers), tuple(self.reserved.made)
        told, broken = self.promises.told, tuple(self.promises.broken)
        return Plan(
            placements, handovers, made, self.refused, self.depth, self.policy.name,
            told, broken, rest, self.patient, self.terms,
        )  # fmt: skip
