"""What is remembered: the event log with its projections, the inbox, and the metric channel.

Three stores, because each has one writer: control writes events, the api writes inbox and metrics. On SQLite they are
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
    """One event as it lies in the log. `hash` chains it to the one before: sha256(previous hash + canonical row)."""

    seq: int
    now_s: float
    job: str | None
    attempt: int | None
    event: Event
    hash: str


@dataclass(frozen=True, slots=True)
class Unread:
    """A row of the log that this version cannot read: of a newer version, or damaged. `type` is what it calls itself."""

    seq: int
    now_s: float
    job: str | None
    attempt: int | None
    type: str
    fault: str


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event about to be appended. `ended` is the attempt it ended: the job may be in its next one by the commit.

    `entries` are what it writes into the ledger. `over`: its job, which has run, is over by it; each job is so once.
    """

    job: str | None
    attempt: int | None
    event: Event
    ended: Attempt | None = None
    entries: tuple[Entry, ...] = ()
    over: bool = False


OVER_MAX = 500  # jobs that are over, from so many to twice as many: run times are predicted from them


def forgotten(ended: int) -> int:
    """How many of the first jobs that ran and are over are not looked at any more, once there are so many of them.

    It changes at fixed numbers of them only: whoever starts now remembers what one remembers who was there all the time.
    """
    return max(0, ended // OVER_MAX - 1) * OVER_MAX


@dataclass(frozen=True, slots=True)
class Live:
    """What control starts from: cost independent of history."""

    jobs: tuple[Job, ...]  # not ended, in order of submission; and ended ones whose `deleting` is not empty
    nodes: tuple[Node, ...]
    last_seq: int
    last_now_s: float
    inbox_cursor: int
    rules: Cluster = field(default_factory=Cluster)  # as last laid down
    balances: tuple[Balance, ...] = ()  # of all who have had anything
    over: tuple[Job, ...] = ()  # that ran, in the order in which their ends were recorded, but for those `forgotten`
    ended: int = 0  # how many ran and are over


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs to list: newest first unless `ids` says which."""

    states: tuple[State, ...] = ()
    project: str | None = None
    experiment: str | None = None
    limit: int = 50
    before_seq: int | None = None  # for the next page


@dataclass(frozen=True, slots=True)
class ArtifactTotals:
    """How much a job has kept."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Note:
    """One note as it lies in the log; `job` is None where it is about an experiment or a project."""

    seq: int
    job: str | None
    noted: Noted


@dataclass(frozen=True, slots=True)
class NoteQuery:
    """Which notes: the newest `limit` of those that match everything given."""

    job: str | None = None
    project: str | None = None
    experiment: str | None = None
    limit: int = 50
    before_seq: int | None = None  # for the page before


@dataclass(frozen=True, slots=True)
class ChargeQuery:
    """Which charges: those that a period has a part of."""

    from_ms: int = 0
    until_ms: int = MS_MAX
    project: str | None = None
    job: str | None = None


class EventStore(Protocol):
    """Events and projections, changed in one transaction by their one writer (control); readable by anyone."""

    def append(
        self, now_s: float, events: Sequence[NewEvent], jobs: Mapping[str, Job], nodes: Sequence[Node], inbox_cursor: int
    ) -> int:
        """Append `events`, upsert the jobs and nodes they changed and the cursor, durably; returns the last seq.

        `jobs` holds each changed job in its final value of this transaction. Its current `attempt` is upserted into
        the attempts projection; every attempt a job ever had stays there. Artifacts, notes and the rules are read off the
        events: a later artifact of the same path, and later rules, replace the earlier ones. The entries that events bring
        are made in the ledger, in their order.
        Raises: DiskFullError (nothing was written).
        """
        ...

    def load_live(self) -> Live:
        """What start-up needs."""
        ...

    def over(self) -> list[Job]:
        """`Live.over`."""
        ...

    def job(self, job_id: str) -> Job | None:
        """One job."""
        ...

    def jobs_by_id(self, ids: Sequence[str]) -> dict[str, Job]:
        """Those of `ids` that are jobs' whole ids, with their jobs."""
        ...

    def jobs(self, query: JobQuery) -> list[Job]:
        """A page of jobs."""
        ...

    def changed_since(self, after_seq: int) -> list[Job]:
        """Every job that an event behind `after_seq` is about, as it is now."""
        ...

    def attempts(self, job_id: str) -> list[Attempt]:
        """All attempts of a job, by number."""
        ...

    def artifacts(self, job_id: str, limit: int, after: str = "", kind: ArtifactKind | None = None) -> list[Artifact]:
        """A page of what a job has kept, by path, beginning behind the path `after`."""
        ...

    def artifact(self, job_id: str, path: str) -> Artifact | None:
        """One artifact."""
        ...

    def artifact_totals(self, job_id: str) -> ArtifactTotals:
        """How much a job has kept."""
        ...

    def children(self, job_id: str) -> list[str]:
        """The jobs that were made from a job, in order of submission."""
        ...

    def notes(self, query: NoteQuery) -> list[Note]:
        """Notes in the order they were taken up."""
        ...

    def charges(self, query: ChargeQuery) -> Iterator[Charge]:
        """Rows of the ledger in no order, all as they were at one moment; only a few are in memory at a time."""
        ...

    def balances(self) -> tuple[Balance, ...]:
        """What is left of the service of each member of each project."""
        ...

    def nodes(self) -> list[Node]:
        """All nodes by name."""
        ...

    def rules(self) -> Cluster:
        """What was last laid down for the cluster; the default where nobody has."""
        ...

    def dated_after(self, now_s: float) -> list[str]:
        """Jobs of which the log's last events speak, as far back as these are dated later than `now_s`."""
        ...

    def events(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded]:
        """The log in order, of one job or of all. Raises: ValueError where a row cannot be read."""
        ...

    def told(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded | Unread]:
        """The same for whoever only shows it: a row that cannot be read is `Unread`, and those behind it are there."""
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
    """A command about to be accepted. For SubmitJob `experiment` draws the number and `job` in it is ignored.

    `asked`: the digest of what a person asked for under a key of their own, which is then kept for ever.
    """

    key: str
    command: Command
    received_s: float
    experiment: str | None = None
    asked: bytes | None = None


class Inbox(Protocol):
    """Accepted commands and reports: written by the api, drained by control. A row that is in survives anything."""

    def accept(self, rows: Sequence[NewRow]) -> list[str]:
        """Append in one durable transaction, drawing job numbers; returns each row's job id.

        A key already there adds nothing and returns the job id of the row that has it.
        Raises: DiskFullError, ConflictError (a key that was used to ask for something else); then nothing was accepted.
        """
        ...

    def answered(self, asked: Mapping[str, bytes]) -> dict[str, str]:
        """By key, of those that were accepted before, the job. Raises: ConflictError for one that asked for something else."""
        ...

    def drain(self, after_seq: int, limit: int) -> list[InboxRow]:
        """Rows in order after the cursor; one that cannot be read is `Unreadable`, and no reason to raise."""
        ...

    def pending(self, after_seq: int, job: str | None = None) -> list[InboxRow]:
        """Rows of commands (not reports) that control has not taken up yet, without those that cannot be read."""
        ...

    def trim(self, taken_seq: int, now_s: float) -> None:
        """Forget reports up to the cursor and commands a week old; counters, the cursor's meaning and people's keys stay."""
        ...

    def keep_ahead(self, seq: int, numbers: Mapping[str, int]) -> None:
        """Never draw a row at or below `seq`, nor a job's number at or below its experiment's in `numbers`.

        The api says so at its start, with control's cursor and the numbers of the jobs there are: an inbox restored
        from an older copy, or lost, then gives out no id twice and no row that control would pass over.
        """
        ...


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as it is stored. `name` is the member who acts by it."""

    name: str
    digest: str  # SHA-256 in hexadecimal; the token itself is stored nowhere
    role: str
    created_s: float
    made_by: str
    expires_s: float | None = None  # None: never


class TokenStore(Protocol):
    """The tokens that were given out, written by the api alone. Durable when answered."""

    def tokens(self) -> list[TokenRow]:
        """All of them, by name."""
        ...

    def add(self, row: TokenRow) -> bool:
        """Store one; False, and nothing changes, where the name is taken. Raises: DiskFullError."""
        ...

    def remove(self, name: str) -> bool:
        """Forget one; whether there was one. Raises: DiskFullError."""
        ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """How an agent told a point. Its points count up from 1; each number is stored once, whatever comes twice or late."""

    node_index: int
    n: int
    at_s: float | None = None  # when it was measured, on the agent's monotonic clock; None: not known


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value. `attempt` is the fence: below the highest seen of its job it is refused.

    `time_s` counts where `arrival` says no time; else the agent's clock is mapped once, at its first heartbeat or point.
    """

    job: str
    attempt: int
    rank: int
    step: int | None
    name: str
    value: float
    time_s: float
    arrival: Arrival | None = None  # the same object for all values of a point; None: of an agent that does not number


@dataclass(frozen=True, slots=True)
class HeartbeatRow:
    """The last word of an agent about how it is doing: the one with the highest `at_s`, whatever the dates say."""

    key: str
    time_s: float
    step: int | None
    memory_bytes: int
    cpu_s: float
    at_s: float = 0.0  # when it was sent, on the agent's monotonic clock


class MetricStore(Protocol):
    """Metric points and heartbeats: not events, group-committed, fenced by attempt."""

    def write(self, points: Sequence[MetricPoint], heartbeats: Sequence[HeartbeatRow]) -> int:
        """Write one group; returns how many points the fence refused. A restarted step supersedes the old value.

        Points of an agent come in the order of their numbers; one that is stored already is passed over, not counted.
        """
        ...

    def raise_fence(self, job: str, attempt: int) -> None:
        """From now on refuse points of `job` below `attempt`."""
        ...

    def series(self, job: str, name: str, limit: int = 2000) -> list[tuple[int, float]]:
        """(step, value) of rank 0 (or the lowest rank that has it), by step, thinned evenly to `limit`.

        Points without a step count from 0 in the order they came, where the curve has no others.
        """
        ...

    def best(self, job: str, name: str, largest: bool = False) -> tuple[int, float, float] | None:
        """(step, value, time_s) of the smallest or largest value of the same rank as in `series`; NaN is never best."""
        ...

    def last(self, jobs: Sequence[str]) -> dict[str, dict[str, tuple[int | None, float, float]]]:
        """Per job and metric name: (step, value, time_s) of the last point that came of the newest attempt's lowest rank."""
        ...

    def jobs(self, after: str, limit: int) -> list[str]:
        """Jobs that have, or had, a curve: by id, beginning behind `after`."""
        ...

    def thin(self, job: str, keep: int) -> int:
        """Leave about `keep` points of each curve with over twice as many, its best among them; how many were removed."""
        ...

    def shrink(self) -> bool:
        """Give some of the room that was made back to the disk; whether there may be more."""
        ...

    def heartbeats(self, *jobs: str) -> list[HeartbeatRow]:
        """The last heartbeat of each agent of these jobs' current attempts."""
        ...
