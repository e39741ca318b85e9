"""Nothing lost, nothing doubled: api and control killed (-9) at 200 random instants, and at every named failpoint.

The ranks are the witnesses (`trainmaster.testing.survival`): every acknowledged job ends once, no two attempts overlap, and
the event log folds to exactly what the projections hold. Goal: no problem.
"""

import os
import random
from collections import Counter
from typing import Any

import common
import serving

from trainmaster import daemons
from trainmaster.compose import replay_report
from trainmaster.testing.survival import Survival
from trainmaster.wire.failpoint import POINTS
from trainmaster.wire.names import ENV_FAILPOINT

INSTANTS, QUICK_INSTANTS = 200, 1
JOBS, QUICK_JOBS = 200, 3
PAUSE_S, QUICK_PAUSE_S = 1.0, 0.1  # between submits, so that they go on for about as long as the kills
QUICK_POINTS = ("inbox.commit.after",)
CHECKPOINTING = """for i in 1 2 3 4; do echo "{\\"step\\": $i}" | tee ckpt.part; mv ckpt.part ckpt.json; sleep 0.7; done"""
FAILPOINT_JOBS = 4


def at_random(instants: int, jobs: int, seed: int) -> tuple[list[str], Counter[str]]:
    """(problems, kills by process) of one trial whose submits go on for about as long as its kills."""
    with serving.fresh_home() as home:
        quick = instants == QUICK_INSTANTS
        body, pause_s = ("sleep 0.2", QUICK_PAUSE_S) if quick else ("sleep 1.5", PAUSE_S)
        trial = Survival(home, jobs=jobs, body=body, pause_s=pause_s)
        problems = trial.run(instants, random.Random(seed), timeout_s=900.0)
        daemons.stop(home)
        return problems + replay_report(home), Counter(trial.kills)


def at_point(point: str) -> list[str]:
    """The problems of one trial that dies where `point` is passed for the second time."""
    with serving.fresh_home() as home:
        home.root.mkdir()
        once = home.root / "died"
        os.environ[ENV_FAILPOINT] = f"{point}:2:{once}"
        options: dict[str, Any] = {}
        if point.startswith("checkpoint"):
            options = {"body": CHECKPOINTING, "spec": {"checkpoint": {"path": "ckpt.json"}}}
        if point.startswith("engine.stop"):
            options = {"cancelled": 2}
        trial = Survival(home, jobs=FAILPOINT_JOBS, options=daemons.Options(failpoints=True), **options)
        problems = trial.run(0, random.Random(0), timeout_s=120.0)
        os.environ.pop(ENV_FAILPOINT, None)
        daemons.stop(home)
        if not once.exists():
            problems.append("was not passed twice: the trial shows nothing")
        return [f"{point}: {problem}" for problem in problems + replay_report(home)]


def main() -> None:
    """Try, print, keep."""
    options = common.options(__doc__ or "", n=1, quick_n=1)
    quick = options.quick
    instants, jobs, points = (QUICK_INSTANTS, QUICK_JOBS, QUICK_POINTS) if quick else (INSTANTS, JOBS, POINTS)
    report = common.Report("survival", "Nothing lost, nothing doubled", options)
    rows, problems = [], []
    for seed in range(options.n):
        found, kills = at_random(instants, jobs, seed)
        problems += found
        told = ", ".join(f"{name} {count}" for name, count in sorted(kills.items()))
        rows.append([f"{instants} random instants (seed {seed})", f"{kills.total()} ({told})", str(jobs), str(len(found))])
    for point in points:
        found = at_point(point)
        problems += found
        rows.append([f"`{point}`", "1", str(FAILPOINT_JOBS), str(len(found))])
    report.table(["killed at", "kills", "jobs", "problems"], rows)
    report.say("\n".join(problems) or "Every acknowledged job ended exactly once; replay(events) == projections.")
    report.goal("problems", float(len(problems)), 0.0, show=lambda value: f"{value:.0f}")
    report.finish()
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
