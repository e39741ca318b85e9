"""The cluster state that control holds in memory, advanced by events. After every tick it equals a fresh load."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.control import charging
from trainmaster.control.start_gate import StartGate
from trainmaster.lifecycle.effects import Effect
from trainmaster.lifecycle.machine import accepts, apply
from trainmaster.lifecycle.nodes import apply_node
from trainmaster.model.cluster import Cluster
from trainmaster.model.events import (
    AttemptEnded,
    ClockSet,
    ClusterConfigured,
    ClusterEvent,
    JobEvent,
    NodeSeen,
    NodeStateSet,
    Noted,
    Submitted,
)
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, NodePhase, State
from trainmaster.model.ledger import Entry
from trainmaster.model.nodes import Node
from trainmaster.ports.store import Live, NewEvent, forgotten
from trainmaster.scheduling.model import convert as nouns
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Past, Run, Task
from trainmaster.scheduling.model.snapshot import DEFAULT, Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.model.usage import Account, Member
from trainmaster.scheduling.state.cluster import ClusterState


@dataclass(frozen=True, slots=True)
class Sites:
    """The nodes as the scheduler sees them."""

    all: tuple[Site, ...] = ()
    places: dict[str, int] = field(default_factory=dict)  # index in `all` of each node
    hold_s: float = field(default=FOREVER, compare=False)  # valid until then: a maintenance window begins or ends

    @classmethod
    def of(cls, nodes: list[Node], rules: Cluster, now_s: float) -> "Sites":
        """The sites of these nodes."""
        return cls(nouns.sites_of(nodes, rules, now_s), nouns.places_of(nodes), nouns.sites_hold_s(nodes, rules, now_s))


@dataclass(slots=True)
class Workload:
    """The jobs that the scheduler plans. `state` is what it keeps of them, once it has planned; each change goes there too."""

    waiting: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    promised: dict[str, Grant] = field(default_factory=dict)
    state: ClusterState | None = field(default=None, compare=False)

    def put_waiting(self, id: str, now: Task | None) -> None:
        """Note the task of a job that waits; None: it does not."""
        before = self.waiting.get(id)
        if before == now:
            return
        if before is not None:
            del self.waiting[id]
            if self.state is not None:
                self.state.leave(id)
        if now is not None:
            self.waiting[id] = now
            if self.state is not None:
                self.state.arrive(now)

    def put_running(self, id: str, now: Run | None) -> None:
        """Note the run of a job that has nodes; None: it has none."""
        before = self.running.get(id)
        if before == now:
            return
        if before is not None:
            del self.running[id]
            if self.state is not None:
                self.state.end(id)
        if now is not None:
            self.running[id] = now
            if self.state is not None:
                self.state.start(now)


@dataclass(slots=True)
class PastJobs:
    """The jobs that ran and are over."""

    kept: list[Past] = field(default_factory=list)  # without those `forgotten`
    count: int = 0  # of all, ever

    def add(self, past: Past) -> bool:
        """Append a job. The list grows, and is cut now and then; returns whether it was cut, and so is a new list."""
        self.kept.append(past)
        self.count += 1
        most = self.count - forgotten(self.count)
        if most >= len(self.kept):
            return False
        self.kept = self.kept[-most:]
        return True


@dataclass(slots=True)
class World:
    """Jobs that are not over or have bytes to delete, nodes, and the position in the log."""

    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    rules: Cluster = DEFAULT
    sites: Sites = field(default_factory=Sites)
    workload: Workload = field(default_factory=Workload)
    past: PastJobs = field(default_factory=PastJobs)
    usage: dict[Member, Account] = field(default_factory=dict)  # of ended attempts
    gate: StartGate = field(default_factory=StartGate, compare=False)  # jobs that may not start yet
    last_seq: int = 0
    inbox_cursor: int = 0

    @classmethod
    def of(cls, live: Live) -> "World":
        """Build the world from the store's projections."""
        world = cls(last_seq=live.last_seq, inbox_cursor=live.inbox_cursor, rules=live.rules)
        world.usage = nouns.accounts(live.balances)
        world.past = PastJobs(nouns.pasts(live.over), live.ended)
        for node in live.nodes:
            world.nodes[node.name] = node
        world.rebuild_sites(live.last_now_s)
        for job in live.jobs:
            world.put(job)
        return world

    def put(self, job: Job) -> bool:
        """Store a job's new value. Returns whether the job ended by this change after having run."""
        before = self.jobs.get(job.id)
        self.jobs[job.id] = job
        over = job.state.ended and before is not None and not before.state.ended and job.ran_s > 0
        if over and self.past.add(nouns.past(job)):
            self.workload.state = None
        self._index(job)
        self.gate.update(job)
        return over

    def _index(self, job: Job) -> None:
        """Update what the scheduler sees of a job."""
        if job.promised is not None:
            self.workload.promised[job.id] = nouns.grant(job, job.promised, self.nodes, self.sites.places)
        else:
            self.workload.promised.pop(job.id, None)
        self.workload.put_waiting(job.id, nouns.task(job, self.rules) if job.state is State.QUEUED else None)
        live = job.state.live and job.attempt is not None
        self.workload.put_running(job.id, nouns.run(job, self.nodes, self.sites.places, self.rules) if live else None)

    def rebuild_sites(self, now_s: float) -> None:
        """Rebuild the sites after a change of nodes or rules, and index running jobs again."""
        self.sites, load = Sites.of(list(self.nodes.values()), self.rules, now_s), self.workload
        load.state = None
        for id in load.running:
            load.running[id] = nouns.run(self.jobs[id], self.nodes, self.sites.places, self.rules)
        for id in load.promised:
            allocation = self.jobs[id].promised
            assert allocation is not None
            load.promised[id] = nouns.grant(self.jobs[id], allocation, self.nodes, self.sites.places)

    def configure(self, rules: Cluster, now_s: float) -> None:
        """Apply new cluster rules: convert every waiting job again."""
        self.rules = rules
        for id in self.workload.waiting:
            self.workload.waiting[id] = nouns.task(self.jobs[id], rules)
        self.rebuild_sites(now_s)

    def forget_ended(self, ids: set[str]) -> None:
        """Drop jobs among `ids` that are over and have nothing left to delete."""
        for id in ids:
            job = self.jobs.get(id)
            if job is not None and job.state.ended and not job.deleting and not job.clearing:
                del self.jobs[id]

    def forked(self, begun: bool = False) -> set[tuple[str, str]]:
        """(owner, checkpoint) of each checkpoint from which a job that is not over may still start: its bytes must stay.

        With `begun`, only jobs that already started from it once: they have kept the bytes since.
        """
        jobs = (job for job in self.jobs.values() if not job.state.ended and (job.attempt is not None or not begun))
        lineages = (job.lineage for job in jobs)
        return {(one.owner or one.job, one.checkpoint.id) for one in lineages if one is not None and one.checkpoint is not None}

    def live_keys(self) -> list[AgentKey]:
        """The agents of all current attempts that have not ended."""
        keys: list[AgentKey] = []
        for job_id in self.workload.running:
            attempt = self.jobs[job_id].attempt
            if attempt is not None:
                keys += [attempt.key(job_id, i) for i, n in enumerate(attempt.nodes) if n.phase is not NodePhase.ENDED]
        return keys

    def apply_windows(self, now_s: float) -> None:
        """Rebuild the sites if a maintenance window has begun or ended."""
        if now_s >= self.sites.hold_s:
            self.rebuild_sites(now_s)

    def snapshot(self, now_s: float) -> Snapshot:
        """The scheduler's view."""
        self.apply_windows(now_s)
        load = self.workload
        return Snapshot(
            now_s, self.sites.all, load.waiting, load.running, self.last_seq,
            self.past.kept, self.rules, usage=self.usage, promised=load.promised,
        )  # fmt: skip


@dataclass(slots=True)
class Batch:
    """The changes of one tick: events applied to the world at once, and committed together. Effects wait for the commit."""

    world: World
    now_s: float
    events: list[NewEvent] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    effects: list[Effect] = field(default_factory=list)
    on_record: Callable[[str], Job | None] = lambda job_id: None  # reads a job that is over, and so not in memory

    def known(self, job_id: str) -> Job | None:
        """A job, live or ended."""
        return self.world.jobs.get(job_id) or self.on_record(job_id)

    def recall(self, job_id: str) -> None:
        """Load an ended job into memory for this tick, or for as long as it has bytes to delete."""
        job = self.known(job_id)
        if job is not None:
            self.world.put(job)
            self.jobs.add(job_id)

    def record(self, job_id: str, event: JobEvent) -> bool:
        """Apply and append a job's event. False if it is stale or has no row for the job's state (a late report)."""
        job = self.world.jobs.get(job_id)
        if job is None and not isinstance(event, Submitted):
            return False
        if job is not None and not accepts(job, event):
            return False
        job, effects = apply(job, job_id, event, self.now_s)
        over = self.world.put(job)
        self.jobs.add(job_id)
        self.effects.extend(effects)
        ended = job.attempt if isinstance(event, AttemptEnded) else None
        entries = charging.entries(self.world.usage, self.world.rules, job, event, self.now_s)
        self.events.append(NewEvent(job_id, job.attempt.number if job.attempt else None, event, ended, entries, over))
        return True

    def note(self, job_id: str | None, event: Noted) -> None:
        """Append a person's note. It changes no job, so the job need not be in memory."""
        self.events.append(NewEvent(job_id, None, event))

    def record_cluster(self, event: ClusterEvent) -> None:
        """Apply and append an event about nodes, the rules, or a plan."""
        entries: tuple[Entry, ...] = ()
        if isinstance(event, NodeSeen | NodeStateSet):
            name = event.node.name if isinstance(event, NodeSeen) else event.name
            self.world.nodes[name] = apply_node(self.world.nodes.get(name), event)
            self.world.rebuild_sites(self.now_s)
            self.nodes.add(name)
        elif isinstance(event, ClusterConfigured):
            entries = charging.reconfigured(self.world.usage, self.world.rules, event.cluster, self.now_s)
            self.world.configure(event.cluster, self.now_s)
        elif isinstance(event, ClockSet):
            entries = charging.clock_set(self.world.usage, event.by_s)
        self.events.append(NewEvent(None, None, event, None, entries))
