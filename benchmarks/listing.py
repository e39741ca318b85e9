"""Listing 50 of 100,000 jobs: at the client, and as `tm ps`. Goals: p99 of 50 ms, 300 ms for the whole process.

The jobs are real ones, seeded through the real store (`seeding.py`); each list is a whole request of the Python client.
"""

import json
import subprocess
import sys
import time
from typing import Any

import common
import seeding
import serving

JOBS, QUICK_JOBS = 100_000, 100
PROCESSES, QUICK_PROCESSES = 20, 1
HEAVY = (
    "alembic", "fastapi", "fsspec", "httpx", "numpy", "pydantic", "rich", "sqlalchemy", "starlette", "torch", "uvicorn", "yaml",
)  # fmt: skip
LOADED = f"""
import sys
from trainmaster.cli.app import run
run(["ps", "-q"])
print(*(name for name in {HEAVY!r} if name in sys.modules))
"""


def questions(jobs: int) -> dict[str, dict[str, Any]]:
    """What is listed, in the words of a person."""
    return {
        "the newest 50": {},
        "50 that failed": {"state": "failed"},
        "50 of a project": {"project": "vision"},
        "50 of an experiment": {"experiment": "experiment7"},
        "50 that failed in a project": {"state": "failed", "project": "speech"},
        "50 in a project and an experiment": {"project": "vision", "experiment": "experiment8"},
        "50 in the middle": {"before": jobs // 2},
        "50 that run (there are none)": {"state": "running"},
    }


def heavy_imports() -> list[str]:
    """What `tm ps` loads that it should not."""
    command = [sys.executable, "-c", LOADED]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return result.stdout.splitlines()[-1].split()


def timed_process(command: list[str]) -> float:
    """Seconds of one whole process."""
    began_s = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began_s


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=1000, quick_n=3)
    jobs, processes = (QUICK_JOBS, QUICK_PROCESSES) if options.quick else (JOBS, PROCESSES)
    report = common.Report("listing", f"Listing 50 of {jobs:,} jobs", options)
    tm = [sys.executable, "-m", "trainmaster", "ps"]
    worst: dict[str, float] = {}
    rows = []
    with serving.fresh_home() as home:
        seeding.seed(home, jobs)
        with serving.start(home) as client:
            for words, query in questions(jobs).items():
                client.jobs(**query)  # warm
                taken = []
                for _ in range(options.n):
                    began_s = time.perf_counter()
                    found = client.jobs(**query)
                    taken.append(time.perf_counter() - began_s)
                worst[words] = common.percentile(taken, 0.99)
                report.keep(f"{words}: seconds", taken)
                rows.append([words, str(len(found)), common.ms(common.median(taken)), common.ms(worst[words])])
            whole = [timed_process(tm) for _ in range(processes)]
            bare = [timed_process([sys.executable, "-c", "pass"]) for _ in range(processes)]
            heavy = heavy_imports()
    report.keep("tm ps: seconds", whole)
    report.keep("python -c pass: seconds", bare)
    report.table(["list", "found", "p50", "p99"], rows)
    middle, least = common.median(whole), common.median(bare)
    report.table(
        ["process", "p50", "worst", "of the interpreter's own"],
        [
            ["`tm ps`", common.ms(middle), common.ms(max(whole)), common.ratio(middle, least)],
            ["`python -c pass`", common.ms(least), common.ms(max(bare)), ""],
        ],
    )
    report.say(f"`tm ps` loads of {', '.join(HEAVY)}: {', '.join(heavy) or 'nothing'}.")
    report.goal("p99 of the newest 50", worst["the newest 50"], 0.05)
    report.goal("p99 of the slowest filter", max(worst.values()), 0.05)
    report.goal("`tm ps`, median", middle, 0.3)
    report.finish()
    if heavy:
        raise SystemExit(f"tm ps loads {json.dumps(heavy)}")


if __name__ == "__main__":
    main()
