"""Ranks runs by their metrics: chooses the primary metric and its direction, and finds last and best values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.model.job import Job
from trainmaster.model.metric_modes import guessed_mode
from trainmaster.model.spec import Mode
from trainmaster.server.record.curves import Best, Curves

_USUAL = ("loss", "train_loss", "train/loss")  # the primary metric if no spec names one

Last = tuple[int | None, float, float]  # step, value, time_s


@dataclass(frozen=True, slots=True)
class MetricRanking:
    """One metric of several runs. `mode`: whether smaller or larger is better; None if unknown."""

    name: str
    mode: Mode | None
    primary: bool
    last: list[Last | None]
    best: list[Best | None]

    @property
    def winner(self) -> int | None:
        """The index of the run with the best value, if only one has it."""
        values = [best[1] for best in self.best if best is not None]
        if self.mode is None or len(values) < 2:
            return None
        top = (min if self.mode is Mode.MIN else max)(values)
        places = [at for at, best in enumerate(self.best) if best is not None and best[1] == top]
        return places[0] if len(places) == 1 else None

    @property
    def equal(self) -> bool:
        """Whether all runs have the same last and, if the mode is known, the same best value. Others are not looked at."""
        ends = [_shown(one) for one in self.last], [_shown(one) for one in self.best]
        return all(one is not None for one in self.last) and all(len(set(values)) == 1 for values in ends)


def _shown(point: Last | Best | None) -> str:
    return "" if point is None else repr(point[:2])


def primary_of(jobs: Sequence[Job], names: Sequence[str]) -> str | None:
    """The first primary metric that a spec names and a run has reported, else the usual name of a loss."""
    named = [job.spec.metrics.primary for job in jobs]
    return next((name for name in (*named, *_USUAL) if name in names), None)


def mode_of(jobs: Sequence[Job], name: str) -> Mode | None:
    """The direction that a spec declares for its primary metric, else one guessed from the name, else None."""
    declared = (job.spec.metrics.mode for job in jobs if job.spec.metrics.primary == name)
    return next((mode for mode in declared if mode is not None), None) or guessed_mode(name)


def rank_metrics(
    curves: Curves, jobs: Sequence[Job], names: Sequence[str], last: Mapping[str, Mapping[str, Last]]
) -> list[MetricRanking]:
    """Rank `names`, the primary metric first. `last` is the result of `MetricStore.last`. Reads all points of the metrics."""
    primary = primary_of(jobs, names)
    found = []
    for name in sorted(names, key=lambda name: (name != primary, name)):
        mode = mode_of(jobs, name)
        mine = [last.get(job.id, {}).get(name) for job in jobs]
        best: list[Best | None] = [None] * len(jobs)
        if mode is not None:
            largest = mode is Mode.MAX
            best = [curves.best(job, name, largest) if at is not None else None for job, at in zip(jobs, mine, strict=True)]
        found.append(MetricRanking(name, mode, name == primary, mine, best))
    return found


def point_view(point: Last | Best | None) -> dict[str, Any] | None:
    """A value with its step; null if a run has none."""
    if point is None:
        return None
    return {"step": point[0], "value": point[1]}
