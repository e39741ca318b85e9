"""The control loop. Each tick observes, records, decides, commits, and only then acts."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from trainmaster import troubles
from trainmaster.control import clock_steps, decide, observe
from trainmaster.control.clock_steps import Steps
from trainmaster.control.disk_watch import DiskWatch
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.observe import EngineWatch
from trainmaster.control.world import Batch, World
from trainmaster.errors import DiskFullError, OperationError
from trainmaster.lifecycle.effects import Clear, DeleteCheckpoint, Effect, Launch, Stop
from trainmaster.lifecycle.invariants import violations
from trainmaster.lifecycle.pending import pending
from trainmaster.model.events import BytesRemoved, CheckpointDeleted, NodeEnded, NodeLost, NodeStarted
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job, Outcome
from trainmaster.ports.clock import Clock, Waker
from trainmaster.ports.engine import Observation, Phase
from trainmaster.ports.store import EventStore, Inbox
from trainmaster.scheduling.moments import BEAT_S
from trainmaster.wire.failpoint import passing

_STOPPABLE = (Phase.RUNNING, Phase.LOST, Phase.ABSENT)  # phases in which a stop may still be needed
INVENTORY_S = 10.0
DRAIN = 1000  # inbox rows processed in one tick
_log = logging.getLogger("trainmaster.control")


class Listener(Protocol):
    """Called after each commit that changed something."""

    def __call__(self) -> None: ...


@dataclass(slots=True)
class Recorder:
    """Makes ticks durable. It is the only caller of `EventStore.append`."""

    events: EventStore
    changed: Listener
    disk_watch: DiskWatch | None = None  # checks the disk of the home

    def commit(self, batch: Batch) -> bool:
        """Append the batch, and the projections that it changed, in one transaction. False on a full disk."""
        world = batch.world
        jobs = {id: world.jobs[id] for id in batch.jobs}
        for sentence in [s for job in jobs.values() for s in violations(job)]:
            _log.error("invariant violated: %s", sentence)
        started = any(isinstance(e.event, NodeStarted) for e in batch.events)
        try:
            if started:
                passing("engine.record.before")
            nodes = [world.nodes[name] for name in sorted(batch.nodes)]
            world.last_seq = self.events.append(batch.now_s, batch.events, jobs, nodes, world.inbox_cursor)
            if started:
                passing("engine.record.after")
        except DiskFullError as error:
            _log.error("observing only: %s %s", error.message, error.hint)
            if self.disk_watch is not None:
                self.disk_watch.report_full()
            return False
        world.forget_ended(batch.jobs)
        self.changed()
        return True


@dataclass(slots=True)
class ControlLoop:
    """Owns the world, and lets the parts of control work on it one after the other."""

    recorder: Recorder
    inbox: Inbox
    runner: EffectRunner
    clock: Clock
    rng: Random = field(default_factory=Random)
    world: World = field(default_factory=World)
    planner: decide.Planner = field(default_factory=decide.Planner)
    watch: EngineWatch = field(default_factory=EngineWatch)
    contact: decide.Contact = field(default_factory=decide.Contact)
    steps: Steps | None = None  # detects steps of the machine's clock; None: there are none

    def load(self) -> None:
        """Load the live projections and observe; a restart after a crash does the same. Cost is independent of history."""
        self.world, self.contact.since_s = self._recorded(), self.clock.now_s()
        known = set(self.world.live_keys())
        for key, seen in self.runner.engine.observe(None).items():
            if key not in known and seen.phase in (Phase.RUNNING, Phase.LOST) and self._is_over(key):
                _log.warning("%s runs but is recorded as over: stopping it", key)
                try:
                    self.runner.engine.stop(key, 0.0)
                except OperationError as error:  # a full disk must not prevent observation
                    _log.error("%s %s", error.message, error.hint)

    def _recorded(self) -> World:
        """The world as it is on record."""
        return World.of(self.recorder.events.load_live())

    def _is_over(self, key: AgentKey) -> bool:
        """Whether the record proves that an agent outside the live projections must end. An unknown agent may be healthy,
        since the log can be an older copy: it is reported and left running. Raises: OperationError if the log is older than
        the agent's attempt.
        """
        job = self.recorder.events.job(key.job)
        last = job.attempt.number if job is not None and job.attempt is not None else 0
        if key.attempt <= last or (job is not None and job.state.ended):
            return True
        if job is not None:
            what = f"the log is older than what runs: it knows {key.job} up to attempt {last}, and {key} runs"
            raise OperationError(what, "put the newer events.db back; or end that agent, if it is not wanted")
        troubles.say("unknown agents", f"{key} runs and is not in the log, which may be an older copy: it is left running")
        return False

    def run(self, waker: Waker, keep_running: "Running") -> None:
        """Tick until `keep_running` says no."""
        while keep_running():
            self.follow_clock()
            waker.wait(self.tick(self.clock.now_s()))

    def follow_clock(self) -> None:
        """If the machine's clock was set, move all dates before any decision depends on them.

        Three steps: note, record, follow. If the process dies at any point, the step is recorded exactly once.
        """
        clock_steps.expire_notice()
        by_s = self.steps.stepped_s() if self.steps is not None else 0.0
        if self.steps is None or not by_s:
            return
        try:
            self.steps.begin(by_s, self.world.last_seq)
        except OSError as error:
            _log.error("a step of the machine's clock by %g s could not be noted: %s", by_s, error)
            return
        batch = clock_steps.step_events(self.world, self.recorder.events, by_s, self.clock.now_s() + by_s)
        if self._commit(batch, self.world.inbox_cursor):
            self.steps.follow(by_s)
            clock_steps.notify(by_s)
            self.watch.next_beat_s = self.watch.next_inventory_s = 0.0
            self.contact.since_s += by_s
        self.world = self._recorded()
        self.planner.queue_changed = True

    def tick(self, now_s: float) -> float:
        """Run one tick. It waits only for the stores. Returns how long the next tick may wait, in seconds."""
        batch = Batch(self.world, now_s, on_record=self.recorder.events.job)
        self.runner.collect()
        cursor = self.world.inbox_cursor
        # before the inbox is read: all accepted reports of an agent seen dead are then in it
        seen = self.watch.look(self.runner, self.world, now_s)
        for effect in self.runner.removals.deleted:  # before the inbox: a request for a deleted checkpoint must be refused
            batch.record(effect.job, CheckpointDeleted(effect.checkpoint))
        for clear, size in self.runner.removals.cleared:
            batch.record(clear.job, BytesRemoved(clear.kind, size))
        rows = self.inbox.drain(cursor, DRAIN)
        for row in rows:
            _take_safely(f"inbox row {row.seq}", partial(observe.take, batch, row))
            self.world.inbox_cursor = row.seq
        self._take_results(batch)
        repeated = self._take_seen(batch, seen) if len(rows) < DRAIN else []
        decide.settle(batch, self.rng, self.contact)
        limit_s = decide.enforce_limits(batch, seen is not None, self.contact)
        if limit_s == 0.0:
            self.watch.probe, limit_s = True, None
        decide.clear_windows(batch)
        decide.settle_starts(batch)
        self.planner.plan(batch)
        if not self._commit(batch, cursor):
            return BEAT_S
        self.runner.forget_results()
        self.runner.run(batch.effects + repeated, self.world)
        self.watch.probe = self.watch.probe or len(rows) == DRAIN  # the observation was not used
        if self.watch.is_due() or self.runner.has_results():
            return 0.0
        return self._next_wait_s(now_s, limit_s)

    def _take_results(self, batch: Batch) -> None:
        for key, why in self.runner.failed_launches:
            batch.record(key.job, NodeLost(key.attempt, key.node_index, why))
            batch.record(key.job, NodeEnded(key.attempt, key.node_index, Outcome(lost=True, machine_error=why)))

    def _take_seen(self, batch: Batch, seen: Mapping[AgentKey, Observation] | None) -> list[Effect]:
        """Record the observation once the whole inbox was processed. Returns the effects to repeat."""
        if batch.now_s >= self.watch.next_inventory_s:
            observe.take_inventory(batch, self.runner.engine.inventory())
            self.watch.next_inventory_s, self.planner.queue_changed = batch.now_s + INVENTORY_S, True
            if self.recorder.disk_watch is not None:
                self.recorder.disk_watch.check()
        for key, observation in (seen or {}).items():
            _take_safely(f"the observation of {key}", partial(observe.take_observation, batch, key, observation))
        beat = self.watch.beat(batch.now_s)
        if beat:
            self.planner.queue_changed = True  # a back-off ends without an event
        jobs: Iterable[Job] = self.world.jobs.values() if beat else (self.world.jobs[id] for id in self.world.workload.running)
        if not self.watch.repeats(seen is not None, beat):
            return []
        absent = {key for key, o in (seen or {}).items() if o.phase is Phase.ABSENT}
        alive = {key for key, o in (seen or {}).items() if o.phase in _STOPPABLE or o.unreadable}
        given = set(batch.effects)
        return [e for job in jobs for e in pending(job) if e not in given and _undone(e, absent, alive)]

    def _commit(self, batch: Batch, cursor: int) -> bool:
        """Make the tick durable. On a full disk, discard it: the world is loaded again and no effect runs."""
        if not batch.events and self.world.inbox_cursor == cursor:
            return True
        if self.recorder.commit(batch):
            return True
        self.world, self.planner.queue_changed = self._recorded(), True
        return False

    def _next_wait_s(self, now_s: float, limit_s: float | None) -> float:
        waits = [self.watch.next_beat_s - now_s]
        if limit_s is not None:
            waits.append(limit_s)
        begin_s = self.world.gate.next_begin_s()
        if begin_s is not None:
            waits.append(begin_s - now_s)
        due = [turn_s - now_s for task in self.world.workload.waiting.values() for turn_s in task.turns_s if turn_s > now_s]
        if due:
            waits.append(min(due))
            self.planner.queue_changed = True
        return max(0.0, min(waits))


class Running(Protocol):
    """Whether the loop should go on."""

    def __call__(self) -> bool: ...


def _take_safely(what: str, take: Callable[[], str | None]) -> None:
    """Process one input. Its failure must not keep the others from being processed."""
    try:
        word = take()
    except Exception:  # noqa: BLE001 - the loop's own last resort: one poisoned row would otherwise end it at every start
        _log.exception("skipped %s", what)
        return
    if word is not None:
        _log.warning("%s", word)


def _undone(effect: Effect, absent: set[AgentKey], alive: set[AgentKey]) -> bool:
    match effect:
        case Launch(key):
            return key in absent
        case Stop(key, _):
            return key in alive
        case DeleteCheckpoint() | Clear():
            return True
