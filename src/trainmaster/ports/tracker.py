"""Trackers that runs are mirrored into, and what a mirror reads and remembers. The log and metric store stay the authority.

One job is one run. A tracker may be down, slow or wiped: the mirror then waits and catches up, and no job notices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from trainmaster.errors import OperationError


class TrackerUnreachableError(OperationError):
    """It does not answer, or not in time; what was asked may have been done. Asked again later."""

    code = "tracker_unreachable"


class RunGoneError(OperationError):
    """The tracker no longer has this run: it was wiped. The run is made again and filled from our log."""

    code = "run_gone"


class RunRefusedError(OperationError):
    """The tracker will not have this, however often it is asked: a run deleted by a person, a value out of its bounds."""

    code = "run_refused"


class RunTroubledError(OperationError):
    """The tracker answers, and fails at this run, by a fault of its own. Asked again later; other runs need not wait."""

    code = "run_troubled"


class RunStatus(StrEnum):
    """Where a run is, as MLflow names it."""

    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def ended(self) -> bool:
        """Whether no more is to come."""
        return self not in (RunStatus.SCHEDULED, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class Run:
    """What a tracker should say of one job. `id` is `wire.runs.run_id`: by it the tracker's own run is found again."""

    id: str
    job: str
    experiment: str
    status: RunStatus
    created_s: float
    started_s: float | None = None
    ended_s: float | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunPoint:
    """One value of one metric; `name` already tells the rank where it is not 0."""

    name: str
    step: int
    value: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A run found or made. `logged` is what a found one already holds: metric name -> steps."""

    ref: str
    url: str
    logged: Mapping[str, frozenset[int]] = field(default_factory=dict)


class Tracker(Protocol):
    """One tracker. Each verb may be repeated with the effect of once. Raises: the four errors above."""

    def begin(self, run: Run) -> Begun:
        """The run of this id, made if there is none."""
        ...

    def tell(self, ref: str, run: Run, before: Run | None) -> None:
        """Make params, tags and status what `run` says; `before` is what was told last, None if nothing was."""
        ...

    def log(self, ref: str, points: Sequence[RunPoint], mark: str) -> str:
        """Add points; returns the mark to give the next time. The same points at the same mark again are there once."""
        ...

    def keep(self, ref: str, path: str, source: Path) -> None:
        """Hold a copy of an artifact under its path; a later one of the same path replaces it."""
        ...

    def settle(self, ref: str, run: Run, mark: str) -> None:
        """The run is over and all its points were logged: whatever can only be written at the end is written now."""
        ...

    def holds(self, ref: str) -> bool:
        """Whether the run is still there."""
        ...

    def close(self) -> None:
        """Let go of connections and files."""
        ...


@dataclass(frozen=True, slots=True)
class FeedPoint:
    """One point as the mirror reads it: a step that was reported again keeps its number and is not fed a second time."""

    seq: int
    job: str
    name: str
    rank: int
    step: int
    value: float
    time_s: float


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Points, and from where to read on; `after` is None when there is no more."""

    points: tuple[FeedPoint, ...]
    after: tuple[int, ...] | None


class Feed(Protocol):
    """The metric store in the order of arrival. A step of a metric of a rank is fed exactly once."""

    def last_seq(self) -> int:
        """The number of the newest point."""
        ...

    def since(self, seq: int, limit: int) -> FeedPage:
        """Points that arrived after `seq`; `after` is (number of the last one looked at,)."""
        ...

    def of_job(self, job: str, upto_seq: int, after: tuple[int, ...] | None, limit: int) -> FeedPage:
        """One job's points that had arrived by `upto_seq`, in a fixed order."""
        ...


@dataclass(frozen=True, slots=True)
class Mirrored:
    """One job in one tracker, as far as it is known to have been told."""

    job: str
    ref: str
    url: str
    told: Run | None = None
    kept: Mapping[str, str] = field(default_factory=dict)  # path -> digest
    mark: str = ""
    fill_upto: int | None = None  # points up to this number are still being filled in, apart from the feed
    fill_after: tuple[int, ...] | None = None  # how far that is
    found: bool = False  # it was there before we knew of it: what it holds is looked at while filling
    settled: bool = False  # it is over, and so was said to the tracker after its last point
    fault: str | None = None  # why nothing more is sent

    @property
    def unfinished(self) -> bool:
        """Whether something is still to be done of our own accord."""
        return self.fault is None and not (self.settled and self.fill_upto is None)

    def filled(self, after: tuple[int, ...] | None) -> "Mirrored":
        """The fill went so far; None: it is over."""
        return replace(self, fill_upto=self.fill_upto if after is not None else None, fill_after=after)


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is on its way to a tracker: sent again to the letter after a crash."""

    batches: tuple[tuple[str, tuple[RunPoint, ...]], ...]  # job, its points
    points_seq: int  # the cursor once all of it has arrived
    fill: str | None = None  # the job it fills; None: it comes from the feed
    fill_after: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one tracker has followed."""

    events_seq: int = 0
    points_seq: int = 0
    choice: str = ""  # which projects it held for
    parcel: Parcel | None = None


class MirrorState(Protocol):
    """What one mirror remembers of one tracker, durably."""

    def cursor(self) -> Cursor | None:
        """None before the first time."""
        ...

    def save(self, cursor: Cursor | None, runs: Sequence[Mirrored] = ()) -> None:
        """Remember a cursor (None: as it was) and runs, in one durable transaction. Raises: DiskFullError."""
        ...

    def run(self, job: str) -> Mirrored | None:
        """One job."""
        ...

    def unfinished(self) -> list[Mirrored]:
        """The runs that are."""
        ...

    def forget(self, job: str) -> None:
        """The tracker no longer has it."""
        ...
