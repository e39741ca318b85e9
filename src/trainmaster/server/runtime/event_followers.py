"""Notifications: control sends a datagram after each commit, the event log says which jobs changed, waiting tasks wake up."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from trainmaster.errors import TrainmasterError
from trainmaster.server.runtime.services import EventReader

_log = logging.getLogger("trainmaster.api")

_PAGE = 1000  # events per read; if there are more, all waiting tasks are woken


class Notifier:
    """Wakes tasks that wait for changes of a job. Wake-ups may be spurious: each task checks for itself."""

    def __init__(self) -> None:
        self._waiters: dict[str | None, set[asyncio.Event]] = {}
        self.closing = False

    @contextlib.contextmanager
    def subscribe(self, job: str | None) -> Iterator[asyncio.Event]:
        """An event that is set at every change of `job` (None: of any job). Clear it before checking."""
        signal = asyncio.Event()
        self._waiters.setdefault(job, set()).add(signal)
        try:
            yield signal
        finally:
            self._waiters[job].discard(signal)
            if not self._waiters[job]:
                del self._waiters[job]

    async def wait(self, signal: asyncio.Event, timeout_s: float) -> None:
        """Return when `signal` is set, after `timeout_s`, or when the server stops."""
        if self.closing or timeout_s <= 0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(signal.wait(), timeout_s)

    def notify(self, job: str | None) -> None:
        """Wake the tasks that wait for `job`. None: a change of a node or of the cluster, which concerns no job."""
        for signal in (*self._waiters.get(job, ()), *(self._waiters.get(None, ()) if job is not None else ())):
            signal.set()

    def notify_all(self) -> None:
        """Wake all tasks: any job may have changed."""
        for signals in self._waiters.values():
            for signal in signals:
                signal.set()

    def close(self) -> None:
        """Wake all tasks, and make all later waits return at once."""
        self.closing = True
        self.notify_all()


class EventFollower:
    """Receives control's datagrams on `path`, reads the new events, and calls `changed` with the jobs concerned.

    `changed(None)` means that any job may have changed. None in the set stands for an event without a job.
    """

    def __init__(self, path: Path, events: EventReader, changed: Callable[[set[str | None] | None], None]) -> None:
        self._path = path
        self._events = events
        self._changed = changed
        self._socket: socket.socket | None = None
        self._seen_seq = 0
        self._reading: asyncio.Task[None] | None = None
        self._again = False

    async def start(self) -> None:
        """Bind the socket, replacing a stale one of an earlier process."""
        self._seen_seq = (await asyncio.to_thread(self._events.head)).last_seq
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._path.unlink(missing_ok=True)
        self._socket.bind(os.fspath(self._path))
        asyncio.get_running_loop().add_reader(self._socket, self._heard)

    def close(self) -> None:
        """Stop receiving."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def _heard(self) -> None:
        """Drain all datagrams; several count as one."""
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(64)
        self._again = True
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Read events after the last one seen, until no datagram came in meanwhile."""
        try:
            while self._again:
                self._again = False
                news = await asyncio.to_thread(self._events.told, self._seen_seq, _PAGE)
                if len(news) == _PAGE:
                    self._seen_seq = (await asyncio.to_thread(self._events.head)).last_seq
                    self._changed(None)
                elif news:
                    self._seen_seq = news[-1].seq
                    self._changed({row.job for row in news})
        except TrainmasterError as error:  # woken tasks check for themselves; the next datagram triggers another read
            _log.warning("what control recorded cannot be read now: %s", error)
            self._changed(None)
        finally:
            self._reading = None


class ControlWaker:
    """Wakes control when the inbox has new rows. A datagram lost while control is down is harmless: control checks at start."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def wake(self) -> None:
        """Send one datagram. A full socket buffer means that control is awake already."""
        with contextlib.suppress(OSError):
            self._socket.sendto(b"!", self._path)

    def close(self) -> None:
        """Release the socket."""
        self._socket.close()
