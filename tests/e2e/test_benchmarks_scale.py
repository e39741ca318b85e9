"""The benchmarks of scale run from end to end and leave nothing behind; their figures are not looked at here."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from effort import cases
from waiting import deadline

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = ("submits", "listing", "compare", "memory", "sdk_report", "adoption", "survival", "scheduling_speed", "scheduling_fairness")
TRACES = Path(os.environ.get("TRAINMASTER_TRACES", Path(__file__).parents[2].parent / "shared" / "traces"))
TRACED = ("scheduling_quality", "scheduling_eta", "scheduling_openb")  # by traces that are not ours to hand out
ALONE = ("metric_ingest", "tracking_cost")  # what they are compared with takes longer than they do


def processes_of(directory: Path) -> list[str]:
    """Command lines that name `directory`, or were started from a process that did."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        said = [*(process.info["cmdline"] or []), *(process.info["environ"] or {}).values()]
        if any(str(directory) in word for word in said):
            found.append(" ".join(process.info["cmdline"] or []))
    return found


@pytest.mark.parametrize("name", cases(["scheduling_fairness"], NAMES + ALONE + TRACED))
def test_quick(name: str, tmp_path: Path) -> None:
    if name in TRACED and not TRACES.is_dir():
        pytest.skip("the published traces are not here (TRAINMASTER_TRACES names their directory)")
    program = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", *(["--no-peers"] if name in ALONE else [])]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TRAINMASTER_BENCH_RESULTS": str(tmp_path / "results")}
    result = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("## "), result.stdout
    for words in ("Machine: ", "Versions: trainmaster ", "n = ", "\nGoal: "):
        assert words in result.stdout, result.stdout
    deadline(lambda: processes_of(tmp_path) == [], "the last of its processes to go", timeout_s=30.0)  # a spawner looks for its home
    assert list(tmp_path.iterdir()) == [tmp_path / "results"]
