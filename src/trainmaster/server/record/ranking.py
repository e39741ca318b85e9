"""Ranks runs by their metrics: chooses the primary metric and its direction, and finds last and best values."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainmaster.model.job import Job
from trainmaster.model.metric_modes import guessed_mode
from trainmaster.model.spec import Mode
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.server.record.curves import Best, Curves
from trainmaster.server.views.job_notes import metrics_lost
from trainmaster.wire.names import UNRECORDED

_USUAL = ("loss", "train_loss", "train/loss")  # the primary metric if no spec names one

Last = tuple[int | None, float, float]  # step, value, time_s


@dataclass(frozen=True, slots=True)
class MetricRanking:
    """One metric of several runs. `mode`: whether smaller or larger is better; None if unknown.

    `best_unknown`: points of some run are not on record (`unrecorded`), so nobody knows its best value.
    """

    name: str
    mode: Mode | None
    primary: bool
    last: list[Last | None]
    best: list[Best | None]
    best_unknown: bool = False

    @property
    def winner(self) -> int | None:
        """The index of the run with the best value, if only one has it."""
        values = [best[1] for best in self.best if best is not None]
        if self.mode is None or self.best_unknown or len(values) < 2:
            return None
        top = (min if self.mode is Mode.MIN else max)(values)
        places = [at for at, best in enumerate(self.best) if best is not None and best[1] == top]
        return places[0] if len(places) == 1 else None

    @property
    def equal(self) -> bool:
        """Whether all runs have the same last and, if the mode is known, the same best value. Others are not looked at."""
        ends = [_shown(one) for one in self.last], [_shown(one) for one in self.best]
        known = not self.best_unknown and all(one is not None for one in self.last)
        return known and all(len(set(values)) == 1 for values in ends)


def _shown(point: Last | Best | None) -> str:
    return "" if point is None else repr(point[:2])


def primary_of(jobs: Sequence[Job], names: Sequence[str]) -> str | None:
    """The first primary metric that a spec names and a run has reported, else the usual name of a loss."""
    named = [job.spec.metrics.primary for job in jobs]
    return next((name for name in (*named, *_USUAL) if name in names), None)


def unrecorded(job: Job, replaced_s: float | None) -> list[str]:
    """What of its metrics is not on record, so that its best values are not known. `replaced_s`: see `metrics_lost`."""
    removed = ["all but the last values of metrics: their points were removed"] if StorageKind.METRICS in job.removed else []
    unread = [f"all values of metrics: {one.text}" for one in job.troubles if one.topic in UNRECORDED]
    return [*metrics_lost(job, replaced_s), *removed, *unread]


def mode_of(jobs: Sequence[Job], name: str) -> Mode | None:
    """The direction that the first spec declares for its primary metric, else one guessed from the name, else None."""
    return next(iter(_declared(jobs, name)), None) or guessed_mode(name)


def _declared(jobs: Sequence[Job], name: str) -> dict[Mode, None]:
    modes = (job.spec.metrics.mode for job in jobs if job.spec.metrics.primary == name)
    return dict.fromkeys(mode for mode in modes if mode is not None)


def rank_metrics(
    curves: Curves,
    jobs: Sequence[Job],
    names: Sequence[str],
    last: Mapping[str, Mapping[str, Last]],
    partial: Container[str] = (),
) -> list[MetricRanking]:
    """Rank `names`, the primary metric first. Reads all points of the metrics.

    `last` is the result of `MetricStore.last`; `partial`: ids of the jobs of which points are not on record.
    """
    primary = primary_of(jobs, names)
    found = []
    for name in sorted(names, key=lambda name: (name != primary, name)):
        mode = mode_of(jobs, name) if len(_declared(jobs, name)) < 2 else None  # of opposite ones, neither is that of all
        mine = [last.get(job.id, {}).get(name) for job in jobs]
        best: list[Best | None] = [None] * len(jobs)
        if mode is not None:
            largest = mode is Mode.MAX
            best = [curves.best(job, name, largest) if at is not None else None for job, at in zip(jobs, mine, strict=True)]
        unknown = mode is not None and any(at is not None and job.id in partial for job, at in zip(jobs, mine, strict=True))
        found.append(MetricRanking(name, mode, name == primary, mine, best, unknown))
    return found


def point_view(point: Last | Best | None) -> dict[str, Any] | None:
    """A value with its step; null if a run has none."""
    if point is None:
        return None
    return {"step": point[0], "value": point[1]}
