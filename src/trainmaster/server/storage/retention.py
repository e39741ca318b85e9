"""Automatic removal of data of ended jobs: by age, and when the disk gets full (`server.toml`).

Control records each removal before it happens. Curves are removed here, because the api alone writes metrics.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trainmaster.blobs.verification import is_stored
from trainmaster.configuration import RetentionSettings
from trainmaster.errors import OperationError
from trainmaster.home import Home
from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.commands import GiveUpBytes
from trainmaster.model.job import Job
from trainmaster.model.storage_kinds import ATTEMPTS_KEPT, StorageKind
from trainmaster.ports.metric_store import MetricStore
from trainmaster.ports.store import EventStore, NewRow
from trainmaster.server.record.curves import Curves
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.runtime.workers import LONG
from trainmaster.server.storage import disk_usage
from trainmaster.server.storage.age_date import AgeDate

BY = "retention"
DAY_S = 86400.0
_EVERY_S = 3600.0
_FIRST_S = 60.0
LOOK_S = 2.0
_ROWS = 200  # removal orders, or jobs with curves, per step


Stored = Callable[[str, Checkpoint], bool]  # whether the store has all of a job's checkpoint


class Retention:
    """Finds what is due for removal, from the record and the home directory."""

    def __init__(self, home: Home, events: EventStore, settings: RetentionSettings, stored: Stored) -> None:
        self._home, self._events, self._settings, self._stored = home, events, settings, stored
        self._thinned: set[str] = set()

    def due(self, now_s: float) -> Iterator[GiveUpBytes]:
        """Removals that are due by age; then, if the disk is still too full, younger ones, oldest first."""
        settings, freed, young = self._settings, 0, list[tuple[float, Job, tuple[StorageKind, ...]]]()
        for job, there in self._with_bytes():
            if job.ended_s is None:
                often = job.attempt is not None and job.attempt.number > ATTEMPTS_KEPT
                if often and any(self._stored(job.id, one) for one in reversed(job.good_checkpoints)):
                    yield GiveUpBytes(job.id, BY, (StorageKind.ASIDE, StorageKind.EARLY_LOGS))
                continue
            limits = ((StorageKind.WORK, settings.work_days), (StorageKind.LOGS, settings.logs_days))
            age_s = now_s - job.ended_s
            due = tuple(kind for kind, days in limits if days and kind in there and age_s > days * DAY_S)
            if due:
                freed += _bytes(self._home, job.id, due)
                yield GiveUpBytes(job.id, BY, due)
            if age_s > DAY_S and len(due) < len(there):
                young.append((job.ended_s, job, tuple(kind for kind in there if kind not in due)))
        missing = self._missing() - freed
        for _, job, kinds in sorted(young, key=lambda one: (one[0], one[1].id)):
            if missing <= 0:
                return
            missing -= _bytes(self._home, job.id, kinds)
            yield GiveUpBytes(job.id, BY, kinds)

    def thin(self, metrics: MetricStore, jobs: Sequence[str], now_s: float | None) -> list[str]:
        """Thin old curves, and remove curves that were discarded; returns the jobs whose points are gone.

        `now_s` None: only remove those that were discarded.
        Raises: OperationError after the last job, if the points of one could not be written.
        """
        limit_s, removed, wrong = self._settings.metrics_days * DAY_S, list[str](), list[OperationError]()
        for id in jobs:
            job = self._events.job(id) if id not in self._thinned else None
            if job is None or job.ended_s is None:
                continue
            gone = StorageKind.METRICS in job.removed
            if not gone and not (limit_s and now_s is not None and now_s - job.ended_s > limit_s):
                continue
            try:
                lost_of = partial(Curves(self._events, metrics).lost_of, job)
                metrics.thin(id, 0 if gone else int(self._settings.metrics_points), lost_of)
            except OperationError as error:
                wrong.append(error)
                continue
            removed += [id] if gone else []
            self._thinned.add(id)
        if wrong:
            raise wrong[0]
        return removed

    def _with_bytes(self) -> Iterator[tuple[Job, tuple[StorageKind, ...]]]:
        """Recorded jobs that have a directory here, and which kinds of data they have."""
        work, logs = _names(self._home.jobs_work("")), _names(self._home.attempts(""))
        for id in sorted(work | logs):
            job = self._events.job(id)
            if job is not None:
                yield job, tuple(kind for kind, of in ((StorageKind.WORK, work), (StorageKind.LOGS, logs)) if id in of)

    def _missing(self) -> int:
        """How many bytes must be freed to reach the free space that is configured."""
        found = os.statvfs(self._home.root)
        wanted = found.f_blocks * self._settings.free_percent / 100
        return int((wanted - found.f_bavail) * found.f_frsize)


class RetentionLoop:
    """The retention loop of the api: a full check at intervals, and soon after a user discards curves."""

    def __init__(self, api: Runtime) -> None:
        services = api.services
        self._api, self._next_s = api, time.monotonic() + _FIRST_S
        self._date = AgeDate(services.home)
        stored = partial(is_stored, services.blobs)
        self._retention = Retention(services.home, services.events, services.configuration.retention, stored)

    async def step(self) -> float:
        """Run one step; returns the seconds until the next one. Raises: OSError, TrainmasterError (a full disk: retried)."""
        if self._api.metric_writer.discarded_curves:
            given_up = set(await LONG.run(self._given_up))
            self._api.metric_writer.discarded_curves -= given_up
            if given_up:
                await self._shrink()
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _EVERY_S
            await self._everything()
        return LOOK_S

    def _given_up(self) -> list[str]:
        """Remove discarded curves, once control has recorded that."""
        return self._retention.thin(self._api.services.metrics, sorted(self._api.metric_writer.discarded_curves), None)

    async def _everything(self) -> None:
        after, metrics = "", self._api.services.metrics
        now_s = await LONG.run(self._date.now_s)
        orders = await LONG.run(lambda: list(self._retention.due(now_s)))
        for start in range(0, len(orders), _ROWS):
            await self._api.commands.accept([row(one, time.time()) for one in orders[start : start + _ROWS]])
        while page := await LONG.run(metrics.jobs, after, _ROWS):
            await LONG.run(self._retention.thin, metrics, page, now_s)
            after = page[-1]
        await self._shrink()

    async def _shrink(self) -> None:
        """Thin curves in small steps, so that agents' points are written in between."""
        while await LONG.run(self._api.services.metrics.shrink):
            pass


def row(order: GiveUpBytes, now_s: float) -> NewRow:
    """An inbox row for a removal; its key allows one per job, kinds and day, in case one is not carried out."""
    return NewRow(f"GiveUpBytes:{order.job}:{','.join(order.kinds)}:{order.by}:{now_s // DAY_S:.0f}", order, now_s)


def _bytes(home: Home, job: str, kinds: Sequence[StorageKind]) -> int:
    there = disk_usage.of_job(home, job)
    wanted = (*kinds, "set aside") if StorageKind.WORK in kinds else kinds
    return sum(there[kind].bytes for kind in wanted if kind in there)


def _names(path: os.PathLike[str]) -> set[str]:
    try:
        return set(os.listdir(path))
    except OSError:
        return set()
