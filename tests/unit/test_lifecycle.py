"""The life cycle: the whole matrix, the laws under random histories, and single histories."""

from dataclasses import replace

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.lifecycle.effects import FAILURE_GRACE_S, GRACE_S, DeleteCheckpoint, Effect, Launch, Stop
from trainmaster.lifecycle.invariants import violations
from trainmaster.lifecycle.machine import TransitionError, accepts, apply
from trainmaster.lifecycle.pending import pending
from trainmaster.lifecycle.table import TABLE
from trainmaster.model import events as ev
from trainmaster.model.checkpoints import Artifact, Part
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import (
    Action,
    Cause,
    Failure,
    Job,
    NodePhase,
    Outcome,
    RankEnd,
    RestartBudget,
    State,
    StopFor,
    Verdict,
)
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.progress import Progress
from trainmaster.model.spec import CheckpointSpec, CodeCopy, JobSpec, Origin, Resources

SUBMITTED = ev.Submitted(1, JobSpec("true", resources=Resources(nodes=2)), Origin(), CodeCopy(), 10.0)
SHARES = Allocation((NodeShare("a", "127.0.0.1", 1.0), NodeShare("b", "127.0.0.1", 1.0)))
CLEAN = Outcome(ranks=(RankEnd(0, exit_code=0),))
KILLED = Outcome(ranks=(RankEnd(0, signal=9),))
SUCCESS = Verdict(Action.FINISH, State.SUCCEEDED, "every rank exited 0")
RESTART = Verdict(Action.RESTART, State.QUEUED, "restarting", 3.0, RestartBudget.INFRASTRUCTURE)
GIVES_BACK = ev.StopOrdered(StopFor.SHRINK, "gives back nodes for y-2")
SHRUNK = Verdict(Action.REQUEUE, State.QUEUED, "goes on with fewer nodes", failure=Failure(Cause.SHRUNK, "gives back"))
ELASTIC = replace(SUBMITTED, spec=JobSpec("true", resources=Resources(nodes=1, nodes_max=2)))
OVER = (ev.NodeEnded(1, 0, KILLED), ev.NodeEnded(1, 1, KILLED), ev.AttemptEnded(1, SHRUNK))


def history(*events: ev.JobEvent) -> tuple[Job, list[Effect]]:
    """Fold events a second apart, from time 11 on; the last event's effects beside the job."""
    job, effects = None, ()
    for second, event in enumerate(events):
        job, effects = apply(job, "x-1", event, 11.0 + second)
        if not (job.state.live and job.attempt and all(n.phase is NodePhase.ENDED for n in job.attempt.nodes)):
            assert violations(job) == []
    assert job is not None
    return job, list(effects)


def running(*more: ev.JobEvent) -> tuple[ev.JobEvent, ...]:
    return (SUBMITTED, ev.Placed(1, SHARES), ev.NodeStarted(1, 0), ev.NodeStarted(1, 1), *more)


def key(index: int, attempt: int = 1) -> AgentKey:
    return AgentKey("x-1", attempt, index)


def staged(id: str, step: int, **more: object) -> ev.CheckpointStaged:
    return ev.CheckpointStaged(1, id, step, Part(0, "d" * 64, 1, 100), **more)  # type: ignore[arg-type]


def test_a_gang_runs_once_every_agent_does_and_ends_with_its_verdict() -> None:
    job, effects = history(SUBMITTED, ev.Placed(1, SHARES))
    assert (job.state, effects) == (State.STARTING, [Launch(key(0)), Launch(key(1))])
    job, _ = history(SUBMITTED, ev.Placed(1, SHARES), ev.NodeStarted(1, 1))
    assert job.state is State.STARTING
    job, _ = history(*running())
    assert (job.state, job.started_s) == (State.RUNNING, 14.0)
    job, effects = history(*running(ev.NodeEnded(1, 0, CLEAN), ev.NodeEnded(1, 1, CLEAN), ev.AttemptEnded(1, SUCCESS)))
    assert (job.state, job.ended_s, job.ran_s, effects) == (State.SUCCEEDED, 17.0, 3.0, [])


def test_how_long_it_ran_is_as_recorded_and_else_as_it_was_seen() -> None:
    """The log of an earlier version, which recorded no `ran_s`, gives the projections that it gave then."""
    ends = running(ev.NodeEnded(1, 0, CLEAN), ev.NodeEnded(1, 1, CLEAN))
    found = [history(*ends, ev.AttemptEnded(1, SUCCESS, ran_s))[0] for ran_s in (None, 0.5)]
    assert [(job.attempt.ran_s if job.attempt else None, job.ran_s) for job in found] == [(None, 3.0), (0.5, 0.5)]


def test_a_bad_end_stops_the_rest_of_the_gang_and_waits_for_it() -> None:
    job, effects = history(*running(ev.NodeEnded(1, 0, KILLED)))
    assert (job.state, job.stopping_for, effects) == (State.STOPPING, StopFor.FAILURE, [Stop(key(1), FAILURE_GRACE_S)])
    job, _ = history(*running(ev.NodeEnded(1, 0, KILLED), ev.NodeEnded(1, 1, KILLED), ev.AttemptEnded(1, RESTART)))
    assert (job.state, job.not_before_s, job.restarts_infrastructure) == (State.QUEUED, 20.0, 1)


def test_a_lost_agent_is_ended_at_once_its_gang_soon() -> None:
    job, effects = history(*running(ev.NodeLost(1, 1, "gone")))
    assert (job.state, effects) == (State.STOPPING, [Stop(key(0), FAILURE_GRACE_S), Stop(key(1), 0.0)])


def test_an_attempt_knows_how_the_one_before_numbered_its_epochs_without_any_checkpoint() -> None:
    """ConvNeXt finds its own files: its second attempt began with `Epoch: [4]`, and every step was an epoch too low."""
    told, lost = replace(KILLED, progress=Progress((0, 10), 200, epoch_first=0, epoch_anew=True)), Outcome(lost=True)
    begin = (SUBMITTED, ev.Placed(1, SHARES))
    second = (ev.NodeEnded(1, 0, told), ev.NodeEnded(1, 1, KILLED), ev.AttemptEnded(1, RESTART), ev.Placed(2, SHARES))
    third = (ev.NodeEnded(2, 0, lost), ev.NodeEnded(2, 1, lost), ev.AttemptEnded(2, RESTART), ev.Placed(3, SHARES))
    counts = [history(*begin, *more)[0].epoch_counts for more in ((), second, (*second, *third))]
    assert counts == [(None, None, None), (0, None, True), (0, None, True)]


def test_who_gives_nodes_back_keeps_the_first_of_them_for_its_next_attempt() -> None:
    """It is neither an eviction nor a restart that a budget pays for."""
    job, effects = history(ELASTIC, *running(GIVES_BACK)[1:])
    assert (job.state, job.stopping_for, job.promised) == (State.STOPPING, StopFor.SHRINK, None)
    assert effects == [Stop(key(0), GRACE_S), Stop(key(1), GRACE_S)]
    job, _ = history(ELASTIC, *running(GIVES_BACK, *OVER)[1:])
    assert (job.state, job.shrinks, job.evictions, job.keeps) == (State.QUEUED, 1, 0, True)
    assert job.promised == Allocation(SHARES.shares[:1])
    assert (job.restarts_program, job.restarts_infrastructure, job.not_before_s) == (0, 0, job.queued_s)
    placed, _ = history(ELASTIC, *running(GIVES_BACK, *OVER, ev.Placed(2, Allocation(SHARES.shares[:1])))[1:])
    assert (placed.promised, placed.keeps) == (None, False)


@pytest.mark.parametrize("event", [ev.Held("ann", ""), ev.CancelRequested("ann"), ev.PromiseBroken("its node is gone")])
def test_what_is_kept_is_let_go_with_the_promise(event: ev.JobEvent) -> None:
    job, _ = history(ELASTIC, *running(GIVES_BACK, *OVER, event)[1:])
    assert (job.promised, job.keeps) == (None, False)


def test_a_cancel_an_eviction_and_a_limit_outrank_giving_back() -> None:
    for outranks in (ev.CancelRequested("ann"), ev.StopOrdered(StopFor.EVICT, "away"), ev.StopOrdered(StopFor.LIMIT, "late")):
        job, _ = history(*running(GIVES_BACK, outranks))
        assert job.stopping_for is not StopFor.SHRINK
    job, _ = history(*running(ev.StopOrdered(StopFor.EVICT, "away"), GIVES_BACK))
    assert job.stopping_for is StopFor.EVICT


def test_a_start_that_takes_too_long_is_stopped_and_any_other_stop_outranks_that() -> None:
    """R16: a start limit is not blamed on the program; it has the short grace of a failure; the last end leads to the verdict."""
    placed, slow = (SUBMITTED, ev.Placed(1, SHARES)), ev.StopOrdered(StopFor.START, "did not start within 30 min")
    job, effects = history(*placed, slow)
    assert (job.state, job.stopping_for) == (State.STOPPING, StopFor.START)
    assert effects == [Stop(key(0), FAILURE_GRACE_S), Stop(key(1), FAILURE_GRACE_S)]
    assert list(pending(job)) == effects
    job, _ = history(*placed, slow, ev.NodeStarted(1, 0))  # it was told in the same moment
    assert job.state is State.STOPPING
    for outranks in (ev.CancelRequested("ann"), ev.StopOrdered(StopFor.EVICT, "away")):
        assert history(*placed, slow, outranks)[0].stopping_for is not StopFor.START
    over = (ev.NodeEnded(1, 0, Outcome()), ev.NodeEnded(1, 1, Outcome()), ev.AttemptEnded(1, RESTART))
    assert history(*placed, slow, *over)[0].state is State.QUEUED


def test_cancel_outranks_every_other_stop_and_is_not_outranked() -> None:
    job, effects = history(*running(ev.StopOrdered(StopFor.EVICT, "away"), ev.CancelRequested("ann")))
    assert (job.stopping_for, effects) == (StopFor.CANCEL, [Stop(key(0), GRACE_S), Stop(key(1), GRACE_S)])
    job, effects = history(*running(ev.CancelRequested("ann"), ev.StopOrdered(StopFor.LIMIT, "late")))
    assert (job.stopping_for, effects) == (StopFor.CANCEL, [])


def test_a_cancel_names_its_grace_and_a_second_one_may_shorten_it() -> None:
    def stops(grace_s: float) -> list[Effect]:
        return [Stop(key(0), grace_s), Stop(key(1), grace_s)]

    five = ev.CancelRequested("ann", "", 5.0)
    job, effects = history(*running(five))
    assert (job.stop_grace_s, effects) == (5.0, stops(5.0))
    job, effects = history(*running(five, ev.CancelRequested("ann", "", 60.0)))
    assert (job.stop_grace_s, effects) == (5.0, [])
    job, effects = history(*running(ev.CancelRequested("ann"), ev.CancelRequested("ann", "", 0.0)))
    assert (job.stop_grace_s, effects, list(pending(job))) == (0.0, stops(0.0), stops(0.0))


def test_waiting_work_is_held_released_and_cancelled() -> None:
    job, _ = history(SUBMITTED, ev.Held("ann", "lunch"))
    assert (job.state, job.reason) == (State.HELD, "held by ann: lunch")
    assert history(SUBMITTED, ev.Held("ann", ""), ev.Released("bob"))[0].state is State.QUEUED
    assert history(SUBMITTED, ev.CancelRequested("ann"))[0].state is State.CANCELLED


def test_an_event_of_another_attempt_is_refused() -> None:
    job, _ = history(*running())
    assert not accepts(job, ev.NodeEnded(2, 0, CLEAN))
    with pytest.raises(TransitionError, match="carries attempt 2 of x-1; expected 1"):
        apply(job, "x-1", ev.NodeEnded(2, 0, CLEAN), 99.0)


def test_retention_gives_up_the_oldest_and_never_the_last_good_one() -> None:
    spec = replace(SUBMITTED, spec=replace(SUBMITTED.spec, checkpoint=CheckpointSpec(keep=1)))
    job, effects = history(spec, *running()[1:], staged("c1", 1), staged("c2", 2))
    assert [c.id for c in job.checkpoints] == ["c2"]
    assert effects == [DeleteCheckpoint("x-1", "c1")]
    job, _ = history(spec, *running()[1:], staged("c1", 1), staged("c2", 2), ev.CheckpointDeleted("c1"))
    assert job.deleting == ()


def test_older_checkpoints_are_given_up_by_a_job_that_is_over_and_never_the_last_good_one() -> None:
    spec = replace(SUBMITTED, spec=replace(SUBMITTED.spec, checkpoint=CheckpointSpec(keep=3)))
    committed = [*running()[1:], staged("c1", 1), staged("c2", 2), staged("c3", 3)]
    asked = ev.CheckpointsGivenUp("ann", ("c1", "c3", "no-such"))
    live, _ = history(spec, *committed)
    assert not accepts(live, asked)
    over = replace(live, state=State.SUCCEEDED)
    job, effects = apply(over, "x-1", asked, 99.0)
    assert ([c.id for c in job.checkpoints], job.deleting, effects) == (["c2", "c3"], ("c1",), (DeleteCheckpoint("x-1", "c1"),))
    again, effects = apply(job, "x-1", asked, 99.0)
    assert (again, effects) == (job, ())
    corrupt = replace(over, checkpoints=(*over.checkpoints[:2], replace(over.checkpoints[2], good=False)))
    job, _ = apply(corrupt, "x-1", ev.CheckpointsGivenUp("ann", ("c1", "c2", "c3")), 99.0)
    assert ([c.id for c in job.checkpoints], job.deleting) == (["c2"], ("c1", "c3"))


def test_a_checkpoint_of_several_parts_is_committed_by_the_last() -> None:
    first = staged("s", 5, parts_expected=2)
    job, _ = history(*running(first))
    assert (job.checkpoints, [c.id for c in job.staged]) == ((), ["s"])
    job, _ = history(*running(first, replace(first, part=Part(1, "e" * 64, 2, 50))))
    assert ([(c.id, c.bytes) for c in job.checkpoints], job.staged) == ([("s", 150)], ())


def test_parts_that_will_never_be_whole_are_given_up() -> None:
    """Once every node is past their step, and at the end of their attempt: their bytes would stay for ever."""
    torn, whole = staged("s1", 1, parts_expected=2), [staged("s2", 2, parts_expected=2, report=n) for n in (1, 2)]
    whole[1] = replace(whole[1], part=Part(1, "e" * 64, 1, 1))
    later = staged("s3", 3, parts_expected=2)
    job, effects = history(*running(torn, later, *whole))
    assert ([c.id for c in job.checkpoints], [c.id for c in job.staged]) == (["s2"], ["s3"])
    assert (job.deleting, effects) == (("s1",), [DeleteCheckpoint("x-1", "s1")])
    ends = (ev.NodeEnded(1, 0, KILLED), ev.NodeEnded(1, 1, KILLED))
    for verdict in (RESTART, SUCCESS, Verdict(Action.REQUEUE, State.QUEUED, "away")):
        job, effects = history(*running(later, *ends, ev.AttemptEnded(1, verdict)))
        assert (job.staged, job.deleting, effects) == ((), ("s3",), [DeleteCheckpoint("x-1", "s3")])
        assert set(effects) <= set(pending(job))


def test_a_checkpoint_found_corrupt_is_no_longer_good() -> None:
    second = (ev.NodeEnded(1, 0, KILLED), ev.NodeEnded(1, 1, KILLED), ev.AttemptEnded(1, RESTART), ev.Placed(2, SHARES, ("c2", "c1")))
    started = ev.NodeStarted(2, 0, restored="c1", step=1, bad=("c2",))
    job, _ = history(*running(staged("c1", 1), staged("c2", 2), *second, started))
    assert ([c.id for c in job.good_checkpoints], job.attempt and job.attempt.resumed_from_step) == (["c1"], 1)


def test_a_step_that_is_a_guess_is_told_as_one_though_its_checkpoint_is_gone() -> None:
    """`tm show` said "resumed from step 270" although that step was approximate."""
    ends = (ev.NodeEnded(1, 0, KILLED), ev.NodeEnded(1, 1, KILLED), ev.AttemptEnded(1, RESTART), ev.Placed(2, SHARES, ("c2", "c1")))
    before = (staged("c1", 1), staged("c2", 2, approximate=True), *ends)
    for restored, step, about in (("c1", 1, False), ("c2", 2, True), ("work:out/c-3", 3, False)):
        job, _ = history(*running(*before, ev.NodeStarted(2, 0, restored=restored, step=step)))
        assert job.attempt is not None
        assert (job.attempt.resumed_from_step, job.attempt.resumed_about) == (step, about)


def test_a_gang_never_runs_from_different_checkpoints() -> None:
    """Each node has its own part; node 1 found its part of `c2` corrupt and restored the one before."""
    second = (ev.NodeEnded(1, 0, KILLED), ev.NodeEnded(1, 1, KILLED), ev.AttemptEnded(1, RESTART), ev.Placed(2, SHARES, ("c2", "c1")))
    begun = running(staged("c1", 1), staged("c2", 2), *second, ev.NodeStarted(2, 0, restored="c2", step=2))
    job, effects = history(*begun, ev.NodeStarted(2, 1, restored="c1", step=1, bad=("c2",)))
    assert (job.state, job.reason) == (State.STOPPING, "its nodes restored different checkpoints")
    assert effects == [Stop(key(0, 2), FAILURE_GRACE_S), Stop(key(1, 2), FAILURE_GRACE_S)]
    assert [c.id for c in job.good_checkpoints] == ["c1"]
    job, _ = history(*begun, ev.NodeStarted(2, 1, restored="c2", step=2))
    assert job.state is State.RUNNING


def test_the_matrix_is_total_over_what_can_come_at_any_time() -> None:
    """People's commands and agents' news may come in any state; each pair has a row."""
    anytime = (ev.Held, ev.Released, ev.CancelRequested, ev.Foreseen, ev.Updated)
    assert [(s, e.__name__) for s in State for e in anytime if (s, e) not in TABLE] == []
    live = [s for s in State if s.live]
    news = (ev.NodeStarted, ev.NodeLost, ev.NodeEnded, ev.CheckpointStaged, ev.ArtifactKept, ev.RendezvousChosen)
    assert [(s, e.__name__) for s in live for e in news if (s, e) not in TABLE] == []


def _candidates(attempt: int, index: int, n: int) -> list[ev.JobEvent]:
    return [
        ev.Held("ann", ""), ev.Released("ann"), ev.CancelRequested("ann"), ev.Waited("busy"), ev.Placed(attempt + 1, SHARES),
        ev.RendezvousChosen(attempt, "h", 1), ev.NodeStarted(attempt, index), ev.NodeLost(attempt, index, "gone"),
        ev.NodeEnded(attempt, index, KILLED if n % 2 else CLEAN), ev.CheckpointDeleted(f"c{n - 1}"),
        ev.CheckpointStaged(attempt, f"c{n}", n, Part(0, "d", 1, 1)), ev.StopOrdered(StopFor.EVICT, "away"), GIVES_BACK,
        ev.ArtifactKept(attempt, index, Artifact("a", "d", 1, attempt)), ev.Foreseen(1.0, (2.0, float(n))),
        ev.Updated("ann", n % 5, float(n) or None, n % 2 == 0, "interactive", {"a": str(n), "b": None}),
        ev.StartAllowed("x-0 ended"), ev.StartRefused("x-0", "x-0 has failed"),
    ]  # fmt: skip


@settings(max_examples=examples(300, 3000), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 17), st.integers(0, 1), st.booleans()), max_size=60))
def test_any_history_keeps_the_invariants_and_loses_no_effect(choices: list[tuple[int, int, bool]]) -> None:
    """Law: `pending` of the state after any history holds every effect given and not done yet."""
    job, _ = apply(None, "x-1", SUBMITTED, 0.0)
    owed: set[Effect] = set()
    for n, (choice, index, stale) in enumerate(choices):
        attempt = job.attempt.number if job.attempt else 0
        event = _candidates(attempt - stale, index, n)[choice]
        if not accepts(job, event):
            continue
        job, effects = apply(job, "x-1", event, float(n))
        if job.state.live and job.attempt and all(a.phase is NodePhase.ENDED for a in job.attempt.nodes):
            job, more = apply(job, "x-1", ev.AttemptEnded(job.attempt.number, RESTART if n % 3 else SUCCESS), float(n))
            effects += more
        job = replace(job, restarts_infrastructure=min(job.restarts_infrastructure, 20))
        assert violations(job) == []
        owed = {e for e in owed | set(effects) if _still_owed(job, e)}
        promised = pending(job)
        assert {_what(e) for e in owed} <= {_what(e) for e in promised}


def _what(effect: Effect) -> tuple[object, ...]:
    """An effect without its grace, which may have been shortened or lengthened since."""
    return (Stop, effect.key) if isinstance(effect, Stop) else (effect,)


def _still_owed(job: Job, effect: Effect) -> bool:
    """Whether `effect` was neither done (its end observed) nor overtaken by a later state."""
    if isinstance(effect, DeleteCheckpoint):
        return effect.checkpoint in job.deleting
    attempt = job.attempt
    if attempt is None or attempt.number != effect.key.attempt or not job.state.live:
        return False
    phase = attempt.nodes[effect.key.node_index].phase
    if isinstance(effect, Launch):
        return phase is NodePhase.LAUNCHING and job.state is State.STARTING
    return phase is not NodePhase.ENDED
