"""An ordinary script that logs with `mlflow`. It names neither a server nor a run."""

import json
import random
import time
from pathlib import Path

import mlflow

STEPS = 100
RATE = 0.1
OUT = Path("out")


def main() -> None:
    """Fit y = 3x + 1 under noise by stochastic gradient descent."""
    OUT.mkdir(exist_ok=True)
    step, slope, intercept = 0, 0.0, 0.0
    saved = sorted(OUT.glob("state-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    if saved:
        step, slope, intercept = json.loads(saved[-1].read_text())
    mlflow.set_experiment("lines")
    with mlflow.start_run():
        mlflow.log_params({"rate": RATE, "steps": STEPS})
        while step < STEPS:
            step += 1
            generator = random.Random(step)
            x = generator.uniform(-1, 1)
            error = slope * x + intercept - (3 * x + 1 + generator.gauss(0, 0.1))
            slope -= RATE * error * x
            intercept -= RATE * error
            mlflow.log_metric("loss", error**2, step=step)
            time.sleep(0.2)  # stands for work
            if step % 10 == 0:
                part = OUT / "part"
                part.write_text(json.dumps([step, slope, intercept]))
                part.rename(OUT / f"state-{step}.json")
        mlflow.log_dict({"slope": slope, "intercept": intercept}, "line.json")


if __name__ == "__main__":
    main()
