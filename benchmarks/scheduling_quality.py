"""What the policies are worth on published traces, beside published results: completions, waits, preemptions.

The traces are not ours to hand out. `TRAINMASTER_TRACES` names a directory with `muri/trace{1,3,3_pr}.csv.gz` (from
github.com/Rivendile/Muri, SIGCOMM'22), `swf/SDSC-SP2-1998-4.2-cln.swf.gz` (Parallel Workloads Archive) and
`philly/philly.csv.gz` (github.com/msr-fiddle/philly-traces, ATC'19: time, run time, GPUs, virtual cluster); what is not there
is left out, and said. Published: Muri's simulator, 64 GPUs; EASY on SDSC-SP2 by users' limits. The predicted order is held
against the same order, ageing and reservation with run times known.
"""

import os
from dataclasses import replace
from math import prod
from pathlib import Path
from statistics import fmean

import common

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.policies.policy import no_reservations
from trainmaster.simulator.formats import load
from trainmaster.simulator.measures import Measures, measure
from trainmaster.simulator.replay import Replay, Settings

TRACES = Path(os.environ.get("TRAINMASTER_TRACES", Path(__file__).parents[1].parent / "shared" / "traces"))
PUBLISHED = {  # average completion in seconds
    "trace1": {"srtf": 1_370_603, "srsf": 980_141, "tiresias": 3_330_371, "themis": 1_823_179},
    "trace3": {"srtf": 193_082, "srsf": 185_022, "tiresias": 347_213, "themis": 397_059},
    "trace3_pr": {"srtf": 844_395, "srsf": 798_058, "tiresias": 2_213_110, "themis": 1_502_768},
}
STILL = {"trace1": 13.9e6, "trace3": 1.51e6, "trace3_pr": 7.2e6}  # strict FIFO's longest wait in seconds
EASY_WAIT_S = 21_467.0
AT_ONCE = Cluster(min_run_s=0.0)  # as published: nobody is protected
SDSC, PHILLY = TRACES / "swf" / "SDSC-SP2-1998-4.2-cln.swf.gz", TRACES / "philly" / "philly.csv.gz"
PREDICTED_MAX, WAIT_MAX_DAYS = 1.25, 10.0
DAY_S = 86_400.0
NOISE = 0.01
QUICK_JOBS = 100  # of each trace, from its beginning


def replayed(path: Path, policy: str, settings: Settings, greedy: bool = False, jobs: int | None = None) -> Measures:
    """One policy on one trace, or on its first `jobs`; `greedy`: without reservations."""
    chosen = replace(POLICIES[policy], depth=no_reservations) if greedy else POLICIES[policy]
    trace = load(path)
    replay = Replay(replace(trace, arrivals=trace.arrivals[:jobs]), chosen, settings)
    replay.run()
    return measure(replay)


def knowing(report: common.Report, traces: list[str]) -> None:
    """Orders that know how long each job runs; no cost of preemptions, as published."""
    rows, jobs = [], QUICK_JOBS if report.options.quick else None
    for name in traces:
        for policy in ("srtf", "srsf"):
            found = replayed(TRACES / "muri" / f"{name}.csv.gz", policy, Settings(0.0, exact=True, rules=AT_ONCE), jobs=jobs)
            published = PUBLISHED[name][policy]
            rows.append([name, policy, f"{found.completion_mean_s:,.0f} s", f"{published:,} s"])
            rows[-1] += [f"{found.completion_mean_s / published:.3f}", f"{found.preemptions / found.jobs:.2f}"]
    report.table(["trace", "order", "completion", "published", "of published", "preemptions a job"], rows)


def unknowing(report: common.Report, traces: list[str], runs: int, costs_s: tuple[float, ...]) -> None:
    """The learned order, with noise on the run times, where a preemption costs so much."""
    rows, ratios, jobs = [], [], QUICK_JOBS if report.options.quick else None
    for name in traces:
        best = min(PUBLISHED[name]["tiresias"], PUBLISHED[name]["themis"])
        for cost_s in costs_s:
            taken = [
                replayed(TRACES / "muri" / f"{name}.csv.gz", "learned", Settings(cost_s, False, NOISE, seed), jobs=jobs)
                for seed in range(runs)
            ]
            found = fmean(one.completion_mean_s for one in taken) / best
            report.keep(f"{name} at {cost_s:g} s", [one.completion_mean_s for one in taken])
            still = max(one.still_max_s for one in taken) / STILL[name]
            preempted = fmean(one.preemptions / one.jobs for one in taken)
            rows.append(
                [
                    name,
                    f"{cost_s:g} s",
                    f"{found * best:,.0f} s",
                    f"{best:,} s",
                    f"{found:.3f}",
                    f"{preempted:.2f}",
                    f"{still:.2f} ×",
                ]
            )
            if cost_s == 30.0:
                ratios.append(found)
    report.table(
        [
            "trace",
            "a preemption costs",
            "completion",
            "better published",
            "of it",
            "preemptions a job",
            "longest still, of FIFO's wait",
        ],
        rows,
    )
    report.goal("learned order, worst trace", max(ratios), 0.90, show="{:.3f}".format)
    report.goal("learned order, geometric mean", prod(ratios) ** (1 / len(ratios)), 0.83, show="{:.3f}".format)


def backfill(report: common.Report) -> None:
    """EASY with users' limits."""
    found = replayed(SDSC, "easy", Settings())
    row = [f"{found.jobs:,}", f"{found.wait_mean_s:,.0f} s", f"{EASY_WAIT_S:,.0f} s", f"{found.bounded_slowdown_mean:.1f}"]
    report.table(
        ["jobs", "average wait", "published", "bounded slowdown", "simulated"], [[*row, f"{found.jobs_per_s:,.0f} jobs/s"]]
    )
    report.goal("average wait, away from the published", abs(found.wait_mean_s / EASY_WAIT_S - 1), 0.02, show="{:.1%}".format)


def predicting(report: common.Report) -> None:
    """The order by predicted service beside the same that knows how long each job runs."""
    rows: list[list[str]] = []
    goals: list[tuple[str, float, float, str]] = []
    for name, path, greedy in (("SDSC-SP2, EASY", SDSC, False), ("Philly, 496 GPUs, greedy", PHILLY, True)):
        if not path.is_file():
            report.say(f"{path.name} is not in {path.parent}: left out.")
            continue
        knows = replayed(path, "shortest", Settings(exact=True), greedy)
        guesses = replayed(path, "predicted", Settings(), greedy)
        ratio = guesses.completion_mean_s / knows.completion_mean_s
        cells = [f"{one.completion_mean_s:,.0f} s" for one in (knows, guesses)] + [f"{ratio:.3f}"]
        cells += [f"{one.wait_max_s / DAY_S:.1f} d" for one in (knows, guesses)]
        rows.append([name, *cells, f"{guesses.seconds:.0f} s"])
        goals.append((f"{name}: completion, of that of the order that knows", ratio, PREDICTED_MAX, "{:.3f}"))
        if not greedy:
            goals.append((f"{name}: longest wait", guesses.wait_max_s / DAY_S, WAIT_MAX_DAYS, "{:.1f} days"))
    head = ["trace", "completion, durations known", "predicted", "of it", "longest wait, known", "predicted", "simulated in"]
    if rows:
        report.table(head, rows)
    for what, value, limit, words in goals:
        report.goal(what, value, limit, show=words.format)


def main() -> None:
    """Replay what is there."""
    options = common.options(__doc__ or "", n=5, quick_n=1)
    report = common.Report("scheduling_quality", "Policies on published traces", options)
    traces = [name for name in PUBLISHED if (TRACES / "muri" / f"{name}.csv.gz").is_file()]
    traces = traces[1:2] if options.quick else traces
    if traces:
        knowing(report, traces)
        unknowing(report, traces, options.n, (30.0,) if options.quick else (0.0, 30.0, 60.0))
    else:
        report.say(f"Muri's traces are not in {TRACES.name}/muri: left out.")
    if not options.quick:
        if SDSC.is_file():
            backfill(report)
        predicting(report)
    report.finish()


if __name__ == "__main__":
    main()
