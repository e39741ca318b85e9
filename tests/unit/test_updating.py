"""`Updated`: what each state lets change, and what the scheduler and the limits make of it."""

from dataclasses import replace

import pytest

from trainmaster.control.decide import enforce_limits
from trainmaster.control.observe import take
from trainmaster.control.world import Batch, World
from trainmaster.lifecycle.machine import apply
from trainmaster.model.commands import UpdateJob
from trainmaster.model.events import CancelRequested, Held, JobEvent, Placed, StopOrdered, Submitted, Updated
from trainmaster.model.job import Job, State
from trainmaster.model.nodes import Allocation, NodeShare
from trainmaster.model.spec import CodeCopy, JobSpec, Origin
from trainmaster.ports.store import InboxRow, Recorded
from trainmaster.scheduling.model.convert import task
from trainmaster.server.views.event_text import event_view, sentence
from trainmaster.store.codec import dump, load_command, load_event
from trainmaster.testing import builders

SPEC = JobSpec("true", tags={"owner": "team-a", "kind": "x"}, time_limit_s=60.0)
ALL = Updated("ann", 7, 3600.0, False, "interactive", {"owner": "team-b", "kind": None})
TAGS = {"owner": "team-b"}
PLACED = Placed(1, Allocation((NodeShare("a", "127.0.0.1", 1.0),)))


def history(*events: JobEvent) -> Job:
    job = None
    for second, event in enumerate((Submitted(1, SPEC, Origin(), CodeCopy(), 10.0), *events)):
        job, effects = apply(job, "x-1", event, 11.0 + second)
        assert effects == () or not isinstance(event, Updated)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], replace(SPEC, priority=7, time_limit_s=3600.0, work="interactive", tags=TAGS)),
        ([Held("ann", "")], replace(SPEC, priority=7, time_limit_s=3600.0, work="interactive", tags=TAGS)),
        ([PLACED], replace(SPEC, priority=7, time_limit_s=3600.0, tags=TAGS)),
        ([PLACED, CancelRequested("ann")], replace(SPEC, priority=7, time_limit_s=3600.0, tags=TAGS)),
        ([CancelRequested("ann")], replace(SPEC, tags=TAGS)),
    ],
)
def test_each_state_lets_change_what_makes_sense(before: list[JobEvent], expected: JobSpec) -> None:
    job = history(*before)
    assert history(*before, ALL) == replace(job, spec=expected)


def test_what_is_not_named_stays_and_a_limit_can_go() -> None:
    assert history(Updated("ann")).spec == SPEC
    assert history(Updated("ann", no_time_limit=True)).spec == replace(SPEC, time_limit_s=None)


def test_events_and_commands_are_stored_and_told() -> None:
    assert load_event("Updated", dump(ALL)) == ALL
    assert load_event("Updated", '{"by":"ann"}') == Updated("ann")
    command = UpdateJob("x-1", "ann", 7, None, True, None, {"api_key": "s3cret"})
    assert load_command("UpdateJob", dump(command)) == command
    assert sentence(ALL) == "ann changed priority to 7, time limit to 1 h, class to interactive, tag owner=team-b, tag kind to nothing"
    view = event_view(Recorded(1, 1.0, "x-1", None, Updated("ann", no_time_limit=True, tags={"api_key": "s3cret"}), ""))
    assert (view["text"], view["data"]["tags"]) == ("ann changed time limit to none, tag api_key=(hidden)", {"api_key": "(hidden)"})


def obey(job: Job, *commands: UpdateJob, ended: Job | None = None) -> Batch:
    batch = Batch(World(), 200.0, on_record=lambda job_id: ended)
    batch.world.put(job)
    for seq, command in enumerate(commands, 1):
        assert take(batch, InboxRow(seq, f"key-{seq}", command.job, 200.0, command)) is None
    return batch


def test_the_queue_sees_a_new_priority_at_once() -> None:
    job = builders.job()
    batch = obey(job, UpdateJob("train-1", "ann", priority=9))
    assert batch.world.workload.waiting["train-1"] == task(replace(job, spec=replace(job.spec, priority=9))) != task(job)
    assert [new.event for new in batch.events] == [Updated("ann", priority=9)]
    assert batch.world.jobs["train-1"].state is State.QUEUED


def test_a_running_job_obeys_its_new_limit() -> None:
    running = replace(builders.placed(builders.job(), started_s=100.0), state=State.RUNNING, started_s=100.0)
    longer = obey(running, UpdateJob("train-1", "ann", time_limit_s=1000.0))
    assert enforce_limits(longer, looked=True) == 900.0
    shorter = obey(running, UpdateJob("train-1", "ann", time_limit_s=90.0))
    enforce_limits(shorter, looked=True)
    assert isinstance(shorter.events[-1].event, StopOrdered)
    assert shorter.world.jobs["train-1"].state is State.STOPPING


def test_tags_of_an_ended_job_change_although_it_is_not_in_memory() -> None:
    ended = replace(builders.job(), id="old-1", seq=2, state=State.SUCCEEDED, ended_s=150.0)
    batch = obey(builders.job(), UpdateJob("old-1", "ann", priority=3, tags={"best": "yes"}), ended=ended)
    assert batch.world.jobs["old-1"] == replace(ended, spec=replace(ended.spec, tags={"best": "yes"}))
    assert (batch.jobs, len(batch.events)) == ({"old-1"}, 1)
