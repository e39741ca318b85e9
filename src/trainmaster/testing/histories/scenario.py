"""The simulated world: the production loop and store under a virtual clock and seeded faults.

One seed is one history, and any seed can be replayed alone. Two phases: first all allowed faults occur, including crashes of
control; then the faults stop, and every job must end.
"""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from trainmaster.blobs.garbage_collection import Collecting, collect
from trainmaster.control.clock import SteadyClock
from trainmaster.control.clock_steps import is_recorded
from trainmaster.control.effect_runner import EffectRunner
from trainmaster.control.loop import ControlLoop, Recorder
from trainmaster.control.workers import Inline
from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.engines.simulated.scripts import Faults, Script, SimulatedCrash
from trainmaster.home import Home
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import AgentReport, ConfigureCluster, ReleaseJob
from trainmaster.model.events import Submitted
from trainmaster.model.ids import AgentKey
from trainmaster.model.job import Job
from trainmaster.ports.engine import Submission
from trainmaster.ports.store import NewRow
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.placement.strategies import pack
from trainmaster.scheduling.policies.known import chosen
from trainmaster.scheduling.policies.policy import Policy, one_reservation
from trainmaster.scheduling.preemption.victims import Overtaking, at_once
from trainmaster.scheduling.state.figures import Figures
from trainmaster.scheduling.state.order import Keys, first
from trainmaster.server.runtime.services import Services
from trainmaster.server.storage.storage import ServerRecords
from trainmaster.store.migrate import migrate
from trainmaster.testing.cluster_rules_contract import SOME_RULES
from trainmaster.testing.histories.clocks import Clocks, Wall
from trainmaster.testing.histories.faulty_stores import BusyInbox, FaultyBlobs, FaultyEvents, any_script
from trainmaster.testing.histories.laws import (
    fork_problems,
    job_problems,
    log_problems,
    part_name,
    unfinished,
    unheeded,
    unstored,
)
from trainmaster.testing.histories.people import People

CALM = Faults()
WILD = Faults(
    unknown=0.1, late=0.3, duplicate=0.2, submit_crash=0.1, agent_crash=0.1,
    refused=0.02, skewed=0.1, doubts=0.03, hangs=0.02, damaged=0.1,
)  # fmt: skip
_AWAY = 0.01  # probability of a crash of the api
_COLLECTS = 0.05  # probability of garbage collection, without a grace period
_AWAY_MAX_S = 60.0
_TIDIES = 0.02  # probability that a person removes a job's bytes
_SET = 0.02  # probability that the wall clock is set
_STEPS_S = (7.0, 600.0, 86_400.0, 40 * 86_400.0)  # by these amounts
_CALM_MAX_S = 40_000.0  # virtual time by which every job must have ended
_AGE_S = 1e6  # garbage collection takes every blob to be this old
_BEATS_MAX = 300  # in the end: more than the longest wait before a removal is retried
_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 30.0  # between ticks in the calm


# The job ahead in the order takes what it needs from those behind: this maximizes the number of handovers.
def first_come(snapshot: Snapshot, jobs: Figures) -> Keys:
    """Higher priority first, then earlier submission."""
    return *first(snapshot.now_s, jobs), jobs.since_s


PUSHY = Policy("pushy", first_come, pack, one_reservation, Overtaking(at_once, first_come))


@dataclass(slots=True)
class Scenario:
    """One history. `home` is an empty directory on a fast disk."""

    home: Home
    seed: int
    faults: Faults = WILD
    crash_after_commit: float = 0.05  # probability that control dies between its commit and its effects
    full: float = 0.05  # probability that a commit finds the disk full
    refuses: float = 0.3  # probability that the blob store fails to remove something
    crashes: int = 0
    closed: bool = False  # the gate: nothing can create references to blobs
    away_until_s: float = 0.0  # the api is dead: agents keep their reports
    rng: random.Random = field(init=False)
    clock: Clocks = field(default_factory=Clocks)
    fate: random.Random = field(init=False)  # for the wall clock, and for removals
    engine: SimulatedEngine = field(init=False)
    inbox: BusyInbox = field(init=False)
    events: FaultyEvents = field(init=False)
    blobs: FaultyBlobs = field(init=False)
    loop: ControlLoop = field(init=False)
    people: People = field(init=False)
    broken: list[str] = field(default_factory=list)  # violated laws of forks

    def __post_init__(self) -> None:
        self.rng, self.fate = random.Random(self.seed), random.Random(f"clock {self.seed}")
        self.home.root.mkdir(parents=True, exist_ok=True)
        migrate(self.home)
        self.engine = SimulatedEngine(self.rng, self.clock, self._script, self.faults)
        self.inbox = BusyInbox(self.home.inbox_db, self._deliver)
        self.events = FaultyEvents(self.home.events_db, self.rng, self.full)
        self.people = People(self.rng, Wall(self.clock), self.engine, self.inbox, self.events)
        self.blobs = FaultyBlobs(self.home.blobs, self.rng, self.refuses)
        self.blobs.removing = self._removing
        self.engine.stored = self._store
        self._start_control()

    def _start_control(self) -> None:
        """Start a new control process on the same world, as after `kill -9`."""
        runner, last_s = EffectRunner(self.engine, self.blobs, str, Inline()), self.events.head().last_now_s
        recorded = partial(is_recorded, self.events)
        clock = SteadyClock(last_s, self.home.root / "clock.json", recorded, self.clock.readings)
        self.loop = ControlLoop(Recorder(self.events, self._committed), self.inbox, runner, clock, self.rng)
        self.loop.steps = clock
        self.loop.planner.choose = self._policy
        self.loop.load()

    def _policy(self, rules: Cluster) -> Policy:
        return PUSHY if self.seed % 2 else chosen(rules)

    def _committed(self) -> None:
        if self.rng.random() < self.crash_after_commit:
            raise SimulatedCrash("after the commit")

    def play(self, jobs: int) -> None:
        """Run both phases: `jobs` are submitted and disturbed over time, then calm until all have ended."""
        if self.seed % 4 < 2:
            self.people.ask(ConfigureCluster(SOME_RULES[0], "ann"))  # preemption without a long minimum run time
        while len(self.people.submitted) < jobs or self.rng.random() < 0.95:
            if self.rng.random() < _AWAY:
                self.away_until_s = self.clock.time_s + self.rng.uniform(0.0, _AWAY_MAX_S)
            if self.fate.random() < _SET:
                self.clock.ahead_s += self.fate.choice((-1, 1)) * self.fate.choice(_STEPS_S)
            if self.clock.time_s >= self.away_until_s:
                if self.fate.random() < _TIDIES:
                    self.people.ask_for_bytes(self.fate)
                self.people.disturb(jobs)
                if self.rng.random() < _COLLECTS:
                    self._collect()
            self._step(self.rng.expovariate(1.0))
        self.engine.faults, self.crash_after_commit, self.away_until_s = CALM, 0.0, 0.0
        self.events.full, self.blobs.refuses = 0.0, 0.0
        self.people.declare(at_once=True)
        for job_id in self.people.submitted:
            self.people.ask(ReleaseJob(job_id, "calm"))
        self._calm_down()
        self.people.ask_for_room()
        self._step(1.0)
        for _ in range(_BEATS_MAX):
            self._step(1.0)
            if not any(job.deleting or job.clearing for job in self.loop.world.jobs.values()):
                break

    def _calm_down(self) -> None:
        """Run until all jobs have ended. Idle time passes faster."""
        deadline_s, pause_s = self.clock.time_s + _CALM_MAX_S, _PAUSE_MIN_S
        waited_for = list(self.people.submitted)
        while waited_for and self.clock.time_s < deadline_s:
            if unfinished(self.events, waited_for[-1:]):
                seq = self.events.head().last_seq
                next_s = (self.engine.next_s() or self.clock.time_s + pause_s) - self.clock.time_s + 0.001
                self._step(min(pause_s, next_s))
                pause_s = _PAUSE_MIN_S if self.events.head().last_seq != seq else min(pause_s * 1.5, _PAUSE_MAX_S)
            else:
                waited_for.pop()  # it stays held

    def problems(self) -> list[str]:
        """Every law this history violated."""
        found = log_problems(self.events, self.engine, self.loop.world, self._policy)
        found += job_problems(self.events, self.engine, self.people.submitted, self.blobs.removed)
        found += [*unstored(self.events, self.blobs), *unheeded(self.events, self.people.declared)]
        return found + self.broken + fork_problems(self.events, self.people.forks)

    def _script(self, submission: Submission, rng: random.Random) -> Script:
        """An agent starts. Law of forks: until a fork has a checkpoint of its own, it starts from the requested one."""
        asked, job = self.people.forks.get(submission.key.job), submission.job
        if asked is not None and asked.checkpoint is not None:
            name = f"checkpoints/{asked.owner}/{asked.checkpoint.id}"
            resume = job.attempt.resume if job.attempt is not None else ()
            if resume[-1:] != (f"{asked.owner}:{asked.checkpoint.id}",):
                self.broken.append(f"{submission.key} is to resume from {resume}, not from {name}")
            if name in self.blobs.removed and not self._too_late(job):
                self.broken.append(f"{submission.key} starts from {name}, which was removed")
        return any_script(submission, rng)

    def _removing(self, prefix: str) -> None:
        """Law of forks: the origin's bytes stay while a fork may start from them, unless the fork was held as too late."""
        for job in self.loop.world.jobs.values():
            one = None if job.state.ended else self.people.forks.get(job.id)
            needs = one is not None and one.checkpoint is not None and prefix == f"checkpoints/{one.owner}/{one.checkpoint.id}"
            if needs and not self._too_late(job):
                self.broken.append(f"{prefix} was removed while {job.id}, forked from it, was {job.state.value}")

    def _too_late(self, job: Job) -> bool:
        """Whether its checkpoint was removed before the fork was processed: it was held, and then released by a person."""
        (first,) = self.events.events(0, 1, job.id)
        return isinstance(first.event, Submitted) and "was removed just before" in (first.event.held or "")

    def _store(self, key: AgentKey, report: Mapping[str, object]) -> None:
        """An agent stores its part of a checkpoint, and only then reports it."""
        self.blobs.put(part_name(key.job, str(report["id"]), key.node_index), b"x")

    def _collect(self) -> None:
        """Garbage collection with the server's knowledge. All blobs count as old."""
        records = ServerRecords(cast(Services, self))  # it uses the two stores and the home only
        collect(self.blobs, records, Collecting(0.0, closed=self._shut, now_s=lambda: time.time() + _AGE_S))

    @contextmanager
    def _shut(self) -> Iterator[None]:
        self.closed = True
        try:
            yield
        finally:
            self.closed = False

    def _step(self, seconds: float) -> None:
        """Let time pass, then tick; reports arrive before or during the tick. A new control process replaces a dead one."""
        self.clock.time_s += max(seconds, 0.001)
        if self.rng.random() < 0.3:
            self._deliver()
        self.loop.watch.probe = self.loop.watch.probe or self.rng.random() < 0.3
        try:
            self.loop.follow_clock()
            while self.loop.tick(self.loop.clock.now_s()) == 0.0:
                pass
        except SimulatedCrash:
            self.crashes += 1
            self._start_control()

    def _deliver(self) -> None:
        """The api accepts the agents' reports, unless it is dead."""
        if self.clock.time_s < self.away_until_s or self.closed:
            return
        rows = [
            NewRow(f"{key}:{report['n']}", AgentReport(str(key), dict(report)), self.clock.wall_s())
            for key, report in self.engine.due_reports()
        ]
        if rows:
            self.inbox.accept(rows)
