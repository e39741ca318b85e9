"""Planted bugs that the simulated histories must detect. Each is one that a reviewer might miss."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trainmaster.blobs import garbage_collection
from trainmaster.control import clock, clock_steps, decide, effect_runner, loop, observe, world
from trainmaster.lifecycle import checkpoints, storage_removal, transitions
from trainmaster.lifecycle.table import TABLE, Row
from trainmaster.model import events as ev
from trainmaster.model.job import Action, Cause, Failure, Job, NodePhase, RestartBudget, State, Verdict
from trainmaster.model.storage_kinds import OF_ENDED
from trainmaster.ports.engine import Phase
from trainmaster.recovery import classify, restart_policy
from trainmaster.store import inbox

Plant = Callable[[pytest.MonkeyPatch], None]
Do = Callable[[Job, Any, float], Any]


def patched(target: object, name: str, change: Callable[[Any], Any]) -> Plant:
    """Put `change(original)` in place of a function."""
    return lambda patch: patch.setattr(target, name, change(getattr(target, name)))


def on_event(event: type, change: Callable[[Do], Do]) -> Plant:
    """Change what an event does, in every state."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for pair, row in list(TABLE.items()):
            if pair[1] is event:
                patch.setitem(TABLE, pair, Row(change(row.do), row.to, row.race))

    return plant


def ignored(do: Do) -> Do:
    return lambda job, event, now_s: (job, ())


def nothing(original: Any) -> Any:
    return lambda *given, **named: None


def verdict_where(holds: Callable[[Job, Verdict], bool], instead: Verdict) -> Plant:
    """Replace the verdict where `holds`."""

    def change(verdict_of: Any) -> Any:
        def judged(job: Job, rng: Any) -> Verdict:
            said = verdict_of(job, rng)
            return instead if holds(job, said) else said

        return judged

    return patched(decide, "verdict_of", change)


def of_cause(*causes: Cause) -> Callable[[Job, Verdict], bool]:
    return lambda job, said: said.failure is not None and said.failure.cause in causes


def stop(cause: Cause) -> Verdict:
    return Verdict(Action.STOP, State.FAILED, "planted", failure=Failure(cause, "planted"))


def bad_in_doubt(end_node: Do) -> Do:
    """A checkpoint that could not be read counts as corrupt."""

    def ended(job: Job, event: ev.NodeEnded, now_s: float) -> Any:
        outcome = replace(event.outcome, bad=(*event.outcome.bad, *event.outcome.doubted))
        return end_node(job, replace(event, outcome=outcome), now_s)

    return ended


def by_commits(_: Any) -> Any:
    """Retention counts commits, regardless of steps and of checkpoints that are known to be bad."""
    return lambda checkpoints, keep: {one.id for one in checkpoints[-max(1, keep) :]}


def never_doubted(resumable: Any) -> Any:
    """A checkpoint that could not be read once is never offered again."""
    return lambda job: tuple(id for id in resumable(job) if not any(c.id == id and c.doubts for c in job.checkpoints))


def by_local_times(_: Any) -> Any:
    """The first failure of a gang is found by comparing the nodes' own clocks."""

    def blamed(attempt: Any) -> Any:
        found = [(r.ended_after_s, r.rank, r, n.outcome) for n in attempt.nodes if n.outcome for r in n.outcome.ranks]
        failing = [one for one in found if not one[2].stopped_by_us and one[2].exit_code != 0]
        return min(failing, key=lambda one: one[:2])[2:] if failing else None

    return blamed


def commits_early(stage: Do) -> Do:
    """A checkpoint is committed with its first part."""
    return lambda job, event, now_s: stage(job, replace(event, parts_expected=1), now_s)


def with_each_its_own(start: Do) -> Do:
    """Nodes of a gang may start from different checkpoints."""

    def started(job: Job, event: ev.NodeStarted, now_s: float) -> Any:
        changed, effects = start(job, event, now_s)
        if changed.state is State.STOPPING and job.state is State.STARTING and changed.attempt is not None:
            launching = any(node.phase is NodePhase.LAUNCHING for node in changed.attempt.nodes)
            attempt = replace(changed.attempt, stopping_s=None, started_s=None if launching else now_s)
            state = State.STARTING if launching else State.RUNNING
            return replace(changed, state=state, stopping_for=None, attempt=attempt), ()
        return changed, effects

    return started


def lost_is_gone(observation: Any) -> Any:
    """A lost agent is treated as proof that its ranks have ended."""
    return lambda batch, key, seen: observation(batch, key, replace(seen, phase=Phase.GONE) if seen.phase is Phase.LOST else seen)


def unnumbered(take: Any) -> Any:
    """Repeated reports are recorded again."""
    return lambda batch, key, report: take(batch, key, {**report, "n": 10**6} if "id" in report or "path" in report else report)


def skipping(commit: Any) -> Any:
    """Inbox rows count as processed although the disk was full."""

    def committed(self: Any, batch: Any, cursor: int) -> bool:
        read = self.world.inbox_cursor
        done = bool(commit(self, batch, cursor))
        self.world.inbox_cursor = max(self.world.inbox_cursor, read)
        return done

    return committed


def of_any_attempt(take: Any) -> Any:
    """Reports of an older attempt count for the live one."""

    def taken(batch: Any, key: Any, report: Any, *waited: Any) -> Any:
        job = batch.world.jobs.get(key.job)
        number = job.attempt.number if job is not None and job.attempt is not None else key.attempt
        return take(batch, key._replace(attempt=number), report, *waited)

    return taken


def without(kind: type) -> Callable[[Any], Any]:
    return lambda find: lambda job: tuple(effect for effect in find(job) if not isinstance(effect, kind))


def keyless(accept: Any) -> Any:
    """A repeated submission creates a second job."""
    numbers = iter(range(10**6))
    return lambda self, rows: accept(self, [replace(row, key=f"{row.key}-{next(numbers)}") for row in rows])


def forgets_reason(take: Any) -> Any:
    """A cancel is ignored while a job starts."""

    def taken(self: Any, job_id: str, event: Any) -> bool:
        job = self.world.jobs.get(job_id)
        if isinstance(event, ev.CancelRequested) and job is not None and job.state is State.STARTING:
            return False
        return bool(take(self, job_id, event))

    return taken


def empty_handed(run: Any) -> Any:
    """The second node of a gang's allocation is not counted."""

    def ran(job: Job, *given: Any) -> Any:
        attempt = job.attempt
        if attempt is not None and len(attempt.allocation.shares) > 1:
            allocation = replace(attempt.allocation, shares=attempt.allocation.shares[:1])
            job = replace(job, attempt=replace(attempt, allocation=allocation, nodes=attempt.nodes[:1]))
        return run(job, *given)

    return ran


def followed_at_once(patch: pytest.MonkeyPatch) -> None:
    """A step of the clock counts as recorded as soon as it is detected."""
    follow = clock.SteadyClock.follow
    patch.setattr(clock.SteadyClock, "begin", lambda self, by_s, after: follow(self, by_s))
    patch.setattr(clock.SteadyClock, "follow", nothing(None))


def of_nothing(moved: Any) -> Any:
    """The step is recorded, but no job's dates move."""

    def alone(given: Any, events: Any, by_s: float, now_s: float) -> Any:
        batch = moved(replace(given, jobs={}), events, by_s, now_s)
        return world.Batch(given, now_s, events=batch.events[:1], on_record=events.job)

    return alone


FROM_THE_ATTACK: dict[str, Plant] = {
    "no checkpoint is ever staged": on_event(ev.CheckpointStaged, ignored),
    "what is found bad stays good": patched(transitions, "found_bad", lambda _: lambda job, ids: job),
    "every checkpoint that was put back is called bad": on_event(
        ev.NodeStarted, lambda do: lambda j, e, s: do(j, replace(e, bad=(e.restored,) if e.restored else ()), s)
    ),
    "a node that is declared lost stays as it was": patched(observe, "set_node_state", nothing),
    "time limits are not enforced": patched(decide, "enforce_limits", nothing),
    "a start that fails counts as success": verdict_where(
        of_cause(Cause.LAUNCH, Cause.MACHINE), Verdict(Action.FINISH, State.SUCCEEDED, "planted")
    ),
}
MORE: dict[str, Plant] = {
    "R1: what cannot be read counts as corrupt": on_event(ev.NodeEnded, bad_in_doubt),
    "R1: retention counts commits": patched(checkpoints, "_kept", by_commits),
    "R1: what could not be read is never tried again": patched(Job, "resumable", never_doubted),
    "R1: a job whose checkpoints are bad starts over": patched(
        Job, "resumable", lambda of: lambda job: of(job) if job.good_checkpoints else ()
    ),
    "R2: a checkpoint is committed with its first part": on_event(ev.CheckpointStaged, commits_early),
    "R2: nodes of a gang begin from different checkpoints": on_event(ev.NodeStarted, with_each_its_own),
    "R3: a machine that cannot start is the program's fault": verdict_where(of_cause(Cause.MACHINE), stop(Cause.LAUNCH)),
    "R3: infrastructure is tried once": verdict_where(
        lambda job, said: said.ledger is RestartBudget.INFRASTRUCTURE and job.restarts_infrastructure > 0, stop(Cause.AGENT_LOST)
    ),
    "R4: a lost node's agents never end": patched(observe, "_ended_by_declaration", lambda _: lambda *given: False),
    "R7: only the newest checkpoint is handed out": patched(Job, "resumable", lambda of: lambda job: of(job)[:1]),
    "R7: the newest checkpoint is left out": patched(Job, "resumable", lambda of: lambda job: of(job)[1:] or of(job)),
    "R9: what another attempt said is taken": patched(observe, "take_report", of_any_attempt),
    "R11: what a dead agent had kept is lost": patched(observe, "_take_reports", nothing),
    "R12: a warning is dropped": patched(observe, "take_report", lambda take: lambda b, k, r, *w: None if r.get("kind") == "warned" else take(b, k, r, *w)),
    "R13: a report that comes twice is taken twice": patched(observe, "number_of", lambda _: lambda report: 10**6),
    "R14: blame by the nodes' own clocks": patched(classify, "first_failing", by_local_times),
    "R17: the same key makes a second job": patched(inbox.SqlInbox, "accept", keyless),
    "R18: what was read on a full disk is passed over": patched(loop.ControlLoop, "_commit", skipping),
    "R19: a step of the clock is followed before it is on record": followed_at_once,
    "R19: a step of the clock moves no date": patched(clock_steps, "step_events", of_nothing),
    "R19: a back-off of years": patched(restart_policy, "backoff_s", lambda _: lambda restarts, rng: 1e8 if restarts else 0.0),
    "R21: an agent that is gone proves that its ranks are": patched(observe, "take_observation", lost_is_gone),
    "a launch that a crash left undone is forgotten": patched(loop, "pending", without(effect_runner.Launch)),
    "a stop that a crash left undone is forgotten": patched(loop, "pending", without(effect_runner.Stop)),
    "a delete that failed is forgotten": patched(loop, "pending", without(effect_runner.DeleteCheckpoint)),
    "bytes that a crash left there are forgotten": patched(loop, "pending", without(effect_runner.Clear)),
    "what a live job works in may be removed": patched(storage_removal, "OF_ANY", lambda few: (*OF_ENDED, *few)),
    "garbage collection takes what a live attempt has sent": patched(
        garbage_collection, "_job_references", lambda of: lambda job: replace(of(job), live=None)
    ),
    "the second node of a gang is not counted": patched(world.nouns, "run", empty_handed),
}
MUTANTS = FROM_THE_ATTACK | MORE
