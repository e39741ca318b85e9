"""A script that only prints its loss. It saves regularly, and resumes from the newest file."""

import json
import random
import time
from pathlib import Path

STEPS = 100
OUT = Path("out")


def main() -> None:
    """Fit y = 3x + 1 under noise by stochastic gradient descent."""
    OUT.mkdir(exist_ok=True)
    step, slope, intercept = 0, 0.0, 0.0
    saved = sorted(OUT.glob("state-*.json"), key=lambda path: int(path.stem.split("-")[1]))
    if saved:
        step, slope, intercept = json.loads(saved[-1].read_text())
    while step < STEPS:
        step += 1
        generator = random.Random(step)
        x = generator.uniform(-1, 1)
        error = slope * x + intercept - (3 * x + 1 + generator.gauss(0, 0.1))
        slope -= 0.1 * error * x
        intercept -= 0.1 * error
        print(f"step {step} loss {error**2:.6f}", flush=True)
        time.sleep(0.2)  # stands for work
        if step % 10 == 0:
            part = OUT / "part"
            part.write_text(json.dumps([step, slope, intercept]))
            part.rename(OUT / f"state-{step}.json")


if __name__ == "__main__":
    main()
