"""Whether an attempt went on from what it was given: histories, and what may be said of each."""

from dataclasses import replace

import pytest

from trainmaster.cli.render.timeline import resumed_line
from trainmaster.control.observe import take_report
from trainmaster.control.world import Batch, World
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Action, Attempt, NodeRun, Outcome, State, Verdict
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.nodes import Allocation
from trainmaster.model.progress import Progress
from trainmaster.recovery.resumption import Evidence, Word, evidence, lost_work
from trainmaster.testing.builders import job, placed

SEEN, AGAINST, UNKNOWN = Word.SEEN, Word.AGAINST, Word.UNKNOWN
EVERY, TENTH, HUNDREDTH = (1, 2, 3), (10, 20, 30), (100, 200, 300)
AT_50 = Progress(EVERY, 50, first={"loss": 2.3}, last={"loss": 0.33})


def attempt(number: int, shown: Progress | None = None, over: bool = True, **more: object) -> Attempt:
    """An attempt whose agent reported `shown`."""
    ended_s = 9.0 if over else None
    return replace(Attempt(number, Allocation(()), 0.0, (NodeRun(),), started_s=1.0, progress=shown, ended_s=ended_s), **more)  # type: ignore[arg-type]


def given(shown: Progress | None, step: int | None = 50, at: Progress | None = AT_50, over: bool = True, **more: object) -> Attempt:
    """The second attempt, with a checkpoint."""
    return attempt(2, shown, over, restored="c1", resumed_from_step=step, given=at, **more)


def first(steps: tuple[int, ...], last: int | None = 55, **more: object) -> Attempt:
    return attempt(1, Progress(steps, last, first={"loss": 2.3}, last={"loss": 0.3}, **more))  # type: ignore[arg-type]


def told(word: Word, because: list[str]) -> Evidence:
    return Evidence(word, tuple(because), loss_anew=any("is as at the beginning" in clause for clause in because))


def losses(steps: tuple[int, ...], loss: float, **more: object) -> Progress:
    return Progress(steps, steps[-1] if steps else None, first={"loss": loss}, last={"loss": loss}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "again", "word", "because"),
    [
        # Steps alone.
        (first(EVERY), given(Progress((51, 52), 60)), SEEN, ["its first step was 51"]),
        (first(EVERY), given(Progress((49, 50), 60)), SEEN, ["its first step was 49"]),  # saved a moment before
        (first(EVERY), given(Progress(EVERY, 30)), AGAINST, ["its steps began again at 1"]),
        (first((0, 1, 2)), given(Progress((0, 1, 2), 30)), AGAINST, ["its steps began again at 0"]),
        (first(TENTH), given(Progress(TENTH, 30)), AGAINST, ["its steps began again at 10"]),
        (first(TENTH), given(Progress((60, 70), 70)), SEEN, ["its first step was 60"]),
        (first((37, 81)), given(Progress((41, 85), 500), 500, Progress((37, 81), 500)), AGAINST, ["its steps began again at 41"]),
        (first(EVERY), given(Progress((20, 21), 30)), UNKNOWN, ["its first step was 20"]),  # from an older one of its own
        (first(HUNDREDTH, 300), given(Progress(HUNDREDTH, 300), 50, None), UNKNOWN, ["the first step read of it was 100"]),  # too early
        # It prints every few seconds.
        (first((37, 81), 90), given(Progress((41, 95), 200), 90, None), AGAINST, ["its steps began again at 41"]),
        (first((37, 81), 90), given(Progress((70, 140), 200), 90, None), UNKNOWN, ["its first step was 70"]),
        (first((37, 81), 90), given(Progress((128, 170), 200), 90, None), SEEN, ["its first step was 128"]),
        (first((5, 12, 20), 20), given(Progress((15, 30, 45), 60), 20, Progress((5, 12, 20), 20)), UNKNOWN, ["its first step was 15"]),
        (first((5, 12, 20), 20), given(Progress((15, 30, 45), 60), 20, None, resumed_about=True), UNKNOWN, ["its first step was 15"]),
        (first((0, 9, 18), 27), given(Progress((0, 30, 60), 90), 27, None), UNKNOWN, ["its first step was 0"]),
        # From an older one of its own: the loss is near there, too.
        (first(EVERY), given(losses((6, 7, 8), 0.45)), UNKNOWN,
         ["its first step was 6", "its first loss, 0.45, is near the 0.33 of the checkpoint"]),
        (first(EVERY), given(losses((31, 32, 33), 0.34)), UNKNOWN,
         ["its first step was 31", "its first loss, 0.34, is near the 0.33 of the checkpoint"]),
        (first(EVERY), given(losses((3, 51, 52), 0.34)), SEEN, ["its first step was 3, and then 51"]),  # of a line with the epoch
        # From an older one of its own, or saved while it went on: only the step of the latter is not exact.
        (first(EVERY), given(Progress((31, 32, 33), 60)), UNKNOWN, ["its first step was 31"]),
        (first(EVERY), given(Progress((46, 47, 48), 60), resumed_about=True), SEEN, ["its first step was 46"]),
        (first((5, 12, 20), 55), given(Progress((46, 53, 61), 70), resumed_about=True), UNKNOWN, ["its first step was 46"]),
        # One step alone may only be named: "loading the checkpoint of step 50".
        (first(EVERY), given(Progress((50,), 50)), UNKNOWN, ["its first step was 50"]),
        (first(EVERY), given(Progress((50, 1, 2), 9, fell_to=1)), AGAINST, ["its steps fell back to 1"]),
        (first(EVERY), given(Progress((51,), 51)), SEEN, ["its first step was 51"]),
        # Live: the first line may count epochs.
        (first((1, 10, 20), 240), given(Progress((3,), 3), 240, None, over=False), UNKNOWN, ["its first step was 3"]),
        (first((1, 10, 20), 240), given(Progress((3, 250), 250), 240, None, over=False), SEEN, ["its first step was 3, and then 250"]),
        (first((1, 10, 20), 240), given(Progress((1, 10), 10), 240, None, over=False), AGAINST, ["its steps began again at 1"]),
        # The checkpoint counts epochs, the output steps.
        (first(HUNDREDTH, 1500), given(Progress((1600, 1700), 1700), 3, Progress(HUNDREDTH, 1500)), SEEN, ["its first step was 1600", "its output was at about step 1500 when that checkpoint was saved"]),
        (first(HUNDREDTH, 1500), given(Progress(HUNDREDTH, 300), 3, Progress(HUNDREDTH, 1500)), AGAINST, ["its steps began again at 100"]),
        # Its steps fall back in each epoch.
        (first(HUNDREDTH, 300, fell_to=100), given(Progress(HUNDREDTH, 300), 900, None), UNKNOWN,
         ["its steps began again at 100, and they fall back in one attempt too"]),
        (first(EVERY, fell_to=1), given(losses(EVERY, 0.34)), SEEN,
         ["its steps began again at 1, and they fall back in one attempt too", "its first loss, 0.34, is near the 0.33 of the checkpoint"]),
        # Weights loaded, counter from 0: unknown, not against.
        (first((0, 1, 2)), given(losses((0, 1, 2), 0.34)), UNKNOWN,
         ["its steps began again at 0", "its first loss, 0.34, is near the 0.33 of the checkpoint"]),
        (first(EVERY), given(losses(EVERY, 2.29)), AGAINST,
         ["its steps began again at 1", "its first loss, 2.29, is as at the beginning (2.3)"]),
        (first(EVERY), given(losses((), 0.34)), SEEN, ["its first loss, 0.34, is near the 0.33 of the checkpoint"]),
        (first(EVERY), given(losses((), 2.29)), UNKNOWN,
         ["its first loss, 2.29, is as at the beginning (2.3)", "no step of it was read"]),
        (first(EVERY), given(losses(EVERY, 1.4)), AGAINST, ["its steps began again at 1"]),  # in between: says nothing
        # The count was loaded, and perhaps not the weights.
        (first(EVERY), given(losses((51, 52), 2.29)), UNKNOWN, ["its first step was 51", "its first loss, 2.29, is as at the beginning (2.3)"]),
        (first(EVERY), given(losses((51, 52), 1.9)), SEEN, ["its first step was 51", "its first loss, 1.9, is as at the beginning (2.3)"]),
        # A loss that had risen is noisy: that of the beginning is no sign of it. A named metric that rises may be an accuracy.
        (first(EVERY), given(losses((51, 52), 2.2), at=replace(AT_50, last={"loss": 4.0})), SEEN, ["its first step was 51"]),
        (attempt(1, Progress(EVERY, 55, first={"accuracy": 0.1})), given(Progress((51, 52), 52, first={"accuracy": 0.1}), at=replace(AT_50, last={"accuracy": 0.9})), UNKNOWN,
         ["its first step was 51", "its first accuracy, 0.1, is as at the beginning (0.1)"]),
        # A loss that had not changed says nothing.
        (first(EVERY), given(losses(EVERY, 2.3), at=replace(AT_50, last={"loss": 2.31})), AGAINST, ["its steps began again at 1"]),
        # Checkpoints.
        (first(EVERY), given(None, saved_step=10), AGAINST, ["it saved a checkpoint of the lower step 10"]),
        (first(EVERY), given(None, saved_step=60), UNKNOWN,  # one that begins again comes to it too
         ["its first stored checkpoint is of step 60", "it ended before a step of it was read"]),
        (first(EVERY), given(Progress(EVERY, 90), saved_step=60), UNKNOWN,  # its names may count on, and its output not
         ["its steps began again at 1", "its first stored checkpoint is of step 60"]),
        (first(EVERY), given(Progress((51, 52), 60), saved_step=60), SEEN, ["its first step was 51"]),
        (first(EVERY), given(losses((), 0.34), saved_step=60), SEEN,
         ["its first stored checkpoint is of step 60", "its first loss, 0.34, is near the 0.33 of the checkpoint"]),
        (first(EVERY), given(None, saved_step=50), UNKNOWN, ["it ended before a step of it was read"]),
        (first(EVERY), given(None, saved_step=10, resumed_about=True), UNKNOWN, ["it ended before a step of it was read"]),
        (first(EVERY), given(Progress((51, 52), 60), saved_step=0), SEEN,  # it numbers the files of each attempt
         ["its first step was 51", "it saved a checkpoint of the lower step 0"]),
        # Lightning's bar of rich is printed once, at the end: its step, of `epoch=18.ckpt`, says nothing (seen of SchNetPack).
        (first((), None), given(Progress((176,), 176), 18, Progress(), saved_step=0), AGAINST,
         ["it saved a checkpoint of the lower step 0"]),
        (first((), None), given(Progress((300,), 300), 180, Progress(), saved_step=30), AGAINST,  # it began again and came so far
         ["it saved a checkpoint of the lower step 30"]),
        (first((), None), given(Progress((300,), 300), 180, Progress()), UNKNOWN, ["its first step was 300"]),
        (first((), None), given(Progress((960,), 960), 22, Progress(), saved_step=23), UNKNOWN,
         ["the first step read of it was 960", "its first stored checkpoint is of step 23"]),
        (first((), None), given(Progress((51, 52), 60), 50, Progress()), SEEN, ["its first step was 51"]),
        (first(EVERY), given(losses((), 0.34), saved_step=0), UNKNOWN,
         ["it saved a checkpoint of the lower step 0", "its first loss, 0.34, is near the 0.33 of the checkpoint"]),
        # The SDK.
        (first(EVERY), given(Progress(sdk="loaded"), over=False), SEEN, ["the SDK loaded it"]),
        (first(EVERY), given(Progress(EVERY, 9, sdk="loaded")), SEEN, ["the SDK loaded it", "its steps began again at 1"]),
        (first(EVERY), given(Progress(sdk="asked"), over=False), UNKNOWN, ["it asked the SDK for it", "no step of it was read yet"]),
        # Nothing to go by.
        (first(EVERY), given(None, over=False), UNKNOWN, ["no step of it was read yet"]),
        (first(EVERY), given(None), UNKNOWN, ["it ended before a step of it was read"]),  # it crashed while loading
        (first(EVERY), given(Progress((7, 8), 9), None, None), UNKNOWN, ["the first step read of it was 7"]),  # no step of the checkpoint is known
        # The first attempt's agent was lost.
        (attempt(1), given(Progress((1, 2), 9)), AGAINST, ["its steps began again at 1"]),
        (attempt(1), given(Progress((40, 41), 49), at=None), UNKNOWN, ["its first step was 40"]),
        (attempt(1), given(Progress((50, 51), 59)), SEEN, ["its first step was 50"]),
    ],
)  # fmt: skip
def test_what_is_said_of_an_attempt_that_was_given_a_checkpoint(before: Attempt, again: Attempt, word: Word, because: list[str]) -> None:
    assert evidence([before, again]) == {2: told(word, because)}


@pytest.mark.parametrize(
    ("loss", "word", "because"),
    [
        (2.29, UNKNOWN, ["its first loss, 2.29, is as at the beginning (2.3)", "no step of it was read"]),
        (0.34, SEEN, ["its first loss, 0.34, is near the 0.33 of the checkpoint"]),
    ],
)
def test_losses_are_compared_if_no_step_is_read_of_any_attempt(loss: float, word: Word, because: list[str]) -> None:
    """darknet prints its losses, and its iterations otherwise than other programs: it was not known, and the losses told it."""
    begun, at = attempt(1, Progress(first={"loss": 2.3}, last={"loss": 0.3})), Progress(first={"loss": 2.3}, last={"loss": 0.33})
    assert evidence([begun, given(losses((), loss), None, at)]) == {2: told(word, because)}
    without_loss = replace(begun, progress=Progress((1,), 1))  # it failed early; the next one began as it did
    assert evidence([without_loss, replace(begun, number=2), replace(given(losses((), loss), None, at), number=3)])[3].word is word


def test_an_attempt_that_succeeded_did_not_end_before_its_steps() -> None:
    """ParlAI ran to its end, and was said to have ended before a step of it was read."""
    done = given(None, verdict=Verdict(Action.FINISH, State.SUCCEEDED, "done"))
    assert evidence([first(EVERY), done])[2].because == ("no step of it was read",)
    read = given(losses((), 1.4))  # in between: says nothing
    assert evidence([first(EVERY), read])[2].because == ("no step of it was read",)
    assert evidence([first(EVERY), replace(read, ended_s=None)])[2].because == ("no step of it was read yet",)


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (attempt(2, Progress((56, 57), 60)), {2: Evidence(SEEN, ("its first step was 56",))}),  # from files of its own
        (attempt(2, Progress(EVERY, 60)), {}),
        (attempt(2, None), {}),
        (attempt(2, Progress((30,), 30)), {}),
        (attempt(2, Progress((46, 47, 48), 60)), {2: Evidence(SEEN, ("its first step was 46",))}),
        (attempt(2, Progress((46, 53, 61), 70)), {}),  # it prints by time
    ],
)
def test_an_attempt_without_a_checkpoint_may_go_on_by_itself(again: Attempt, expected: dict[int, Evidence]) -> None:
    assert evidence([first(EVERY), again]) == expected


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([first(EVERY)], ()),
        ([first(EVERY), attempt(2, Progress(EVERY, 30))], ((2, 1),)),  # from the beginning
        ([first(EVERY), attempt(2, None)], ()),
        # DeepSpeech, given none, loads its own last checkpoint and counts epochs from 0: its work was called obsolete.
        ([first(EVERY), attempt(2, losses(EVERY, 0.35))], ()),
        ([first(EVERY), attempt(2, losses(EVERY, 2.2))], ((2, 1),)),
        # "Epoch 6/10", then "step 5100": the first line names the epoch.
        ([first((1, 100, 200), 5300), given(Progress((6, 5100, 5200), 5300), 5000, None)], ((2, 5100),)),
        ([first((1, 100, 200), 5300), given(Progress((6, 5100, 5200), 5300, fell_to=5050), 5000, None)], ((2, 5050),)),
        ([first(EVERY), attempt(2, Progress((56, 57), 60))], ((2, 56),)),  # it went on by itself
        ([first(EVERY), given(Progress((51, 52), 60))], ((2, 51),)),
        ([first(EVERY), given(Progress(EVERY, 30))], ((2, 1),)),
        ([first(EVERY), given(Progress((50, 1, 2), 9, fell_to=1))], ((2, 1),)),
        # Not known where it began: only what was done after the checkpoint of step 50 is certainly lost.
        ([first((0, 1, 2)), given(losses((0, 1, 2), 0.34))], ((2, 52),)),  # weights loaded, counter from 0
        ([first(EVERY), given(Progress(EVERY, 9, sdk="loaded"))], ((2, 52),)),
        ([first(EVERY), given(Progress((20, 21), 30))], ((2, 52),)),
        ([first(EVERY), given(None)], ((2, 52),)),
        ([first(EVERY), given(None, resumed_about=True)], ()),
        ([first(EVERY), given(None, at=None)], ()),  # the checkpoint may count otherwise than the output
        ([first(HUNDREDTH, 1500), given(None, 3, Progress(HUNDREDTH, 1500))], ()),
        ([first(HUNDREDTH, 300, fell_to=100), given(None)], ()),
        ([first((1, 16, 33), 131), given(Progress((118, 134, 150), 200), 100, Progress((1, 16, 33), 97))], ((2, 102),)),
        ([first((5, 12, 20), 20), given(Progress((15, 30, 45), 60), 20, Progress((5, 12, 20), 20))], ((2, 15),)),
        ([first((5, 12, 20), 20), attempt(2, Progress((15, 30, 45), 60))], ((2, 15),)),
        # The agent of the first attempt was lost, and with it what it had seen.
        ([attempt(1), attempt(2, Progress((0, 10, 20), 20))], ((2, 0),)),
        ([attempt(1), attempt(2, Progress((6, 5100, 5200), 5200))], ((2, 5100),)),
        ([attempt(1), attempt(2, Progress((6,), 6), over=False)], ()),  # the first line may count epochs
        ([attempt(1), attempt(2, Progress((100, 200), 200, fell_to=100))], ()),
        ([first(EVERY), given(Progress((51, 52), 60)), attempt(3, Progress(EVERY, 9))], ((3, 1),)),
        (
            [first(EVERY), attempt(2, Progress(EVERY, 55)), replace(given(Progress((51, 52), 60)), number=3)],
            ((2, 1), (3, 51)),
        ),
    ],
)  # fmt: skip
def test_which_work_was_lost(attempts: list[Attempt], expected: tuple[tuple[int, int], ...]) -> None:
    assert lost_work(attempts) == expected


def test_logs_of_older_versions_know_the_first_and_last_step_only() -> None:
    def old(number: int, step: int, last: int, **more: object) -> Attempt:
        return attempt(number, nodes=(NodeRun(outcome=Outcome(first_step=step, last_step=last)),), **more)

    begun, at = old(1, 1, 60), {"restored": "c1", "resumed_from_step": 50}
    assert evidence([begun, old(2, 1, 30, **at)]) == {2: Evidence(AGAINST, ("its steps began again at 1",))}
    assert evidence([begun, old(2, 51, 70, **at)]) == {2: Evidence(SEEN, ("its first step was 51",))}


def test_the_end_of_an_attempt_says_more_than_its_last_report() -> None:
    ended = NodeRun(outcome=Outcome(progress=Progress((50, 1), 9, fell_to=1)))
    again = given(Progress((50,), 50), nodes=(ended,))
    assert evidence([first(EVERY), again]) == {2: Evidence(AGAINST, ("its steps fell back to 1",))}


def test_every_attempt_is_compared_with_the_one_that_began_from_the_beginning() -> None:
    third = replace(given(Progress((81, 82), 90), step=80, at=replace(AT_50, last_step=80)), number=3)
    found = evidence([first(EVERY), given(Progress((51, 52), 85)), third])
    assert [(number, one.word) for number, one in found.items()] == [(2, SEEN), (3, SEEN)]


def test_steps_that_fall_back_in_any_attempt_from_the_beginning_say_nothing() -> None:
    """CycleGAN counts iterations in each epoch. Its first attempt was killed in epoch 1, so it showed no fall."""
    second = replace(first(HUNDREDTH, 400, fell_to=100), number=2)
    third = replace(given(Progress((4, 100, 200), 300, fell_to=100), step=4, at=Progress(HUNDREDTH, 400)), number=3)
    found = evidence([first(HUNDREDTH, 300), second, third])[3]
    assert (found.word, found.because) == (UNKNOWN, ("its steps fell back to 100, and they fall back in one attempt too",))


def test_a_fork_is_given_a_checkpoint_in_its_first_attempt() -> None:
    forked = replace(given(Progress((51, 52), 60)), number=1)
    assert evidence([forked]) == {1: Evidence(SEEN, ("its first step was 51",))}


def test_a_fork_that_begins_from_the_beginning_is_not_called_resumed() -> None:
    """Its checkpoint counts epochs, its output steps: 20 is beyond "step 4", and is where the job that saved it began, too."""
    at = Progress((20, 40, 60), 160)
    forked = replace(given(Progress((20, 40, 60), 100), 4, at, saved_step=1), number=1)
    assert evidence([forked]) == {
        1: Evidence(AGAINST, ("its steps began again at 20", "it saved a checkpoint of the lower step 1"))
    }
    went_on = replace(given(Progress((180, 200), 200), 4, at), number=1)
    assert evidence([went_on])[1].word == SEEN


def test_the_record_keeps_what_the_program_shows() -> None:
    """From the reports of agents to what is compared."""
    batch = Batch(World(), 100.0)
    it = placed(job(), 1, started_s=95.0)
    forked = Lineage(Relation.FORK, "other-1", Checkpoint("c9", 40, 1, (), progress=AT_50, approximate=True), "other-1")
    batch.world.put(replace(it, state=State.RUNNING, lineage=forked))
    part: dict[str, object] = {"digest": "d" * 64, "files": 1, "bytes": 1, "parts_expected": 1, "approximate": False}
    shown: dict[str, object] = {"steps": [41, 42], "last_step": 42, "first": {"loss": 0.4}, "last": {"loss": 0.3}}

    def told(node: int, **report: object) -> Attempt:
        assert take_report(batch, AgentKey("train-1", 1, node), report) is None
        found = batch.world.jobs["train-1"].attempt
        assert found is not None
        return found

    assert told(0, kind="progress", n=1, progress=shown).progress == Progress((41, 42), 42, None, {"loss": 0.4}, {"loss": 0.3})
    assert told(0, kind="progress", n=1, progress={}).progress != Progress()  # repeated
    saved = told(0, kind="staged", n=2, id="c1", step=50, progress={**shown, "last_step": 51}, **part)
    assert (saved.saved_step, saved.progress) == (50, Progress((41, 42), 51, None, {"loss": 0.4}, {"loss": 0.3}))
    assert told(0, kind="staged", n=3, id="c2", step=60, **part).saved_step == 50
    (first_kept, second_kept) = batch.world.jobs["train-1"].checkpoints
    assert (first_kept.progress, second_kept.progress) == (saved.progress, None)
    batch.world.put(replace(batch.world.jobs["train-1"], state=State.STARTING))
    fork = told(0, kind="started", n=4, restored=forked.inherited, step=40)
    assert (fork.resumed_from_step, fork.resumed_about, fork.given) == (40, True, AT_50)
    batch.world.put(replace(batch.world.jobs["train-1"], state=State.STARTING))
    assert told(0, kind="started", n=5, restored="c1", step=50).given == saved.progress


def test_what_an_agent_reports_is_never_refused() -> None:
    told = {"steps": [1, "x", 3, 4], "last_step": 2.5, "first": {"loss": float("nan"), "a": 1, 3: 4}, "last": [], "sdk": "?"}
    assert Progress.of(told) == Progress((1, 3), None, None, {"a": 1.0}, {}, None)
    assert [Progress.of(None), Progress.of({})] == [None, Progress()]


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        ({}, "given step 20"),  # a server of an older version has no evidence
        ({"resumed_evidence": "seen", "resumed_because": ["its first step was 21"]}, "resumed from step 20: its first step was 21"),
        (
            {"resumed_evidence": "against", "resumed_because": ["its steps began again at 1", "it saved a checkpoint of the lower step 5"]},
            "given step 20, but its steps began again at 1, and it saved a checkpoint of the lower step 5",
        ),
        (
            {"resumed_evidence": "unknown", "resumed_because": ["no step of it was read yet"]},
            "given step 20; not known whether it went on from there: no step of it was read yet",
        ),
        ({"resumed_evidence": "unknown", "resumed_about": True, "resumed_because": []}, "given about step 20; not known whether it went on from there"),
        ({"resumed_from": None, "resumed_from_step": None}, "given no checkpoint; it may find files of its own"),
        ({"resumed_from": None, "resumed_from_step": None, "started_s": None}, ""),
        ({"resumed_from": None, "resumed_from_step": None, "number": 1}, ""),
        (
            {"resumed_from": None, "resumed_from_step": None, "resumed_evidence": "seen", "resumed_because": ["its first step was 21"]},
            "given no checkpoint, but it went on: its first step was 21",
        ),
    ],
)  # fmt: skip
def test_the_line_of_an_attempt(shown: dict[str, object], line: str) -> None:
    assert resumed_line({"number": 2, "started_s": 1.0, "resumed_from": "c1", "resumed_from_step": 20, **shown}) == line


@pytest.mark.parametrize(
    ("clock", "name", "word", "because"),
    [  # Chainer's table is printed whole after a restart
        (0.917887, "elapsed_time", UNKNOWN,
         ("its steps began again at 1", "its first elapsed_time, 0.917887, is that of an earlier attempt: it prints lines of before again")),
        (0.917888, "elapsed_time", AGAINST, ("its steps began again at 1", "its first loss, 2.3, is as at the beginning (2.3)")),
        (0.9, "elapsed_time", AGAINST, ("its steps began again at 1", "its first loss, 2.3, is as at the beginning (2.3)")),
        (0.917887, "batch_time", AGAINST, ("its steps began again at 1", "its first loss, 2.3, is as at the beginning (2.3)")),
    ],
)  # fmt: skip
def test_lines_that_are_printed_again_are_no_beginning(clock: float, name: str, word: Word, because: tuple[str, ...]) -> None:
    then = 0.9 if clock == 0.9 else 0.917887
    before = replace(AT_50, first={"loss": 2.3, name: then}, last={"loss": 0.33, name: 9.5})
    again = Progress(EVERY, 12, first={"loss": 2.3, name: clock}, last={"loss": 0.3, name: 10.5})
    history = [attempt(1, before), given(again, at=before)]
    assert evidence(history) == {2: Evidence(word, because, loss_anew=word is AGAINST)}
    assert lost_work(history) == (((2, 1),) if word is AGAINST else ((2, 52),))
