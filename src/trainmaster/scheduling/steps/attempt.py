"""One job's turn: it starts, or others make way for it, or it waits for a reason, and room may be kept for it.

A job that leaves a choice is tried with each of its choices as if that were all that it asks for, the best first.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.scheduling.admission.feasible import joined
from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.snapshot import Refusal
from trainmaster.scheduling.placement.choices import Way, cheapest, patience, sooner, sought
from trainmaster.scheduling.reservation.reserved import Option
from trainmaster.scheduling.steps.decision import Decision
from trainmaster.scheduling.steps.make_way import hand_over, shrink
from trainmaster.scheduling.steps.place import Obstacle, find, leaving
from trainmaster.scheduling.steps.reserve import keep, keep_sooner
from trainmaster.scheduling.steps.start import start


class _Missed(NamedTuple):
    """A choice that cannot be had now: the job as if that were all it asks for, and what is in its way."""

    task: Task
    option: Option
    obstacle: Obstacle

    @property
    def as_it_is(self) -> bool:
        """Whether it does not look for a better place than it must have."""
        return self.option.ask is self.task.kind.ask


def attempt(decision: Decision, task: Task) -> bool:
    """Whether it starts, now or when others have made way for it."""
    now_s = decision.snapshot.now_s
    if task.not_before_s > now_s or task.id in decision.promises.settled:
        return False
    holds_s, told = decision.outlook.holds_s(task), decision.state.inventory.busy
    ways, picky = _ways(decision, task)
    missed: list[_Missed] = []
    for way in ways[:1] if picky else ways:
        one, run_s = way.of(task), way.run_s(task, holds_s)
        ask = sought(one, now_s, told)
        found = find(decision, one, ask, now_s + holds_s)
        if isinstance(found, Obstacle):
            missed.append(_Missed(one, Option(ask, run_s), found))
        elif missed and _waits_for_better(decision, task, missed, Option(ask, run_s)):
            return False
        else:
            start(decision, one, found, now_s + holds_s)
            return True
    if not picky and any(shrink(decision, one.task, one.option.ask, one.obstacle.kept) for one in missed):
        return True
    if any(hand_over(decision, one.task, one.option.ask, one.obstacle.kept) for one in missed):
        return True
    reasons = [_reason(decision, one.option.ask, one.obstacle) for one in missed]
    _refuse(decision, task, missed, reasons, picky)
    wanted = [
        one.option
        for one, why in zip(missed, reasons, strict=True)
        if one.obstacle.barrier is None and why.kind != "impossible"
    ]
    if wanted:
        patient = task.id in decision.draft.patient
        keep(decision, task, wanted, [Option(way.kind.ask, way.run_s(task, holds_s)) for way in ways] if patient else wanted)
    return False


def waits_alone(decision: Decision, task: Task) -> bool:
    """Whether a job that was not started waits for something of its own: others of its kind may start all the same."""
    own = task.id in decision.promises.settled or task.id in decision.draft.patient
    return own or task.not_before_s > decision.snapshot.now_s


def _ways(decision: Decision, task: Task) -> tuple[Sequence[Way], bool]:
    """What would do, the best first; and whether it still insists on the first, the cheapest."""
    kind, market = task.kind, decision.state.inventory.market
    if kind.choices is None:
        return (Way(kind, 1.0),), False
    market.ended = decision.snapshot.ended
    ways = market.ways(kind)
    return ways, len(ways) > 1 and kind.choices.by_cost and decision.snapshot.now_s < task.since_s + kind.wish.prefer_s


def _waits_for_better(decision: Decision, task: Task, missed: Sequence[_Missed], free: Option) -> bool:
    """Whether it waits for one of the choices that it `missed`, and has room kept there, though it fits with `free`."""
    choices = task.kind.choices
    if choices is None or choices.by_cost:
        return False
    hoped = [one.option for one in missed if one.obstacle.barrier is None]
    better = keep_sooner(decision, task, hoped, free.run_s)
    if better is None:
        return False
    decision.draft.patient[task.id] = sooner(better.ask, free.ask)
    return True


def _reason(decision: Decision, ask: Ask, obstacle: Obstacle) -> Refusal:
    """Why a request is not met."""
    state = decision.state
    if obstacle.barrier is not None:
        return obstacle.barrier
    if obstacle.kept:
        return state.inventory.kept_back(ask)
    if not state.space.closing:  # else it may do for one that takes less long
        decision.fitting.missed(ask)
    return state.inventory.busy(ask)


def _refuse(decision: Decision, task: Task, missed: Sequence[_Missed], reasons: Sequence[Refusal], picky: bool) -> None:
    """Say why it waits: of all jobs of its kind, or of it alone."""
    draft, kind = decision.draft, task.kind
    found = joined([(one.option.ask, why) for one, why in zip(missed, reasons, strict=True)])
    if picky:
        draft.patient[task.id] = cheapest(found, kind.wish)
    elif not all(one.as_it_is for one in missed):
        waits = any(one.obstacle.barrier is None or one.obstacle.barrier.kind == "window" for one in missed)
        draft.patient[task.id] = patience(found, kind) if waits else found
    elif any(leaving(decision, one.task, one.option.ask) is not None for one in missed):
        draft.patient[task.id] = found  # another of its kind may have less to do
    else:
        draft.refused[kind] = found
