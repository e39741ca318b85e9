"""Commands on their way to control: how this process accepts them, and which ones control has not processed yet."""

import asyncio
import threading
import time
from collections.abc import Sequence

from trainmaster.model.commands import AgentReport, ConfigureCluster, SubmitJob
from trainmaster.ports.store import InboxRow, NewRow
from trainmaster.server.runtime.event_followers import ControlWaker, Notifier
from trainmaster.server.runtime.group_commit import GroupWriter
from trainmaster.server.runtime.services import EventReader, Services, VersionedInbox


class Commands:
    """The inbox as this process uses it: rows are written in groups, and each group wakes control."""

    def __init__(self, services: Services, notifier: Notifier) -> None:
        self._inbox, self._events, self._notifier = services.inbox, services.events, notifier
        self._waker = ControlWaker(services.home.socket("control.wake"))
        self._writer: GroupWriter[NewRow, str] = GroupWriter(services.inbox.accept, self._waker.wake)
        self._pending = PendingCommands(services.inbox, services.events)
        self.configurations = 1  # of the cluster that were accepted; the first: before this process
        self.configurations_taken_up = 0  # of these, known to be recorded by control

    def keep_ahead(self) -> None:
        """After a restore from an older copy, make sure the inbox gives out no number twice."""
        self._inbox.keep_ahead(self._events.head().inbox_cursor, self._events.numbers())

    def close(self) -> None:
        """Finish the current write and release the socket."""
        self._writer.close()
        self._waker.close()

    async def accept(self, rows: Sequence[NewRow]) -> list[str]:
        """Store commands durably in the inbox; returns the job id of each. Raises: DiskFullError."""
        ids = await self._writer.put(rows)
        self.configurations += sum(isinstance(row.command, ConfigureCluster) for row in rows)
        for row, job in zip(rows, ids, strict=True):
            if not isinstance(row.command, AgentReport | SubmitJob):
                self._notifier.notify(job)
        return ids

    def pending(self) -> list[InboxRow]:
        """Commands (no reports) that control has not processed yet, in order."""
        return self._pending.rows()

    async def trim(self) -> None:
        """Delete inbox rows that control processed long ago. Raises: OperationError, DiskFullError."""
        head = await asyncio.to_thread(self._events.head)
        await asyncio.to_thread(self._inbox.trim, head.inbox_cursor, time.time())


class PendingCommands:
    """The inbox rows beyond control's cursor, kept decoded in memory.

    Rows appear in the order of their numbers, so reading on finds all of them.
    """

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
