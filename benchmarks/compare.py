"""Comparing 20 runs of 100,000 points each: at the client, and as `tm compare`, table and page. Goal: 1 s a process.

The jobs are real ones, seeded through the real store (`seeding.py`), their curves written through the real metric store.
"""

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random

import common
import seeding
import serving

from trainmaster.client.api import Client
from trainmaster.home import Home
from trainmaster.ports.metric_store import MetricPoint
from trainmaster.store.metrics.points import SqlMetricStore

RUNS = 20
POINTS, QUICK_POINTS = 100_000, 300
BATCH = 20_000


def write_curves(home: Home, jobs: list[str], points: int) -> None:
    """A noisy, falling loss for each job; the server must not run."""
    rng = Random(1)
    with closing(SqlMetricStore(home.metrics_db)) as metrics:
        for job in jobs:
            for first in range(101, points + 101, BATCH):
                steps = range(first, min(first + BATCH, points + 101))
                batch = [MetricPoint(job, 1, 0, s, "loss", 100.0 / (s + 100) + 0.01 * rng.random(), 1e9 + s) for s in steps]
                metrics.write(batch, [])


def asked(client: Client, jobs: list[str], n: int, **query: object) -> list[float]:
    """Seconds of each of `n` requests."""
    taken = []
    for _ in range(n):
        began_s = time.perf_counter()
        found = client.compare(jobs, **query)
        taken.append(time.perf_counter() - began_s)
        if len(found["series"]["loss"]) != len(jobs):
            raise RuntimeError("not every run's curve came")
    return taken


def run(command: list[str], n: int) -> list[float]:
    """Seconds of each of `n` whole processes."""
    taken = []
    for _ in range(n):
        began_s = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - began_s)
    return taken


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=20, quick_n=1)
    points = QUICK_POINTS if options.quick else POINTS
    report = common.Report("compare", f"Comparing {RUNS} runs of {points:,} points", options)
    with serving.fresh_home() as home, common.scratch() as scratch:
        seeding.seed(home, RUNS * 21)  # so that one experiment has as many
        jobs = [f"experiment1-{number}" for number in range(1, RUNS + 1)]
        write_curves(home, jobs, points)
        with serving.start(home) as client:
            taken = {
                "request, 400 points a curve": asked(client, jobs, options.n, points=400),
                "request, 5,000 points a curve": asked(client, jobs, options.n, points=5000),
                "`tm compare`": run(tm(*jobs), options.n),
                "`tm compare --html`": run(tm(*jobs, "--html", str(Path(scratch) / "page.html")), options.n),
            }
    for name, samples in taken.items():
        report.keep(f"{name}: seconds", samples)
    rows = [[name, common.ms(common.median(samples)), common.ms(max(samples))] for name, samples in taken.items()]
    report.table(["what", "p50", "worst"], rows)
    report.goal("`tm compare`, median", common.median(taken["`tm compare`"]), 1.0)
    report.goal("`tm compare --html`, median", common.median(taken["`tm compare --html`"]), 1.0)
    report.finish()


def tm(*arguments: str) -> list[str]:
    """`tm compare` as a process."""
    return [sys.executable, "-m", "trainmaster", "compare", *arguments]


if __name__ == "__main__":
    main()
