"""What the api process is built on, constructor-injected: the stores and the home, nothing that runs."""

from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.home import Home
from trainmaster.model.job import Attempt, Job
from trainmaster.model.nodes import Node
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.store import Inbox, JobQuery, Live, MetricStore, Recorded


class EventReader(Protocol):
    """The api's view of the event store: what control recorded, read only."""

    def load_live(self) -> Live:
        """What is not over yet, and how far control is."""
        ...

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

    def resolve(self, ref: str) -> str | None:
        """The job id meant by an id, a unique prefix, a name (its newest job), `@last` or `@last-failed`."""
        ...

    def inbox_cursor(self) -> int:
        """How far control has taken up the inbox."""
        ...

    def last_seq(self) -> int:
        """Sequence number of the newest event; 0 when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """The stores of one server."""

    home: Home
    inbox: Inbox
    events: EventReader
    metrics: MetricStore
    blobs: Blobs
    secret: bytes = field(repr=False)  # agents' credentials are derived from it
