"""How many metric points a second the server takes and makes durable, ten a request, while a training runs beside it.

Goal: 5,000 a second. Sixteen connections speak as agents of running jobs (`programs/ingest_load.py`), through the server's own
`/agent/sync`; what is counted is what the store holds afterwards. Beside it one script each: MLflow to its server, MLflow to
SQLite, and W&B offline, ten metrics a call.
"""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import common
import serving
import trackers

from trainmaster.home import Home

LOAD = Path(__file__).parent / "programs" / "ingest_load.py"
TRAINING = f"exec {sys.executable} -c 'while True: sum(range(100000))'"
SECONDS, QUICK_SECONDS = 15.0, 0.5
CONNECTIONS, PER_REQUEST, AGENTS = 16, 10, 2


def stored(home: Home) -> int:
    """The points that the store holds."""
    with sqlite3.connect(f"file:{home.metrics_db}?mode=ro", uri=True) as database:
        return int(database.execute("select count(*) from point").fetchone()[0])


def measure(home: Home, seconds: float) -> dict[str, float]:
    """One run of the load: points a second, and how long a request takes."""
    launches = [str(home.attempt(f"wait-{n + 1}", 1, 0) / "launch.json") for n in range(AGENTS)]
    answer, before = home.root / "load.json", stored(home)
    arguments = [str(home.socket("api")), ":".join(launches), str(CONNECTIONS), str(seconds), str(PER_REQUEST), str(answer)]
    subprocess.run([sys.executable, LOAD, *arguments], check=True)
    told = json.loads(answer.read_text())
    kept = stored(home) - before
    if kept > told["points"] or kept == 0:
        raise SystemExit(f"{told['points']} points were acknowledged, and the store holds {kept} more than before")
    return {
        "rate": told["points"] / told["seconds"],
        "kept": float(kept),
        "points": float(told["points"]),
        "p50": common.median(told["latencies"]),
        "p99": common.percentile(told["latencies"], 0.99),
    }


def main() -> None:
    """Measure, print, keep."""
    options = common.options(__doc__ or "", n=1, quick_n=1)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    peers = options.peers and trackers.installed("mlflow") is not None and trackers.installed("wandb") is not None
    versions = {name: str(trackers.installed(name)) for name in ("mlflow", "wandb")} if peers else {}
    report = common.Report("metric_ingest", "Metric points a second, ten a request, durable", options, versions)
    with serving.fresh_home() as home, serving.start(home) as client:
        for _ in range(AGENTS):
            client.submit(serving.submission("sleep 600", name="wait", resources={"cpus": 0.1}))
        client.submit(serving.submission(TRAINING, name="train", resources={"cpus": 0.5}))
        running = AGENTS + 1
        serving.wait_for("the jobs to run", lambda: len(client.jobs(state="running")) == running)
        ours = measure(home, seconds)
    rows = [[f"Trainmaster, {CONNECTIONS} connections, a training beside it", f"{ours['rate']:,.0f}", common.ms(ours["p99"])]]
    report.keep("seconds of one request: p50, p99", [ours["p50"], ours["p99"]])
    report.keep("points a second", [ours["rate"]])
    if peers:
        with common.scratch() as root:
            (root / "wandb").mkdir()
            with trackers.mlflow_server(root) as url:
                served = trackers.points_per_s("mlflow", url, seconds)
            rows.append(["MLflow REST, one script, idle machine", f"{served:,.0f}", "–"])
            direct = trackers.points_per_s("mlflow", f"sqlite:///{root}/direct.db", seconds)
            rows.append(["MLflow to SQLite, one script, idle machine", f"{direct:,.0f}", "–"])
            offline = trackers.points_per_s("wandb", str(root / "wandb"), seconds)
            rows.append(["W&B offline, one script, idle machine, not fsynced", f"{offline:,.0f}", "–"])
    report.table(["tracker", "points/s", "p99 of a request"], rows)
    report.say(f"Acknowledged {ours['points']:,.0f}, in the store afterwards {ours['kept']:,.0f} (each step of a series once).")
    report.goal("points a second", ours["rate"], 5000.0, at_least=True, show=lambda rate: f"{rate:,.0f}/s")
    report.finish()


if __name__ == "__main__":
    main()
