"""Fits a line to noisy points by gradient descent: plain Python, a few seconds. Put your own training here.

The program does not use Trainmaster. It prints its loss, saves a checkpoint every 20 steps, and resumes from the newest
checkpoint if there is one. A job needs nothing more to survive a failure.
"""

import argparse
import glob
import json
import os
import random
import time


def save(step, weights):
    """Write a temporary file and rename it: a file with the final name is complete."""
    os.makedirs("out", exist_ok=True)
    path = f"out/ckpt-{step}.json"
    with open(path + ".part", "w") as file:
        json.dump({"step": step, "weights": weights}, file)
    os.replace(path + ".part", path)


def newest():
    """The step and weights to resume from."""
    paths = glob.glob("out/ckpt-*.json")
    if not paths:
        return 0, [0.0, 0.0]
    with open(max(paths, key=lambda path: int(path.rsplit("-", 1)[1].split(".")[0]))) as file:
        found = json.load(file)
    return found["step"], found["weights"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()
    draw = random.Random(0)
    points = [(x, 3.0 * x + 1.0 + draw.gauss(0.0, 0.1)) for x in (draw.uniform(-1.0, 1.0) for _ in range(500))]
    done, (slope, offset) = newest()
    for step in range(done + 1, options.steps + 1):
        errors = [(slope * x + offset - y, x) for x, y in points]
        slope -= options.lr * 2 * sum(error * x for error, x in errors) / len(points)
        offset -= options.lr * 2 * sum(error for error, _ in errors) / len(points)
        loss = sum(error * error for error, _ in errors) / len(points)
        print(f"step {step}: loss {loss:.6f}", flush=True)
        if step % 20 == 0:
            save(step, [slope, offset])
        time.sleep(0.01)
    with open("out/model.json", "w") as file:
        json.dump({"slope": slope, "offset": offset}, file)


if __name__ == "__main__":
    main()
