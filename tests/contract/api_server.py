"""The real api on the real stores, in a thread; control is played by writing what it would record."""

import asyncio
import contextlib
import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from waiting import deadline

from trainmaster.blobs.fs import FsBlobs
from trainmaster.home import Home
from trainmaster.lifecycle.machine import apply
from trainmaster.model import events as ev
from trainmaster.model.commands import ConfigureCluster, SubmitJob
from trainmaster.model.job import Job
from trainmaster.model.nodes import Node
from trainmaster.ports.store import NewEvent
from trainmaster.server.process.app import create_app
from trainmaster.server.process.connections import config_of
from trainmaster.server.runtime.credentials import credential
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.runtime.services import Services
from trainmaster.store.database import Database
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.metrics.points import SqlMetricStore
from trainmaster.store.tokens import SqlTokens
from trainmaster.wire import rest

SECRET = b"s" * 32
NODE = Node("node0", "local", "host", "127.0.0.1", cpus=4.0, memory_bytes=8 * 2**30)


def agent_headers(key: str) -> dict[str, str]:
    """What an agent proves itself with."""
    return {"Authorization": f"Bearer {credential(SECRET, key)}", "X-Trainmaster-Key": key}


@dataclass
class Control:
    """Writes events as the control process does, and tells the api."""

    store: SqlEventStore
    home: Home
    jobs: dict[str, Job] = field(default_factory=dict)
    now_s: float = 1000.0

    def record(self, job_id: str, *happened: ev.JobEvent) -> Job:
        """Apply events to a job, commit them and wake the api."""
        job = self.jobs.get(job_id)
        rows = []
        for event in happened:
            went_on = job is not None and not job.state.ended
            job, _ = apply(job, job_id, event, self.now_s)
            ended = job.attempt if isinstance(event, ev.AttemptEnded) else None
            over = went_on and job.state.ended and job.ran_s > 0
            rows.append(NewEvent(job_id, job.attempt.number if job.attempt else None, event, ended, over=over))
        assert job is not None
        self.jobs[job_id] = job
        self.commit(rows, {job_id: job})
        return job

    def commit(self, rows: list[NewEvent], jobs: dict[str, Job], nodes: tuple[Node, ...] = (), cursor: int | None = None) -> None:
        """One transaction, and a datagram."""
        self.now_s += 1.0
        self.store.append(self.now_s, rows, jobs, nodes, self.store.head().inbox_cursor if cursor is None else cursor)
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender, contextlib.suppress(OSError):
            sender.sendto(b"w", str(self.home.socket("api.wake")))

    def take_up(self, inbox: SqlInbox) -> None:
        """Take up all submits and configurations of the cluster that wait."""
        rows = inbox.drain(self.store.head().inbox_cursor, 1000)
        for row in rows:
            if isinstance(row.command, SubmitJob):
                command = row.command
                made = (row.seq, command.spec, command.origin, command.code, row.received_s, command.hold)
                event = ev.Submitted(*made, member=command.member, start=command.start)
                self.record(row.job, event)
        given = [row.command for row in rows if isinstance(row.command, ConfigureCluster)]
        configured = [NewEvent(None, None, ev.ClusterConfigured(one.cluster, one.by)) for one in given]
        self.commit(configured, {}, cursor=rows[-1].seq)


class Http(httpx.Client):
    """Asks for paths of the REST interface without `/api/v1`, as they stand in the tests. The whole URL is taken as it is."""

    def build_request(self, method: str, url: Any, **more: Any) -> httpx.Request:
        return super().build_request(method, located(str(url)), **more)


def located(path: str) -> str:
    """Where the server has `path`; an agent's own, and a whole one, as they are."""
    begin, mark, rest_of = path.partition("?")
    whole = begin.startswith(("/agent/", rest.ROOT, "http"))
    return (begin if whole else rest.address(begin)) + mark + rest_of


@dataclass
class Api:
    """What a test talks to."""

    home: Home
    control: Control
    services: Services
    runtime: Runtime
    http: Http
    loop: asyncio.AbstractEventLoop
    app: FastAPI

    def submit(self, command: str = "true", key: str | None = None, **spec: Any) -> str:
        """Submit a job; its id."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self.http.post("/jobs", json={"spec": {"command": command, "name": "train", **spec}}, headers=headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def take_up(self) -> None:
        """Control takes up what waits in the inbox."""
        inbox = self.services.inbox
        assert isinstance(inbox, SqlInbox)
        self.control.take_up(inbox)

    def get(self, path: str, **query: Any) -> Any:
        """A JSON answer of 200."""
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sync(self, key: str, **request: Any) -> Any:
        """One call of an agent, with its own credential."""
        body = {"key": key, "reports": [], "points": [], "heartbeat": None, "wait_s": 0, "orders_seen": 0, **request}
        answer = self.http.post("/agent/sync", content=json.dumps(body), headers=agent_headers(key))
        assert answer.status_code == 200, answer.text
        return answer.json()


class _Server(uvicorn.Server):
    """Tells on which loop it serves."""

    loop: asyncio.AbstractEventLoop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)


@contextlib.contextmanager
def off_the_loop() -> Iterator[None]:
    """Fails where a database was opened on an event loop meanwhile: whatever it waits for, everyone would."""
    held: set[str] = set()
    plain = Database.reading, Database.writing

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any, **named: Any) -> Any:
            with contextlib.suppress(RuntimeError):  # no loop runs on this thread
                asyncio.get_running_loop()
                ours = [frame for frame in traceback.extract_stack() if "/trainmaster/" in frame.filename]
                held.add(" < ".join(f"{Path(frame.filename).name}:{frame.name}" for frame in reversed(ours)))
            return method(*given, **named)

        return noting

    Database.reading, Database.writing = watched(plain[0]), watched(plain[1])  # type: ignore[method-assign]
    try:
        yield
    finally:
        Database.reading, Database.writing = plain  # type: ignore[method-assign]
    assert not held, sorted(held)


@contextlib.contextmanager
def serving(root: Path) -> Iterator[Api]:
    """An api on a home of its own."""
    home = Home(root)
    root.mkdir(parents=True, exist_ok=True)
    store = SqlEventStore(home.events_db)
    reader = SqlEventStore(home.events_db, read_only=True)
    services = Services(
        home, SqlInbox(home.inbox_db), reader, SqlMetricStore(home.metrics_db), FsBlobs(home.blobs), SECRET,
        SqlTokens(home.inbox_db),
    )  # fmt: skip
    app = create_app(services, lambda: True)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits 40 ms for an acknowledgement
    server = _Server(config_of(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    deadline(lambda: server.started or not thread.is_alive(), "the api to start")
    headers = {"Authorization": f"Bearer {home.token_file.read_text().strip()}"}
    runtime: Runtime = app.state.runtime
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with Http(base_url=url, headers=headers, timeout=20.0) as http, off_the_loop():
            control = Control(store, home)
            control.commit([NewEvent(None, None, ev.NodeSeen(NODE))], {}, (NODE,))
            yield Api(home, control, services, runtime, http, server.loop, app)
    finally:
        server.should_exit = True
        thread.join(10.0)
        assert not thread.is_alive()
        for database in (store, reader, services.inbox, services.metrics, services.tokens):
            database.close()  # type: ignore[attr-defined]
