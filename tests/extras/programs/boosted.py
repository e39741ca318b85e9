"""Boosted trees with XGBoost's own checkpoints: the newest one is read at the start, and only the rounds left are trained."""

import argparse
import re
import time
from pathlib import Path

import numpy as np
import xgboost as xgb


class Slow(xgb.callback.TrainingCallback):
    """In place of more data."""

    def after_iteration(self, model, epoch, evals_log):
        time.sleep(0.06)
        return False


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=100)
parser.add_argument("--checkpoint-dir", type=Path, default=Path("models"))
args = parser.parse_args()

draws = np.random.default_rng(41)
inputs = draws.normal(size=(600, 10))
targets = inputs[:, 0] * inputs[:, 1] + np.sin(inputs[:, 2])
train, valid = xgb.DMatrix(inputs[:500], targets[:500]), xgb.DMatrix(inputs[500:], targets[500:])

args.checkpoint_dir.mkdir(exist_ok=True)
saved = {int(re.findall(r"\d+", path.stem)[-1]): path for path in args.checkpoint_dir.glob("model_*.ubj")}
booster, done = None, 0
if saved:
    booster = xgb.Booster(model_file=saved[max(saved)])
    done = booster.num_boosted_rounds()
    print(f"continuing from {saved[max(saved)]} after {done} rounds", flush=True)
booster = xgb.train(
    {"max_depth": 3, "eta": 0.1, "tree_method": "hist", "nthread": 1, "objective": "reg:squarederror"},
    train, num_boost_round=args.rounds - done, evals=[(train, "train"), (valid, "valid")], xgb_model=booster, verbose_eval=1,
    callbacks=[xgb.callback.TrainingCheckPoint(args.checkpoint_dir, interval=10), Slow()],
)  # fmt: skip
booster.save_model("final.ubj")
error = float(np.sqrt(np.mean((booster.predict(valid) - targets[500:]) ** 2)))
print(f"final loss {error:.10f} of {booster.num_boosted_rounds()} rounds")
