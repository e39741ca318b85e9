"""What the api process holds while it runs: writers, waiters, the cache of jobs. Route modules get it by `of(request)`."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from trainmaster.errors import AuthenticationError
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import AgentReport, SubmitJob
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.model.nodes import Node
from trainmaster.ports.store import HeartbeatRow, MetricPoint, NewRow
from trainmaster.server.runtime import limits
from trainmaster.server.runtime.agent_reports import Words
from trainmaster.server.runtime.blob_gate import Gate
from trainmaster.server.runtime.body_memory import Room
from trainmaster.server.runtime.credentials import Caller, Tokens, bearer, proven_agent
from trainmaster.server.runtime.event_followers import Bells, ControlWaker, Follower
from trainmaster.server.runtime.exec_sessions import Sessions
from trainmaster.server.runtime.group_commit import GroupWriter
from trainmaster.server.runtime.pending_commands import Waiting
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.unsent_points import take_up
from trainmaster.server.runtime.workers import JOBS

_log = logging.getLogger("trainmaster.api")

_JOB_TTL_S = 1.0  # of a cached job, should a datagram have been lost
_NODES_TTL_S = 1.0
_CACHED_MAX = 4096
_VALUES_AT_ONCE = 10_000  # of metrics: calls of the database with more hold the interpreter for too long


@dataclass(frozen=True, slots=True)
class Sample:
    """What one sync brought for the metric store."""

    points: tuple[MetricPoint, ...]
    heartbeats: tuple[HeartbeatRow, ...]
    unsent: bool = False  # nothing of its own: what agents that are gone left is to be taken up


class Runtime:
    """One api process at work."""

    def __init__(self, services: Services) -> None:
        home = services.home
        self.services = services
        self.tokens = Tokens(home, services.tokens)
        self.tokens.ensure_admin()
        self.secret = services.secret
        self.bells = Bells()
        self.execs = Sessions()
        self.waker = ControlWaker(home.socket("control.wake"))
        self.follower = Follower(home.socket("api.wake"), services.events, self._changed)
        self.rows: GroupWriter[NewRow, str] = GroupWriter(services.inbox.accept, self.waker.wake)
        self.samples: GroupWriter[Sample, int] = GroupWriter(self._write_samples, lambda: None)
        self.waiting = Waiting(services.inbox, services.events)
        self.gate = Gate()
        self.bodies = Room(limits.ALL_BODIES_BYTES, limits.BUSY_S)
        self.collecting = False
        self.giving_up: set[str] = set()  # jobs whose curves a person gave up, until they are removed
        self.trees: set[str] = set()  # digests of code trees that were stored, or found stored, since a collection began
        self.followers = 0
        self.began_s = time.monotonic()
        self.called_s = self.began_s  # when somebody was last let in at the door
        self.words = Words()  # of what agents told and this version passed over
        self.points = 0  # metric points written since the start
        self.environments: set[str] = set()  # records known to be in the blob store
        self._jobs: dict[str, tuple[float, asyncio.Future[Job | None]]] = {}  # when the look began; on the loop alone
        self._nodes: tuple[float, list[Node]] | None = None
        self._rules: tuple[float, Cluster] | None = None
        self._fences: dict[str, int] = {}

    async def start(self) -> None:
        """Begin to hear control."""
        await asyncio.to_thread(self._keep_ahead)
        await self.follower.start()

    def close(self) -> None:
        """Finish writing."""
        self.bells.close()
        self.execs.bells.close()
        self.follower.close()
        self.rows.close()
        self.samples.close()
        self.waker.close()

    def called(self) -> None:
        """Somebody was let in."""
        self.called_s = time.monotonic()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Somebody follows a log; `followers` says how many do."""
        self.followers += 1
        try:
            yield
        finally:
            self.followers -= 1

    async def accept(self, rows: Sequence[NewRow]) -> list[str]:
        """Take commands into the inbox, durably; returns each one's job id. Raises: DiskFullError."""
        ids = await self.rows.put(rows)
        for row, job in zip(rows, ids, strict=True):
            if not isinstance(row.command, AgentReport | SubmitJob):
                self.bells.ring(job)
        return ids

    async def job(self, job_id: str) -> Job | None:
        """A job as control last recorded it, at most a moment old: one look answers all who ask meanwhile.

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
        return await asyncio.shield(look)  # whoever leaves does not end it for the others

    def _keep(self, job_id: str, look: "asyncio.Future[Job | None]") -> None:
        """Only what a look has found is kept."""
        found = None if look.cancelled() or look.exception() is not None else look.result()
        if found is None and self._jobs.get(job_id, (0.0, None))[1] is look:
            self.forget(job_id)

    def forget(self, job_id: str) -> None:
        """Look at this job anew the next time, even if somebody is looking now: that may be the state before the news."""
        self._jobs.pop(job_id, None)

    def nodes(self) -> list[Node]:
        """The known nodes, at most a second old."""
        now_s = time.monotonic()
        if self._nodes is None or now_s - self._nodes[0] > _NODES_TTL_S:
            self._nodes = (now_s, self.services.events.nodes())
        return self._nodes[1]

    def rules(self) -> Cluster:
        """The rules of the cluster, at most a second old; `rules.present` looks at what was just accepted too."""
        now_s = time.monotonic()
        if self._rules is None or now_s - self._rules[0] > _NODES_TTL_S:
            self._rules = (now_s, self.services.events.rules())
        return self._rules[1]

    async def trim(self) -> None:
        """Forget inbox rows that control took up long ago. Raises: OperationError, DiskFullError."""
        head = await asyncio.to_thread(self.services.events.head)
        await asyncio.to_thread(self.services.inbox.trim, head.inbox_cursor, time.time())

    async def take_up(self) -> None:
        """Bring in the metric points that agents left behind. Raises: OperationError, DiskFullError, OSError."""
        await self.samples.put([Sample((), (), unsent=True)])

    def _keep_ahead(self) -> None:
        """An inbox restored from an older copy must give out nothing a second time."""
        events = self.services.events
        self.services.inbox.keep_ahead(events.head().inbox_cursor, events.numbers())

    def _changed(self, jobs: set[str | None] | None) -> None:
        """Control recorded something of these jobs (None: of no job, but of a node or the cluster), or of any."""
        self._nodes = self._rules = None
        if jobs is None:
            self._jobs.clear()
            self.bells.ring_all()
            return
        for job in jobs:
            if job is not None:
                self.forget(job)
            self.bells.ring(job)

    def _write_samples(self, samples: list[Sample]) -> Sequence[int]:
        """On the metric writer's thread: a transaction for so many values, the fence raised before an attempt's first sample.

        What is below the fence is refused, so what earlier attempts left behind comes before that.
        """
        home, metrics = self.services.home, self.services.metrics
        if any(sample.unsent for sample in samples):
            self.points += take_up(home, metrics)
        points = [point for sample in samples for point in sample.points]
        beats = [AgentKey.parse(beat.key) for sample in samples for beat in sample.heartbeats]
        for job, attempt in {(one.job, one.attempt) for one in points} | {(key.job, key.attempt) for key in beats}:
            if self._fences.get(job, 0) < attempt:
                if attempt > 1:
                    self.points += take_up(home, metrics, job)
                metrics.raise_fence(job, attempt)
                self._fences[job] = attempt
        told = [beat for sample in samples for beat in sample.heartbeats]
        for some in whole_points(points, _VALUES_AT_ONCE):
            metrics.write(some, told)
            told = []
        self.points += len(points)
        return [0] * len(samples)


def whole_points(values: Sequence[MetricPoint], most: int) -> Iterator[Sequence[MetricPoint]]:
    """`values` in stretches of about `most`, at least one, empty perhaps. All values of an agent's point stay together.

    The store takes each number once, with the values that come with it: the rest of a point that was cut would be lost.
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
    """The runtime that serves this request."""
    runtime = request.app.state.runtime
    assert isinstance(runtime, Runtime)
    return runtime


def caller(request: Request) -> Caller:
    """Who asks."""
    found = request.scope["trainmaster.caller"]
    assert isinstance(found, Caller)
    return found


def agent(request: Request, told: object = None) -> AgentKey:
    """Which agent asks. `told` is what its body says, which must not be another. Raises: UsageError, AuthenticationError."""
    known = request.scope["trainmaster.agent"]
    if known is None:  # an agent of an earlier version
        return proven_agent(of(request).secret, str(told), bearer(request.headers.get("authorization")))
    assert isinstance(known, AgentKey)
    if told is not None and told != str(known):
        raise AuthenticationError("this is not the credential of that agent")
    return known


def user(request: Request) -> str:
    """The name under which the caller acts: the member."""
    return caller(request).name
