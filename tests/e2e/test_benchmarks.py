"""Every figure's command works on a fresh machine: with `--quick`, and none of the programs it is compared with installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from effort import cases

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = {
    "start_latency": ("a prepared submission beyond a bare start", "with the repository"),
    "cold_start": ("`tm run` with no server up",),
    "throughput": ("`true`", "`python -c pass`"),
    "agent_start": ("agent against a bare interpreter",),
    "hostile_lines": ("the worst line, our own parser", "the slowest pattern that is taken"),
    "recovery": ("steps.py, kill to the next step, beyond its own start",),
}


LOADING = """
import sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    try:
        __import__(name)
    except ModuleNotFoundError as error:  # a peer that is not installed here
        if error.name.partition(".")[0] in ("trainmaster", *sys.argv[2:]):
            raise
"""


def test_each_can_be_loaded() -> None:
    """All of them, in every run: a name of ours that has changed breaks those that only the nightly runs."""
    names = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    done = subprocess.run([sys.executable, "-c", LOADING, str(BENCHMARKS), *names], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("name", cases(["hostile_lines"], list(SCRIPTS)))
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
    assert name in ("recovery", "agent_start", "hostile_lines") or "not installed" in done.stdout  # torch alone may be beside us
    raw = json.loads((tmp_path / "results" / f"{name}-quick.raw.json").read_text())
    assert tuple(goal["what"] for goal in raw["goals"])[: len(SCRIPTS[name])] == SCRIPTS[name]
    assert all(sample > 0 for samples in raw["samples"].values() for sample in samples)
    assert list(tmp_path.glob("tm-bench-*")) == []
