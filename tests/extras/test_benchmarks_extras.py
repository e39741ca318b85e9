"""The benchmarks that need an S3 server or MLflow run from end to end; their figures are not looked at here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "goals"),
    [
        pytest.param("storage", ["rate beside the faster client"], marks=pytest.mark.xdist_group("s3")),
        pytest.param("mirror_lag", ["lag, p99", "catching up"], marks=pytest.mark.xdist_group("mlflow")),
    ],
)
def test_quick(name: str, goals: list[str], tmp_path: Path) -> None:
    program = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TRAINMASTER_BENCH_RESULTS": str(tmp_path / "results")}
    done = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    raw = json.loads((tmp_path / "results" / f"{name}-quick.raw.json").read_text())
    assert [goal["what"] for goal in raw["goals"]][-len(goals) :] == goals
    assert all(sample > 0 for series, samples in raw["samples"].items() for sample in samples)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
