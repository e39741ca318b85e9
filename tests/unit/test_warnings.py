"""Warnings of an agent or of control appear in `tm show`, in `tm why` and in the events, and can be withdrawn."""

from pathlib import Path

import pytest

from trainmaster.agent.transport.outbox import Outbox
from trainmaster.cli.render import human
from trainmaster.control.reports import event_of
from trainmaster.engines.local import exits
from trainmaster.lifecycle.machine import TransitionError, apply
from trainmaster.model.checkpoints import Part
from trainmaster.model.events import AttemptEnded, CheckpointStaged, JobEvent, NodeEnded, NodeStarted, Placed, Warned
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Action, Outcome, RankEnd, RestartBudget, State, Trouble, Verdict
from trainmaster.model.nodes import Allocation
from trainmaster.server.views.event_text import sentence
from trainmaster.server.views.resources import job_detail
from trainmaster.store.codec import dump, load_event
from trainmaster.testing import builders

KEY = AgentKey("digits-1", 1, 0)
REPORT = {"kind": "warned", "n": 4, "topic": "checkpoint", "text": "step 40 is not stored: the disk is full"}


def test_a_report_is_an_event_that_can_be_read_again() -> None:
    event = event_of(KEY, REPORT)
    assert event == Warned(1, 0, "checkpoint", "step 40 is not stored: the disk is full", 4)
    assert load_event("Warned", dump(event)) == event
    assert sentence(event) == "n0: step 40 is not stored: the disk is full"
    assert sentence(Warned(1, -1, "start", "")) == "over: trouble with start"
    assert event_of(KEY, {**REPORT, "text": "x" * 9000}) == Warned(1, 0, "checkpoint", "x" * 500, 4)


def test_a_later_word_of_a_topic_replaces_the_earlier_and_an_empty_one_takes_it_back() -> None:
    job = builders.placed(builders.job())
    told = [
        Warned(1, 0, "checkpoint", "a", 1),
        Warned(1, -1, "start", "b"),
        Warned(1, 0, "checkpoint", "c", 2),
        Warned(1, 0, "checkpoint", "c", 3),
    ]
    for second, event in enumerate(told):
        job, effects = apply(job, job.id, event, float(second))
        assert effects == ()
    assert job.troubles == (Trouble("start", "b", 1, -1, 1.0), Trouble("checkpoint", "c", 1, 0, 2.0))
    assert job.attempt is not None
    assert job.attempt.nodes[0].reports == 3
    views = job_detail(job, [], {}, "", [])["troubles"]
    assert [human.trouble(view) for view in views] == ["attempt 1: b", "attempt 1: c"]
    job, _ = apply(job, job.id, Warned(1, 0, "checkpoint", "", 4), 9.0)
    assert [trouble.topic for trouble in job.troubles] == ["start"]


def test_advice_on_the_checkpoints_stands_until_a_later_attempt_has_one() -> None:
    """Of chemprop no step is read, so it came when the attempt had failed: it was gone as soon as the job was placed again."""
    again = Verdict(Action.RESTART, State.QUEUED, "restarting", 3.0, RestartBudget.INFRASTRUCTURE)
    job, said = builders.job(), []
    history: tuple[JobEvent, ...] = (
        Placed(1, Allocation((builders.share(),))), NodeStarted(1, 0), Warned(1, 0, "checkpoint pattern", "a", 1),
        NodeEnded(1, 0, Outcome(ranks=(RankEnd(0, signal=9),))), AttemptEnded(1, again),
        Placed(2, Allocation((builders.share(),))), NodeStarted(2, 0), CheckpointStaged(2, "c1", 7, Part(0, "d", 1, 1)),
    )  # fmt: skip
    for second, event in enumerate(history):
        job, _ = apply(job, job.id, event, float(second))
        said.append([one.text for one in job.troubles])
    assert said == [[], [], *([["a"]] * 5), []]


def test_the_newest_few_are_kept_and_those_of_an_attempt_that_is_over_are_refused() -> None:
    job = builders.placed(builders.job())
    for number in range(20):
        job, _ = apply(job, job.id, Warned(1, 0, f"topic {number}", "text", number + 1), 1.0)
    assert [trouble.topic for trouble in job.troubles] == [f"topic {number}" for number in range(12, 20)]
    with pytest.raises(TransitionError):
        apply(job, job.id, Warned(2, 0, "topic", "text"), 1.0)


def test_an_agent_tells_each_word_once_and_its_exit_record_repeats_the_last(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    for text in ("", "a", "a", "b", ""):
        outbox.warn("checkpoint", text)
    assert [(report["n"], report["text"]) for report in outbox.batch()[0]] == [(1, "a"), (2, "b"), (3, "")]
    record = {"ranks": [], "launch_error": None, "staged": [], "kept": [], "warned": list(outbox.warned.values())}
    assert [report["n"] for report in exits.reports(record)] == [3]
