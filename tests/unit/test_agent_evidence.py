"""What the agent collects of a program's first steps and losses, and when it tells the server."""

import json
from pathlib import Path
from typing import Any

import pytest
from launches import launch

from trainmaster.agent.metrics import patterns
from trainmaster.agent.metrics.evidence import CLOCKS, Evidence
from trainmaster.agent.metrics.progress import Progress, RoleProgress
from trainmaster.agent.transport.outbox import Outbox
from trainmaster.model.progress import CLOCKS as MODEL_CLOCKS
from trainmaster.model.progress import Progress as ModelProgress
from trainmaster.sdk import channel, context

EMPTY = {"steps": [], "last_step": None, "fell_to": None, "first": {}, "last": {}, "epoch_first": None, "epoch_steps": None, "epoch_anew": None, "sdk": None}


def shown(*points: tuple[int, int | None, dict[str, float]]) -> dict[str, Any]:
    evidence = Evidence()
    for point in points:
        evidence.point(*point)
    return evidence.record()


@pytest.mark.parametrize(
    ("steps", "head", "fell_to"),
    [
        ([1, 2, 3, 4], [1, 2, 3], None),
        ([5, 5, 6], [5, 6], None),
        ([120, 1, 2], [120, 1, 2], 1),  # "resuming from step 120", and it begins again
        ([100, 200, 300, 100], [100, 200, 300], 100),  # counts each epoch anew
        ([1, 2, 3, 100, 99, 101], [1, 2, 3], None),  # a late line about the step before
        ([9, 8, 7], [9, 8, 7], 8),  # counts down
    ],
)
def test_the_first_steps_and_whether_they_fell_back(steps: list[int], head: list[int], fell_to: int | None) -> None:
    expected = {**EMPTY, "steps": head, "last_step": steps[-1], "fell_to": fell_to}
    assert shown(*((0, step, {}) for step in steps)) == expected


def test_what_the_user_named_counts_as_a_loss() -> None:
    """RAFT and AlphaZero print no loss of a known name: what a pattern or `--primary` names is compared in its place."""
    orders = launch(Path("/"), metrics_pattern=r"(?P<step>\d+) (?P<epe>\S+) (?P<lr>\S+)", metrics_primary="wins")
    named = patterns.named(orders, patterns.compiled(orders["metrics_pattern"] or ""))
    evidence = Evidence(named)
    evidence.point(0, 1, {"epe": 2.5, "lr": 0.5, "wins": 3.0, "time": 7.0, "val_loss": 1.0})
    assert evidence.record()["first"] == {"epe": 2.5, "wins": 3.0, "val_loss": 1.0}
    assert patterns.named(launch(Path("/")), None) == frozenset()


def test_the_first_time_that_has_passed_is_told_beside_the_losses() -> None:
    many = {f"loss{number}": float(number) for number in range(9)}
    record = shown((0, 1, {**many, "elapsed_time": 0.917887, "batch_time": 0.5, "elapsed": 2.0}), (0, 2, {"loss0": 1.0, "elapsed_time": 1.5}))
    first = {"loss0": 0.0, "loss1": 1.0, "loss2": 2.0, "loss3": 3.0, "elapsed_time": 0.917887}
    assert (record["first"], record["last"]) == (first, {**first, "loss0": 1.0, "elapsed_time": 1.5})
    assert ModelProgress.of(record).first == first
    assert CLOCKS == MODEL_CLOCKS


def test_the_lowest_rank_that_names_a_step_counts() -> None:
    points = [(1, 5, {"loss": 9.0}), (0, 7, {"loss": 2.0}), (1, 6, {"loss": 9.0}), (0, 8, {"loss": 1.5})]
    assert shown(*points) == {**EMPTY, "steps": [7, 8], "last_step": 8, "first": {"loss": 2.0}, "last": {"loss": 1.5}}


def test_losses_are_the_finite_ones_of_the_first_few_names() -> None:
    many = {f"loss{number}": float(number) for number in range(9)}
    points = [(0, 1, {"accuracy": 0.5, "Loss": float("nan")}), (0, 2, {"Loss": 2.0, "val/loss": 1e300}), (0, 3, many), (0, 4, {"Loss": 1.0})]
    record = shown(*points)
    assert record["first"] == {"Loss": 2.0, "loss0": 0.0, "loss1": 1.0, "loss2": 2.0}
    assert record["last"] == {**record["first"], "Loss": 1.0}
    json.dumps(record, allow_nan=False)


def reports(outbox: Outbox) -> list[dict[str, Any]]:
    return [one["progress"] for one in outbox.batch()[0] if one["kind"] == "progress"]


def test_a_restart_tells_what_it_shows_a_few_times(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path / "spool"), str(tmp_path / "points"))
    progress = Progress(outbox, again=True)
    progress.tell()
    for step in range(51, 200):
        progress.printed(0, step, {"loss": 0.3})
        progress.tell()
    told = reports(outbox)
    assert [one["steps"] for one in told] == [[51], [51, 52], [51, 52, 53]]
    assert (told[0]["first"], told[-1]["last_step"], progress.evidence.record()["last_step"]) == ({"loss": 0.3}, 53, 199)


def test_a_first_attempt_tells_that_its_steps_fell_back(tmp_path: Path) -> None:
    """A search (KerasTuner) trains one model after the other: values of the ones before are replaced while it runs."""
    outbox = Outbox(str(tmp_path / "spool"), str(tmp_path / "points"))
    progress = Progress(outbox)
    for step in (1, 2, 3, 1, 2, 3, 1):
        progress.printed(0, step, {"loss": 0.5})
        progress.tell()
    assert [(one["steps"], one["fell_to"]) for one in reports(outbox)] == [([1, 2, 3], 1)]


def test_a_first_attempt_tells_nothing_before_its_end(tmp_path: Path) -> None:
    outbox = Outbox(str(tmp_path / "spool"), str(tmp_path / "points"))
    progress = Progress(outbox)
    progress.printed(0, 1, {"loss": 2.0})
    progress.tell()
    assert reports(outbox) == []
    assert progress.evidence.record() == {**EMPTY, "steps": [1], "last_step": 1, "first": {"loss": 2.0}, "last": {"loss": 2.0}}


def test_a_step_that_the_sdk_or_a_tracker_counted_is_no_evidence(tmp_path: Path) -> None:
    """They count from the step of the restored checkpoint on, whether the program loaded it or not."""
    progress = Progress(Outbox(str(tmp_path / "spool"), str(tmp_path / "points")), again=True)
    progress.printed(0, 1, {})
    progress.reported(0, 51, {"loss": 2.0}, counted=True)
    assert progress.evidence.record() == {**EMPTY, "first": {"loss": 2.0}, "last": {"loss": 2.0}}
    tracked = Progress(Outbox(str(tmp_path / "spool2"), str(tmp_path / "points2")), again=True)
    tracked.logged(51, {"loss": 2.0}, counts=True, named=False)
    tracked.logged(52, {"loss": 1.0}, counts=False)  # of a child run
    assert (tracked.last_step, tracked.evidence.record()) == (51, {**EMPTY, "first": {"loss": 2.0}, "last": {"loss": 2.0}})
    tracked.logged(2, {"loss": 1.5}, counts=True)
    assert (tracked.last_step, tracked.evidence.record()["steps"]) == (51, [2])


def test_the_sdk_says_that_it_counted_and_that_it_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank0.sdk"
    monkeypatch.setattr(channel, "CHANNEL", channel._Channel())
    for name, value in {"TRAINMASTER_SDK": str(path), "TRAINMASTER_RESUME_DIR": str(tmp_path), "TRAINMASTER_RESUME_STEP": "50"}.items():
        monkeypatch.setenv(name, value)
    channel.report(loss=1.0)
    channel.report(step=60, loss=1.0)
    assert [context.resume_dir(), context.resume_dir()] == [tmp_path, tmp_path]
    channel.tell_restored(loaded=True)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"t": "m", "step": 51, "values": {"loss": 1.0}, "counted": True},
        {"t": "m", "step": 60, "values": {"loss": 1.0}},
        {"t": "r", "loaded": False},
        {"t": "r", "loaded": True},
    ]


def calls(tmp_path: Path) -> tuple[Progress, Outbox]:
    outbox = Outbox(str(tmp_path / "spool.jsonl"), str(tmp_path / "points.jsonl"))
    return Progress(outbox), outbox


def test_a_trackers_metric_that_counts_epochs_is_no_fall_of_the_steps(tmp_path: Path) -> None:
    """`loss` by batch and `val_acc` by epoch: the steps seemed to fall back, which hid that later work was lost."""
    progress, outbox = calls(tmp_path)
    for epoch in (1, 2):
        for batch in range(1, 101):
            progress.logged(100 * (epoch - 1) + batch, {"loss": 1.0}, True)
        progress.logged(epoch, {"val_acc": 0.5}, True)
    record = progress.evidence.record()
    assert (record["steps"], record["fell_to"], record["last_step"], progress.last_step) == ([1, 2, 3], None, 200, 200)
    assert outbox.warned == {}
    progress.logged(1, {"loss": 0.1}, True)
    assert progress.evidence.record()["fell_to"] == 1


def test_epochs_that_are_logged_beside_printed_steps_are_no_step_back(tmp_path: Path) -> None:
    """A program that printed its steps, and wrote the validation of each epoch to a file, was said to have fallen back to step 1."""
    progress, _ = calls(tmp_path)
    for epoch in (1, 2):
        for batch in range(1, 101):
            progress.printed(0, 100 * (epoch - 1) + batch, {"loss": 1.0})
        progress.logged(epoch, {"val_acc": 0.5}, True)
    record = progress.evidence.record()
    assert (record["steps"], record["fell_to"], record["last_step"], progress.last_step) == ([1, 2, 3], None, 200, 200)
    progress.printed(0, 1, {"loss": 0.1})
    assert progress.evidence.record()["fell_to"] == 1


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([(1, 0.5), (2, 0.4), (3, 0.4)], ""),
        ([(1, 0.5), (1, 0.5)], ""),  # the same again
        ([(1, 0.5), (1, 0.1)], "loss (step 1)"),
        ([(1, 0.5), (2, 0.4), (1, 0.5)], ""),
        ([(1, 0.5), (2, 0.4), (4, 0.3), (3, 0.2)], ""),  # it was overtaken
        ([(1, 0.5), (2, 0.4), (1, 0.3)], "loss (step 1)"),
        ([*((step, 0.5) for step in range(1, 101)), (1, 0.5)], "loss (step 1)"),  # the value of then is forgotten
        ([(9, 0.5), (10, 0.4), (9, 0.3), (10, 0.2)], "loss (step 9)"),
        ([(1, float("nan")), (1, float("nan"))], ""),
        ([(1, 0.5), (1, float("nan"))], "loss (step 1)"),
        ([(1, float("nan")), (1, 0.5)], "loss (step 1)"),
        ([(step, 0.5) for step in range(100, 0, -1)], ""),  # each once, the newest checkpoint first
        ([*((step, 0.5) for step in range(2, 202, 2)), (3, 0.5)], "or out of order: loss (step 3)"),  # perhaps one of then
    ],
)
def test_values_that_replace_earlier_ones_of_their_step_are_told(points: list[tuple[int, float]], told: str, tmp_path: Path) -> None:
    """Five values of one step, the lowest 0.1: the record had the last, called it the best, and said nothing."""
    for report in (lambda one, *point: one.logged(*point, False), lambda one, *point: one.reported(0, *point)):
        progress, outbox = calls(tmp_path)
        for step, value in points:
            report(progress, step, {"loss": value})
        words = outbox.warned.get("several values", {"text": ""})["text"]
        assert told in words
        assert bool(told) is bool(words)


def test_a_role_that_reports_what_rank_0_reports_is_told(tmp_path: Path) -> None:
    """The role `eval` and an `eval/loss` of the training: one series had the values of both, without a word."""
    progress, outbox = calls(tmp_path)
    role = RoleProgress(outbox, "eval", progress)
    role.printed(-1, 1, {"loss": 0.5, "acc": 0.5})
    progress.reported(1, 1, {"eval/acc": 0.1})
    progress.reported(0, 1, {"train/loss": 0.2})
    role.printed(-1, 2, {"loss": 0.4})
    assert outbox.warned == {}
    progress.reported(0, 1, {"eval/loss": 0.1})
    role.printed(-1, 3, {"loss": 0.3})
    told = "rank 0 and the role eval both report eval/loss: it has the values of both; give the role another name"
    assert outbox.warned["role metrics"]["text"] == told


def test_what_was_loaded_is_told_only_of_the_checkpoint_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer took another directory, and "the SDK loaded it" was said of the checkpoint that was given."""
    told: list[bool] = []
    monkeypatch.setattr(context, "tell_restored", lambda loaded: told.append(loaded))
    context.tell_loaded(500)
    monkeypatch.setenv("TRAINMASTER_RESUME_DIR", "/x")
    monkeypatch.setenv("TRAINMASTER_RESUME_STEP", "500")
    context.tell_loaded(300)
    assert told == []
    context.tell_loaded(500)
    assert told == [True]
