"""Says since when a metric is NaN or infinite, and what its last finite value was."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.ports.metric_store import MetricStore
from trainmaster.wire.names import SYSTEM

LISTED = (1, 1_000)  # metrics, and points of each that are read, per job of a list: less than a millisecond
SHOWN = (20, 100_000)  # of one job

_FIRST = ("loss", "train_loss", "train/loss")  # as in a list of jobs
Points = Mapping[str, tuple[int | None, float, float]]  # metric name -> step, value, time_s


def diverged(metrics: MetricStore, job: str, points: Points, limits: tuple[int, int] = SHOWN) -> dict[str, dict[str, Any]]:
    """By name, for the first few metrics whose last value is not finite, losses first."""
    most, near = limits
    names = [name for name, (_, value, _) in points.items() if not math.isfinite(value) and not name.startswith(SYSTEM)]
    found = {}
    for name in sorted(names, key=lambda name: (name not in _FIRST, "loss" not in name, name))[:most]:
        step, value, _ = points[name]
        since, finite = metrics.divergence(job, name, step, near)
        found[name] = {
            "value": str(value),
            "since_step": since if step is not None else None,
            "last_step": None if finite is None or step is None else finite[0],
            "last_value": None if finite is None else finite[1],
        }
    return found


def compared(metrics: MetricStore, jobs: Sequence[str], last: Mapping[str, Points], name: str) -> list[dict[str, Any] | None]:
    """The same of one metric, for each of several jobs; None for a job whose last value is finite, or that has none."""
    mine = [{name: last[job][name]} if name in last.get(job, {}) else {} for job in jobs]
    return [diverged(metrics, job, points).get(name) for job, points in zip(jobs, mine, strict=True)]
