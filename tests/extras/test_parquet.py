"""Points written by the real pyarrow, which comes with the extra `mlflow-server`."""

from pathlib import Path

from pyarrow import parquet
from running import server

COLUMNS = ["job", "metric", "step", "value", "time_s", "attempt"]


def test_points_are_read_back_as_they_were_printed(tmp_path: Path) -> None:
    with server(tmp_path) as tm:
        job = tm.submit("--name", "points", "--", "for n in 1 2 3; do echo step $n loss 0.$n; done")
        assert tm.ended(job)["state"] == "succeeded"
        tm.file("points.parquet", "of yesterday")
        assert tm("metrics", job, "--parquet", "points.parquet").err == "points.parquet: 3 points\n"
        table = parquet.read_table(tm.work / "points.parquet")
        assert table.column_names == COLUMNS
        found = table.drop_columns(["time_s"]).to_pylist()
        assert found == [{"job": job, "metric": "loss", "step": n, "value": n / 10, "attempt": 1} for n in (1, 2, 3)]
        refused = tm("metrics", job, "--parquet", "none/points.parquet")
        assert refused.refusal == (1, "error: none/points.parquet cannot be written: No such file or directory\n  choose another place\n")
