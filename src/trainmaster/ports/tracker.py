"""The tracker port: mirrors runs into a tracker. The event log and the metric store stay authoritative.

One job is one run. A tracker may be down, slow or wiped: the mirror then waits and catches up, and no job is affected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from trainmaster.errors import OperationError

NOT_COPIED = "not copied: "  # begins the reason for which a file was skipped


class TrackerUnreachableError(OperationError):
    """The tracker does not answer, or not in time; the request may have been executed. It is retried later."""

    code = "tracker_unreachable"


class RunGoneError(OperationError):
    """The tracker no longer has this run: it was wiped. The run is created again and filled from our stores."""

    code = "run_gone"


class RunRefusedError(OperationError):
    """The tracker rejects this permanently: a person deleted the run, or a value is out of range."""

    code = "run_refused"


class RunTroubledError(OperationError):
    """The tracker, or our own store, answers but fails on this run. It is retried later; other runs continue."""

    code = "run_troubled"


class RunStatus(StrEnum):
    """State of a run, in MLflow's terms."""

    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self not in (RunStatus.SCHEDULED, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class Run:
    """The desired state of one job's run. `id` is `wire.runs.run_id`, by which the tracker's own run is found again."""

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
    """One value of one metric. `name` includes the rank if it is not 0."""

    name: str
    step: int
    value: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that was found or created. `logged` is what a found run contains: metric, by its name there -> steps, how often."""

    ref: str
    url: str
    logged: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


class Tracker(Protocol):
    """One tracker. Each verb is idempotent. Raises: the four errors above."""

    def begin(self, run: Run) -> Begun:
        """Find the run of this id, or create it."""
        ...

    def tell(self, ref: str, run: Run, before: Run | None) -> None:
        """Set params, tags and status as in `run`. `before` is the last state that was set, None if there was none."""
        ...

    def log(self, ref: str, points: Sequence[RunPoint], mark: str) -> str:
        """Add points. Returns the mark for the next call. The same points at the same mark are stored once."""
        ...

    def named(self, metric: str) -> str:
        """The name under which the tracker has a metric."""
        ...

    def keep(self, ref: str, path: str, source: Path) -> None:
        """Store a copy of an artifact under its path; it replaces an earlier one of the same path."""
        ...

    def settle(self, ref: str, run: Run, mark: str) -> None:
        """Finish a run that is over and whose points are all logged: write what can only be written at the end."""
        ...

    def holds(self, ref: str) -> bool:
        """Whether the run still exists."""
        ...

    def close(self) -> None:
        """Close connections and files."""
        ...


@dataclass(frozen=True, slots=True)
class FeedPoint:
    """One point as the mirror reads it. A step that is reported again keeps its number and is not fed twice.

    `again`: a value from before the first step was counted as this step, and is fed, too.
    """

    seq: int
    job: str
    name: str
    rank: int
    step: int
    value: float
    time_s: float
    again: bool = False


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Points, and the position to continue from; `after` is None at the end."""

    points: tuple[FeedPoint, ...]
    after: tuple[int, ...] | None


class Feed(Protocol):
    """The metric store in order of arrival. Each step of a rank's metric is fed once, and each value before its first step."""

    def last_seq(self) -> int:
        """Sequence number of the newest point."""
        ...

    def since(self, seq: int, limit: int) -> FeedPage:
        """Points that arrived after `seq`; `after` is (sequence number of the last point read,)."""
        ...

    def of_job(self, job: str, upto_seq: int, after: tuple[int, ...] | None, limit: int) -> FeedPage:
        """One job's points that arrived up to `upto_seq`, in a fixed order."""
        ...


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The known state of one job in one tracker."""

    job: str
    ref: str
    url: str
    told: Run | None = None
    kept: Mapping[str, str] = field(default_factory=dict)  # path -> digest, or NOT_COPIED and why the file was skipped
    mark: str = ""
    fill_upto: int | None = None  # backfill: points up to this number are still sent, apart from the feed
    fill_after: tuple[int, ...] | None = None  # position of the backfill
    found: bool = False  # the run existed before we knew of it: its contents are checked during the backfill
    settled: bool = False  # the tracker knows that it is over, after its last point
    fault: str | None = None  # why nothing more is sent

    @property
    def unfinished(self) -> bool:
        """Whether there is work left that no event will trigger."""
        return self.fault is None and not (self.settled and self.fill_upto is None)

    def filled(self, after: tuple[int, ...] | None) -> "Mirrored":
        """The run with its backfill at this position; None: the backfill is complete."""
        return replace(self, fill_upto=self.fill_upto if after is not None else None, fill_after=after)


@dataclass(frozen=True, slots=True)
class Parcel:
    """A batch in transit to a tracker. After a crash the identical batch is sent again."""

    batches: tuple[tuple[str, tuple[RunPoint, ...]], ...]  # (job, its points)
    points_seq: int  # the cursor after the batch has arrived
    fill: str | None = None  # the job that it backfills; None: it comes from the feed
    fill_after: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far one tracker has followed the log and the points."""

    events_seq: int = 0
    points_seq: int = 0
    choice: str = ""  # fingerprint of the mirrored projects
    parcel: Parcel | None = None


class MirrorState(Protocol):
    """The durable state of one mirror for one tracker."""

    def cursor(self) -> Cursor | None:
        """The cursor; None before the first start."""
        ...

    def save(self, cursor: Cursor | None, runs: Sequence[Mirrored] = ()) -> None:
        """Store a cursor (None: unchanged) and runs in one durable transaction. Raises: DiskFullError."""
        ...

    def run(self, job: str) -> Mirrored | None:
        """The state of one job; None if it is unknown."""
        ...

    def unfinished(self) -> list[Mirrored]:
        """Runs that are not finished."""
        ...

    def refused(self) -> list[str]:
        """The jobs that are no longer mirrored because the tracker refused them."""
        ...

    def forget(self, job: str) -> None:
        """Drop a run that the tracker no longer has."""
        ...
