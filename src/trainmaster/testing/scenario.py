"""The simulated world: the production loop and the production store under a virtual clock and seeded faults.

One seed is one history; any seed replays alone. Two phases: first everything goes wrong that the faults allow, control
dying included; then the faults stop, and every job must end.
"""

import random
from dataclasses import dataclass, field

from trainmaster.blobs.fs import FsBlobs
from trainmaster.control.act import Actor
from trainmaster.control.loop import ControlLoop
from trainmaster.control.world import World
from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.engines.simulated.scripts import Faults, Script, SimulatedCrash
from trainmaster.home import Home
from trainmaster.lifecycle.machine import apply
from trainmaster.model.commands import AgentReport, CancelJob, Command, HoldJob, ReleaseJob, SubmitJob
from trainmaster.model.job import Job, State
from trainmaster.model.spec import CodeCopy, JobSpec, Origin, Resources, Restarts
from trainmaster.ports.engine import Submission
from trainmaster.ports.store import JobQuery, NewRow, Recorded
from trainmaster.scheduling.policy import POLICIES
from trainmaster.store.events import SqlEventStore
from trainmaster.store.inbox import SqlInbox
from trainmaster.store.migrate import migrate
from trainmaster.store.replay import replay, verify_chain

CALM = Faults()
WILD = Faults(unknown=0.1, late=0.3, duplicate=0.2, submit_crash=0.1, agent_crash=0.1)


@dataclass(slots=True)
class VirtualClock:
    """Time that only moves when told to."""

    time_s: float = 1000.0

    def now_s(self) -> float:
        """The virtual now."""
        return self.time_s


def any_script(submission: Submission, rng: random.Random) -> Script:
    """A program of random length and end; some ignore TERM."""
    exits = rng.choices([(0, None), (1, None), (0, 9), (0, 11)], [6, 1, 2, 1])[0]
    return Script(rng.uniform(0.1, 40.0), exits[0], exits[1], rng.choice([0.5, 0.5, None]))


@dataclass(slots=True)
class Scenario:
    """One history. `home` is an empty directory on a fast disk."""

    home: Home
    seed: int
    faults: Faults = WILD
    crash_after_commit: float = 0.05  # control dies between its commit and its effects
    crashes: int = 0
    rng: random.Random = field(init=False)
    clock: VirtualClock = field(default_factory=VirtualClock)
    engine: SimulatedEngine = field(init=False)
    inbox: SqlInbox = field(init=False)
    events: SqlEventStore = field(init=False)
    loop: ControlLoop = field(init=False)
    submitted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.home.root.mkdir(parents=True, exist_ok=True)
        migrate(self.home)
        self.engine = SimulatedEngine(self.rng, self.clock, any_script, self.faults)
        self.inbox, self.events = SqlInbox(self.home.inbox_db), SqlEventStore(self.home.events_db)
        self._start_control()

    def _start_control(self) -> None:
        """A fresh control process over the same world, as after `kill -9`."""
        actor = Actor(self.engine, FsBlobs(self.home.blobs), str)
        self.loop = ControlLoop(self.events, self.inbox, actor, POLICIES["fifo"], self.clock, self._committed, self.rng)
        self.loop.load()

    def _committed(self) -> None:
        if self.rng.random() < self.crash_after_commit:
            raise SimulatedCrash("after the commit")

    def play(self, jobs: int) -> None:
        """Both phases: `jobs` submitted and disturbed over time, then calm until all have ended."""
        while len(self.submitted) < jobs or self.rng.random() < 0.95:
            self._disturb(jobs)
            self._step(self.rng.expovariate(1.0))
        self.engine.faults, self.crash_after_commit = CALM, 0.0
        for job_id in self.submitted:
            self._ask(ReleaseJob(job_id, "calm"))
        deadline_s = self.clock.time_s + 40_000.0
        while self.unfinished() and self.clock.time_s < deadline_s:
            self._step(min(1.0, (self.engine.next_s() or self.clock.time_s + 1.0) - self.clock.time_s + 0.001))

    def unfinished(self) -> list[str]:
        """Jobs that are accepted and not over."""
        return [id for id in self.submitted if (job := self.events.job(id)) is None or not job.state.ended]

    def _disturb(self, jobs: int) -> None:
        """What people and machines do meanwhile."""
        if len(self.submitted) < jobs and self.rng.random() < 0.7:
            self._submit()
        if self.submitted and self.rng.random() < 0.2:
            job_id = self.rng.choice(self.submitted)
            asked: list[Command] = [CancelJob(job_id, "ann"), HoldJob(job_id, "ann", ""), ReleaseJob(job_id, "ann")]
            self._ask(self.rng.choice(asked))
        node = self.rng.choice(self.engine.nodes).name
        if self.rng.random() < 0.03:
            self.engine.partition(node, self.rng.uniform(1.0, 60.0))
        if self.rng.random() < 0.01:
            self.engine.reboot(node)

    def _submit(self) -> None:
        ask = Resources(nodes=self.rng.choice([1, 1, 2]), gpus=self.rng.choice([0, 1, 4, 8]), ranks=self.rng.choice([1, 2]))
        spec = JobSpec("work", experiment="sim", priority=self.rng.randint(-1, 1), resources=ask, restarts=Restarts(2, 50))
        row = NewRow(f"submit-{len(self.submitted)}", SubmitJob("", spec, Origin(), CodeCopy()), self.clock.time_s, "sim")
        ids = self.inbox.accept([row])
        if self.rng.random() < 0.2:
            assert self.inbox.accept([row]) == ids, "the same key made a second job"
        self.submitted += ids

    def _ask(self, command: Command) -> None:
        self.inbox.accept([NewRow(f"ask-{self.rng.random()}", command, self.clock.time_s)])

    def _step(self, seconds: float) -> None:
        """Let time pass, deliver what agents said, tick; a crash of control is followed by a fresh one."""
        self.clock.time_s += max(seconds, 0.001)
        rows = [
            NewRow(f"{key}:{report['n']}", AgentReport(str(key), dict(report)), self.clock.time_s)
            for key, report in self.engine.due_reports()
        ]
        if rows:
            self.inbox.accept(rows)
        self.loop.probe = self.loop.probe or self.rng.random() < 0.3
        try:
            while self.loop.tick(self.clock.now_s()) == 0.0:
                pass
        except SimulatedCrash:
            self.crashes += 1
            self._start_control()

    def problems(self) -> list[str]:
        """Every law this history broke."""
        fresh = World.of(self.events.load_live())
        found = [*self.engine.violations, *verify_chain(self.events), *replay(self.events, _fold)]
        found += [f"{id} never ended" for id in self.unfinished()]
        found += [f"{key} was started {n} times" for key, n in self.engine.starts.items() if n > 1]
        if fresh != self.loop.world:
            found.append("the world in memory differs from a fresh load")
        jobs = self.events.jobs(JobQuery(limit=10_000))
        if sorted(job.id for job in jobs) != sorted(self.submitted):
            found.append("the accepted jobs are not the jobs on record")
        return found + [f"{j.id} succeeded without a clean end" for j in jobs if j.state is State.SUCCEEDED and not _earned(j)]


def _earned(job: Job) -> bool:
    return job.attempt is not None and all(n.outcome is not None and n.outcome.clean for n in job.attempt.nodes)


def _fold(job: Job | None, recorded: Recorded) -> Job:
    return apply(job, recorded.job or "", recorded.event, recorded.now_s)[0]  # type: ignore[arg-type]
