"""Admit and place: nodes for a request, or the obstacle."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from trainmaster.model.spec import Strategy
from trainmaster.scheduling.admission.quota import closed, guaranteed_to_others
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Run, Task
from trainmaster.scheduling.model.reasons import Refusal
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.placement.fragmentation import typical
from trainmaster.scheduling.placement.strategies import STRATEGIES, Places, anchors, given, least_fragments, nearest
from trainmaster.scheduling.reservation.backfill import Kept
from trainmaster.scheduling.steps.decision import Decision


class Obstacle(NamedTuple):
    """Why a job cannot start: a quota or window (`barrier`), else the reservations that it would delay, else busy nodes."""

    kept: Sequence[Kept] = ()
    barrier: Refusal | None = None


BUSY = Obstacle()


def find(decision: Decision, task: Task, ask: Ask, end_s: float) -> list[int] | Obstacle:
    """Nodes for a job with this request that holds them until `end_s`."""
    state, fitting = decision.state, decision.fitting
    space, tally = state.space, state.tally
    space.until_s = decision.outlook.stays_until_s(task) if space.closing else 0.0
    barrier = leaving(decision, task, ask) or tally.barrier(task.kind)
    if barrier is not None:
        return Obstacle((), barrier)
    if ask in fitting.lost:
        return BUSY
    if end_s > fitting.held_off.get(ask, FOREVER):
        return Obstacle(decision.reserved.kept)
    if space.count(ask.each) < ask.nodes or (ask.lead is not None and not space.count(ask.lead)):
        return _busy(decision, ask)
    kept, owed = decision.reserved.before(end_s), tally.set_aside(space, task.kind)
    shut, wish = tally.shut(task.kind), task.kind.wish
    chosen = given(space, ask, places(decision, task, shut), [*kept, *owed.values()], wish)
    if chosen is not None:
        return chosen
    if shut:
        return Obstacle(kept, closed(task.kind, shut))
    if owed and given(space, ask, places(decision, task), kept, wish) is not None:
        return Obstacle((), guaranteed_to_others(next(iter(owed))))
    if not kept or (ask.within is not None and given(space, ask, places(decision, task), (), wish) is None):
        return _busy(decision, ask)  # it would not fit if nothing were reserved
    fitting.hold_off(ask, max(one.at_s for one in kept))  # a later job with this request that ends as late is not tried
    return Obstacle(kept)


def _busy(decision: Decision, ask: Ask) -> Obstacle:
    if not decision.state.space.closing:  # else the nodes may do for a shorter job
        decision.fitting.missed(ask)
    return BUSY


def places(decision: Decision, task: Task, shut: frozenset[str] = frozenset()) -> Places:
    """The nodes that can hold a member of a job, the best first, without those with GPUs of the kinds in `shut`."""
    ask, wish, place, state = task.kind.ask, task.kind.wish, decision.policy.place, decision.state
    if wish.strategy is not None:
        if wish.strategy == Strategy.FRAGMENTATION:
            place = least_fragments(typical(decision.snapshot, state.learned))
        else:
            place = STRATEGIES[wish.strategy]
    found, values = place(state.space, ask), state.space.cells.values
    if wish.near is not None or wish.group is not None:
        snapshot = decision.snapshot
        new = (Run(snapshot.waiting[one.job], one.grant, snapshot.now_s) for one in decision.draft.placements)
        found = nearest(state.space, found, anchors(state.space, task, chain(state.running.all, new)))
    return found if not shut else [one for one in found if shut.isdisjoint(values[one[0]].kinds)]


def leaving(decision: Decision, task: Task, ask: Ask) -> Refusal | None:
    """Why windows would keep a job from starting even on empty nodes; None: they do not."""
    state = decision.state
    if not state.space.closing:
        return None
    patient = ask not in task.kind.asks
    return state.inventory.staying.refusal(ask, decision.outlook.need(task), decision.snapshot.now_s, patient=patient)
