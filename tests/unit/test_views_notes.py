"""The sentences of `tm show`: notes, advice, starts, and where attempts began."""

from dataclasses import replace

import pytest

from trainmaster.cli.render.timeline import resumed_line
from trainmaster.control.observe import take, take_report
from trainmaster.control.world import Batch, World
from trainmaster.lifecycle.transitions import end_attempt
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.commands import SubmitJob
from trainmaster.model.events import AttemptEnded, Placed
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Action, Attempt, Cause, Failure, NodePhase, NodeRun, Outcome, State, Verdict
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.nodes import Allocation
from trainmaster.model.progress import Progress
from trainmaster.model.spec import CheckpointSpec, GpuChoice, Resources
from trainmaster.ports.store import InboxRow
from trainmaster.recovery.resumption import Evidence, Word
from trainmaster.server.jobs.notifications import message
from trainmaster.server.record.logbook import job_entries
from trainmaster.server.views.job_notes import advice, counted_anew, not_loaded, notes, unread, without_steps
from trainmaster.server.views.resources import attempt_view, job_view, pending_job, starting_text
from trainmaster.testing.builders import job, placed
from trainmaster.tracking.runs import run_of

ATTEMPT = Attempt(1, Allocation(()), 0.0, (NodeRun(),))


def test_only_the_last_attempt_that_began_again_has_a_note() -> None:
    again = Evidence(Word.AGAINST, ("its steps began again at 1", "it saved a checkpoint of the lower step 10"))
    seen = {2: again, 3: again, 4: Evidence(Word.UNKNOWN, ("no step of it was read yet",)), 5: Evidence(Word.SEEN)}
    began = "attempt 3 was given a checkpoint, but its steps began again at 1, and it saved a checkpoint of the lower step 10; "
    named = "if the program takes the checkpoint as an argument, name it in checkpoint.resume_arguments (--resume-arguments)"
    assert notes(job(), seen) == [began + named]
    taken = job()
    taken = replace(taken, spec=replace(taken.spec, checkpoint=CheckpointSpec("out/*", resume_arguments="--load {path}")))
    counts = "it may count its steps from the beginning with the checkpoint loaded"
    assert notes(taken, seen) == [f"{began}checkpoint.resume_arguments were added to its command: {counts}"]


def test_the_note_of_an_attempt_whose_loss_began_again_does_not_call_its_checkpoint_loaded() -> None:
    again = Evidence(Word.AGAINST, ("its steps began again at 1", "its first loss, 2.29, is as at the beginning (2.3)"), loss_anew=True)
    taken = job()
    taken = replace(taken, spec=replace(taken.spec, checkpoint=CheckpointSpec("out/*", resume_arguments="--load {path}")))
    unused = "checkpoint.resume_arguments were added to its command: the program may not have used them"
    assert notes(taken, {2: again}) == [f"attempt 2 was given a checkpoint, but {', and '.join(again.because)}; {unused}"]


def test_an_attempt_says_which_of_its_choices_it_got() -> None:
    """The kinds and numbers are in the spec."""
    taken, plain = replace(ATTEMPT, allocation=Allocation((), choice=1)), job()
    free = replace(plain, spec=replace(plain.spec, resources=Resources(choices=(GpuChoice("h100", 1), GpuChoice("a100", 2)))))
    assert [attempt_view(one, taken, None)["choice"] for one in (free, plain)] == [1, None]


def test_steps_that_fall_back_within_an_attempt_are_told() -> None:
    """Folds, or several models: what they print at the same steps replaces what was there."""
    shown = replace(ATTEMPT, progress=Progress((1, 2, 3), 50))
    assert counted_anew([shown]) == counted_anew([]) == []
    fell = replace(shown, progress=Progress((1, 2, 3), 50, fell_to=1))
    (told,) = counted_anew([fell, replace(shown, number=2)])  # a restart takes nothing back
    assert told.startswith("its steps fell back to 1 within attempt 1: the later value of a metric at a step replaces")


def test_what_a_killed_agent_had_not_read_may_be_missing_and_that_is_told() -> None:
    """It reads the output: the last quarter of a second of what was printed stands in the log alone."""
    lost = replace(ATTEMPT, failure=Failure(Cause.AGENT_LOST, "the agent on n0 is gone without an exit record"))
    failed = replace(ATTEMPT, failure=Failure(Cause.PROGRAM, "exit code 1"))
    assert unread(job(), [ATTEMPT, failed]) == []
    assert unread(job(), [lost, failed]) == ["metrics may lack what was printed last by attempt 1, whose agent is gone: tm logs train-1 has it"]
    (told,) = unread(job(), [lost, replace(lost, number=3)])
    assert told.startswith("metrics may lack what was printed last by attempts 1, 3, whose agents are gone")


def test_a_restart_that_succeeds_without_a_step_is_told() -> None:
    """`Experiment already exists`, and exit code 0: the work of the attempt before was not done."""
    killed, done = replace(ATTEMPT, progress=Progress((1, 2, 3), 120)), replace(ATTEMPT, number=2, ran_s=2.4)
    ended = replace(job(), state=State.SUCCEEDED)
    (told,) = without_steps(ended, [killed, done])
    assert told == (
        "attempt 2 ended with exit code 0 after 2.4 s; no step was read of it and no checkpoint of it is stored, "
        "and attempt 1 had come to step 120: see in tm logs whether the work was done"
    )
    assert without_steps(replace(ended, state=State.RUNNING), [killed, done]) == []
    assert without_steps(ended, [killed, replace(done, progress=Progress((121,), 400))]) == []
    assert without_steps(replace(ended, checkpoints=(Checkpoint("0002-00001", None, 2, ()),)), [killed, done]) == []
    assert without_steps(ended, [ATTEMPT, done]) == without_steps(ended, [done]) == []


def test_a_failure_before_the_first_step_after_a_checkpoint_names_the_one_before() -> None:
    """If a checkpoint cannot be loaded, the job ends, although an earlier one may be good."""
    kept = tuple(Checkpoint(f"0001-0000{n}", step, 1, ()) for n, step in enumerate((None, 20, 40), 1))
    ended = replace(job(), state=State.FAILED, failure=Failure(Cause.PROGRAM, "exited"), checkpoints=kept)
    given = replace(ATTEMPT, number=2, restored="0001-00003")
    begin = "attempt 2 was given checkpoint 0001-00003 of step 40 and ended before a step of it was read; if it cannot be loaded, "
    assert not_loaded(ended, [ATTEMPT, given]) == [f"{begin}go on from the one before: tm rerun train-1@20"]
    damaged = replace(ended, checkpoints=(kept[0], replace(kept[1], good=False), kept[2]))
    assert not_loaded(damaged, [given]) == [f"{begin}go on from the one before: tm rerun train-1@0001-00001"]
    assert not_loaded(ended, [replace(given, progress=Progress((41,), 41))]) == not_loaded(ended, [ATTEMPT]) == []
    assert not_loaded(ended, [replace(given, progress=Progress(first={"loss": 0.5}))]) == []  # of which no step is read
    assert not_loaded(ended, [replace(given, progress=Progress(sdk="loaded"))]) == []
    saved = replace(ended, checkpoints=(*kept, Checkpoint("0002-00001", None, 2, ())))
    assert not_loaded(saved, [given]) == []
    assert not_loaded(replace(ended, checkpoints=kept[2:]), [given]) == not_loaded(ended, []) == []
    assert not_loaded(replace(ended, state=State.QUEUED), [given]) == []
    assert not_loaded(replace(ended, failure=Failure(Cause.OUT_OF_MEMORY, "exited")), [given]) == []


def test_a_checkpoint_that_was_not_loaded_is_named_and_only_one_of_such_a_name_is_offered() -> None:
    """KataGo was given `checkpoint_prev0.ckpt` and looked for `checkpoint.ckpt`; AllenNLP's rerun was given `best.th`."""
    names = ("run/best.th", "run/state_e1.th", "run/state_e2.th", "run/best.th", "run/state_e3.th")
    kept = tuple(Checkpoint(f"0001-0000{n}", n * 10, 1, (), name=name) for n, name in enumerate(names, 1))
    ended = replace(job(), state=State.FAILED, failure=Failure(Cause.PROGRAM, "exited"), checkpoints=kept)
    given = replace(ATTEMPT, number=2, restored="0001-00005")
    begin = "attempt 2 was given run/state_e3.th (checkpoint 0001-00005 of step 50) and ended before a step of it was read"
    before = "; if it cannot be loaded, go on from the one before: tm rerun train-1@"
    other = "; if the program looks for another name, such as run/best.th, write that as --checkpoint"
    assert not_loaded(ended, [given]) == [f"{begin}{before}30{other}"]
    assert not_loaded(replace(ended, checkpoints=kept[3:]), [given]) == [f"{begin}{other}"]
    alike = replace(ended, checkpoints=(*kept[1:3], replace(kept[3], step=30), kept[4]))  # a step of two files names neither
    assert not_loaded(alike, [given]) == [f"{begin}{before}0001-00003{other}"]
    named = replace(ended, spec=replace(ended.spec, checkpoint=CheckpointSpec("run/*", resume_arguments="--load {path}")))
    assert not_loaded(named, [given]) == [f"{begin}{before}30"]  # it looks for no name


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "bash: line 1: nvcc: command not found",
            "'nvcc' is not on the job's PATH: install it, or submit from where it is on the PATH",
        ),
        ("bash: line 1: train.py: command not found", "a script is started by its interpreter: python train.py"),
        (
            "bash: line 2: ./train.py: Permission denied",
            "./train.py is not executable: run `chmod +x ./train.py`, or start it with its interpreter, such as `python ./train.py`",
        ),
        (
            "python: can't open file '/w/trian.py': [Errno 2] No such file or directory",
            "there is no /w/trian.py: check the name; tm plan lists what goes along",
        ),
        (
            "/env/bin/python3: can't open file '/w/a b.py': [Errno 2] No such file or directory",
            "there is no /w/a b.py: check the name; tm plan lists what goes along",
        ),
        (
            "ModuleNotFoundError: No module named 'torch.foo'",
            "the Python that ran it has no module 'torch.foo': install it there, or name another Python (--python); "
            "for a file of your own, tm plan lists what goes along",
        ),
        ("ValueError: bash: line 1: nvcc: command not found", None),
    ],
)
def test_what_to_do_about_a_failure_that_names_its_cause(line: str, told: str | None) -> None:
    failed = replace(job(), failure=Failure(Cause.PROGRAM, "rank 0 exited", last_lines=("before", line)))
    assert advice(failed) == ([told] if told else [])


@pytest.mark.parametrize(
    ("reason", "since_s", "told"),
    [
        ("starting", 10.0, "starting"),
        ("starting", 45.4, "starting since 45 s; its limit for this is 30 min"),
        ("building the environment", 250.0, "starting since 4 min: building the environment; its limit for this is 30 min"),
        (
            "building the environment",
            4000.0,
            "starting since 1 h 6 min: building the environment; its limit for this is 30 min",
        ),
    ],
)
def test_a_start_that_takes_long_says_since_when_what_and_how_long_it_may(reason: str, since_s: float, told: str) -> None:
    """R16: `tm why` said the same after a second and after an hour."""
    starting = replace(job(), attempt=replace(ATTEMPT, placed_s=1000.0))
    assert starting_text(starting, reason, 1000.0 + since_s) == told


def test_a_gang_that_starts_says_which_nodes_have_not_begun() -> None:
    begun = NodeRun(phase=NodePhase.RUNNING)
    starting = replace(job(), attempt=replace(ATTEMPT, placed_s=1000.0, nodes=(begun, NodeRun(), begun)))
    told = "starting since 45 s: 2 of 3 nodes have begun, not yet n1; its limit for this is 30 min"
    assert starting_text(starting, "starting", 1045.0) == told


def test_a_submit_that_waits_is_shown_as_the_job_it_becomes() -> None:
    """R24: one made from another job had no lineage until control had taken it up."""
    it = job()
    command = SubmitJob(it.id, it.spec, it.origin, it.code, lineage=Lineage(Relation.REQUEUE, "other-1"), member="ann")
    row, batch = InboxRow(7, "key", it.id, 5.0, command), Batch(World(), 5.0)
    take(batch, row)
    assert replace(pending_job(row), reason="queued") == batch.world.jobs[it.id]


def test_a_checkpoint_without_a_step_says_when_it_was_saved_and_from_where_its_attempt_had_resumed() -> None:
    """nanoGPT saves right after a restart, before any line with a step: of the next resume `tm show` knew no more than that."""
    batch = Batch(World(), 100.0)
    it = placed(job(), 1, started_s=95.0)
    batch.world.put(replace(it, state=State.RUNNING, checkpoints=(Checkpoint("0001-00001", 99, 1, ()),)))

    def told(number: int, *reports: dict[str, object]) -> None:
        for n, report in enumerate(reports, start=1):
            assert take_report(batch, AgentKey("train-1", number, 0), {"n": n, **report}) is None

    def again(number: int, restored: str, step: int | None, **more: object) -> str:
        ended = {"kind": "ended", "n": 0, "ranks": [], "launch_error": None, "over_memory": False, "memory_limit_bytes": None}
        told(number - 1, {**ended, "peak_memory_bytes": 0, "port_in_use": False, "last_step": None, "first_step": None, "ran_s": 1.0})
        batch.record("train-1", AttemptEnded(number - 1, Verdict(Action.RESTART, State.QUEUED, "again")))
        batch.record("train-1", Placed(number, it.attempt.allocation if it.attempt else Allocation(()), (restored,)))
        told(number, {"kind": "started", "restored": restored, "step": step, "bad": [], **more})
        resumed = batch.world.jobs["train-1"].attempt
        assert resumed is not None
        return resumed_line(attempt_view(batch.world.jobs["train-1"], resumed, None))

    def saved(number: int, **more: object) -> None:
        staged = {"id": f"{number:04d}-00001", "step": None, "digest": "d" * 64, "files": 1, "bytes": 1, "parts_expected": 1}
        told(number, {"kind": "staged", **staged, **more, "n": 2})

    assert again(2, "0001-00001", 99) == "given step 99"
    saved(2, after_s=5.0)
    assert again(3, "0002-00001", None) == "given checkpoint 0002-00001, saved 5 s after attempt 2 was given step 99"
    third = batch.world.jobs["train-1"].attempt
    assert third is not None
    assert (third.resumed_from_step, third.resumed_about) == (99, True)
    saved(3, after_s=70.0)
    assert again(4, "0003-00001", None) == "given checkpoint 0003-00001, saved 1 min 10 s after attempt 3 was given step 99"
    saved(4)  # the clock was set meanwhile
    assert again(5, "0004-00001", None) == "given checkpoint 0004-00001, whose step is not known"
    assert again(6, "work:last.bin", 120) == "given step 120"  # complete, and not in the store
    assert again(7, "work:last.bin", 120, approximate=True) == "given about step 120"


def test_a_start_that_was_reported_late_is_shown_as_early_as_its_ranks_began() -> None:
    """The server was killed right after a submit: a job of 9.5 s had "succeeded after less than 0.1 s"."""
    late = replace(ATTEMPT, placed_s=1.0, started_s=11.0, ended_s=11.0, ran_s=9.5)
    ended = replace(job(), state=State.SUCCEEDED, attempt=late, created_s=0.5, started_s=11.0, ended_s=11.0, ran_s=9.5)
    assert (job_view(ended, {}, "")["started_s"], attempt_view(ended, late, None)["started_s"]) == (1.5, 1.5)
    known = replace(ended, started_s=1.2, attempt=replace(late, started_s=1.2))
    assert (job_view(known, {}, "")["started_s"], attempt_view(known, replace(late, started_s=1.2), None)["started_s"]) == (1.2, 1.2)


def test_an_end_that_was_recorded_late_is_shown_when_it_was() -> None:
    """The server was down: a job of 2 s had "succeeded after 16 s"."""
    outcome = Outcome(ran_s=2.0).recorded_later(13.5)
    assert Outcome().recorded_later(0.5) == Outcome()
    nodes = (NodeRun(outcome=outcome, phase=NodePhase.ENDED),)
    late = replace(ATTEMPT, placed_s=1.0, started_s=1.5, ended_s=17.5, ran_s=2.0, nodes=nodes)
    ended = replace(job(), state=State.SUCCEEDED, attempt=late, created_s=0.5, started_s=1.5, ended_s=17.5, ran_s=2.0)
    views = job_view(ended, {}, ""), attempt_view(ended, late, None)
    assert [(one["started_s"], one["ended_s"]) for one in views] == [(1.5, 4.0)] * 2
    set_ahead = replace(late, nodes=(NodeRun(outcome=outcome.recorded_later(9e6)),))  # by a clock that was set meanwhile
    assert attempt_view(ended, set_ahead, None)["ended_s"] == 3.0
    cancelled = replace(ended, state=State.CANCELLED, ended_s=90.0)  # while it waited for a restart
    assert job_view(cancelled, {}, "")["ended_s"] == 90.0


def test_a_late_start_is_that_of_the_job_after_a_restart_too() -> None:
    """The server was down from the first start to the first failure: a job of 26 s had "succeeded after 4.3 s"."""
    nodes = (NodeRun(phase=NodePhase.ENDED, outcome=Outcome(ran_s=4.0).recorded_later(17.5)),)
    late = replace(ATTEMPT, placed_s=1.0, started_s=22.5, nodes=nodes)
    ends = AttemptEnded(1, Verdict(Action.RESTART, State.QUEUED, "restarting"), 4.0)
    begun = replace(job(), state=State.STOPPING, attempt=late, created_s=0.5, started_s=22.5)
    again, _ = end_attempt(begun, ends, 22.5)
    assert again.attempt is not None
    assert (again.started_s, again.attempt.span) == (1.0, (1.0, 5.0))
    second = replace(ATTEMPT, number=2, placed_s=22.5, started_s=23.0, ended_s=27.0, ran_s=4.0)
    ended = replace(again, state=State.SUCCEEDED, attempt=second, ended_s=27.0)
    assert (job_view(ended, {}, "")["started_s"], job_view(ended, {}, "")["ended_s"]) == (1.0, 27.0)


def test_what_a_tracker_and_a_notification_say_of_an_end_that_was_recorded_late_is_when_it_was() -> None:
    """MLflow had the time of the record: a run of 6 s took 22 s."""
    nodes = (NodeRun(outcome=Outcome(ran_s=2.0).recorded_later(13.5), phase=NodePhase.ENDED),)
    late = replace(ATTEMPT, placed_s=1.0, started_s=17.5, ended_s=17.5, ran_s=2.0, nodes=nodes)
    ended = replace(job(), state=State.SUCCEEDED, attempt=late, created_s=0.5, started_s=17.5, ended_s=17.5, ran_s=2.0)
    run, told = run_of(ended, "server"), message(ended)
    assert (run.started_s, run.ended_s) == (told["started_s"], told["ended_s"]) == (2.0, 4.0)
    entries = job_entries(ended, [late])
    assert [(entry.at_s, entry.kind) for entry in entries] == [(0.5, "submitted"), (2.0, "start"), (4.0, "end")]
