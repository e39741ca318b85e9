"""The transition table: what each event does in each state, and which states it may lead to. The diagram is drawn from it.

A pair that is not in the table cannot happen; `machine.apply` rejects it. An expected race has a row that says so.
"""

from dataclasses import dataclass

from trainmaster.lifecycle import checkpoints, clock_steps, reports, storage_removal, transitions, updating
from trainmaster.lifecycle.transitions import Handler
from trainmaster.model import events as ev
from trainmaster.model.job import State

_LIVE = (State.STARTING, State.RUNNING, State.STOPPING)
_ENDED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
_WAITING = (State.HELD, State.QUEUED)


@dataclass(frozen=True, slots=True)
class Row:
    """What one event does in one state. `to` lists every possible next state; `race` says why the event is ignored."""

    do: Handler
    to: tuple[State, ...]
    race: str = ""


def _race(states: tuple[State, ...], event: type, why: str) -> dict[tuple[State, type], Row]:
    return {(state, event): Row(transitions.ignore, (state,), why) for state in states}


def _build() -> dict[tuple[State, type], Row]:
    held, queued, starting, running, stopping = State.HELD, State.QUEUED, *_LIVE
    table: dict[tuple[State, type], Row] = {}

    def rows(states: tuple[State, ...], event: type, do: Handler, *to: State) -> None:
        for state in states:
            table[state, event] = Row(do, tuple(dict.fromkeys(to)) or (state,))

    rows(_WAITING, ev.Held, transitions.hold, held)
    table |= _race(_LIVE, ev.Held, "it started before the hold was processed")
    rows((held,), ev.Released, transitions.release, queued, held)
    table |= _race((queued, *_LIVE), ev.Released, "it is not held")
    rows((*_WAITING, *_LIVE, *_ENDED), ev.Updated, updating.update)
    rows((held,), ev.StartAllowed, transitions.allow_start, queued, held)
    rows((held,), ev.StartRefused, transitions.refuse_start, State.CANCELLED)
    rows(_WAITING, ev.CancelRequested, transitions.cancel_waiting, State.CANCELLED)
    rows(_LIVE, ev.CancelRequested, transitions.cancel_live, stopping)
    rows(_WAITING, ev.Waited, transitions.wait)
    rows((queued,), ev.Promised, transitions.promise, queued)
    rows((queued,), ev.PromiseBroken, transitions.break_promise, queued)
    rows((queued,), ev.Foreseen, transitions.foresee, queued)
    table |= _race((held, *_LIVE, *_ENDED), ev.Foreseen, "it left the queue before that was processed")
    rows((queued,), ev.Placed, transitions.place, starting)
    rows((starting,), ev.PreparationBegan, transitions.prepare)
    table |= _race((running, stopping), ev.PreparationBegan, "reported late")
    rows((starting,), ev.RendezvousChosen, transitions.choose_rendezvous)
    table |= _race((running, stopping), ev.RendezvousChosen, "reported twice, or too late to matter")
    rows((starting,), ev.NodeStarted, transitions.start_node, starting, running, stopping)
    rows((stopping,), ev.NodeStarted, transitions.start_node, stopping)
    table |= _race((running,), ev.NodeStarted, "reported twice")
    rows(_LIVE, ev.EnvironmentSeen, transitions.see_environment)
    for live in _LIVE:
        rows((live,), ev.NodeLost, transitions.lose_node, live, stopping)
        rows((live,), ev.NodeEnded, transitions.end_node, live, stopping)
    rows(_LIVE, ev.CheckpointStaged, checkpoints.stage_checkpoint)
    rows((*_WAITING, *_LIVE, *_ENDED), ev.CheckpointDeleted, checkpoints.delete_checkpoint)
    rows((*_WAITING, *_LIVE, *_ENDED), ev.CheckpointsDamaged, checkpoints.damage_checkpoints)
    rows(_ENDED, ev.CheckpointsGivenUp, checkpoints.give_up_checkpoints)
    rows((*_WAITING, *_LIVE, *_ENDED), ev.BytesGivenUp, storage_removal.give_up_bytes)
    rows((*_WAITING, *_LIVE, *_ENDED), ev.BytesRemoved, storage_removal.remove_bytes)
    rows(_LIVE, ev.ArtifactKept, reports.keep_artifact)
    rows(_LIVE, ev.NotKept, reports.note_not_kept)
    rows((*_WAITING, *_LIVE, *_ENDED), ev.Warned, reports.warn)
    rows((*_WAITING, *_LIVE, *_ENDED), ev.ClockSet, clock_steps.move_dates)
    rows(_LIVE, ev.RunDataLogged, reports.log_run_data)
    rows(_LIVE, ev.ProgressSeen, reports.see_progress)
    table |= _race((*_WAITING, *_LIVE, *_ENDED), ev.Noted, "a note changes nothing")
    rows(_LIVE, ev.CommandRun, transitions.ignore)
    rows((starting, running), ev.StopOrdered, transitions.order_stop, stopping)
    rows((stopping,), ev.StopOrdered, transitions.order_stop, stopping)
    rows(_LIVE, ev.AttemptEnded, transitions.end_attempt, queued, *_ENDED)
    for event in (ev.Held, ev.Released, ev.CancelRequested):
        table |= _race(_ENDED, event, "the job had ended")
    return table


TABLE = _build()
