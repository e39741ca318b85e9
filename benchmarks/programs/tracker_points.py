"""Another tracker's points, 10 a call: `tracker_points.py mlflow|wandb WHERE SECONDS`; prints {"points", "seconds"}."""

import json
import sys
import time


def mlflow_points(where: str, seconds: float) -> tuple[int, float]:
    """`log_batch` of 10 metrics, as `mlflow.log_metrics` makes them, to a server or a SQLite file."""
    import mlflow  # noqa: PLC0415 - one of the two is measured
    from mlflow.entities import Metric  # noqa: PLC0415 - one of the two is measured

    mlflow.set_tracking_uri(where)
    client = mlflow.MlflowClient()
    run = client.create_run(client.create_experiment(f"ingest-{time.time_ns()}")).info.run_id
    step, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        step += 1
        client.log_batch(run, metrics=[Metric(f"metric{n}", 1.0 / step + n, int(time.time() * 1000), step) for n in range(10)])
    return 10 * step, time.perf_counter() - began_s


def wandb_points(where: str, seconds: float) -> tuple[int, float]:
    """`run.log` of 10 metrics, offline; the run is finished within the time that is told."""
    import wandb  # noqa: PLC0415 - one of the two is measured

    run = wandb.init(project="ingest", mode="offline", dir=where, settings=wandb.Settings(silent=True))
    step, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        step += 1
        run.log({f"metric{n}": 1.0 / step + n for n in range(10)}, step=step)
    run.finish()
    return 10 * step, time.perf_counter() - began_s


def main() -> None:
    """Measure and print."""
    kind, where, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    points, took_s = (mlflow_points if kind == "mlflow" else wandb_points)(where, seconds)
    print(json.dumps({"points": points, "seconds": took_s}))


if __name__ == "__main__":
    main()
