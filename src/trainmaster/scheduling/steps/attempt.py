"""One job's turn: it starts, or it preempts others, or it waits for a reason and may get a reservation.

A job with several choices is tried with each of them as if it asked for nothing else, the best choice first.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.scheduling.admission.feasible import joined
from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.placement.choices import Way, cheapest, patience, sooner, sought
from trainmaster.scheduling.reservation.reserved import Option
from trainmaster.scheduling.steps.decision import Decision
from trainmaster.scheduling.steps.make_way import hand_over, shrink
from trainmaster.scheduling.steps.place import Obstacle, find, leaving
from trainmaster.scheduling.steps.reserve import keep, keep_sooner
from trainmaster.scheduling.steps.start import start


class _Missed(NamedTuple):
    """A choice that does not fit now: the job as if it asked for that alone, its request, and the obstacle."""

    way: Way
    task: Task
    ask: Ask
    obstacle: Obstacle

    @property
    def never(self) -> bool:
        """Whether a quota rules it out for good."""
        return self.obstacle.barrier is not None and self.obstacle.barrier.cause is Reason.IMPOSSIBLE

    def option(self, holds_s: float) -> Option:
        """The choice for a reservation; `holds_s` is the run time with the slowest choice."""
        return Option(self.ask, self.way.run_s(self.task, holds_s))


def attempt(decision: Decision, task: Task) -> bool:
    """Try to start a job; whether it starts, now or when its victims have exited."""
    now_s = decision.snapshot.now_s
    if task.not_before_s > now_s or task.id in decision.promises.settled:
        return False
    holds_s, why_busy = decision.outlook.holds_s(task), decision.state.inventory.busy
    ways, picky = _ways(decision, task)
    missed: list[_Missed] = []
    for way in ways:
        if picky and any(not one.never for one in missed):
            break
        one = way.of(task)
        ask = sought(one, now_s, why_busy)
        found = find(decision, one, ask, now_s + holds_s)
        if isinstance(found, Obstacle):
            missed.append(_Missed(way, one, ask, found))
            continue
        if missed and _waits_for_better(decision, task, missed, Option(ask, way.run_s(one, holds_s))):
            return False
        start(decision, one, found, now_s + holds_s)
        return True
    picky = picky and not all(one.never for one in missed)
    if _others_make_way(decision, missed, picky):
        return True
    on_demand = task.kind.plain and task.kind.ask.within is None and not decision.state.space.closing
    if not on_demand or missed[0].obstacle.barrier is not None:
        _refuse(decision, task, missed, picky)  # else `Reasons` finds it
    if not decision.reserved.full:
        able = (one for one in missed if one.obstacle.barrier is None and why_busy(one.ask).cause is not Reason.IMPOSSIBLE)
        wanted = [one.option(holds_s) for one in able]
        keep(decision, task, wanted, _anyhow(decision, task, ways) if task.id in decision.draft.patient else wanted)
    return False


def waits_alone(decision: Decision, task: Task) -> bool:
    """Whether a job that did not start waits for a reason of its own, so that other jobs of its kind may still start."""
    own = task.id in decision.promises.settled or task.id in decision.draft.patient
    return own or task.not_before_s > decision.snapshot.now_s


def _ways(decision: Decision, task: Task) -> tuple[Sequence[Way], bool]:
    """The choices, the best first; and whether the job still waits for the cheapest that no quota rules out."""
    kind, market = task.kind, decision.state.inventory.market
    if kind.choices is None:
        return (Way(kind, 1.0),), False
    market.ended = decision.snapshot.ended
    ways = market.ways(kind)
    return ways, len(ways) > 1 and kind.choices.by_cost and decision.snapshot.now_s < task.since_s + kind.wish.prefer_s


def _anyhow(decision: Decision, task: Task, ways: Sequence[Way]) -> list[Option]:
    """The choices that it accepts once it stops waiting for a better one: all that no quota bars."""
    holds_s, barrier = decision.outlook.holds_s(task), decision.state.tally.barrier
    return [Option(way.kind.ask, way.run_s(task, holds_s)) for way in ways if barrier(way.kind) is None]


def _waits_for_better(decision: Decision, task: Task, missed: Sequence[_Missed], free: Option) -> bool:
    """Whether it waits, with a reservation, for one of the `missed` choices although it fits with the choice `free`."""
    choices = task.kind.choices
    if choices is None or choices.by_cost:
        return False
    hoped = [one.option(decision.outlook.holds_s(task)) for one in missed if one.obstacle.barrier is None]
    better = keep_sooner(decision, task, hoped, free.run_s)
    if better is None:
        return False
    decision.draft.patient[task.id] = sooner(better.ask, free.ask)
    return True


def _others_make_way(decision: Decision, missed: Sequence[_Missed], picky: bool) -> bool:
    """Whether it can start after all, because elastic jobs shrink or victims stop."""
    wide, preempt = decision.state.running.wide and not picky, decision.policy.preempt
    if wide and any(shrink(decision, one.task, one.ask) for one in missed):
        return True
    return preempt is not None and any(hand_over(decision, preempt, one.task, one.ask) for one in missed)


def _refuse(decision: Decision, task: Task, missed: Sequence[_Missed], picky: bool) -> None:
    """Record why it waits: for its whole kind, or for this job alone."""
    draft, kind = decision.draft, task.kind
    found = joined([(one.ask, _reason(decision, one.ask, one.obstacle)) for one in missed])
    if picky:
        draft.patient[task.id] = cheapest(found, kind.wish)
    elif any(one.ask is not one.task.kind.ask for one in missed):
        waits = any(one.obstacle.barrier is None or one.obstacle.barrier.cause.passes for one in missed)
        draft.patient[task.id] = patience(found, kind) if waits else found
    elif any(leaving(decision, one.task, one.ask) is not None for one in missed):
        draft.patient[task.id] = found  # another job of its kind may need less time
    else:
        draft.refused[kind] = found


def _reason(decision: Decision, ask: Ask, obstacle: Obstacle) -> Refusal:
    """Why a request does not fit."""
    inventory = decision.state.inventory
    return obstacle.barrier or (inventory.kept_back(ask) if obstacle.kept else inventory.busy(ask))
