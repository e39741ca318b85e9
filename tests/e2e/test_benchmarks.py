"""Every figure's command works on a fresh machine: with `--quick`, and none of the programs it is compared with installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = {
    "start_latency": ("a prepared submission beyond a bare start", "with the repository"),
    "cold_start": ("`tm run` with no server up",),
    "throughput": ("`true`", "`python -c pass`"),
    "agent_start": ("agent against a bare interpreter",),
    "recovery": ("steps.py, kill to the next step, beyond its own start",),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_runs_and_says_what_it_measured(name: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "TRAINMASTER_BENCH_PEERS": str(tmp_path / "no-venv"),
        "TRAINMASTER_BENCH_RESULTS": str(tmp_path / "results"),
    }
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for word in ("Machine: ", "load average", "Versions: trainmaster ", "(--quick)", "Goal: "):
        assert word in done.stdout
    assert name in ("recovery", "agent_start") or "not installed" in done.stdout  # torch alone may be beside us
    raw = json.loads((tmp_path / "results" / f"{name}-quick.raw.json").read_text())
    assert tuple(goal["what"] for goal in raw["goals"])[: len(SCRIPTS[name])] == SCRIPTS[name]
    assert all(sample > 0 for samples in raw["samples"].values() for sample in samples)
    assert list(tmp_path.glob("tm-bench-*")) == []
