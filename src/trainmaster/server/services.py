"""What the api process is built on, constructor-injected: the stores and the home, nothing that runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.home import Home
from trainmaster.model.job import Attempt, Job, State
from trainmaster.model.nodes import Node
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.store import Inbox, JobQuery, MetricStore, Recorded


class EventHead(Protocol):
    """How far control is."""

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest event; 0 when there is none."""
        ...

    @property
    def inbox_cursor(self) -> int:
        """The last inbox row that was taken up."""
        ...


class EventReader(Protocol):
    """The api's view of the event store: what control recorded, read only."""

    def job(self, job_id: str) -> Job | None:
        """One job."""
        ...

    def jobs(self, query: JobQuery) -> list[Job]:
        """A page of jobs."""
        ...

    def attempts(self, job_id: str) -> list[Attempt]:
        """All attempts of a job, by number."""
        ...

    def nodes(self) -> list[Node]:
        """All nodes by name."""
        ...

    def events(self, after_seq: int, limit: int, job: str | None = None) -> list[Recorded]:
        """The log in order, of one job or of all."""
        ...

    def resolve(self, ref: str, waiting: Sequence[tuple[str, str]] = ()) -> str:
        """The job id meant by `ref`; `waiting` are (id, name) of jobs not taken up yet, newer than all others.

        Raises: NotFoundError, ConflictError, UsageError.
        """
        ...

    def live_counts(self) -> dict[State, int]:
        """How many jobs are in each state that is not over."""
        ...

    def numbers(self) -> dict[str, int]:
        """The highest number of each experiment's jobs."""
        ...

    def head(self) -> EventHead:
        """Where the log ends."""
        ...


class ApiInbox(Inbox, Protocol):
    """The inbox, with what only its writer does."""

    def keep_ahead(self, seq: int, numbers: Mapping[str, int]) -> None:
        """Never draw a row at or below `seq`, nor a job's number at or below its experiment's."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """The stores of one server."""

    home: Home
    inbox: ApiInbox
    events: EventReader
    metrics: MetricStore
    blobs: Blobs
    secret: bytes = field(repr=False)  # agents' credentials are derived from it
