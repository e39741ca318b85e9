"""A false report about a checkpoint may cost disk space, never the checkpoint."""

from dataclasses import replace

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.control.reports import event_of
from trainmaster.lifecycle.effects import DeleteCheckpoint
from trainmaster.lifecycle.machine import accepts, apply
from trainmaster.model import events as ev
from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import DOUBTS_MAX, Action, Job, Outcome, RankEnd, RestartBudget, State, Verdict
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CheckpointSpec, CodeCopy, JobSpec, Origin

SHARES = Allocation((NodeShare("a", "127.0.0.1", 1.0),))
RESTART = Verdict(Action.RESTART, State.QUEUED, "restarting", 0.0, RestartBudget.NONE)
KILLED = Outcome(ranks=(RankEnd(0, signal=9),))


def submitted(keep: int) -> Job:
    spec = JobSpec("true", checkpoint=CheckpointSpec(path="ck-*", keep=keep))
    return apply(None, "x-1", ev.Submitted(1, spec, Origin(), CodeCopy(), 0.0), 0.0)[0]


def staged(attempt: int, number: int, step: int | None) -> ev.CheckpointStaged:
    return ev.CheckpointStaged(attempt, f"{attempt:04d}-{number:05d}", step, Part(0, "d" * 64, 1, 1), report=number)


def further(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether a good `one`, committed no earlier, makes `other` unnecessary."""
    return one.step is None or other.step is None or one.step >= other.step


COMMIT = st.tuples(st.just("commit"), st.integers(0, 12) | st.none())
RESTORE = st.tuples(st.sampled_from(("bad", "doubted")), st.integers(0, 7))
BEGIN = st.tuples(st.just("begin"), st.none())


@settings(max_examples=examples(400, 4000), deadline=None)
@given(st.integers(1, 3), st.lists(COMMIT | RESTORE | BEGIN, max_size=40))
def test_no_word_about_a_checkpoint_deletes_it_before_a_later_one_is_good(
    keep: int, told: list[tuple[str, int | None]]
) -> None:
    """R1: in any order of commits, corrupt and unreadable ones, restarts. Law: with checkpoints on record, one is handed out.

    What is deleted was overtaken: a proven checkpoint of a later step (of the same, committed later) is on record.
    """
    job, number = submitted(keep), 0
    for what, value in told:
        if job.state is State.QUEUED:
            attempt = job.attempt.number + 1 if job.attempt else 1
            assert bool(job.resumable()) == bool(job.checkpoints)
            job, _ = apply(job, "x-1", ev.Placed(attempt, SHARES, job.resumable()), 1.0)
        assert job.attempt is not None
        attempt, resume = job.attempt.number, job.attempt.resume
        before, event = job, None
        if what == "commit":
            number += 1
            event = staged(attempt, number, value)
        elif what == "begin":
            event = ev.NodeStarted(attempt, 0, restored=resume[0] if resume else None)
        elif resume and value is not None:
            tried = resume[: value % len(resume) + 1]
            outcome = Outcome(bad=tried) if what == "bad" else Outcome(doubted=tried[-1:], bad=tried[:-1])
            event = ev.NodeEnded(attempt, 0, outcome)
        if event is None or not accepts(job, event):
            continue
        job, effects = apply(job, "x-1", event, 2.0)
        if isinstance(event, ev.NodeEnded):
            job, more = apply(job, "x-1", ev.AttemptEnded(attempt, RESTART), 2.0)
            effects += more
        gone = [effect.checkpoint for effect in effects if isinstance(effect, DeleteCheckpoint)]
        for each in before.checkpoints:
            if each.id in gone:
                assert any(further(one, each) for one in job.checkpoints if one.proven), each
        assert before.checkpoints == () or job.checkpoints != ()


def restarted(job: Job, outcome: Outcome, shares: Allocation = SHARES) -> Job:
    assert job.attempt is not None
    number = job.attempt.number
    for event in (ev.NodeEnded(number, 0, outcome), ev.AttemptEnded(number, RESTART)):
        job, _ = apply(job, "x-1", event, 5.0)
    job, _ = apply(job, "x-1", ev.Placed(number + 1, shares, job.resumable()), 6.0)
    return job


def running(*steps: int, keep: int = 3) -> Job:
    job = submitted(keep)
    for event in (ev.Placed(1, SHARES), ev.NodeStarted(1, 0), *(staged(1, n, step) for n, step in enumerate(steps, 1))):
        job, _ = apply(job, "x-1", event, 1.0)
    return job


def standing(job: Job) -> list[tuple[int | None, bool, int]]:
    return [(c.step, c.good, c.doubts) for c in job.checkpoints]


def test_what_was_called_bad_stays_until_a_later_step_is_good() -> None:
    """R1: all three were marked bad, rightly or not; a new one of a lower step deletes none of them."""
    job = restarted(running(1000, 2000, 3000), Outcome(bad=("0001-00003", "0001-00002", "0001-00001")))
    assert standing(job) == [(1000, False, 0), (2000, False, 0), (3000, False, 0)]
    job, _ = apply(job, "x-1", ev.NodeStarted(2, 0), 7.0)
    job, effects = apply(job, "x-1", staged(2, 1, 10), 8.0)
    assert (effects, standing(job)) == ((), [(1000, False, 0), (2000, False, 0), (3000, False, 0), (10, True, 0)])
    job, effects = apply(job, "x-1", staged(2, 2, 2500), 9.0)
    assert [e.checkpoint for e in effects if isinstance(e, DeleteCheckpoint)] == ["0001-00001", "0001-00002"]
    job, _ = apply(job, "x-1", staged(2, 3, 3001), 9.0)
    assert standing(job) == [(10, True, 0), (2500, True, 0), (3001, True, 0)]


def test_a_name_written_again_for_its_step_takes_one_place() -> None:
    """Three parts of one file that is written with pauses were three checkpoints, and the whole ones before were removed."""
    job = submitted(3)
    names = ("a-1", "a-2", "a-3", "a-3", "a-3", "best")
    events = [replace(staged(1, n, int(name[2:]) if name[1] == "-" else 3), name=name) for n, name in enumerate(names, 1)]
    for event in (ev.Placed(1, SHARES), ev.NodeStarted(1, 0), *events[:5]):
        job, _ = apply(job, "x-1", event, 1.0)
    assert [c.id for c in job.checkpoints] == ["0001-00001", "0001-00002", "0001-00005"]
    job, _ = apply(job, "x-1", events[5], 1.0)
    assert [c.name for c in job.checkpoints] == ["a-2", "a-3", "best"]


def test_what_a_node_may_still_be_put_back_from_stays_until_it_has_begun() -> None:
    """Node 1 restored the newest and runs; node 0 may find the newest damaged and restore the one before."""
    shares = Allocation((NodeShare("node0", "127.0.0.1", 1.0), NodeShare("node1", "127.0.0.1", 1.0)))
    job = restarted(running(1, 2, keep=2), KILLED, shares)
    job, _ = apply(job, "x-1", ev.NodeStarted(2, 1, restored="0001-00002"), 7.0)
    for n, step in enumerate((3, 4, 5), 1):
        job, effects = apply(job, "x-1", staged(2, n, step), 8.0)
        assert not any(isinstance(e, DeleteCheckpoint) and e.checkpoint.startswith("0001") for e in effects)
    assert [c.step for c in job.checkpoints] == [1, 2, 4, 5]
    job, _ = apply(job, "x-1", ev.NodeStarted(2, 0, restored="0001-00001"), 9.0)
    job, _ = apply(job, "x-1", staged(2, 4, 6), 10.0)
    assert [c.step for c in job.checkpoints] == [5, 6]


def test_all_good_checkpoints_are_handed_out_newest_first() -> None:
    """R7: in any number; a checkpoint that several attempts could not read comes after those without doubts."""
    job = running(1, 2, 3, 4, 5, keep=5)
    newest_first = tuple(f"0001-0000{n}" for n in (5, 4, 3, 2, 1))
    assert job.resumable() == newest_first
    for doubts in range(1, DOUBTS_MAX):
        job = restarted(job, Outcome(machine_error="EIO", doubted=("0001-00005",)))
        assert (job.resumable(), job.checkpoints[-1].doubts) == (newest_first, doubts)
    job = restarted(job, Outcome(machine_error="EIO", doubted=("0001-00005",)))
    assert job.resumable() == (*newest_first[1:], newest_first[0])
    for event in (ev.NodeStarted(4, 0, restored="0001-00004"), *(staged(4, n, 4) for n in (1, 2, 3, 4))):
        job, _ = apply(job, "x-1", event, 9.0)
    assert restarted(job, KILLED).resumable() == ("0004-00004", "0004-00003", "0004-00002", "0004-00001", "0001-00005")


def test_what_is_put_back_whole_is_good_again() -> None:
    """A checkpoint that all attempts marked bad is verified once more before the job fails for good."""
    job = restarted(running(7), Outcome(bad=("0001-00001",)))
    assert (job.resumable(), job.good_checkpoints) == (("0001-00001",), ())
    job, _ = apply(job, "x-1", ev.NodeStarted(2, 0, restored="0001-00001", step=7), 9.0)
    assert standing(job) == [(7, True, 0)]


def test_what_was_not_read_stays_in_doubt() -> None:
    """Found damaged in the store, it was called good after a restart that found its files in place and read none of the store."""
    job, _ = apply(running(7), "x-1", ev.CheckpointsDamaged(("0001-00001",)), 3.0)
    (told,) = job.troubles
    assert told.text.endswith("is damaged: the bytes in the store do not have their digest; used only if no other is good")
    job = restarted(job, KILLED)
    again, _ = apply(job, "x-1", ev.NodeStarted(2, 0, restored="0001-00001", step=7, unread=True), 9.0)
    assert (again.state, standing(again), again.troubles) == (State.RUNNING, [(7, False, 0)], (told,))
    again, _ = apply(job, "x-1", ev.NodeStarted(2, 0, restored="0001-00001", step=7), 9.0)
    assert standing(again) == [(7, True, 0)]
    assert [one.text for one in again.troubles] == [
        "checkpoint 0001-00001 of step 7 was damaged, and attempt 2 has read it whole: it counts as good again"
    ]
    older = {"kind": "started", "n": 1, "restored": "0001-00001", "step": 7}  # of an agent that does not say what it read
    assert [event_of(AgentKey("x-1", 2, 0), report) for report in (older, {**older, "read": True})] == [
        ev.NodeStarted(2, 0, "0001-00001", 7, report=1, unread=unread) for unread in (True, False)
    ]


@pytest.mark.parametrize(("parts", "read", "doubts"), [((0,), (0,), 0), ((0,), (), 1), ((0, 1), (0,), 1), ((0, 1), (0, 1), 0)])
def test_each_part_that_a_gang_uses_is_read_by_one_of_its_nodes(parts: tuple[int, ...], read: tuple[int, ...], doubts: int) -> None:
    """In a directory that they share, node 1 finds what node 0 has put there."""
    two = Allocation((NodeShare("a", "127.0.0.1", 1.0), NodeShare("b", "127.0.0.1", 1.0)))
    job = restarted(running(7), KILLED, two)
    kept = tuple(Part(index, "d" * 64, 1, 1) for index in parts)
    job = replace(job, checkpoints=tuple(replace(c, doubts=1, parts=kept) for c in job.checkpoints))
    for index in (0, 1):
        began = ev.NodeStarted(2, index, restored="0001-00001", step=7, unread=index not in read)
        job, _ = apply(job, "x-1", began, 9.0)
    assert standing(job) == [(7, True, doubts)]


def test_a_gang_that_does_not_agree_proves_nothing_good() -> None:
    two = Allocation((NodeShare("a", "127.0.0.1", 1.0), NodeShare("b", "127.0.0.1", 1.0)))
    job = running(7)
    for event in (ev.NodeEnded(1, 0, KILLED), ev.AttemptEnded(1, RESTART), ev.Placed(2, two, job.resumable())):
        job, _ = apply(job, "x-1", event, 5.0)
    job = replace(job, checkpoints=tuple(replace(c, good=False) for c in job.checkpoints))
    job, _ = apply(job, "x-1", ev.NodeStarted(2, 0, restored="0001-00001", step=7), 9.0)
    assert (job.state, standing(job)) == (State.STARTING, [(7, False, 0)])
