"""Output while a job is followed: progress, restarts, the end, and several ranks on one screen."""

from typing import Any

import pytest

from trainmaster.cli.jobs.follow import ended_line, newest, summary, waiting_line
from trainmaster.cli.render.log_stream import LogPrinter
from trainmaster.cli.render.output import Output
from trainmaster.cli.render.progress import Meter, chosen, line, total_steps, values_of


def running(**more: Any) -> dict[str, Any]:
    return {"state": "running", "reason": "", "metrics": {}, **more}


def test_progress_by_steps_and_a_parameter() -> None:
    meter = Meter(total=total_steps({"lr": 0.1, "max_steps": 100}))
    for second in range(5):
        meter.report(10 + 2 * second, float(second))
    values = {"loss": 0.25, "accuracy": 0.9}
    job = running(metrics={name: {"step": 18, "value": value, "time_s": 1.0} for name, value in values.items()})
    assert line(job, meter, None, 200) == "running · step 18/100 · 2/s · loss 0.25 · 41 s left"
    assert line(job, meter, "accuracy", 30) == "running · step 18/100 · 2/s ·…"


def test_progress_by_what_the_program_prints() -> None:
    meter = Meter()
    meter.read("epoch 1/20 ...\nepoch 2/20", 0.0)
    meter.report(7000, 1.0)
    meter.read("loss 3/4\nEpoch: 3/20\n", 30.0)
    assert line(running(), meter, None, 200) == "running · 3/20 · 30 s each · 8 min 30 s left"


def test_a_restart_forgets_the_pace_before_it() -> None:
    meter = Meter(total=100)
    for second, step in enumerate((10, 90, 20)):
        meter.report(step, float(second))
    assert (meter.step, meter.rate, meter.left_s()) == (20, None, None)


def test_a_waiting_job_shows_its_reason() -> None:
    job = {"state": "queued", "reason": "waiting for 2 GPUs", "metrics": {}}
    assert line(job, Meter(), None, 80) == "queued · waiting for 2 GPUs"


def test_which_metric_is_shown() -> None:
    values = {"accuracy": 0.9, "loss": 0.1}
    assert [chosen(values, None), chosen(values, "accuracy"), chosen(values, "f1"), chosen({}, None)] == [
        ("loss", 0.1), ("accuracy", 0.9), (None, None), (None, None),
    ]  # fmt: skip
    assert values_of({"metrics": {"a": 1.0, "b": {"step": 1, "value": 2.0, "time_s": 0.0}}}) == {"a": 1.0, "b": 2.0}


def test_a_duration_is_not_shown_before_what_is_better_when_smaller() -> None:
    assert chosen({"Time-cost": 2.5, "Train-ppl": 13.0, "Validation-ppl": 12.5}, None) == ("Train-ppl", 13.0)


def test_why_it_waits_is_said_once() -> None:
    said = [("queued", "waiting for 1 GPU"), ("held", "held at submit"), ("held", "not yet")]
    assert [waiting_line({"id": "x-1", "state": state}, reason) for state, reason in said] == [
        "queued: waiting for 1 GPU",
        "held at submit; release it: tm release x-1",
        "held: not yet; release it: tm release x-1",
    ]


def test_the_end_of_an_attempt_in_one_line() -> None:
    ended = {"number": 1, "state": "restarted", "message": "rank 1 was killed by SIGKILL", "cause": "killed", "started_s": 1.0}
    assert [ended_line(ended, "step 120"), ended_line(ended, ""), ended_line({**ended, "state": "requeued"}, "step 120")] == [
        "attempt 1 ended: rank 1 was killed by SIGKILL; restarting, given step 120",
        "attempt 1 ended: rank 1 was killed by SIGKILL; restarting, given no checkpoint: there is none",
        "attempt 1 ended: rank 1 was killed by SIGKILL; back in the queue, will start, given step 120",
    ]


def test_a_restart_is_told_from_the_newest_checkpoint_whether_its_step_is_known_or_not() -> None:
    """It said "restarting from step 120", and the restart was from a later checkpoint without a step."""
    known = {"id": "0001-00001", "step": 120, "good": True, "approximate": False, "attempt": 1, "at_least": None, "after_s": None}
    later = {**known, "id": "0002-00001", "step": None, "attempt": 2, "at_least": 120, "after_s": 5.0}
    assert [newest({"checkpoints": found}) for found in ([], [known], [known, later], [known, {**later, "good": False}])] == [
        (None, ""),
        ("0001-00001", "step 120"),
        ("0002-00001", "checkpoint 0002-00001, saved 5 s after attempt 2 was given step 120"),
        ("0001-00001", "step 120"),
    ]
    corrupt = {**known, "good": False}  # it said "from the beginning: there is no checkpoint", and the restart read it once more
    assert newest({"checkpoints": [corrupt]}) == ("0001-00001", "checkpoint 0001-00001, which was found damaged")
    assert newest({"checkpoints": [{**known, "approximate": True}, {**later, "after_s": None}]})[1] == "checkpoint 0002-00001"


def test_a_fork_without_a_checkpoint_of_its_own_is_given_what_it_was_forked_from() -> None:
    origin = {"checkpoint": "0001-00002", "step": 25, "approximate": False, "owner": "x-1", "job": "x-1"}
    fork: dict[str, Any] = {"checkpoints": [], "lineage": origin}
    assert newest(fork) == ("x-1:0001-00002", "step 25 of x-1")
    assert newest({**fork, "lineage": {**origin, "approximate": True}})[1] == "about step 25 of x-1"
    assert newest({**fork, "lineage": {**fork["lineage"], "checkpoint": None, "step": None}}) == (None, "")


def test_the_end_of_a_job_in_one_line() -> None:
    job = {
        "id": "digits-14", "state": "succeeded", "created_s": 0.0, "started_s": 10.0, "ended_s": 210.0, "step": 1000,
        "failure": None, "metrics": {"loss": {"step": 1000, "value": 0.023, "time_s": 0.0}},
        "restarts": {"program": 0, "infrastructure": 1}, "spec": {"metrics": {"primary": None}},
    }  # fmt: skip
    failed = {**job, "state": "failed", "metrics": {}, "step": None, "failure": {"message": "rank 0 exited with code 1\nmore"}}
    assert [summary(job), summary(failed)] == [
        "digits-14 succeeded after 3 min 20 s (step 1000, loss 0.023, 1 restart); next: tm show digits-14",
        "digits-14 failed after 3 min 20 s: rank 0 exited with code 1 (1 restart); next: tm show digits-14",
    ]


def test_ranks_are_told_apart_line_by_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = LogPrinter(Output(), ranks=2)
    printer.page([{"attempt": 1, "rank": 0, "text": "a\nb"}, {"attempt": 1, "rank": 1, "text": "x\ny\n"}])
    printer.page([{"attempt": 1, "rank": 0, "text": "c\n"}, {"attempt": 2, "rank": 1, "text": "z"}])
    printer.finish()
    assert tuple(capsysbinary.readouterr()) == (b"a\n[1] x\n[1] y\nbc\n[1] z\n", b"--- attempt 2 ---\n")


def test_one_rank_is_printed_as_it_is(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = LogPrinter(Output())
    printer.page([{"attempt": 1, "rank": 0, "text": "10%\r20%"}, {"attempt": 1, "rank": 0, "text": "\udcff é\n"}])
    assert capsysbinary.readouterr().out == b"10%\r20%\\xff \xc3\xa9\n"
