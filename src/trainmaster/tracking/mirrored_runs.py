"""The runs of one tracker: what it was told of each, which are unfinished, and which wait to be told their end."""

from collections.abc import Callable, Mapping

from trainmaster.ports.tracker import Cursor, FeedPoint, Mirrored, MirrorState, RunPoint
from trainmaster.tracking.runs import point_of

_QUIET_S = 2.0  # the last points of an ended job may arrive this long after its end, which is told after them


class MirroredRuns:
    """The mirror's marks. Unfinished runs are in memory, too."""

    def __init__(self, state: MirrorState) -> None:
        self._state = state
        self._logged: dict[str, Mapping[str, Mapping[int, int]]] = {}  # contents of found runs that are being backfilled
        self.open: dict[str, Mirrored] = {}  # unfinished runs
        self.refused: set[str] = set()  # jobs that the tracker refused for good

    def load(self) -> Cursor | None:
        """Load the unfinished runs. Returns the cursor that was stored with them."""
        cursor = self._state.cursor()
        self.open = {run.job: run for run in self._state.unfinished()}
        self.refused = set(self._state.refused())
        return cursor

    def of(self, job: str) -> Mirrored | None:
        """The run of a job."""
        return self.open.get(job) or self._state.run(job)

    def save(self, cursor: Cursor | None, runs: list[Mirrored]) -> None:
        """Store the marks of these runs, and the cursor unless it is None, in one transaction."""
        self._state.save(cursor, runs)
        for run in runs:
            (self.refused.add if run.fault is not None else self.refused.discard)(run.job)
            if run.unfinished:
                self.open[run.job] = run
            else:
                self.open.pop(run.job, None)
            if run.fill_upto is None:
                self._logged.pop(run.job, None)

    def forget(self, job: str) -> None:
        """Drop a run that is gone."""
        self._state.forget(job)
        self.open.pop(job, None)
        self.refused.discard(job)
        self._logged.pop(job, None)

    def note_contents(self, job: str, logged: Mapping[str, Mapping[int, int]]) -> None:
        """Note what a run contains that was found in the tracker, until it is backfilled."""
        self._logged[job] = logged

    def contents_known(self, run: Mirrored) -> bool:
        """Whether it is known what the run contains: one that was not found contains nothing."""
        return not run.found or run.job in self._logged

    def missing(self, job: str, points: tuple[FeedPoint, ...], named: Callable[[str], str]) -> tuple[RunPoint, ...]:
        """The points that the run does not contain yet. `named`: see `Tracker`."""
        logged = self._logged.get(job, {})
        wanted = ((point_of(fed), fed.again) for fed in points)
        return tuple(one for one, again in wanted if logged.get(named(one.name), {}).get(one.step, 0) <= again)

    def forget_contents(self, run: Mirrored) -> None:
        """Forget what the run contains: it has to be read again before its next backfill."""
        self._logged.pop(run.job, None)


class Endings:
    """Ended jobs whose end is told once their last points have arrived. Times are of the monotonic `clock`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._untold: set[str] = set()
        self._changed_s: dict[str, float] = {}  # time of the last change of runs

    def postpone(self, job: str) -> None:
        """A job has ended; its end is told later."""
        self._untold.add(job)

    def is_untold(self, job: str) -> bool:
        """Whether its end waits to be told."""
        return job in self._untold

    def untold(self) -> set[str]:
        """All of them."""
        return set(self._untold)

    def told(self, job: str) -> None:
        """Its end was told."""
        self._untold.discard(job)

    def changed(self, job: str) -> None:
        """Something was sent to its run."""
        self._changed_s[job] = self._clock()

    def is_quiet(self, job: str) -> bool:
        """Whether its run has not changed for so long that its last points have arrived."""
        now_s = self._clock()
        return now_s - self._changed_s.setdefault(job, now_s) >= _QUIET_S

    def forget_change(self, job: str) -> None:
        """Its run is settled, or gone."""
        self._changed_s.pop(job, None)
