"""The logbook: entries derived from attempts, notes as written, and their links."""

from dataclasses import replace

import pytest

from trainmaster.model.events import Noted
from trainmaster.model.job import Action, Cause, Failure, Job, RestartBudget, State, Verdict
from trainmaster.model.spec import Mode
from trainmaster.ports.store import Note
from trainmaster.server.record.logbook import LINKS_MAX, best_entries, job_entries, mentioned, note_entry, storable_text
from trainmaster.testing.builders import attempt, job

KILLED = Failure(Cause.KILLED, "rank 0 was killed by signal 9", rank=0, signal=9)
AGAIN = Verdict(Action.RESTART, State.QUEUED, "restart 1 of 3", 1.0, RestartBudget.PROGRAM, KILLED)
DONE = Verdict(Action.FINISH, State.SUCCEEDED, "all ranks exited 0")


def numbered(number: int) -> Job:
    return replace(job(), id=f"train-{number}")


def test_what_happened_by_itself() -> None:
    value = replace(job(), state=State.SUCCEEDED, reason="all ranks exited 0", ended_s=130.0)
    attempts = [
        replace(attempt(1), started_s=101.0, ended_s=110.0, verdict=AGAIN, failure=KILLED),
        replace(attempt(2), started_s=112.0, ended_s=130.0, verdict=DONE, restored="c1", resumed_from_step=50),
    ]
    assert [(entry.at_s, entry.kind, entry.text) for entry in job_entries(value, attempts)] == [
        (90.0, "submitted", "submitted"),
        (101.0, "start", "attempt 1 starts on node0"),
        (110.0, "crash", "attempt 1 ended: rank 0 was killed by signal 9 (restart)"),
        (112.0, "resume", "attempt 2 is given step 50 on node0"),
        (130.0, "end", "succeeded"),
    ]


def test_a_job_that_waits_was_only_submitted() -> None:
    assert [(entry.kind, entry.by, entry.job) for entry in job_entries(job(), [])] == [("submitted", "ann", "train-1")]


@pytest.mark.parametrize(("mode", "winners"), [(Mode.MIN, ["train-1", "train-3"]), (Mode.MAX, ["train-1", "train-4"])])
def test_a_new_best_is_told_once_for_a_run_that_beats_all_before_it(mode: Mode, winners: list[str]) -> None:
    best = {"train-1": (9, 0.5, 1.0), "train-3": (8, 0.4, 3.0), "train-4": (7, 0.6, 4.0)}
    entries = best_entries([numbered(n) for n in range(1, 5)], "loss", mode, best)
    assert [entry.job for entry in entries] == winners
    assert entries[0].text == "best of train up to this run: loss 0.5 at step 9"
    assert entries[1].text.endswith("before it: 0.5 by train-1")
    assert entries[1].links == ("train-1",)


def test_a_best_value_may_come_before_the_first_step() -> None:
    (entry,) = best_entries([numbered(1)], "loss", Mode.MIN, {"train-1": (None, 0.5, 7.0)})
    assert entry.text == "best of train up to this run: loss 0.5 before its first step"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\r\nb\rc\n\n", "a\nb\nc"), ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"), ("\x9b31m", "\\x9b31m"), ("a\tb", "a\tb"),
        ("\u202eevil", "\\u202eevil"), ("é 👩‍🔬 **bold**", "é 👩‍🔬 **bold**"), ("\n \n", ""),
    ],
)  # fmt: skip
def test_what_would_steer_a_terminal_is_made_visible(text: str, kept: str) -> None:
    assert storable_text(text) == kept


def test_names_of_jobs_in_a_text() -> None:
    text = "digits-3 beats `ddp.v2-14`, see digits-3; not v2-14x, /tmp/run-1/out or image-2.png. (sweep-7)."
    assert mentioned(text) == ["digits-3", "ddp.v2-14", "sweep-7"]
    note = Note(7, "digits-3", Noted("ann", text, 1.0, "vision", "digits"))
    assert note_entry(note, {"digits-3", "sweep-7"}).links == ("sweep-7",)


def test_a_note_links_to_so_many_jobs_and_no_more() -> None:
    """A note of 64 KiB may name ten thousand jobs, and every reader of the logbook would look up each of them."""
    assert len(mentioned(" ".join(f"a-{n}" for n in range(10_000)))) == LINKS_MAX
