"""Commands that were accepted but not processed by control yet, kept decoded in memory."""

import threading

from trainmaster.ports.store import InboxRow
from trainmaster.server.runtime.services import EventReader, VersionedInbox


class PendingCommands:
    """The inbox rows beyond control's cursor. Rows appear in the order of their numbers, so reading on finds all of them."""

    def __init__(self, inbox: VersionedInbox, events: EventReader) -> None:
        self._inbox = inbox
        self._events = events
        self._turn = threading.Lock()
        self._rows: list[InboxRow] = []
        self._read_seq = 0
        self._version: tuple[str, str] | None = None  # of both stores, when they were last read

    def rows(self) -> list[InboxRow]:
        """Pending commands (no reports), in order. The cost is linear in what is new since the last call."""
        with self._turn:
            version = self._events.version(), self._inbox.version()
            if version == self._version:
                return self._rows
            cursor = self._events.head().inbox_cursor
            if self._rows and self._rows[0].seq <= cursor:
                self._rows = [row for row in self._rows if row.seq > cursor]
            self._read_seq = max(self._read_seq, cursor)
            new = self._inbox.pending(self._read_seq)
            if new:
                self._rows = [*self._rows, *new]
                self._read_seq = new[-1].seq
            self._version = version
            return self._rows
