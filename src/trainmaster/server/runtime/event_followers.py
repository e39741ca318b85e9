"""Who waits for news of a job, and how news comes: control's datagrams ring, the event log says for which jobs."""

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

_PAGE = 1000  # events read at once; where there are more, everyone is rung


class Bells:
    """Wakes whoever waits for a job. A bell may ring without cause; whoever hears it looks for itself."""

    def __init__(self) -> None:
        self._bells: dict[str | None, set[asyncio.Event]] = {}
        self.closing = False

    @contextlib.contextmanager
    def listen(self, job: str | None) -> Iterator[asyncio.Event]:
        """An event that is set at every news of `job` (None: of any); clear it before looking."""
        bell = asyncio.Event()
        self._bells.setdefault(job, set()).add(bell)
        try:
            yield bell
        finally:
            self._bells[job].discard(bell)
            if not self._bells[job]:
                del self._bells[job]

    async def wait(self, bell: asyncio.Event, timeout_s: float) -> None:
        """Until the bell rings, or `timeout_s` passed, or the server goes down."""
        if self.closing or timeout_s <= 0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(bell.wait(), timeout_s)

    def ring(self, job: str | None) -> None:
        """There is news of `job`, or of none: of a node, or of the cluster."""
        for bell in (*self._bells.get(job, ()), *(self._bells.get(None, ()) if job is not None else ())):
            bell.set()

    def ring_all(self) -> None:
        """There may be news of any job."""
        for bells in self._bells.values():
            for bell in bells:
                bell.set()

    def close(self) -> None:
        """Let go of everyone who waits, now and later."""
        self.closing = True
        self.ring_all()


class Follower:
    """Hears control's datagrams on `path`, reads what was recorded since, and tells `changed` which jobs it was about.

    `changed(None)` means that it may have been about any; None among the jobs, that something was about no job.
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
        """Bind the socket; a stale one of an earlier process is taken over."""
        self._seen_seq = (await asyncio.to_thread(self._events.head)).last_seq
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._path.unlink(missing_ok=True)
        self._socket.bind(os.fspath(self._path))
        asyncio.get_running_loop().add_reader(self._socket, self._heard)

    def close(self) -> None:
        """Hear nothing more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()

    def _heard(self) -> None:
        """Take all datagrams that are there; several count as one."""
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(64)
        self._again = True
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Read on from the last event seen, until nothing new was said meanwhile."""
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
        except TrainmasterError as error:  # whoever waits looks for itself; with the next datagram it is read again
            _log.warning("what control recorded cannot be read now: %s", error)
            self._changed(None)
        finally:
            self._reading = None


class ControlWaker:
    """Tells control that the inbox has something; while control is down nothing is lost, it looks when it starts."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def wake(self) -> None:
        """Send one datagram; a full queue means that control is awake already."""
        with contextlib.suppress(OSError):
            self._socket.sendto(b"!", self._path)

    def close(self) -> None:
        """Release the socket."""
        self._socket.close()
