"""What control recorded, kept in memory for at most a second. A notification of control ends an entry sooner."""

import asyncio
import time

from trainmaster.model.cluster import Cluster
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.model.nodes import Node
from trainmaster.server.runtime.ended_jobs import Ended, EndedJobs
from trainmaster.server.runtime.event_followers import EventFollower, Notifier
from trainmaster.server.runtime.services import Services
from trainmaster.server.runtime.workers import JOBS

_JOB_TTL_S = 1.0  # lifetime of a cached job, in case a notification datagram was lost
_NODES_TTL_S = 1.0
_CACHED_MAX = 4096


class RecordCache:
    """Jobs, nodes and the cluster configuration as control last recorded them.

    It follows the event log: a change drops what it concerns, and then wakes the tasks that wait for it.
    """

    def __init__(self, services: Services, notifier: Notifier) -> None:
        self._events, self._notifier = services.events, notifier
        self._follower = EventFollower(services.home.socket("api.wake"), services.events, self._changed)
        self._ended = EndedJobs(services.events)
        self._jobs: dict[str, tuple[float, asyncio.Future[Job | None]]] = {}  # lookup and its start; event loop only
        self._nodes: tuple[float, list[Node]] | None = None
        self._rules: tuple[float, Cluster] | None = None

    async def start(self) -> None:
        """Start listening for notifications from control."""
        await self._follower.start()

    def close(self) -> None:
        """Stop listening."""
        self._follower.close()

    async def job(self, job_id: str) -> Job | None:
        """The job as control last recorded it, at most one second old. Concurrent callers share one database lookup.

        Raises: OperationError.
        """
        now_s = time.monotonic()
        began_s, look = self._jobs.get(job_id, (0.0, None))
        if look is None or now_s - began_s >= _JOB_TTL_S:
            if len(self._jobs) >= _CACHED_MAX:
                self._jobs.clear()
            look = asyncio.ensure_future(JOBS.run(self._events.job, job_id))
            self._jobs[job_id] = now_s, look
            look.add_done_callback(lambda over: self._keep(job_id, over))
        return await asyncio.shield(look)  # a caller that disconnects does not cancel the shared lookup

    async def job_of(self, key: AgentKey) -> Job | None:
        """The job of an agent, looked up again if its attempt is newer than the one that is kept: agents do not wait for us."""
        job = await self.job(key.job)
        if job is not None and job.attempt is not None and key.attempt > job.attempt.number:
            self.forget(key.job)
            job = await self.job(key.job)
        return job

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
            self._nodes = (now_s, self._events.nodes())
        return self._nodes[1]

    def rules(self) -> Cluster:
        """The recorded cluster configuration, at most one second old. `cluster_rules.present` adds changes not yet applied."""
        now_s = time.monotonic()
        if self._rules is None or now_s - self._rules[0] > _NODES_TTL_S:
            self._rules = (now_s, self._events.rules())
        return self._rules[1]

    def forget_rules(self) -> None:
        """Drop the configuration from the cache: control has just taken up another."""
        self._rules = None

    def ended(self) -> Ended:
        """The ended jobs that are remembered, as of now. Linear in the jobs that ended since the last call."""
        return self._ended.now()

    def _changed(self, jobs: set[str | None] | None) -> None:
        """Handle a change in the event log. `jobs` None: any job may have changed. None in the set: a node or the cluster."""
        self._nodes = self._rules = None
        if jobs is None:
            self._jobs.clear()
            self._notifier.notify_all()
            return
        for job in jobs:
            if job is not None:
                self.forget(job)
            self._notifier.notify(job)
