"""State of the running api process: writers, notifications, caches. Routes get it with `of(request)`."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from trainmaster.blobs.verification import Verification
from trainmaster.errors import AuthenticationError
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import AgentReport, SubmitJob
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.model.nodes import Node
from trainmaster.ports.store import HeartbeatRow, MetricPoint, NewRow
from trainmaster.server.runtime import limits
from trainmaster.server.runtime.agent_reports import FaultWarnings
from trainmaster.server.runtime.blob_lock import BlobLock
from trainmaster.server.runtime.body_memory import MemoryBudget
from trainmaster.server.runtime.credentials import Caller, Tokens, authenticate_agent, bearer
from trainmaster.server.runtime.ended_jobs import EndedJobs
from trainmaster.server.runtime.event_followers import ControlWaker, EventFollower, Notifier
from trainmaster.server.runtime.exec_sessions import Sessions
from trainmaster.server.runtime.group_commit import GroupWriter
from trainmaster.server.runtime.pending_commands import PendingCommands
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.unsent_points import import_points
from trainmaster.server.runtime.workers import JOBS

_log = logging.getLogger("trainmaster.api")

_JOB_TTL_S = 1.0  # lifetime of a cached job, in case a notification datagram was lost
_NODES_TTL_S = 1.0
_CACHED_MAX = 4096
_VALUES_AT_ONCE = 10_000  # metric values per database call: larger calls block the interpreter for too long


@dataclass(frozen=True, slots=True)
class Sample:
    """Metric points and heartbeats of one sync call."""

    points: tuple[MetricPoint, ...]
    heartbeats: tuple[HeartbeatRow, ...]
    unsent: bool = False  # instead of bringing data, ask the writer to import what dead agents left on disk


class Runtime:
    """The state of one api process."""

    def __init__(self, services: Services) -> None:
        home = services.home
        self.services = services
        self.tokens = Tokens(home, services.tokens)
        self.tokens.ensure_admin()
        self.secret = services.secret
        self.notifier = Notifier()
        self.execs = Sessions()
        self.waker = ControlWaker(home.socket("control.wake"))
        self.follower = EventFollower(home.socket("api.wake"), services.events, self._changed)
        self.rows: GroupWriter[NewRow, str] = GroupWriter(services.inbox.accept, self.waker.wake)
        self.samples: GroupWriter[Sample, int] = GroupWriter(self._write_samples, lambda: None)
        self.pending_commands = PendingCommands(services.inbox, services.events)
        self.ended = EndedJobs(services.events)
        self.blob_lock = BlobLock()
        self.body_memory = MemoryBudget(limits.ALL_BODIES_BYTES, limits.BUSY_S)
        self.collecting = False
        self.verification: Verification | None = None  # the newest one of the store
        self.discarded_curves: set[str] = set()  # jobs whose curves a user discards; an id leaves the set when they are removed
        self.known_trees: set[str] = set()  # digests of code trees known to be stored; cleared when a garbage collection begins
        self.log_followers = 0
        self.started_s = time.monotonic()
        self.last_request_s = self.started_s  # time of the last authenticated request
        self.fault_warnings = FaultWarnings()  # warnings about agent data that this version ignored
        self.points_written = 0  # metric points written since the start
        self.known_environments: set[str] = set()  # digests of environment records known to be in the blob store
        self._jobs: dict[str, tuple[float, asyncio.Future[Job | None]]] = {}  # lookup and its start; event loop only
        self._nodes: tuple[float, list[Node]] | None = None
        self._rules: tuple[float, Cluster] | None = None
        self._fences: dict[str, int] = {}

    async def start(self) -> None:
        """Start listening for notifications from control."""
        await asyncio.to_thread(self._keep_ahead)
        await self.follower.start()

    def close(self) -> None:
        """Finish pending writes and release everything."""
        self.notifier.close()
        self.execs.notifier.close()
        self.follower.close()
        self.rows.close()
        self.samples.close()
        self.waker.close()

    def note_request(self) -> None:
        """Record that an authenticated request came in."""
        self.last_request_s = time.monotonic()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Count a log follower in `followers` for the duration of the block."""
        self.log_followers += 1
        try:
            yield
        finally:
            self.log_followers -= 1

    async def accept(self, rows: Sequence[NewRow]) -> list[str]:
        """Store commands durably in the inbox; returns the job id of each. Raises: DiskFullError."""
        ids = await self.rows.put(rows)
        for row, job in zip(rows, ids, strict=True):
            if not isinstance(row.command, AgentReport | SubmitJob):
                self.notifier.notify(job)
        return ids

    async def job(self, job_id: str) -> Job | None:
        """The job as control last recorded it, at most one second old. Concurrent callers share one database lookup.

        Raises: OperationError.
        """
        now_s = time.monotonic()
        began_s, look = self._jobs.get(job_id, (0.0, None))
        if look is None or now_s - began_s >= _JOB_TTL_S:
            if len(self._jobs) >= _CACHED_MAX:
                self._jobs.clear()
            look = asyncio.ensure_future(JOBS.run(self.services.events.job, job_id))
            self._jobs[job_id] = now_s, look
            look.add_done_callback(lambda over: self._keep(job_id, over))
        return await asyncio.shield(look)  # a caller that disconnects does not cancel the shared lookup

    def _keep(self, job_id: str, look: "asyncio.Future[Job | None]") -> None:
        """Keep a lookup in the cache only if it found a job."""
        found = None if look.cancelled() or look.exception() is not None else look.result()
        if found is None and self._jobs.get(job_id, (0.0, None))[1] is look:
            self.forget(job_id)

    def forget(self, job_id: str) -> None:
        """Drop a job from the cache, even during a lookup: that lookup may return the state before the change."""
        self._jobs.pop(job_id, None)

    def nodes(self) -> list[Node]:
        """All known nodes, at most one second old."""
        now_s = time.monotonic()
        if self._nodes is None or now_s - self._nodes[0] > _NODES_TTL_S:
            self._nodes = (now_s, self.services.events.nodes())
        return self._nodes[1]

    def rules(self) -> Cluster:
        """The recorded cluster configuration, at most one second old. `cluster_rules.present` adds changes not yet applied."""
        now_s = time.monotonic()
        if self._rules is None or now_s - self._rules[0] > _NODES_TTL_S:
            self._rules = (now_s, self.services.events.rules())
        return self._rules[1]

    async def trim(self) -> None:
        """Delete inbox rows that control processed long ago. Raises: OperationError, DiskFullError."""
        head = await asyncio.to_thread(self.services.events.head)
        await asyncio.to_thread(self.services.inbox.trim, head.inbox_cursor, time.time())

    async def import_unsent(self) -> None:
        """Import metric points that dead agents left on disk. Raises: OperationError, DiskFullError, OSError."""
        await self.samples.put([Sample((), (), unsent=True)])

    def _keep_ahead(self) -> None:
        """After a restore from an older copy, make sure the inbox gives out no number twice."""
        events = self.services.events
        self.services.inbox.keep_ahead(events.head().inbox_cursor, events.numbers())

    def _changed(self, jobs: set[str | None] | None) -> None:
        """Handle a change in the event log. `jobs` None: any job may have changed. None in the set: a node or the cluster."""
        self._nodes = self._rules = None
        if jobs is None:
            self._jobs.clear()
            self.notifier.notify_all()
            return
        for job in jobs:
            if job is not None:
                self.forget(job)
            self.notifier.notify(job)

    def _write_samples(self, samples: list[Sample]) -> Sequence[int]:
        """Write samples on the metric writer's thread, one transaction per chunk of values.

        The first sample of a new attempt raises that job's fence. Points below the fence are rejected, so points that earlier
        attempts left on disk are imported first.
        """
        home, metrics = self.services.home, self.services.metrics
        if any(sample.unsent for sample in samples):
            self.points_written += import_points(home, metrics)
        points = [point for sample in samples for point in sample.points]
        beats = [AgentKey.parse(beat.key) for sample in samples for beat in sample.heartbeats]
        for job, attempt in {(one.job, one.attempt) for one in points} | {(key.job, key.attempt) for key in beats}:
            if self._fences.get(job, 0) < attempt:
                if attempt > 1:
                    self.points_written += import_points(home, metrics, job)
                metrics.raise_fence(job, attempt)
                self._fences[job] = attempt
        told = [beat for sample in samples for beat in sample.heartbeats]
        for some in whole_points(points, _VALUES_AT_ONCE):
            metrics.write(some, told)
            told = []
        self.points_written += len(points)
        return [0] * len(samples)


def whole_points(values: Sequence[MetricPoint], most: int) -> Iterator[Sequence[MetricPoint]]:
    """Split `values` into chunks of about `most`; there is at least one chunk, which may be empty.

    The values of one agent point stay together: the store accepts each point number once, so the rest of a split point
    would be lost.
    """
    begin = 0
    while True:
        end = min(begin + most, len(values))
        while end < len(values) and values[end].arrival is not None and values[end].arrival is values[end - 1].arrival:
            end += 1
        yield values[begin:end]
        begin = end
        if begin >= len(values):
            return


def of(request: Request) -> Runtime:
    """The runtime of the app that serves this request."""
    runtime = request.app.state.runtime
    assert isinstance(runtime, Runtime)
    return runtime


def caller(request: Request) -> Caller:
    """The authenticated caller of a user request."""
    found = request.scope["trainmaster.caller"]
    assert isinstance(found, Caller)
    return found


def agent(request: Request, claimed: object = None) -> AgentKey:
    """The authenticated agent. `told`: the key in the body, which must match. Raises: UsageError, AuthenticationError."""
    known = request.scope["trainmaster.agent"]
    if known is None:  # an agent of an earlier version
        return authenticate_agent(of(request).secret, str(claimed), bearer(request.headers.get("authorization")))
    assert isinstance(known, AgentKey)
    if claimed is not None and claimed != str(known):
        raise AuthenticationError("this is not the credential of that agent")
    return known


def user(request: Request) -> str:
    """The name of the member that sent the request."""
    return caller(request).name
