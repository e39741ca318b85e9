"""Metrics in a file that the program writes row by row, over a crash and a restart: read once each, and told as evidence."""

from collections.abc import Iterator

import pytest
from running import Tm, attempts, server

PROGRAM = """
import csv, json, os, sys
again, saved = os.environ["TRAINMASTER_ATTEMPT"] != "1", sys.argv[1:]
begin = json.load(open(saved[-1]))[0] + 1 if saved else 1
version = sum(name.startswith("version_") for name in os.listdir("logs")) if os.path.isdir("logs") else 0
os.makedirs(f"logs/version_{version}")
os.makedirs("out", exist_ok=True)
with open(f"logs/version_{version}/metrics.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["epoch", "step", "train_loss", "val_loss"])
    for step in range(begin, 41):
        table.writerow([step // 10, step, 1 / step, ""])
        if step % 10 == 0:
            table.writerow([step // 10, step, "", 2 / step])
            open("out/part", "w").write(json.dumps([step]))
            os.rename("out/part", f"out/{step}.json")
        file.flush()
        if step == 25 and not again:
            os._exit(1)
"""
SAVES = ("--checkpoint", "out/{step}.json", "--resume-arguments", "{path}")


@pytest.fixture(scope="module")
def tm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tm]:
    with server(tmp_path_factory.mktemp("files")) as running:
        running.file("train.py", PROGRAM)
        yield running


def test_rows_are_metrics_and_show_where_a_restart_went_on(tm: Tm) -> None:
    tm.ok("run", "--name", "rows", "--restarts", "1", *SAVES, "--metrics-file", "logs/*/metrics.csv", "--", "python3", "train.py")
    job = tm.json("show", "rows")
    assert job["state"] == "succeeded"
    assert attempts(job, "resumed_from_step", "resumed_evidence", "resumed_because")[1] == (20, "seen", ["its first step was 21"])
    table = [row for row in tm.json("metrics", "rows") if row["metric"] != "epoch"]
    points = {(row["metric"], row["step"]): row["value"] for row in table}
    assert points == {
        **{("train_loss", step): pytest.approx(1 / step) for step in range(1, 41)},
        **{("val_loss", step): pytest.approx(2 / step) for step in range(10, 50, 10)},
    }
    assert {row["attempt"] for row in table if row["step"] <= 20} == {1}
    assert {row["attempt"] for row in table if row["step"] > 25} == {2}


def test_a_file_that_is_no_table_is_told(tm: Tm) -> None:
    tm.file("pipe.py", "import os; os.mkfifo('metrics.csv'); print('step 1 loss 0.5')")
    tm.ok("run", "--name", "pipe", "--metrics-file", "*.csv", "--", "python3", "pipe.py")
    assert "the files of metrics: metrics.csv cannot be read: it is no regular file" in " ".join(tm.ok("show", "pipe").split())
    assert [row["value"] for row in tm.json("metrics", "pipe")] == [0.5]


def test_a_pattern_outside_the_work_directory_is_refused(tm: Tm) -> None:
    said = tm("submit", "--metrics-file", "/var/log/*.csv", "--", "true")
    assert (said.code, said.err.splitlines()[0]) == (
        2, "error: metrics.files[0]: expected a path or glob, relative to the work directory, got '/var/log/*.csv'"
    )  # fmt: skip
