"""Metrics in files that a program writes row by row: each row is told once, however the program writes its file."""

import csv
import io
import os
import time
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from launches import launch
from waiting import deadline

from trainmaster.agent.metric_files.advice import advice
from trainmaster.agent.metric_files.reader import FileReader
from trainmaster.agent.metric_files.rows import RowFile, Rows, noted

Row = tuple[int | None, dict[str, float]]


def rows(path: Path, text: str) -> list[Row]:
    path.write_text(text)
    return list(RowFile(str(path)).news())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("epoch,accuracy,loss\n0,0.5,1.5\n1,0.75,1.25\n", [(0, {"accuracy": 0.5, "loss": 1.5}), (1, {"accuracy": 0.75, "loss": 1.25})]),
        ("epoch,step,train_loss,val_loss\n0,49,0.5,\n0,49,,0.6\n", [(49, {"epoch": 0, "train_loss": 0.5}), (49, {"epoch": 0, "val_loss": 0.6})]),
        ("   epoch,   train/box_loss,  metrics/mAP50(B)\n  1,   1.25,   0.5\n", [(1, {"train/box_loss": 1.25, "metrics/mAP50(B)": 0.5})]),
        ("rollout/ep_rew_mean,time/total_timesteps\r\n22.5,2048\r\n", [(2048, {"rollout/ep_rew_mean": 22.5})]),
        ('#{"t_start": 1.5}\nr,l,t\n1.0,20,3.5\n', [(None, {"r": 1.0, "l": 20.0, "t": 3.5})]),
        ("epoch\tloss\n1\t0.5\n", [(1, {"loss": 0.5})]),
        ("step;loss\n1;0.5\n2;0,5\n", [(1, {"loss": 0.5})]),  # a comma in a number may mean two things
        ('{"iter": 50, "loss": 0.5, "mode": "train"}\n', [(50, {"loss": 0.5})]),
        ("step,loss\n1,0.5\nstep,loss\n2,0.25\n", [(1, {"loss": 0.5}), (2, {"loss": 0.25})]),  # a restart wrote its header, too
        ("step,loss\n1,0.5\n2,0.2", [(1, {"loss": 0.5})]),  # the last line is not written to its end
        ("step,name,loss\n1,resnet,inf\n", [(1, {"loss": float("inf")})]),
        ("a sentence, with a comma\nand 3, 4\n", [(None, {"with a comma": 4.0})]),
        ("step,loss,acc\n1,0.5,\n,,\n2,0.25,\nskipped,skipped,skipped\n3,0.2,1\n", [(1, {"loss": 0.5}), (2, {"loss": 0.25}), (3, {"loss": 0.2, "acc": 1.0})]),
        ("step,loss\n1,0.5\nstep,lr\n2,0.25\n", [(1, {"loss": 0.5}), (2, {"lr": 0.25})]),  # a restart wrote another header
        ("", []),
        ("\x00\x00\n,,,\n1,2,3\n", []),
    ],
)  # fmt: skip
def test_rows_of_a_file(tmp_path: Path, text: str, found: list[Row]) -> None:
    assert rows(tmp_path / "metrics.csv", text) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("train.csv", {"loss": 0.5, "lr": 0.1}),
        ("val.csv", {"val_loss": 0.5, "lr": 0.1}),
        ("metrics-Validation.csv", {"validation_loss": 0.5, "lr": 0.1}),
        ("value.csv", {"loss": 0.5, "lr": 0.1}),
    ],
)
def test_what_is_measured_in_a_file_of_the_validation_is_named_so(tmp_path: Path, name: str, found: dict[str, float]) -> None:
    """Training and validation in files with the same columns were one metric, of which the later value of a step was kept."""
    assert rows(tmp_path / name, "epoch,loss,lr\n1,0.5,0.1\n") == [(1, found)]


def test_files_that_have_a_metric_in_common_are_told(tmp_path: Path) -> None:
    for fold in ("a", "b"):
        (tmp_path / fold).mkdir()
    reader = FileReader.of_launch(launch(tmp_path, work=str(tmp_path), metrics_files=["*/m.csv"]))
    assert reader is not None
    for fold in ("a", "b"):
        (tmp_path / fold / "m.csv").write_text("step,loss,lr\n1,0.5,0.1\n")
    reader.start()
    reader.finish()
    assert reader.trouble == "a/m.csv and b/m.csv both have loss, which is one metric: of a step in both, the value read last counts"


def written(table: list[list[float | None]], columns: int, whole: bool = True) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", *(f"loss{n}" for n in range(columns))])
    writer.writerows([[at, *(("" if cell is None else cell) for cell in row[:columns])] for at, row in enumerate(table)])
    return out.getvalue() if whole else out.getvalue()[:-2]


@given(
    st.lists(st.tuples(st.floats(0, 9), st.none() | st.floats(0, 9)), min_size=1, max_size=12),
    st.lists(st.sampled_from(["append", "anew", "half", "column"]), max_size=12),
)
@settings(max_examples=examples(100, 2_000))
def test_each_row_is_told_once(tmp_path_factory: pytest.TempPathFactory, table: list[tuple[float, float | None]], how: list[str]) -> None:
    path = tmp_path_factory.mktemp("rows") / "metrics.csv"
    file, told = RowFile(str(path)), list[Row]()
    shown = [list[float | None](row) if "column" in how[:at] else [row[0], None] for at, row in enumerate(table)]
    columns, size = 1, 0
    for at, step in enumerate([*how, *["append"] * len(table)][: len(table)]):
        columns = 2 if "column" in how[:at] else 1
        text = written(shown[: at + 1], columns)
        if step == "append" and path.exists() and path.read_text() == text[:size]:
            with path.open("a") as out:
                out.write(text[size:])
        elif step == "half":
            path.write_text(written(shown[: at + 1], columns, whole=False))
            told += file.news()
            path.write_text(text)
        else:
            path.write_text(text)
        size = len(text)
        told += file.news()
    expected = [(at, {f"loss{n}": cell for n, cell in enumerate(row) if cell is not None}) for at, row in enumerate(shown)]
    assert told == expected


def test_a_file_that_begins_again_is_told_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n2,0.25\n")
    file = RowFile(str(path))
    assert [step for step, _ in file.news()] == [1, 2]
    path.write_text("step,loss\n1,0.75\n")
    assert list(file.news()) == [(1, {"loss": 0.75})]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(file.news())


def test_of_a_table_that_is_written_again_only_what_changed_is_told(tmp_path: Path) -> None:
    """Some programs write the row of the running epoch anew with each of its steps."""
    path = tmp_path / "metrics.csv"
    file = RowFile(str(path))
    told = list[Row]()
    for text in ("1\n", "1\n2\n", "1\n3\n", "1\n3\n4\n", "1\n2.5\n4\n5\n"):
        path.write_text("loss,acc\n" + "".join(f"{one},1\n" for one in text.split()))
        told += file.news()
    assert [values["loss"] for _, values in told] == [1.0, 2.0, 3.0, 4.0, 2.5, 5.0]


def test_what_an_earlier_attempt_wrote_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n2,0.25\n")
    file = RowFile(str(path), noted(str(path)))
    with path.open("a") as out:
        out.write("3,0.125\n")
    assert list(file.news()) == [(3, {"loss": 0.125})]
    again = RowFile(str(path), noted(str(path)))
    path.write_text("step,loss\n1,0.75\n2,0.5\n3,0.25\n4,0.2\n")
    assert [step for step, _ in again.news()] == [1, 2, 3, 4]


def test_a_row_that_a_killed_program_has_begun_is_none(tmp_path: Path) -> None:
    """The end of a buffer cuts `13,87.5` to `13,8`, and what the next attempt appends goes on in that line."""
    path = tmp_path / "metrics.csv"
    reader = FileReader.of_launch(launch(tmp_path, work=str(tmp_path), metrics_files=["*.csv"]))
    assert reader is not None
    path.write_text("step,loss\n12,88.5\n13,8")
    reader.start()
    reader.finish(whole=False)
    assert reader.take() == [(12, {"loss": 88.5})]
    path.write_text("step,loss\n12,88.5\n1")
    again = RowFile(str(path), noted(str(path)))
    with path.open("a") as out:
        out.write("13,87.5\n14,86.5\n")
    assert list(again.news()) == [(14, {"loss": 86.5})], "no step 113"


@pytest.mark.parametrize("anew", [False, True])
def test_what_was_told_is_not_told_again_after_a_read_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool) -> None:
    """An I/O error in the midst of old rows: what follows them at the next read is old, too. `anew`: they were written again."""
    path, old = tmp_path / "metrics.csv", "step,loss\n1,0.5\n2,0.25\n3,0.2\n"
    path.write_text(old)
    file = RowFile(str(path), None if anew else noted(str(path)))
    if anew:
        assert len(list(file.news())) == 3
        path.write_text(old.replace("0.2\n", "0.20\n"))
    left, read = [2 if anew else 1], Rows.read  # to recognize what was written again, it is read once before

    def failing(rows: Rows, line: bytes) -> Row | None:
        left[0] -= line.startswith(b"2")
        if left[0] == 0:
            left[0] = 99
            raise OSError(5, "Input/output error")
        return read(rows, line)

    monkeypatch.setattr(Rows, "read", failing)
    with pytest.raises(OSError, match="Input/output"):
        list(file.news())
    with path.open("a") as out:
        out.write("4,0.125\n")
    assert list(file.news()) == [(4, {"loss": 0.125})]


def test_more_files_than_are_read_are_told(tmp_path: Path) -> None:
    for number in range(101):
        (tmp_path / f"{number}.csv").write_text("")
    reader = FileReader.of_launch(launch(tmp_path, work=str(tmp_path), metrics_files=["*.csv"]))
    assert reader is not None
    reader.start()
    reader.finish()
    assert reader.trouble == "the patterns match 101 files, of which the first 100 are read"


def test_what_is_no_file_of_rows_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="no regular file"):
        list(RowFile(str(tmp_path / "pipe.csv")).news())
    (tmp_path / "long.csv").write_bytes(b"step,loss\n1,0.5\n" + b"x" * (2 << 20))
    with pytest.raises(ValueError, match="a line of over 1 MiB"):
        list(RowFile(str(tmp_path / "long.csv")).news())


def test_files_are_read_while_they_are_written_and_to_their_end(tmp_path: Path) -> None:
    (tmp_path / "logs" / "version_0").mkdir(parents=True)
    path = tmp_path / "logs" / "version_0" / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n")
    reader = FileReader.of_launch(launch(tmp_path, work=str(tmp_path), metrics_files=["logs/*/metrics.csv", "*.jsonl"]))
    assert reader is not None
    reader.start()
    with path.open("a") as out:
        out.write("2,0.25\n")
    deadline(lambda: reader.waits, "the first row", 20.0)
    found = reader.take()
    (tmp_path / "more.jsonl").write_text('{"step": 3, "val_loss": 0.75}')  # its end is missing, but nothing follows
    reader.finish()
    assert [*found, *reader.take()] == [(2, {"loss": 0.25}), (3, {"val_loss": 0.75})]
    assert reader.trouble == ""


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    reader = FileReader.of_launch(launch(tmp_path, work=str(tmp_path), metrics_files=["*.csv"]))
    assert reader is not None
    reader.start()
    reader.finish()
    assert reader.trouble == "pipe.csv cannot be read: it is no regular file"


def test_only_the_first_node_reads_and_only_where_files_are_named(tmp_path: Path) -> None:
    assert FileReader.of_launch(launch(tmp_path)) is None
    assert FileReader.of_launch(launch(tmp_path, metrics_files=["*.csv"], node_index=1)) is None


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("train/q_loss.csv", "1000,0.5\n2000,0.25\n", [(1000, {"q_loss": 0.5}), (2000, {"q_loss": 0.25})]),  # TorchRL
        ("eval/reward.csv", "1000,9\n", [(1000, {"eval_reward": 9.0})]),
        ("loss.csv", "0,200,0.5\n1,400,0.25\n", [(200, {"loss": 0.5}), (400, {"loss": 0.25})]),  # d3rlpy
        ("loss.csv", "0.5,1\n-1,2\n1,2,3,4\n7\n", []),
    ],
)
def test_a_file_without_a_header_is_of_the_metric_that_it_is_named_after(tmp_path: Path, path: str, text: str, found: list[Row]) -> None:
    """Nothing of TorchRL's runs was read: their metrics stand nowhere else."""
    (tmp_path / path).parent.mkdir(exist_ok=True)
    assert rows(tmp_path / path, text) == found


def test_advice_names_all_files_where_each_metric_has_one(tmp_path: Path) -> None:
    for name in ("train/q_loss.csv", "eval/reward.csv", "time/speed.csv"):
        (tmp_path / "scalars" / name).parent.mkdir(parents=True)
        (tmp_path / "scalars" / name).write_text("1000,0.5\n")
    os.utime(tmp_path / "scalars" / "eval" / "reward.csv", (1.0, 1.0))
    assert advice(str(tmp_path), 0.0) == (
        "no metric was read from what it printed in its first half minute, but scalars/train/q_loss.csv has q_loss; "
        "these are read with --metrics-file 'scalars/*/*.csv'"
    )


def test_advice_names_a_file_of_metrics_and_a_pattern_for_it(tmp_path: Path) -> None:
    before_s = time.time() - 1.0
    (tmp_path / "data.csv").write_text("id,age,name\n1,30,a\n2,40,b\n")
    assert advice(str(tmp_path), before_s) == ""
    (tmp_path / "lightning_logs" / "version_3").mkdir(parents=True)
    (tmp_path / "lightning_logs" / "version_3" / "metrics.csv").write_text("epoch,step,train_loss,val_loss\n0,9,0.5,\n0,9,,0.6\n")
    assert advice(str(tmp_path), before_s) == (
        "no metric was read from what it printed in its first half minute, but lightning_logs/version_3/metrics.csv has "
        "train_loss, val_loss; these are read with --metrics-file 'lightning_logs/version_*/metrics.csv'"
    )
    assert advice(str(tmp_path), time.time() + 60.0) == ""
