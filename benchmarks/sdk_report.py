"""What `sdk.report` costs a rank under Trainmaster. Goals: 20 µs a report; 1 % more processor time at ten reports a second.

One job does the same work in 20 pairs of blocks, one of each pair with reports and one without, slice by slice in turns
(`programs/reporting.py`); the interval is the mean of the pairs' ratios with Student's t at 95 %.
"""

import json
import math
import shlex
import statistics
import sys
from pathlib import Path

import common
import serving

BLOCK_S, QUICK_BLOCK_S = 3.0, 0.1
PROGRAM = Path(__file__).parent / "programs" / "reporting.py"
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
)  # by degrees of freedom, from 1; fmt: skip
T_LARGE = 2.086  # from 20 degrees of freedom on: a little too wide, never too narrow


def interval(values: list[float]) -> tuple[float, float]:
    """(mean, half the width of its 95 % confidence interval)."""
    freedom = len(values) - 1
    t = T_95[freedom - 1] if freedom <= len(T_95) else T_LARGE
    return statistics.mean(values), t * statistics.stdev(values) / math.sqrt(len(values))


def percent(value: float) -> str:
    """A share, to read."""
    return f"{100 * value:+.2f} %"


def microseconds(value: float) -> str:
    """Seconds, to read."""
    return f"{1e6 * value:.1f} µs"


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=20, quick_n=3)
    report = common.Report("sdk_report", "What a report costs a rank", options)
    block_s = QUICK_BLOCK_S if options.quick else BLOCK_S
    with serving.fresh_home() as home, serving.start(home) as client:
        answer = home.root / "answer.json"
        command = shlex.join([sys.executable, str(PROGRAM), str(options.n), str(block_s), str(answer)])
        job = client.submit(serving.submission(command, name="reporting"))
        ended = client.wait(job, 60.0 + 10 * options.n * block_s)
        if ended["state"] != "succeeded":
            raise SystemExit(f"{job} {ended['state']}: {ended['reason']}")
        told = json.loads(answer.read_text())
        seen = {name: len(points) for name, points in client.metrics(job).items()}
    added = [reporting / bare - 1.0 for reporting, bare in zip(told["with"], told["without"], strict=True)]
    mean, half = interval(added)
    report.keep("processor seconds of a block with reports", told["with"])
    report.keep("processor seconds of a block without", told["without"])
    report.keep("seconds of one report, means of 50", told["costs"])
    cost, worst = common.median(told["costs"]), common.percentile(told["costs"], 0.99)
    within = f"{percent(mean - half)} to {percent(mean + half)}"
    report.table(
        ["figure", "median", "mean", "95 % interval or p99"],
        [
            ["one report of two values", microseconds(cost), microseconds(statistics.mean(told["costs"])), microseconds(worst)],
            ["processor time added", percent(common.median(added)), percent(mean), within],
        ],
    )
    arrived = ", ".join(f"{name} {count}" for name, count in sorted(seen.items()))
    report.say(f"Dropped: {told['dropped']}. Points that the server keeps of them, by metric: {arrived}.")
    report.goal("one report, median", cost, 20e-6, show=microseconds)
    report.goal("processor time added, upper end of the interval", mean + half, 0.01, show=percent)
    report.finish()


if __name__ == "__main__":
    main()
