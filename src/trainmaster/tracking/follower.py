"""Brings one tracker to the state of our log and metric store, and keeps it there. Level-triggered and crash-safe.

A run is set to its current state, not sent its history: each changed job is read and compared with what the tracker was told.
Points come from the feed, each step once. A batch is stored before it is sent, and after a crash the identical batch is sent
again, which every tracker deduplicates. Then the cursor moves, in the same transaction as the tracker's marks.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainmaster.ports.store import JobQuery
from trainmaster.ports.tracker import (
    Cursor,
    Mirrored,
    MirrorState,
    Parcel,
    Run,
    RunGoneError,
    RunPoint,
    RunRefusedError,
    RunTroubledError,
    Tracker,
)
from trainmaster.tracking.mirrored_runs import Endings, MirroredRuns
from trainmaster.tracking.run_backoff import RunBackoff
from trainmaster.tracking.runs import point_of
from trainmaster.tracking.sources import Sources
from trainmaster.tracking.wipe_probe import WipeProbe

_JOBS = 20  # runs that are updated before points are sent again
_EVENTS = 1000
_SURVEYED = 500
_OLDEST = 100  # rows among which the oldest point is sought: not every row has one

_log = logging.getLogger("trainmaster.mirror")


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a tracker is behind."""

    points: int  # upper bound: includes superseded points and those of other projects
    seconds: float  # age of the oldest point not yet sent
    runs: int = 0  # to which something else is still sent: their state, their files, their end, earlier points
    refused: int = 0  # runs that are not mirrored any more


class Follower:
    """One tracker's mirror. `step` raises TrackerUnreachableError, and any error of reading our own stores."""

    def __init__(self, tracker: Tracker, state: MirrorState, sources: Sources, clock: Callable[[], float]) -> None:
        self._tracker = tracker
        self._from = sources
        self._runs = MirroredRuns(state)
        self._cursor = Cursor()
        self._pending: dict[str, None] = {}  # jobs to update, in order
        self._heard_seq = 0  # last event read; the cursor follows once all changed jobs were told
        self._begun = False
        self._endings = Endings(clock)
        self._backoff = RunBackoff(clock)
        self._probed = WipeProbe(clock)

    def step(self) -> bool:
        """Do part of the work. Returns whether there is more to do at once."""
        if not self._begun:
            self._begin_following()
        if self._cursor.parcel is not None:
            self._deliver(self._cursor.parcel)
            return True
        self._pending |= dict.fromkeys(self._backoff.due())
        more = self._look_at_jobs()
        more |= self._fill()
        more |= self._follow()
        if not more:
            self._settle()
            self._probe()
        return more

    def lag(self) -> Lag:
        """The current lag."""
        filled = {run.job for run in list(self._runs.open.values()) if run.fill_upto is not None}
        behind = (set(self._pending) | self._endings.untold() | filled) - set(self._backoff.failures())
        runs, refused = len(behind), len(self._runs.refused)
        page = self._from.feed.since(self._cursor.points_seq, _OLDEST)
        if page.after is None:
            return Lag(0, 0.0, runs, refused)
        before = page.points[0].seq - 1 if page.points else self._cursor.points_seq  # numbers may have a gap behind the cursor
        points = self._from.feed.last_seq() - before
        oldest_s = min((point.time_s for point in page.points), default=time.time())
        return Lag(points, max(0.0, time.time() - oldest_s), runs, refused)

    def troubled(self) -> dict[str, str]:
        """The jobs on whose runs the tracker fails, with the error; they are retried with growing intervals."""
        return self._backoff.failures()

    def _begin_following(self) -> None:
        """Continue from the stored cursor. If the selection of projects changed, every job is checked once."""
        known, newest = self._runs.load(), self._from.feed.last_seq()
        cursor = known or Cursor(points_seq=newest)
        if cursor.points_seq > newest:
            _log.warning("the metric store is older than the mirrored one: continuing from its end")
            cursor = replace(cursor, points_seq=newest)
        self._pending = dict.fromkeys(self._runs.open)
        self._cursor, self._heard_seq = cursor, cursor.events_seq
        if cursor.choice != self._from.choice:
            self._survey()
        newest_jobs = self._from.log.jobs(JobQuery(limit=_JOBS))
        self._probed.begin(next((job.id for job in newest_jobs if self._runs.of(job.id) is not None), ""))
        self._begun = True

    def _survey(self) -> None:
        """Queue every job for a check of its run. Until that is done, the cursor has no selection."""
        newest = self._from.log.last_seq()
        before: int | None = None
        while jobs := self._from.log.jobs(JobQuery(limit=_SURVEYED, before_seq=before)):
            self._pending |= dict.fromkeys(job.id for job in jobs if self._from.takes(job.spec.project))
            before = jobs[-1].seq
        self._keep_cursor(replace(self._cursor, events_seq=newest, choice=""))
        self._heard_seq = newest

    def _look_at_jobs(self) -> bool:
        """Update runs to the state of their jobs. The cursor moves once all jobs before it are done."""
        jobs, self._heard_seq = self._from.log.changed(self._heard_seq, _EVENTS)
        self._pending |= dict.fromkeys(jobs)
        for job in list(self._pending)[:_JOBS]:
            self._look_at(job)
            self._pending.pop(job, None)
        if self._pending:
            return True
        if any(job not in self._runs.open for job in self._backoff.failures()):
            return len(jobs) >= _JOBS  # a run that could not be created is only remembered by its events
        if (self._heard_seq, self._from.choice) != (self._cursor.events_seq, self._cursor.choice):
            self._keep_cursor(replace(self._cursor, events_seq=self._heard_seq, choice=self._from.choice))
        return len(jobs) >= _JOBS

    def _look_at(self, job_id: str) -> Mirrored | None:
        """Update one job's run, and create it if needed. None if it is not mirrored, or cannot be created."""
        if self._backoff.is_paused(job_id):
            return self._runs.of(job_id)
        try:
            known = self._brought_up(job_id)
        except RunTroubledError as error:
            return self._pause_and_keep(job_id, error)
        except RunRefusedError as error:  # it cannot be created: others can
            return self._give_up(self._runs.of(job_id) or Mirrored(job_id, "", ""), error)
        if known is not None and known.fill_upto is None and not self._is_over(known):
            self._backoff.recover(job_id)
        return known

    def _brought_up(self, job_id: str) -> Mirrored | None:
        job = self._from.log.job(job_id)
        if job is None or not self._from.takes(job.spec.project):
            return None
        run = self._from.run_of(job)
        known = self._runs.of(job_id)
        if known is not None and not self._cursor.choice and not self._tracker.holds(known.ref):
            self._forget(job_id)
            known = None
        known = known or self._begin(run)
        if known.fault is not None:
            return known
        if run.status.ended and not (known.told is not None and known.told.status.ended):
            self._endings.postpone(job_id)
            return known
        try:
            return self._tell(known, run)
        except RunGoneError:
            self._gone(job_id)
            return self._tell(self._begin(run), run)
        except RunRefusedError as error:
            return self._give_up(known, error)

    def _tell(self, known: Mirrored, run: Run) -> Mirrored:
        if known.told != run:
            self._tracker.tell(known.ref, run, known.told)
            known = self._keep(replace(known, told=run, settled=False))
            self._endings.changed(known.job)
        return self._from.copy_artifacts(self._tracker, known, self._keep)

    def _begin(self, run: Run) -> Mirrored:
        """Create a run. Points before the cursor are backfilled separately; later ones come with the feed."""
        begun = self._tracker.begin(run)
        if begun.logged:
            self._runs.note_contents(run.job, begun.logged)
        upto = self._cursor.points_seq
        return self._keep(Mirrored(run.job, begun.ref, begun.url, fill_upto=upto, found=bool(begun.logged)))

    def _fill(self) -> bool:
        """Send a page of the first run that needs a backfill."""
        wanting = (run for run in self._runs.open.values() if run.fill_upto is not None)
        known = next((run for run in wanting if not self._backoff.is_paused(run.job)), None)
        if known is None:
            return False
        assert known.fill_upto is not None
        if not self._runs.contents_known(known):
            job = self._from.log.job(known.job)
            try:
                logged = self._tracker.begin(self._from.run_of(job)).logged if job is not None else {}
                self._runs.note_contents(known.job, logged)
            except RunTroubledError as error:
                self._pause_and_keep(known.job, error)
                return True
        page = self._from.feed.of_job(known.job, known.fill_upto, known.fill_after, self._from.page)
        points = self._runs.missing(known.job, page.points, self._tracker.named)
        if points:
            self._send(Parcel(((known.job, points),), self._cursor.points_seq, known.job, page.after))
        else:
            self._keep(known.filled(page.after))
        return True

    def _follow(self) -> bool:
        """Send a page of the feed."""
        page = self._from.feed.since(self._cursor.points_seq, self._from.page)
        if page.after is None:
            return False
        batches: dict[str, list[RunPoint]] = {}
        for point in page.points:
            batches.setdefault(point.job, []).append(point_of(point))
        known = {job: self._runs.of(job) or self._look_at(job) for job in batches}
        paused = {job for job in batches if self._backoff.is_paused(job)}
        for run in known.values():
            if run is not None and run.job in paused:
                self._keep(self._later(run, page.after[0]))
        wanted = [(job, tuple(points)) for job, points in batches.items() if _takes(known[job]) and job not in paused]
        if wanted:
            self._send(Parcel(tuple(wanted), page.after[0]))
        else:
            self._keep_cursor(replace(self._cursor, points_seq=page.after[0]))
        return len(page.points) >= self._from.page // 2

    def _send(self, parcel: Parcel) -> None:
        self._keep_cursor(replace(self._cursor, parcel=parcel))
        self._deliver(parcel)

    def _deliver(self, parcel: Parcel) -> None:
        """Send a stored batch, and move the cursor and the marks in one transaction."""
        done: list[Mirrored] = []
        late: list[Mirrored] = []
        for job, points in parcel.batches:
            known = self._runs.of(job)
            if known is None or not _takes(known):
                continue
            if self._backoff.is_paused(job):
                late.append(known)
                continue
            try:
                done.append(replace(known, mark=self._tracker.log(known.ref, points, known.mark), settled=False))
            except RunGoneError:
                if parcel.fill is not None:  # the backfill begins again; points of the feed go to the new run
                    self._keep_cursor(replace(self._cursor, parcel=None))
                self._gone(job)
                self._look_at(job)
                return
            except RunRefusedError as error:
                self._give_up(known, error)
            except RunTroubledError as error:
                self._pause(job, error)
                late.append(known)
        if parcel.fill is not None:
            done = [run.filled(parcel.fill_after) for run in done]
        done += [self._later(run, parcel.points_seq) for run in late]
        cursor = replace(self._cursor, points_seq=parcel.points_seq, parcel=None)
        self._save(cursor, done)
        self._cursor = cursor
        for run in done:
            self._endings.changed(run.job)

    def _settle(self) -> None:
        """Finish ended runs without recent changes: all their points have arrived, so tell their end."""
        for known in list(self._runs.open.values()):
            if not self._is_over(known) or known.fill_upto is not None or self._backoff.is_paused(known.job):
                continue
            if not self._endings.is_quiet(known.job):
                continue
            try:
                self._end(known)
            except RunGoneError:
                self._gone(known.job)
            except RunRefusedError as error:
                self._give_up(known, error)
            except RunTroubledError as error:
                self._pause_and_keep(known.job, error)

    def _end(self, known: Mirrored) -> None:
        job = self._from.log.job(known.job) if self._endings.is_untold(known.job) else None
        if job is not None:
            known = self._tell(known, self._from.run_of(job))
            self._endings.told(known.job)
        assert known.told is not None
        self._tracker.settle(known.ref, known.told, known.mark)
        self._keep(replace(known, settled=True))
        self._endings.forget_change(known.job)

    def _probe(self) -> None:
        """Check whether one run still exists. If it does not, check all."""
        job = self._probed.job
        known = self._runs.of(job) if self._probed.is_due() else None
        if known is None:
            return
        self._probed.note_asked(then=job)
        try:
            holds = self._tracker.holds(known.ref)
        except RunTroubledError:
            self._probed.note_asked(then=next((other for other in self._runs.open if other != job), ""))
            return
        if not holds:
            self._gone(job)

    def _keep(self, run: Mirrored) -> Mirrored:
        self._save(None, [run])
        return run

    def _save(self, cursor: Cursor | None, runs: list[Mirrored]) -> None:
        self._runs.save(cursor, runs)
        for run in runs:
            if run.fill_upto is None:
                self._backoff.recover(run.job)
            self._probed.offer(run.job)

    def _keep_cursor(self, cursor: Cursor) -> None:
        self._save(cursor, [])
        self._cursor = cursor

    def _forget(self, job: str) -> None:
        _log.warning("the run of %s is gone: it is created again", job)
        self._endings.forget_change(job)
        self._backoff.forget(job)
        self._probed.drop(job)
        self._runs.forget(job)

    def _gone(self, job: str) -> None:
        """Handle a run that is gone: others may be gone too."""
        self._pending[job] = None
        if self._cursor.choice:
            self._survey()
        self._forget(job)

    def _give_up(self, known: Mirrored, error: RunRefusedError) -> Mirrored:
        _log.error("%s is no longer mirrored: %s", known.job, error)
        return self._keep(replace(known, fault=error.message))

    def _pause_and_keep(self, job: str, error: RunTroubledError) -> Mirrored | None:
        """Pause a run. What arrives meanwhile is sent afterwards."""
        self._pause(job, error)
        known = self._runs.of(job)
        return self._keep(replace(known, settled=False)) if known is not None else None

    def _pause(self, job: str, error: RunTroubledError) -> None:
        if self._backoff.pause(job, error.message):
            _log.warning("%s is mirrored later: %s", job, error)

    def _later(self, known: Mirrored, upto_seq: int) -> Mirrored:
        """The run with all points up to this number to be backfilled, except those that it already contains.

        Without its mark, a file is written again from its beginning: it cannot tell what it contains.
        """
        self._runs.forget_contents(known)
        fill = max(upto_seq, known.fill_upto or 0)
        return replace(known, fill_upto=fill, fill_after=None, found=True, settled=False, mark="")

    def _is_over(self, known: Mirrored) -> bool:
        return self._endings.is_untold(known.job) or (known.told is not None and known.told.status.ended)


def _takes(run: Mirrored | None) -> bool:
    return run is not None and run.fault is None
