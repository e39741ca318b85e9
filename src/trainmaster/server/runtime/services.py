"""What the api process is built on, constructor-injected: the stores and the home, nothing that runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.configuration import Configuration
from trainmaster.home import Home
from trainmaster.ports.blobs import Blobs
from trainmaster.ports.index import JobIndex
from trainmaster.ports.store import EventStore, Inbox, MetricStore, TokenStore


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


class EventReader(EventStore, JobIndex, Protocol):
    """The event store as the api reads it; nothing is appended through it."""

    def head(self) -> EventHead:
        """Where the log ends."""
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
    tokens: TokenStore
    configuration: Configuration = field(default_factory=Configuration)
    runs: Callable[[str], dict[str, str]] = lambda job: {}  # where a job's runs can be looked at: tracker -> URL
