"""What tracking at ten points a second costs a script. Goal: at most 1 % of its time, whichever way it tells them.

Each way is one process that does the same work in pairs of blocks, with tracking and without, in slices in turns
(`programs/tracking.py`): processor seconds of the process, its threads included, and the time of the calls themselves. Under
Trainmaster: printing, `sdk.report`, `mlflow.log_metrics`. Beside it, bare: MLflow to its server, W&B offline.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import common
import serving
import trackers
from sdk_report import interval, percent

from trainmaster.client.api import Client
from trainmaster.home import Home

PROGRAM = Path(__file__).parent / "programs" / "tracking.py"
BLOCK_S, QUICK_BLOCK_S = 4.0, 0.05
OURS = {
    "print": "printing",
    "sdk": "sdk.report",
    "mlflow": "mlflow.log_metrics",
    "mlflow-singly": "mlflow.log_metric, ten calls",
}
LIMIT = 0.01


class Cost:
    """One way's figures, each a share of the work's own time: processor time added, and time that calls took."""

    def __init__(self, told: dict[str, list[float]]) -> None:
        added = [with_s / without_s - 1.0 for with_s, without_s in zip(told["cpu_with"], told["cpu_without"], strict=True)]
        self.added = added
        self.mean, self.half = interval(added)
        self.median = common.median(added)
        self.call_s = common.median(told["calls"])
        self.call_cpu_s = common.median(told["call_cpu"])  # at one call a second also the share of the processor it takes


def under_trainmaster(client: Client, home: Home, how: str, pairs: int, block_s: float) -> Cost:
    """A job of this server."""
    answer = home.root / f"{how}.json"
    command = shlex.join([sys.executable, str(PROGRAM), how, str(pairs), str(block_s), str(answer)])
    job = client.submit(serving.submission(command, name=f"cost-{how}"))
    ended = client.wait(job, 120.0 + 4 * pairs * block_s)
    if ended["state"] != "succeeded":
        raise SystemExit(f"{job} {ended['state']}: {ended['reason']}")
    return Cost(json.loads(answer.read_text()))


def bare(root: Path, how: str, where: str, options: tuple[int, float]) -> Cost:
    """The same program by itself."""
    answer = root / f"{how}.json"
    command = [sys.executable, PROGRAM, how, str(options[0]), str(options[1]), str(answer), where]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **trackers.QUIET})
    return Cost(json.loads(answer.read_text()))


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=8, quick_n=2)
    block_s = QUICK_BLOCK_S if options.quick else BLOCK_S
    installed = trackers.installed("mlflow") is not None
    peers = options.peers and installed and trackers.installed("wandb") is not None
    versions = {name: str(trackers.installed(name)) for name in ("mlflow", "wandb")} if peers else {}
    report = common.Report("tracking_cost", "What tracking at ten points a second costs a script", options, versions)
    found: dict[str, Cost] = {}
    with serving.fresh_home() as home, serving.start(home) as client:
        for how, name in OURS.items():
            if installed or not how.startswith("mlflow"):
                found[f"Trainmaster: {name}"] = under_trainmaster(client, home, how, options.n, block_s)
    ours = list(found)
    if peers:
        with common.scratch() as root, trackers.mlflow_server(root) as url:
            found["MLflow server: log_metrics"] = bare(root, "mlflow", url, (options.n, block_s))
            found["MLflow server: log_metric, ten calls"] = bare(root, "mlflow-singly", url, (options.n, block_s))
            found["W&B offline"] = bare(root, "wandb", str(root), (options.n, block_s))
    rows = []
    for name, cost in found.items():
        within = f"{percent(cost.mean - cost.half)} to {percent(cost.mean + cost.half)}"
        rows.append([name, common.ms(cost.call_s), common.ms(cost.call_cpu_s), percent(cost.median), within])
        report.keep(f"{name}: processor time added (shares)", cost.added)
    report.table(["way", "ten points told in", "of that on the processor", "processor time added", "95 % interval"], rows)
    for name in ours:
        report.goal(f"{name}: share of each second that telling ten points takes", found[name].call_s, LIMIT, show=percent)
    report.finish()


if __name__ == "__main__":
    main()
