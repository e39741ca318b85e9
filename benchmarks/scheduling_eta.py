"""Start estimates held against what became of them: SDSC-SP2 by EASY, with the users and limits of the trace.

A forecast is made for each job that has to wait, at the moment it comes, from what was known by then; the first, which know
nothing, count too. `TRAINMASTER_TRACES` names a directory with `swf/SDSC-SP2-1998-4.2-cln.swf.gz` (Parallel Workloads Archive).
`-n` is the number of jobs of the trace, from its beginning.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import common

from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.simulator.forecast_scores import ForecastScorer, Told
from trainmaster.simulator.formats import load
from trainmaster.simulator.replay import Replay

TRACES = Path(os.environ.get("TRAINMASTER_TRACES", Path(__file__).parents[1].parent / "shared" / "traces"))
TRACE = TRACES / "swf" / "SDSC-SP2-1998-4.2-cln.swf.gz"
JOBS = 59_715
BLOCK = 500
STRIDE = 4


def blocks(told: Sequence[Told]) -> list[float]:
    """How often the bound holds in each block of jobs that came one after the other."""
    hits = [one.held for one in told]
    return [fmean(hits[at : at + BLOCK]) for at in range(0, len(hits) - BLOCK + 1, BLOCK)] or [fmean(hits)]


def inside(shares: Sequence[float]) -> str:
    """Of so many blocks, how many are where all should be."""
    return f"{sum(0.85 <= one <= 0.95 for one in shares)} of {len(shares)}"


def by_knowledge(told: Sequence[Told]) -> dict[str, list[Told]]:
    """The forecasts by what they rested on: earlier jobs of the same owner, the time limit alone, or nothing."""
    found = {knew: [one for one in told if one.knew == knew] for knew in ("history", "limit", "nothing")}
    return {knew: some for knew, some in found.items() if some}


def main() -> None:
    """Replay it and look."""
    options = common.options(__doc__ or "", n=JOBS, quick_n=600)
    report = common.Report("scheduling_eta", "Start estimates", options)
    if not TRACE.is_file():
        report.say(f"{TRACE.name} is not there: left out.")
        report.finish()
        return
    trace = load(TRACE)
    scorer = ForecastScorer(POLICIES["easy"])
    replay = Replay(replace(trace, arrivals=trace.arrivals[: options.n]), POLICIES["easy"], scorer=scorer)
    replay.run()
    told, eta = sorted(scorer.told, key=lambda one: one.at_s), scorer.eta
    assert eta is not None, "somebody had to wait"
    assert eta.width90_p50 is not None, "with limits every wait has an end"
    report.keep("of the true wait, the width of the 90 % bound", [one.width for one in told])
    report.keep("a forecast", [one.seconds for one in told])
    every, apart = blocks(told), blocks(told[::STRIDE])
    held, width, after = eta.held90, eta.width90_p50, 1.0 - eta.held90 - eta.before90
    head = ["jobs that waited", "90 % bound holds", "before it", "after it", "50 % bound holds", "width, of the wait"]
    row = [f"{eta.told:,} of {eta.waited:,}", f"{held:.1%}", f"{eta.before90:.1%}", f"{after:.1%}", f"{eta.held50:.1%}"]
    more = ["estimate off, median", "on average"]
    off = [f"{eta.error_p50_s:,.0f} s", f"{eta.error_mean_s:,.0f} s"]
    report.table([*head, *more], [[*row, f"{width:.2f}", *off]])
    report.table(
        ["what a forecast rested on", "jobs", "90 % bound holds"],
        [[knew, f"{len(some):,}", f"{fmean(one.held for one in some):.1%}"] for knew, some in by_knowledge(told).items()],
    )
    rows = [
        ["each that waited", f"{min(every):.1%}", f"{max(every):.1%}", inside(every)],
        [f"every {STRIDE}th that waited", f"{min(apart):.1%}", f"{max(apart):.1%}", inside(apart)],
    ]
    report.table([f"blocks of {BLOCK}", "least", "most", "between 85 and 95 %"], rows)
    report.say(
        "Jobs that one user sends off together share their fate: a block of one after the other has fewer fates than jobs. "
        "The trial had widths of 1.7 to 1.9 of the wait."
    )
    report.goal("90 % bound, away from 90 %", abs(held - 0.9), 0.02, show="{:.1%}".format)
    report.goal("width of the 90 % bound, of the true wait, median", width, 1.6, show="{:.2f}".format)
    report.goal("a block's share, away from 90 %", max(abs(one - 0.9) for one in every), 0.05, show="{:.1%}".format)
    report.goal("a forecast, processor time, p50", common.median([one.seconds for one in told]), 0.02)
    report.goal("a forecast, processor time, mean", sum(one.seconds for one in told) / len(told), 0.02)
    report.finish()


if __name__ == "__main__":
    main()
