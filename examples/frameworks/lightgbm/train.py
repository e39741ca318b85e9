"""LightGBM resumes from its own model."""

import lightgbm
import numpy as np

from trainmaster.sdk.lightgbm import Callback, resumed

ROUNDS = 60


def main() -> None:
    """Boost trees on a made-up regression."""
    generator = np.random.default_rng(7)
    inputs = generator.normal(size=(2000, 8))
    target = np.sin(inputs[:, 0]) + inputs[:, 1] * inputs[:, 2] + generator.normal(scale=0.1, size=2000)
    train = lightgbm.Dataset(inputs[:1500], target[:1500])
    test = lightgbm.Dataset(inputs[1500:], target[1500:], reference=train)
    model, done = resumed()
    if done == ROUNDS:
        return  # killed after its last round: LightGBM rejects a training of zero rounds
    lightgbm.train(
        {"objective": "regression", "num_leaves": 15, "num_threads": 1, "deterministic": True, "verbosity": -1},
        train, num_boost_round=ROUNDS - done, valid_sets=[train, test], valid_names=["train", "test"],
        init_model=model, callbacks=[Callback(every=10)],
    )  # fmt: skip


if __name__ == "__main__":
    main()
