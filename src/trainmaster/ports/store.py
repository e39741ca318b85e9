"""The store ports: the event log with its projections, and the inbox. That of metrics is in `ports.metric_store`.

Three stores, because each has one writer: control writes events, the api writes the inbox and metrics. On SQLite they are
three files, so that the two processes never wait for each other's lock.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.model.checkpoints import Artifact, ArtifactKind
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import Command, Unreadable
from trainmaster.model.events import Event, Noted
from trainmaster.model.job import Attempt, Job, State
from trainmaster.model.ledger import Balance, Charge, Entry
from trainmaster.model.nodes import Node

MS_MAX = 2**63 - 1  # later than anything


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event in the log. `hash` chains it to its predecessor: sha256(previous hash + canonical row)."""

    seq: int
    now_s: float
    job: str | None
    attempt: int | None
    event: Event
    hash: str


@dataclass(frozen=True, slots=True)
class Unread:
    """A log row that this version cannot read: written by a newer version, or damaged. `type` is its recorded type."""

    seq: int
    now_s: float
    job: str | None
    attempt: int | None
    type: str
    fault: str


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. `ended` is the attempt that it ended: at the commit the job may already be in its next one.

    `entries` are its ledger entries. `over`: the event ended a job that had run; true once per job.
    """

    job: str | None
    attempt: int | None
    event: Event
    ended: Attempt | None = None
    entries: tuple[Entry, ...] = ()
    over: bool = False


OVER_MAX = 500  # ended jobs used to predict run times: between this number and twice as many


def forgotten(ended: int) -> int:
    """How many of the first ended jobs are no longer used, given the number of jobs that ran and are over.

    The result changes in fixed steps, so that a process that starts now uses the same jobs as one that ran all the time.
    """
    return max(0, ended // OVER_MAX - 1) * OVER_MAX


@dataclass(frozen=True, slots=True)
class Live:
    """The state that control starts from. Its cost is independent of history."""

    jobs: tuple[Job, ...]  # not ended, in order of submission; also ended ones with bytes to delete
    nodes: tuple[Node, ...]
    last_seq: int
    last_now_s: float
    inbox_cursor: int
    rules: Cluster = field(default_factory=Cluster)  # as last configured
    balances: tuple[Balance, ...] = ()  # of all members with any service
    over: tuple[Job, ...] = ()  # jobs that ran, in the recorded order of their ends, without those `forgotten`
    ended: int = 0  # number of jobs that ran and are over


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs to list, newest first."""

    states: tuple[State, ...] = ()
    project: str | None = None
    experiment: str | None = None
    limit: int = 50
    before_seq: int | None = None  # for the next page
    owner: str | None = None
    name: str | None = None  # with a `*` at its end: names that begin with what is before it
    tags: tuple[tuple[str, str | None], ...] = ()  # (name, value), all of them; None: whatever its value is
    since_s: float | None = None  # accepted then or later
    until_s: float | None = None  # accepted before


@dataclass(frozen=True, slots=True)
class ArtifactTotals:
    """The number and size of a job's artifacts."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Note:
    """One note in the log. `job` is None if the note is about an experiment or a project."""

    seq: int
    job: str | None
    noted: Noted


@dataclass(frozen=True, slots=True)
class NoteQuery:
    """Which notes to list: the newest `limit` that match all given fields."""

    job: str | None = None
    project: str | None = None
    experiment: str | None = None
    limit: int = 50
    before_seq: int | None = None  # for the previous page


@dataclass(frozen=True, slots=True)
class ChargeQuery:
    """Which charges to list: those that overlap a period."""

    from_ms: int = 0
    until_ms: int = MS_MAX
    project: str | None = None
    job: str | None = None


class EventStore(Protocol):
    """Events and projections, changed in one transaction by one writer (control). Any process may read."""

    def append(
        self, now_s: float, events: Sequence[NewEvent], jobs: Mapping[str, Job], nodes: Sequence[Node], inbox_cursor: int
    ) -> int:
        """Append `events`, and upsert the changed jobs and nodes and the cursor, durably. Returns the last seq.

        `jobs` holds the final value of each changed job. Its current `attempt` is upserted into the attempts projection,
        which keeps every attempt a job ever had. Artifacts, notes and the rules come from the events: a later artifact of the
        same path replaces the earlier one, and so do later rules. Ledger entries of the events are written in order.
        Raises: DiskFullError (nothing was written).
        """
        ...

    def load_live(self) -> Live:
        """The state for a start of control."""
        ...

    def over_since(self, count: int) -> tuple[int, list[Job]]:
        """`Live.ended`, and `Live.over` without the first `count` jobs that ran and are over."""
        ...

    def job(self, job_id: str) -> Job | None:
        """One job."""
        ...

    def jobs_by_id(self, ids: Sequence[str]) -> dict[str, Job]:
        """The jobs whose complete ids are in `ids`."""
        ...

    def jobs(self, query: JobQuery) -> list[Job]:
        """A page of jobs."""
        ...

    def changed_since(self, after_seq: int) -> list[Job]:
        """The current value of every job that an event after `after_seq` is about."""
        ...

    def attempts(self, job_id: str) -> list[Attempt]:
        """All attempts of a job, by number."""
        ...

    def artifacts(self, job_id: str, limit: int, after: str = "", kind: ArtifactKind | None = None) -> list[Artifact]:
        """A page of a job's artifacts, by path, after the path `after`."""
        ...

    def artifact(self, job_id: str, path: str) -> Artifact | None:
        """One artifact."""
        ...

    def artifact_totals(self, job_id: str) -> ArtifactTotals:
        """Number and size of a job's artifacts."""
        ...

    def rival_artifacts(self, job_id: str, attempt: int, limit: int) -> list[str]:
        """Paths under which nodes of an attempt stored different files, in order, among the newest `limit` files it stored."""
        ...

    def children(self, job_id: str) -> list[str]:
        """The jobs that were made from a job, in order of submission."""
        ...

    def notes(self, query: NoteQuery) -> list[Note]:
        """Notes in the order they were recorded."""
        ...

    def charges(self, query: ChargeQuery) -> Iterator[Charge]:
        """Charges in no particular order, from one consistent state. Streamed: only a few are in memory at a time."""
        ...

    def balances(self) -> tuple[Balance, ...]:
        """The decayed service of each member of each project."""
        ...

    def nodes(self) -> list[Node]:
        """All nodes by name."""
        ...

    def rules(self) -> Cluster:
        """The cluster configuration last applied, or the default."""
        ...

    def dated_after(self, now_s: float) -> list[str]:
        """Jobs of the log's last events, as far back as these are dated after `now_s`."""
        ...

    def events(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded]:
        """The log in order, of one job or of all. Raises: ValueError if a row cannot be read."""
        ...

    def told(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded | Unread]:
        """Like `events`, for display only: a row that cannot be read is `Unread`, and reading continues."""
        ...


@dataclass(frozen=True, slots=True)
class InboxRow:
    """One accepted command or report."""

    seq: int
    key: str  # idempotency key
    job: str
    received_s: float
    command: Command | Unreadable


@dataclass(frozen=True, slots=True)
class NewRow:
    """A command to accept. For SubmitJob, the job number is drawn for `experiment`, and `job` in the command is ignored.

    `asked`: the digest of a request under an idempotency key that the client chose. It is kept for ever.
    """

    key: str
    command: Command
    received_s: float
    experiment: str | None = None
    asked: bytes | None = None


class Inbox(Protocol):
    """Accepted commands and reports: written by the api, drained by control. An accepted row survives any crash."""

    def accept(self, rows: Sequence[NewRow]) -> list[str]:
        """Append in one durable transaction, drawing job numbers. Returns each row's job id.

        A key that exists already adds nothing and returns the job id of its row.
        Raises: DiskFullError, ConflictError (a key was used for a different request); then nothing was accepted.
        """
        ...

    def answered(self, asked: Mapping[str, bytes]) -> dict[str, str]:
        """Job ids by key, for keys accepted before. Raises: ConflictError for a key used for a different request."""
        ...

    def drain(self, after_seq: int, limit: int) -> list[InboxRow]:
        """Rows in order after the cursor. A row that cannot be read is `Unreadable`; it does not raise."""
        ...

    def pending(self, after_seq: int, job: str | None = None) -> list[InboxRow]:
        """Rows of commands (not reports) that control has not processed, without unreadable ones."""
        ...

    def trim(self, taken_seq: int, now_s: float) -> None:
        """Delete processed reports and week-old commands. Counters, the cursor's meaning and clients' keys stay."""
        ...

    def keep_ahead(self, seq: int, numbers: Mapping[str, int]) -> None:
        """Never draw a sequence number up to `seq`, or a job number up to its experiment's in `numbers`.

        The api calls this at its start with control's cursor and the existing job numbers. An inbox that was lost or restored
        from an older copy then assigns no id twice, and no sequence number that control would skip.
        """
        ...
