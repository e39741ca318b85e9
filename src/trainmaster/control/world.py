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
from trainmaster.model.nodes import Allocation, Node
from trainmaster.ports.store import Live, NewEvent, forgotten
from trainmaster.scheduling import nouns
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.share import Account, Member
from trainmaster.scheduling.snapshot import ARRIVED, DEFAULT, ENDED, LEFT, STARTED, Changes, Snapshot
from trainmaster.scheduling.space import Grant, Site
from trainmaster.scheduling.task import Past, Run, Task


@dataclass(slots=True)
class World:
    """Jobs that are not over or have bytes to delete, nodes, and the position in the log.

    `waiting`, `running` and `held` are indexes of `jobs`, so that a snapshot is cheap. `changes` lists what changed for the
    scheduler.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    waiting: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    held: dict[str, Allocation] = field(default_factory=dict)
    promised: dict[str, Grant] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()
    places: dict[str, int] = field(default_factory=dict)  # index in `sites` of each node
    rules: Cluster = DEFAULT
    changes: Changes = field(default_factory=Changes, compare=False)
    usage: dict[Member, Account] = field(default_factory=dict)  # of ended attempts
    ended: list[Past] = field(default_factory=list)  # jobs that ran and are over, without those `forgotten`
    ended_ever: int = 0  # number of jobs that ran and are over
    gate: StartGate = field(default_factory=StartGate, compare=False)  # jobs that may not start yet
    sites_hold_s: float = field(default=FOREVER, compare=False)  # `sites` are valid until then: a maintenance window changes
    last_seq: int = 0
    inbox_cursor: int = 0

    @classmethod
    def of(cls, live: Live) -> "World":
        """Build the world from the store's projections."""
        world = cls(last_seq=live.last_seq, inbox_cursor=live.inbox_cursor, rules=live.rules)
        world.usage = nouns.accounts(live.balances)
        world.ended, world.ended_ever = nouns.pasts(live.over), live.ended
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
        if over:
            self._remember(nouns.past(job))
        self._queue(job)
        self._run(job)
        self.gate.update(job)
        return over

    def _queue(self, job: Job) -> None:
        """Update the index of waiting jobs."""
        if job.promised is not None:
            self.promised[job.id] = nouns.grant(job, job.promised, self.nodes, self.places)
        else:
            self.promised.pop(job.id, None)
        before, now = self.waiting.get(job.id), nouns.task(job, self.rules) if job.state is State.QUEUED else None
        if before == now:
            return
        if before is not None:
            del self.waiting[job.id]
            self.changes = self.changes.note(LEFT, job.id)
        if now is not None:
            self.waiting[job.id] = now
            self.changes = self.changes.note(ARRIVED, job.id)

    def _run(self, job: Job) -> None:
        """Update the index of running jobs and their allocations."""
        before, live = self.running.get(job.id), job.state.live and job.attempt is not None
        now = nouns.run(job, self.nodes, self.places, self.rules) if live else None
        if before == now:
            return
        if before is not None:
            del self.running[job.id], self.held[job.id]
            self.changes = self.changes.note(ENDED, job.id)
        if now is not None and job.attempt is not None:
            self.running[job.id], self.held[job.id] = now, job.attempt.allocation
            self.changes = self.changes.note(STARTED, job.id)

    def _remember(self, past: Past) -> None:
        """Append an ended job. The list grows, and is cut now and then; a cut list is new, which resets `changes`."""
        self.ended.append(past)
        self.ended_ever += 1
        kept = self.ended_ever - forgotten(self.ended_ever)
        if kept < len(self.ended):
            self.ended, self.changes = self.ended[-kept:], Changes()

    def rebuild_sites(self, now_s: float) -> None:
        """Rebuild the sites after a change of nodes or rules, and index running jobs again."""
        nodes = list(self.nodes.values())
        self.sites, self.places = nouns.sites_of(nodes, self.rules, now_s), nouns.places_of(nodes)
        self.sites_hold_s = nouns.sites_hold_s(nodes, self.rules, now_s)
        self.changes = Changes()
        for id in self.running:
            self.running[id] = nouns.run(self.jobs[id], self.nodes, self.places, self.rules)
        for id in self.promised:
            allocation = self.jobs[id].promised
            assert allocation is not None
            self.promised[id] = nouns.grant(self.jobs[id], allocation, self.nodes, self.places)

    def configure(self, rules: Cluster, now_s: float) -> None:
        """Apply new cluster rules: convert every waiting job again."""
        self.rules = rules
        for id in self.waiting:
            self.waiting[id] = nouns.task(self.jobs[id], rules)
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
        for job_id in self.held:
            attempt = self.jobs[job_id].attempt
            if attempt is not None:
                keys += [attempt.key(job_id, i) for i, n in enumerate(attempt.nodes) if n.phase is not NodePhase.ENDED]
        return keys

    def apply_windows(self, now_s: float) -> None:
        """Rebuild the sites if a maintenance window has begun or ended."""
        if now_s >= self.sites_hold_s:
            self.rebuild_sites(now_s)

    def snapshot(self, now_s: float, depth: int = 1) -> Snapshot:
        """The scheduler's view."""
        self.apply_windows(now_s)
        return Snapshot(
            now_s, self.sites, self.waiting, self.running, self.last_seq, self.changes,
            self.ended, self.rules, usage=self.usage, promised=self.promised, depth=depth,
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
        entries = charging.entries(self.world.usage, self.world.rules.half_life_s, job, event, self.now_s)
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
