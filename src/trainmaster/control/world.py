"""The world as control holds it in memory, advanced by events; equal, after every tick, to a fresh load."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.control import charging
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
from trainmaster.model.job import Job, State
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
    """Jobs that are not over (or have bytes to delete), nodes, and where the log stands.

    `waiting`, `running` and `held` are views of `jobs` kept beside it, so that a snapshot costs nothing: `changes` tells the
    scheduler where to look.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    waiting: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    held: dict[str, Allocation] = field(default_factory=dict)
    promised: dict[str, Grant] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()
    places: dict[str, int] = field(default_factory=dict)  # of each node in `sites`
    rules: Cluster = DEFAULT
    changes: Changes = field(default_factory=Changes, compare=False)
    usage: dict[Member, Account] = field(default_factory=dict)  # of attempts that are over
    ended: list[Past] = field(default_factory=list)  # jobs that ran and are over, as far as they are not `forgotten`
    ended_ever: int = 0  # how many ran and are over
    sites_hold_s: float = field(default=FOREVER, compare=False)  # until when `sites` are right: then a window is over
    last_seq: int = 0
    inbox_cursor: int = 0

    @classmethod
    def of(cls, live: Live) -> "World":
        """The world as the store has it."""
        world = cls(last_seq=live.last_seq, inbox_cursor=live.inbox_cursor, rules=live.rules)
        world.usage = nouns.accounts(live.balances)
        world.ended, world.ended_ever = nouns.pasts(live.over), live.ended
        for node in live.nodes:
            world.nodes[node.name] = node
        world.survey(live.last_now_s)
        for job in live.jobs:
            world.put(job)
        return world

    def put(self, job: Job) -> bool:
        """Take a job's new value; whether it is over by that, and had run."""
        before = self.jobs.get(job.id)
        self.jobs[job.id] = job
        over = job.state.ended and before is not None and not before.state.ended and job.ran_s > 0
        if over:
            self._remember(nouns.past(job))
        self._queue(job)
        self._run(job)
        return over

    def _queue(self, job: Job) -> None:
        """Its place among those that wait."""
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
        """What it holds."""
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
        """One more is over. The list is only added to, and now and then cut: then it is a new one, which is told."""
        self.ended.append(past)
        self.ended_ever += 1
        kept = self.ended_ever - forgotten(self.ended_ever)
        if kept < len(self.ended):
            self.ended, self.changes = self.ended[-kept:], Changes()

    def survey(self, now_s: float) -> None:
        """The nodes have changed, or what is said of them: what runs on them is entered anew."""
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

    def obey(self, rules: Cluster, now_s: float) -> None:
        """Other rules hold from now on: what is thought of every job is thought anew."""
        self.rules = rules
        for id in self.waiting:
            self.waiting[id] = nouns.task(self.jobs[id], rules)
        self.survey(now_s)

    def forget_ended(self, ids: set[str]) -> None:
        """Let go of those among `ids` that need nothing more."""
        for id in ids:
            job = self.jobs.get(id)
            if job is not None and job.state.ended and not job.deleting and not job.clearing:
                del self.jobs[id]

    def forked(self, begun: bool = False) -> set[tuple[str, str]]:
        """(owner, checkpoint) of each checkpoint that a job which is not over may still start from: its bytes must stay.

        With `begun`, of those jobs only that have started from it before: they have kept it since, and it is there.
        """
        jobs = (job for job in self.jobs.values() if not job.state.ended and (job.attempt is not None or not begun))
        lineages = (job.lineage for job in jobs)
        return {(one.owner or one.job, one.checkpoint.id) for one in lineages if one is not None and one.checkpoint is not None}

    def look_at_windows(self, now_s: float) -> None:
        """Have the nodes as they are now that maintenance has begun, or is over."""
        if now_s >= self.sites_hold_s:
            self.survey(now_s)

    def snapshot(self, now_s: float, depth: int = 1) -> Snapshot:
        """What the scheduler may see."""
        self.look_at_windows(now_s)
        return Snapshot(
            now_s, self.sites, self.waiting, self.running, self.last_seq, self.changes,
            self.ended, self.rules, usage=self.usage, promised=self.promised, depth=depth,
        )  # fmt: skip


@dataclass(slots=True)
class Batch:
    """What one tick records: events applied to the world as they come, committed together, effects held back till then."""

    world: World
    now_s: float
    events: list[NewEvent] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    effects: list[Effect] = field(default_factory=list)
    on_record: Callable[[str], Job | None] = lambda job_id: None  # a job that is over, and so not in memory

    def known(self, job_id: str) -> Job | None:
        """A job, whether it is over or not."""
        return self.world.jobs.get(job_id) or self.on_record(job_id)

    def recall(self, job_id: str) -> None:
        """Take a job that is over into memory again for this tick, or for as long as it has bytes to delete."""
        job = self.known(job_id)
        if job is not None:
            self.world.put(job)
            self.jobs.add(job_id)

    def record(self, job_id: str, event: JobEvent) -> bool:
        """Apply and remember a job's event; False when it is stale or has no row for the job's state (late news)."""
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
        """Remember a person's note. It changes nothing, so its job need not be in memory: it may have ended long ago."""
        self.events.append(NewEvent(job_id, None, event))

    def record_cluster(self, event: ClusterEvent) -> None:
        """Apply and remember an event about nodes, the rules, or a plan."""
        entries: tuple[Entry, ...] = ()
        if isinstance(event, NodeSeen | NodeStateSet):
            name = event.node.name if isinstance(event, NodeSeen) else event.name
            self.world.nodes[name] = apply_node(self.world.nodes.get(name), event)
            self.world.survey(self.now_s)
            self.nodes.add(name)
        elif isinstance(event, ClusterConfigured):
            entries = charging.reconfigured(self.world.usage, self.world.rules, event.cluster, self.now_s)
            self.world.obey(event.cluster, self.now_s)
        elif isinstance(event, ClockSet):
            entries = charging.clock_set(self.world.usage, event.by_s)
        self.events.append(NewEvent(None, None, event, None, entries))
