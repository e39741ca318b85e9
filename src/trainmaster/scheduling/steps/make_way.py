"""Preempt: elastic jobs shrink or victims stop for a job, if that is enough to start it."""

from collections.abc import Sequence

from trainmaster.scheduling.model.jobs import Run, Task
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.placement.strategies import given
from trainmaster.scheduling.preemption.victims import Preempt, shrinkable, victims
from trainmaster.scheduling.steps.decision import Decision
from trainmaster.scheduling.steps.place import places
from trainmaster.scheduling.steps.start import start


def shrink(decision: Decision, task: Task, ask: Ask) -> bool:
    """Shrink elastic jobs to their minimum; whether the job starts.

    Not for a job that waits for a better place by its own wish.
    """
    return ask is task.kind.ask and _take_back(decision, task, ask, shrinkable(decision.stage, task))


def hand_over(decision: Decision, preempt: Preempt, task: Task, ask: Ask) -> bool:
    """Stop victims whose nodes it needs; whether it starts."""
    candidates = preempt.candidates(decision.stage, task)
    if _take_back(decision, task, ask, candidates):
        return True
    if candidates:
        preempt.in_vain(decision.stage, task)
    return False


def _take_back(decision: Decision, task: Task, ask: Ask, candidates: Sequence[Run]) -> bool:
    if not candidates:
        return False
    state, stage, promises, kind = decision.state, decision.stage, decision.promises, task.kind
    count, shrinking = len(candidates), candidates[0].shrinking
    if not stage.enough(task, ask, count, shrinking):
        return False
    chosen = victims(state.space, task, ask, candidates, state.tally)
    if chosen is None:
        stage.not_enough(task, ask, count, shrinking)
        return False
    decision.outlook.moved()
    promises.let_go(chosen)
    end_s = decision.snapshot.now_s + decision.outlook.holds_s(task)
    kept = [*decision.reserved.before(end_s), *state.tally.set_aside(state.space, kind).values()]
    nodes = given(state.space, ask, places(decision, task, state.tally.shut(kind)), kept, kind.wish)
    if nodes is None:  # these nodes are reserved for a job ahead of it
        promises.keep(chosen)
        return False
    stage.stop(chosen)
    start(decision, task, nodes, end_s, chosen)
    decision.fitting.freed()
    return True
