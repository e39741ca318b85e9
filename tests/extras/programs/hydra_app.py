"""Configured by Hydra: each start writes into a new directory, `outputs/<date>/<time>`, and `checkpoint=PATH` goes on from an earlier one."""

import logging
import os
import time

import hydra
import numpy as np
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    draws = np.random.default_rng(cfg.seed)
    inputs = draws.normal(size=(200, cfg.model.width))
    targets = inputs @ draws.normal(size=cfg.model.width)
    step, weights = 0, np.zeros(cfg.model.width)
    if cfg.checkpoint is not None:
        with np.load(cfg.checkpoint) as saved:
            step, weights = int(saved["step"]), saved["weights"]
        log.info("continuing after %d from %s", step, cfg.checkpoint)
    directory = HydraConfig.get().runtime.output_dir
    while step < cfg.steps:
        step += 1
        rows = np.random.default_rng((cfg.seed, step)).integers(0, len(inputs), 32)
        error = inputs[rows] @ weights - targets[rows]
        weights = weights - cfg.lr * inputs[rows].T @ error / len(rows)
        time.sleep(0.04)  # in place of a larger model
        log.info("step=%d loss=%.10f", step, float(error @ error) / len(rows))
        if step % cfg.save_every == 0:
            part = os.path.join(directory, "last.tmp.npz")
            np.savez(part, step=step, weights=weights)
            os.replace(part, os.path.join(directory, "last.npz"))
    log.info("final loss %.12e", float(np.mean((inputs @ weights - targets) ** 2)))


if __name__ == "__main__":
    main()
