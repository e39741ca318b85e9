"""One stage of `stages.sh`. The training stages go on from the newest checkpoint of their own."""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np


def prepare() -> None:
    draws = np.random.default_rng(31)
    inputs = draws.normal(size=(120, 5))
    part = Path("data/pairs.tmp.npz")
    np.savez(part, inputs=inputs, pretrain=inputs @ draws.normal(size=5), finetune=inputs @ draws.normal(size=5))
    part.rename("data/pairs.npz")


def train(stage: str, steps: int) -> None:
    directory = Path("out", stage)
    directory.mkdir(parents=True, exist_ok=True)
    with np.load("data/pairs.npz") as pairs:
        inputs, targets = pairs["inputs"], pairs[stage]
    saved = sorted(directory.glob("step_*.json"), key=lambda path: int(path.stem[5:]))
    step, weights = 0, np.zeros(5)
    if saved:
        step, weights = int(saved[-1].stem[5:]), np.array(json.loads(saved[-1].read_text()))
        print(f"{stage}: continuing after {step}", flush=True)
    elif stage == "finetune":
        weights = np.array(json.loads(Path("out/pretrained.json").read_text()))
    while step < steps:
        step += 1
        error = inputs @ weights - targets
        weights = weights - 0.05 * inputs.T @ error / len(inputs)
        time.sleep(0.06)  # in place of a larger model
        print(f"step {step} {stage}_loss {float(error @ error) / len(inputs):.10f}", flush=True)
        if step % 10 == 0:
            write(directory / f"step_{step}.json", weights)
    if stage == "pretrain":
        write(Path("out/pretrained.json"), weights)
    else:
        print(f"final loss {float(np.mean((inputs @ weights - targets) ** 2)):.12e}")


def write(path: Path, weights: np.ndarray) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(weights.tolist()))
    os.replace(part, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", choices=["prepare", "pretrain", "finetune"])
    parser.add_argument("--steps", type=int, default=0)
    args = parser.parse_args()
    if args.stage == "prepare":
        prepare()
    else:
        train(args.stage, args.steps)
