"""XGBoost resumes from its own model with the same losses, because no rows or columns are sampled.

With `subsample` or `colsample_*` below 1 they would differ a little: XGBoost does not save the state of its generator.
"""

import numpy as np
import xgboost

from trainmaster.sdk.xgboost import Callback, resumed

ROUNDS = 60


def main() -> None:
    """Boost trees on a made-up regression."""
    generator = np.random.default_rng(7)
    inputs = generator.normal(size=(2000, 8)).astype(np.float32)
    target = np.sin(inputs[:, 0]) + inputs[:, 1] * inputs[:, 2] + generator.normal(scale=0.1, size=2000)
    train = xgboost.DMatrix(inputs[:1500], target[:1500])
    test = xgboost.DMatrix(inputs[1500:], target[1500:])
    model, done = resumed()
    xgboost.train(
        {"max_depth": 4, "eta": 0.1, "tree_method": "hist", "nthread": 1}, train, num_boost_round=ROUNDS - done,
        evals=[(train, "train"), (test, "test")], xgb_model=model, callbacks=[Callback(every=10)], verbose_eval=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
