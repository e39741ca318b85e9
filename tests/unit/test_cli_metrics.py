"""`tm metrics try`: what would be read from a log, without a server."""

import io
import json
import shlex
from pathlib import Path

import pytest
from contract_answers import DETAIL

from trainmaster.cli.app import run
from trainmaster.cli.inspect import show
from trainmaster.cli.metrics.export import last_told

LOG = (
    "Using 2 workers, ratio 0.5\n"
    "step 1: loss 0.5\n"
    "\r 10%|#         | 1/10 [00:00<00:01,  9.00it/s, loss=0.4]\r 20%|##        | 2/10 [00:00<00:01,  9.00it/s, loss=0.3]\n"
    "-----------------------------\n"
    "| train/          |         |\n"
    "|    loss         | 0.25    |\n"
    "|    step         | 3       |\n"
    "-----------------------------\n"
    "Using 3 workers, ratio 0.5\n"
    "done"
)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a log. There is no server, and none may be started."""
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "train.log"
    path.write_text(LOG)
    return str(path)


def test_it_shows_what_is_read_by_which_rule_and_what_is_not(log: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["metrics", "try", log]) == 0
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()] == [
        ["LINE", "STEP", "RULE", "READ"],
        ["2", "1", "step", "words", "loss=0.5"],
        ["3", "-", "progress", "bar", "loss=0.4"],
        ["3", "-", "progress", "bar", "loss=0.3"],
        ["6", "3", "table", "train/loss=0.25"],
        [],
        ["METRIC", "POINTS", "STEPS", "FIRST", "LAST"],
        ["loss", "3", "1", "0.5", "0.3"],
        ["train/loss", "1", "3", "0.25", "0.25"],
        [],
        ["LINE", "TIMES", "HAS", "NUMBERS,", "GAVE", "NOTHING"],
        ["1", "2", "Using", "2", "workers,", "ratio", "0.5"],
    ]
    read, advice, _ = told.err.splitlines()
    assert read == "10 lines, 4 read"
    assert advice.startswith("to also read line 1 and those like it: tm metrics try FILE --pattern ")
    assert not (tmp_path / "home").exists()


def test_a_pattern_is_suggested_for_lines_that_are_not_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line that reads them, where nothing was: it is tried before it is said."""
    text = "reading 2 files\n" + "".join(f"<{n}> quality {0.5 + n / 8} of {n + 1.5}\n" for n in range(3))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["metrics", "try", "-"]) == 0
    advice = capsys.readouterr().err.splitlines()[1]
    before, _, pattern = advice.partition(" --pattern ")
    assert before == "to read line 2 and those like it: tm metrics try FILE"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert run(["metrics", "try", "-", "--json", "--pattern", *shlex.split(pattern)]) == 0
    read = [(one["step"], one["values"]) for one in json.loads(capsys.readouterr().out)["read"]]
    assert read == [(n, {"quality": 0.5 + n / 8, "of": n + 1.5}) for n in range(3)]


def test_a_setting_that_each_attempt_prints_is_not_suggested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen of SchNetPack: of two attempts, `loss_weight` of the printed configuration was advised as a metric."""
    attempt = "│   loss_weight: 0.01\n│   loss_weight: 0.99\n`Trainer(limit_train_batches=1.0)` was configured\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((2 * attempt).encode())))
    assert run(["metrics", "try", "-"]) == 0
    assert "loss_weight" not in capsys.readouterr().err


def test_the_parts_of_a_printed_model_are_not_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seen of chemprop, which prints nothing else while it trains: `task_weights` of its criterion was advised as a metric."""
    log = tmp_path / "train.log"
    log.write_text("MPNN(\n  (criterion): MSE(task_weights=[[1.0]])\n  (metrics): ModuleList(\n    (0-1): 2 x MSE(task_weights=[[1.0]])\n")
    assert run(["metrics", "try", str(log)]) == 0
    assert "task_weights" not in capsys.readouterr().err


def test_a_value_that_was_another_each_of_three_times_is_no_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """EvoTorch: other values of its blocks were read, and nothing was said of these."""
    blocks = "".join(f"         iter : {n}00\n    mean_eval : 9.{n}5\npop_best_eval : 7.{n}25\n\n" for n in (1, 2, 3))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(blocks.encode())))
    assert run(["metrics", "try", "-"]) == 0
    advice = capsys.readouterr().err.splitlines()[1]
    before, _, pattern = advice.partition(" --pattern ")
    assert before == "to also read line 3 and those like it: tm metrics try FILE"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(blocks.encode())))
    assert run(["metrics", "try", "-", "--json", "--pattern", *shlex.split(pattern)]) == 0
    read = [(one["name"], one["first_step"], one["last"]) for one in json.loads(capsys.readouterr().out)["metrics"]]
    assert sorted(read) == [("mean_eval", 100, 9.35), ("pop_best_eval", 100, 7.325)]


def test_standard_input_a_pattern_and_json(log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert run(["metrics", "try", "-", "--json", "--only", "--pattern", r"(?P<workers>\d+) workers, ratio (?P<ratio>\S+)"]) == 0
    told = json.loads(capsys.readouterr().out)
    told["metrics"].sort(key=lambda one: one["name"])
    assert told == {
        "lines": 10,
        "read": [
            {"line": 1, "step": None, "values": {"workers": 2.0, "ratio": 0.5}, "rule": "pattern"},
            {"line": 2, "step": 1, "values": {}, "rule": "pattern"},
            {"line": 9, "step": None, "values": {"workers": 3.0, "ratio": 0.5}, "rule": "pattern"},
        ],
        "metrics": [
            {"name": "ratio", "points": 2, "steps": 1, "first_step": None, "first": 0.5, "last_step": 1, "last": 0.5},
            {"name": "workers", "points": 2, "steps": 1, "first_step": None, "first": 2.0, "last_step": 1, "last": 3.0},
        ],
        "unread": [
            {"line": 3, "times": 1, "text": "20%|##  | 2/10 [00:00<00:01,  9.00it/s, loss=0.3]"},
            {"line": 6, "times": 1, "text": "|  loss  | 0.25  |"},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.log"], "error: nowhere.log cannot be read: No such file or directory\n  name a file, or - for standard input\n"),
        (["x", "--pattern", "(?P<loss>x)(?=y)"], "error: this pattern cannot be used: a look-ahead (?=…) cannot be matched in linear time\n"),
        (["x", "--only"], "error: --only reads what the pattern matches, and there is none\n  add --pattern, or leave --only out\n"),
        (["x", "--pattern", "loss"], "error: no named group, so nothing is read; name what to read: (?P<loss>[\\d.]+), (?P<step>\\d+)\n"),
    ],
)
def test_what_cannot_be_tried_is_named(log: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metrics", "try", *arguments]) != 0
    assert capsys.readouterr().err.startswith(said)


def test_a_pattern_of_the_step_alone_gives_the_step_of_the_lines_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TensorFlow's guide to checkpoints prints its loss so."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"Saved checkpoint for step {n}0: ./tf_ckpts/ckpt-{n}\nloss {3 / n:1.2f}\n" for n in (1, 2, 3)))
    assert run(["metrics", "try", str(log), "--pattern", r"for step (?P<step>\d+)", "--json"]) == 0
    (loss,) = json.loads(capsys.readouterr().out)["metrics"]
    assert (loss["first_step"], loss["last_step"], loss["points"]) == (10, 30, 3)


def test_how_many_steps_the_points_are_of_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """KataGo names its step at the beginning of an epoch: 20 points were of 4 steps, and looked as if each was of another."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"Global step: {n}00 samples\nloss = {9.5 - n}\nloss = {9.25 - n}\nacc = 0.{n}\n" for n in range(3)))
    assert run(["metrics", "try", str(log)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[-2:] == [["loss", "6", "0", "to", "200", "(3", "steps)", "9.5", "7.25"], ["acc", "3", "0", "to", "200", "0", "0.2"]]


def test_warnings_tracebacks_and_hyperparameters_are_no_lines_to_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text('UserWarning: pytorch 2.13 needs NumPy 2.1\n  File "/a/train.py", line 49, in main\nvalue: 3 of 4\nhyperparameters: lr=0.1, iou_t=0.2\n')
    assert run(["metrics", "try", str(log), "--json"]) == 0
    assert [one["line"] for one in json.loads(capsys.readouterr().out)["unread"]] == [3]


def test_settings_are_no_measurements_and_steps_alone_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No pattern is suggested for a line that a configuration prints once; and why nothing was read is said."""
    log = tmp_path / "train.log"
    log.write_text("dropout = 0.1\nweight_decay = 0.01\ngrad_clip = 1.0\nbeta = 0.9\n" + "".join(f"step {n}\n" for n in range(9)))
    assert run(["metrics", "try", str(log)]) == 0
    said = capsys.readouterr().err
    assert "only steps were read: no value with a name stood in these lines" in said
    assert "to read one with a pattern: tm metrics try FILE --pattern 'step (" in said
    assert "dropout" not in said


def test_the_position_of_a_bar_may_be_the_step_and_the_pattern_for_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its position alone is no step: the bar of a program that resumed may begin at 0."""
    log = tmp_path / "train.log"
    bar = "".join(f"\r{10 * n:3d}%|{'#' * n:10}| {n}/10 [00:0{n}<00:01, {n}.50it/s, loss={1 / (n + 1):.4f}]" for n in range(10))
    log.write_text(f"{bar}\nFinal training loss 0.0649\n")
    assert run(["metrics", "try", str(log)]) == 0
    said = capsys.readouterr().err
    assert "these have no step; if a number in line 1 counts the steps:" in said
    pattern = shlex.split(next(line for line in said.splitlines() if "--pattern" in line))[-1]
    assert run(["metrics", "try", str(log), "--pattern", pattern, "--json"]) == 0
    loss, final = json.loads(capsys.readouterr().out)["metrics"]
    assert (loss["points"], loss["first_step"], loss["last_step"], loss["last"]) == (10, 0, 9, 0.1)
    assert (final["name"], final["last_step"]) == ("Final_training_loss", 9)
    assert run(["metrics", "try", str(log), "--pattern", pattern]) == 0
    assert "these have no step" not in capsys.readouterr().err


def test_one_pattern_takes_the_positions_of_bars_with_other_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Implicit: all values of the second model's bar were at the last step of the first one's."""
    log = tmp_path / "train.log"
    first = "".join(f"\r{n}0%|#| {n}/10 [00:0{n}<00:01, 7.50it/s, loss={1 / (n + 1):.4f}]" for n in range(1, 10))
    rated = "".join(f"\r{n}0%|#| {n}/10 [00:0{n}<00:01, 7.50it/s, auc={50 + n}.04%, skipped=0.8{n}%]" for n in range(1, 8))
    log.write_text(f"{first}\nRating: 100%|#| 7/7 [00:00<00:00, 9.50it/s]\n{rated}\n")
    assert run(["metrics", "try", str(log)]) == 0
    pattern = shlex.split(next(line for line in capsys.readouterr().err.splitlines() if "--pattern" in line))[-1]
    assert run(["metrics", "try", str(log), "--pattern", pattern, "--json"]) == 0
    read = [(one["name"], one["first_step"], one["last_step"], one["last"]) for one in json.loads(capsys.readouterr().out)["metrics"]]
    assert read == [("loss", 1, 9, 0.1), ("auc", 1, 7, 57.04), ("skipped", 1, 7, 0.87)]
    assert run(["metrics", "try", str(log), "--pattern", r"loss=(?P<loss>\S+)\]"]) == 0
    assert r"(?P<step>\d+)/\d+ \[.*?(?:loss=(?P<loss_2>" in capsys.readouterr().err


def test_a_bar_between_lines_is_no_step_of_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """x-transformers: a bar that is drawn every ten seconds stands before one in a hundred of its losses, which it prints itself."""
    log = tmp_path / "train.log"
    bars = [f"training:   0%|          | {n}/900 [00:00<?, ?it/s]training loss: 5.{n}1\nvalidation loss: 5.45" for n in (0, 1)]
    log.write_text("\n".join([*bars, *(f"training loss: 4.{n}1" for n in range(90))]))
    assert run(["metrics", "try", str(log)]) == 0
    said = capsys.readouterr()
    assert ("training_loss" in said.out, "--pattern" in said.err) == (True, False)


def test_a_file_of_rows_is_read_as_a_job_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs" / "version_2").mkdir(parents=True)
    (tmp_path / "logs" / "version_2" / "metrics.csv").write_text("epoch,step,val_loss\n0,49,0.5\n1,99,\n2,149,0.25\n")
    assert run(["metrics", "try", "logs/version_2/metrics.csv"]) == 0
    told = capsys.readouterr()
    assert ["val_loss", "2", "49", "to", "149", "0.5", "0.25"] in [line.split() for line in told.out.splitlines()]
    assert "a job takes it as --metrics-file 'logs/version_*/metrics.csv'" in told.err


def test_the_last_value_is_the_one_told_last_as_it_is_in_a_comparison() -> None:
    """Of steps 10 and then 5, `tm metrics` called that of 10 the last, and `tm compare` that of 5."""
    points = [(5, 0.9), (10, 0.0)]  # in order of steps
    assert last_told(points, {"step": 5, "value": 0.9}) == (5, 0.9)
    assert last_told([(0, 0.1), (1, 0.2)], {"step": None, "value": 0.2}) == (1, 0.2)
    assert last_told(points, {"step": 99, "value": 0.5}) == (10, 0.0)  # told since the table was read
    assert last_told(points, None) == (10, 0.0)


@pytest.mark.parametrize(
    ("ran_s", "ended", "step", "is_told"),
    [
        (24.0, True, 320, True),  # it trained, and nothing of that was read
        (24.0, True, None, False),  # it may be no training
        (24.0, False, 10, False),  # its first value may still come
        (40.0, False, None, True),
    ],
)
def test_a_run_without_metrics_says_how_to_read_them(ran_s: float, ended: bool, step: int | None, is_told: bool) -> None:
    (attempt,) = DETAIL["attempts"]
    end_s = 1001.0 + ran_s if ended else None
    ran = {**DETAIL, "metrics": {}, "checkpoints": [], "attempts": [{**attempt, "ended_s": end_s}]}
    job = {**ran, "step": step, "ended_s": end_s}
    text = " ".join(show.body(job, 1001.0 + ran_s, (None, [], None), (200, True)))
    assert ("Metrics: none is recorded" in text) is is_told


@pytest.mark.parametrize(("points", "step", "is_told"), [(5, None, True), (4, None, False), (5, 7, False)])
def test_values_without_a_step_are_told_with_what_may_read_one(points: int, step: int | None, is_told: bool) -> None:
    job = {**DETAIL, "step": step, "metrics": {"loss": {"value": 0.5, "step": None, "time_s": 1.0}}}
    series = "loss", [(at, 1.0 / (at + 1)) for at in range(points)], None
    text = " ".join(show.body(job, 2001.0, series, (200, True)))
    assert ("Its values have no step. To see whether one can be read: tm logs " in text) is is_told


def test_a_suggested_pattern_does_not_mix_the_sets_of_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`Regret\\s+(...)` read both lines under one name, and the validation's value replaced the training's."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"Round {n}\nInner Loop Train Regret 1.{n}\nInner Loop Valid Regret 2.{n}\n" for n in range(3)))
    assert run(["metrics", "try", str(log)]) == 0
    pattern = shlex.split(next(line for line in capsys.readouterr().err.splitlines() if "--pattern" in line))[-1]
    assert run(["metrics", "try", str(log), "--pattern", pattern, "--json"]) == 0
    (regret,) = json.loads(capsys.readouterr().out)["metrics"]
    assert (regret["points"], regret["first"], regret["last"]) == (3, 1.0, 1.2)
