"""Dependencies of the api process, passed in by `trainmaster.compose`: the home directory and the stores."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trainmaster.configuration import Configuration
from trainmaster.home import Home
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.index import JobIndex
from trainmaster.ports.metric_store import MetricStore
from trainmaster.ports.store import EventStore, Inbox
from trainmaster.ports.tokens import TokenStore


class EventHead(Protocol):
    """How far control has processed its input."""

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest event; 0 when there is none."""
        ...

    @property
    def inbox_cursor(self) -> int:
        """The last inbox row that control processed."""
        ...


class Versioned(Protocol):
    """A store that tells whether it was changed."""

    def version(self) -> str:
        """Changes with every commit, by any process. Read before what it stands for, that is at least as new."""
        ...


class VersionedInbox(Inbox, Versioned, Protocol):
    """The inbox as the api sees it."""


class VersionedMetrics(MetricStore, Versioned, Protocol):
    """The metric store as the api sees it."""

    def recent(self, job: str, name: str, rank: int, limit: int) -> list[tuple[float, float]]:
        """(time_s, value) of the newest points of a metric without steps, of one rank. NaN is left out."""
        ...

    def replaced_s(self) -> float | None:
        """When its file took the place of a damaged or lost one, whose points are not in it; None if it never did."""
        ...

    def thinned(self, job: str) -> int:
        """How many points were removed of its curves to thin them."""
        ...

    def averages(self, job: str, prefix: str) -> dict[str, tuple[float, float]]:
        """(mean, highest value) of the metrics without steps whose names have this prefix, of the lowest rank that has them."""
        ...


class EventReader(EventStore, JobIndex, Versioned, Protocol):
    """The event store as the api sees it: read only."""

    def head(self) -> EventHead:
        """The current end of the event log."""
        ...


class Place(NamedTuple):
    """Where other machines reach the server. `authority`: the certificate of its own authority in PEM, "" if it has none."""

    url: str
    authority: str


@dataclass(frozen=True, slots=True)
class Services:
    """The stores of one server."""

    home: Home
    inbox: VersionedInbox
    events: EventReader
    metrics: VersionedMetrics
    blobs: Blobs
    secret: bytes = field(repr=False)  # agents' credentials are derived from it
    tokens: TokenStore
    configuration: Configuration = field(default_factory=Configuration)
    runs: Callable[[str], dict[str, str]] = lambda job: {}  # links to a job's runs in trackers: tracker -> URL
    place: Place | None = None  # None: only this machine reaches it
