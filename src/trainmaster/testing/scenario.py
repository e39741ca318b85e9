"""The simulated world: the production loop and the production store under a virtual clock and seeded faults.

One seed is one history; any seed replays alone. Two phases: first everything goes wrong that the faults allow, control
dying included; then the faults stop, and every job must end.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from trainmaster.compose import ledger_fold
from trainmaster.control.act import Actor
from trainmaster.control.loop import ControlLoop
from trainmaster.control.replan import folded, replan
from trainmaster.control.world import World
from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.engines.simulated.scripts import Faults, Script, SimulatedCrash
from trainmaster.home import Home
from trainmaster.lifecycle.keeping import spare
from trainmaster.lifecycle.machine import apply
from trainmaster.model.cluster import Cluster
from trainmaster.model.commands import (
    AgentReport,
    CancelJob,
    Command,
    ConfigureCluster,
    GiveUpCheckpoints,
    HoldJob,
    ReleaseJob,
    SubmitJob,
)
from trainmaster.model.events import ArtifactKept, CheckpointStaged, Submitted
from trainmaster.model.job import Job, State
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.spec import (
    CheckpointSpec,
    Choose,
    CodeCopy,
    GpuChoice,
    JobSpec,
    Origin,
    PlacementSpec,
    Resources,
    Restarts,
)
from trainmaster.ports.engine import Submission
from trainmaster.ports.store import JobQuery, NewRow, Recorded
from trainmaster.scheduling.order import priority_then_fifo
from trainmaster.scheduling.places import pack
from trainmaster.scheduling.policy import Policy, at_once, chosen, one_reservation
from trainmaster.scheduling.preempt import overtaking
from trainmaster.store.codec import load_event
from trainmaster.store.migrate import migrate
from trainmaster.store.replay import replay, verify_chain
from trainmaster.testing.ledger_law import ledger_problems
from trainmaster.testing.rules_contract import SOME_RULES
from trainmaster.testing.unruly import BusyInbox, UnrulyBlobs, UnrulyEvents, any_script, garbage

CALM = Faults()
_MOMENTS = 4
Told = tuple[str, str, int]  # job, checkpoint's id or artifact's path, node index
WILD = Faults(unknown=0.1, late=0.3, duplicate=0.2, submit_crash=0.1, agent_crash=0.1)


# Whoever is ahead in order takes what it needs from those behind: as many hand-overs as there can be.
PUSHY = Policy("pushy", priority_then_fifo, pack, one_reservation, preempt=overtaking(at_once))


@dataclass(slots=True)
class VirtualClock:
    """Time that only moves when told to."""

    time_s: float = 1000.0

    def now_s(self) -> float:
        """The virtual now."""
        return self.time_s


@dataclass(slots=True)
class Scenario:
    """One history. `home` is an empty directory on a fast disk."""

    home: Home
    seed: int
    faults: Faults = WILD
    crash_after_commit: float = 0.05  # control dies between its commit and its effects
    full: float = 0.05  # a commit finds the disk full
    refuses: float = 0.3  # the blob store does not remove what it should
    crashes: int = 0
    rng: random.Random = field(init=False)
    clock: VirtualClock = field(default_factory=VirtualClock)
    engine: SimulatedEngine = field(init=False)
    inbox: BusyInbox = field(init=False)
    events: UnrulyEvents = field(init=False)
    blobs: UnrulyBlobs = field(init=False)
    loop: ControlLoop = field(init=False)
    submitted: list[str] = field(default_factory=list)
    forks: dict[str, Lineage] = field(default_factory=dict)  # as they were asked for
    seen: list[Lineage] = field(default_factory=list)  # what could be forked from, at one moment or another
    broken: list[str] = field(default_factory=list)  # laws of forks, each as it was broken

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.home.root.mkdir(parents=True, exist_ok=True)
        migrate(self.home)
        self.engine = SimulatedEngine(self.rng, self.clock, self._script, self.faults)
        self.inbox = BusyInbox(self.home.inbox_db, self._deliver)
        self.events = UnrulyEvents(self.home.events_db, self.rng, self.full)
        self.blobs = UnrulyBlobs(self.home.blobs, self.rng, self.refuses)
        self.blobs.removing = self._removing
        self._start_control()

    def _start_control(self) -> None:
        """A fresh control process over the same world, as after `kill -9`."""
        actor = Actor(self.engine, self.blobs, str)
        self.loop = ControlLoop(self.events, self.inbox, actor, self.clock, self._committed, self.rng)
        self.loop.choose = self._policy
        self.loop.load()

    def _policy(self, rules: Cluster) -> Policy:
        return PUSHY if self.seed % 2 else chosen(rules)

    def _committed(self) -> None:
        if self.rng.random() < self.crash_after_commit:
            raise SimulatedCrash("after the commit")

    def play(self, jobs: int) -> None:
        """Both phases: `jobs` submitted and disturbed over time, then calm until all have ended."""
        if self.seed % 4 < 2:
            self._ask(ConfigureCluster(SOME_RULES[0], "ann"))  # nobody is left undisturbed for long
        while len(self.submitted) < jobs or self.rng.random() < 0.95:
            self._disturb(jobs)
            self._step(self.rng.expovariate(1.0))
        self.engine.faults, self.crash_after_commit = CALM, 0.0
        self.events.full, self.blobs.refuses = 0.0, 0.0
        for job_id in self.submitted:
            self._ask(ReleaseJob(job_id, "calm"))
        deadline_s = self.clock.time_s + 40_000.0
        waited_for = list(self.submitted)
        while waited_for and self.clock.time_s < deadline_s:
            if self.unfinished(waited_for[-1:]):
                self._step(min(1.0, (self.engine.next_s() or self.clock.time_s + 1.0) - self.clock.time_s + 0.001))
            else:
                waited_for.pop()  # it stays so
        self._ask_for_room()
        for _ in range(2):  # beats more: what is still to be removed is
            self._step(1.0)

    def unfinished(self, accepted: Sequence[str]) -> list[str]:
        """Those of these accepted jobs that are not over."""
        return [id for id in accepted if (job := self.events.job(id)) is None or not job.state.ended]

    def _disturb(self, jobs: int) -> None:
        """What people and machines do meanwhile."""
        if len(self.submitted) < jobs and self.rng.random() < 0.3:
            self._submit()
        if self.rng.random() < 0.2:
            self._ask_for_room()
        if self.rng.random() < 0.3:
            self.seen += [found] if (found := self._look_up()) is not None else []
        if self.submitted and self.rng.random() < 0.2:
            job_id = self.rng.choice(self.submitted)
            asked: list[Command] = [CancelJob(job_id, "ann"), HoldJob(job_id, "ann", ""), ReleaseJob(job_id, "ann")]
            self._ask(self.rng.choice(asked))
        node = self.rng.choice(self.engine.nodes).name
        if self.rng.random() < 0.03:
            self.engine.partition(node, self.rng.uniform(1.0, 60.0))
        if self.rng.random() < 0.03:
            self.engine.reboot(node)
        if self.rng.random() < 0.05 and self.engine.starts:
            self._ask(garbage(self.rng.choice(list(self.engine.starts)), self.rng))
        if self.rng.random() < 0.02:
            self.inbox.trim(self.events.head().inbox_cursor, self.clock.time_s)
        if self.rng.random() < 0.05:
            self._ask(ConfigureCluster(self.rng.choice(SOME_RULES), "ann"))

    def _submit(self) -> None:
        ask = Resources(nodes=self.rng.choice([1, 1, 2]), gpus=self.rng.choice([0, 1, 4, 8]), ranks=self.rng.choice([1, 2]))
        if ask.gpus and ask.nodes == 1 and self.rng.random() < 0.4:
            first = GpuChoice("h100", ask.gpus, ranks=ask.ranks)
            ask = replace(ask, gpu_kind="h100", choices=(first, GpuChoice("a100", self.rng.choice([1, 2, 8]), ranks=1)))
        spec = JobSpec("work", experiment="sim", priority=self.rng.randint(-1, 1), resources=ask, restarts=Restarts(2, 50))
        if self.rng.random() < 0.5:
            ask = replace(ask, nodes=1, nodes_max=3)
        place = PlacementSpec(choose=self.rng.choice(list(Choose)), prefer_s=self.rng.choice([0.0, 20.0]))
        spec = replace(spec, resources=ask, placement=place if ask.choices else spec.placement)
        spec = replace(spec, checkpoint=CheckpointSpec(keep=self.rng.choice([1, 2])), project=f"p{len(self.submitted) % 3}")
        lineage = self._lineage()
        command = SubmitJob("", spec, Origin(), CodeCopy(), lineage=lineage)
        row = NewRow(f"submit-{len(self.submitted)}", command, self.clock.time_s, "sim")
        ids = self.inbox.accept([row])
        if self.rng.random() < 0.2:
            assert self.inbox.accept([row]) == ids, "the same key made a second job"
        self.submitted += ids
        self.forks.update({id: lineage for id in ids if lineage is not None})

    def _lineage(self) -> Lineage | None:
        """Mostly a fork, where there is something to fork from: of what the api sees on record, or saw a moment ago."""
        if self.rng.random() < 0.2:
            return None
        if self.seen and self.rng.random() < 0.4:
            return self.seen[-_MOMENTS:][0]
        self.seen += [found] if (found := self._look_up()) is not None else []
        return found

    def _look_up(self) -> Lineage | None:
        parents = [job for job in self._on_record() if job.good_checkpoints]
        if not parents:
            return None
        parent = self.rng.choice([job for job in parents if not job.state.ended] or parents)
        return Lineage(Relation.FORK, parent.id, self.rng.choice(parent.good_checkpoints), parent.id)

    def _on_record(self) -> list[Job]:
        """All jobs, in the order in which they were submitted."""
        return sorted(self.events.jobs(JobQuery(limit=10_000)), key=lambda job: self.submitted.index(job.id))

    def _ask_for_room(self) -> None:
        """Jobs that are over are asked for their older checkpoints, whoever starts from them."""
        for job in [job for job in self._on_record() if spare(job)]:
            self._ask(GiveUpCheckpoints(job.id, "ann", tuple(one.id for one in spare(job))))

    def _script(self, submission: Submission, rng: random.Random) -> Script:
        """An agent starts. The law of forks: until it has a checkpoint of its own, one starts from what was asked for."""
        asked, job = self.forks.get(submission.key.job), submission.job
        if asked is not None and asked.checkpoint is not None:
            name = f"checkpoints/{asked.owner}/{asked.checkpoint.id}"
            resume = job.attempt.resume if job.attempt is not None else ()
            if resume[-1:] != (f"{asked.owner}:{asked.checkpoint.id}",):
                self.broken.append(f"{submission.key} is to resume from {resume}, not from {name}")
            if name in self.blobs.removed and not self._too_late(job):
                self.broken.append(f"{submission.key} starts from {name}, which was removed")
        return any_script(submission, rng)

    def _removing(self, prefix: str) -> None:
        """The law of forks: what one may still start from stays, unless it came too late and is held for that."""
        for job in self.loop.world.jobs.values():
            one = None if job.state.ended else self.forks.get(job.id)
            needs = one is not None and one.checkpoint is not None and prefix == f"checkpoints/{one.owner}/{one.checkpoint.id}"
            if needs and not self._too_late(job):
                self.broken.append(f"{prefix} was removed while {job.id}, forked from it, was {job.state.value}")

    def _too_late(self, job: Job) -> bool:
        """Whether its checkpoint was given up before the fork was taken up: then it was held, and a person let it start."""
        (first,) = self.events.events(0, 1, job.id)
        return isinstance(first.event, Submitted) and "has given up its checkpoint" in (first.event.held or "")

    def _ask(self, command: Command) -> None:
        self.inbox.accept([NewRow(f"ask-{self.rng.random()}", command, self.clock.time_s)])

    def _step(self, seconds: float) -> None:
        """Let time pass, tick; what agents said comes before it or in its midst. A fresh control follows one that died."""
        self.clock.time_s += max(seconds, 0.001)
        if self.rng.random() < 0.3:
            self._deliver()
        self.loop.probe = self.loop.probe or self.rng.random() < 0.3
        try:
            while self.loop.tick(self.clock.now_s()) == 0.0:
                pass
        except SimulatedCrash:
            self.crashes += 1
            self._start_control()

    def _deliver(self) -> None:
        """The api takes what agents said."""
        rows = [
            NewRow(f"{key}:{report['n']}", AgentReport(str(key), dict(report)), self.clock.time_s)
            for key, report in self.engine.due_reports()
        ]
        if rows:
            self.inbox.accept(rows)

    def problems(self) -> list[str]:
        """Every law this history broke."""
        fresh = World.of(self.events.load_live())
        found = [*self.engine.violations, *verify_chain(self.events), *replay(self.events, _fold, enter=ledger_fold())]
        found += ledger_problems(self.events)
        found += [f"{id} never ended" for id in self.unfinished(self.submitted)]
        found += self.broken
        planned = list(replan(self.events.events(0, 1_000_000), self._policy))
        found += [f"plan {one.seq}: {one.recorded ^ one.decided}" for one in planned if one.recorded != one.decided]
        found += [f"{id} lost its lineage" for id, asked in self.forks.items() if self._lineage_of(id) != asked]
        found += [f"{key} was started {n} times" for key, n in self.engine.starts.items() if n > 1]
        if fresh != self.loop.world:
            found.append("the world in memory differs from a fresh load")
        if fresh.ended != folded(self.events.events(0, 1_000_000)).ended:
            found.append("what is remembered of jobs that are over is not what the events say")
        jobs = self.events.jobs(JobQuery(limit=10_000))
        if sorted(job.id for job in jobs) != sorted(self.submitted):
            found.append("the accepted jobs are not the jobs on record")
        told, recorded = Counter(self._told()), Counter(self._recorded())
        found += [f"{what} was told and not recorded" for what in told - recorded]
        found += [f"{what} was recorded more often than told" for what in recorded - told]
        for job in jobs:
            found += self._bytes_problems(job, {id for name, id, _ in told if name == job.id})
        return found + [f"{j.id} succeeded without a clean end" for j in jobs if j.state is State.SUCCEEDED and not _earned(j)]

    def _lineage_of(self, job_id: str) -> Lineage | None:
        """As both the job and its parent have it on record."""
        job = self.events.job(job_id)
        lineage = job.lineage if job is not None else None
        return lineage if lineage is not None and job_id in self.events.children(lineage.job) else None

    def _told(self) -> Iterator[Told]:
        """Every checkpoint's part and artifact that an agent ever told of."""
        for key, report in self.engine.told():
            yield key.job, str(report.get("id") or report.get("path")), key.node_index

    def _recorded(self) -> Iterator[Told]:
        """The same, of those that became events."""
        for row in self.events.chain(0, 1_000_000):
            match load_event(row.type, row.data) if row.type in ("CheckpointStaged", "ArtifactKept") else None:
                case CheckpointStaged(id=id, part=part):
                    yield row.job or "", id, part.node_index
                case ArtifactKept(node_index=node_index, artifact=artifact):
                    yield row.job or "", artifact.path, node_index

    def _bytes_problems(self, job: Job, told: set[str]) -> list[str]:
        """Laws of retention: what a job keeps is there, what it gave up is not, and nothing is forgotten."""
        removed = {name.rpartition("/")[2] for name in self.blobs.removed if name.startswith(f"checkpoints/{job.id}/")}
        kept = {checkpoint.id for checkpoint in job.checkpoints}
        known = {artifact.path for artifact in self.events.artifacts(job.id, 10_000)}
        found = [f"{job.id} keeps {id}, which was removed" for id in kept & removed]
        found += [f"{job.id} neither keeps nor removed {id}" for id in told - kept - removed - known]
        return found + [f"{job.id} still deletes {id}" for id in job.deleting]


def _earned(job: Job) -> bool:
    return job.attempt is not None and all(n.outcome is not None and n.outcome.clean for n in job.attempt.nodes)


def _fold(job: Job | None, recorded: Recorded) -> Job:
    return apply(job, recorded.job or "", recorded.event, recorded.now_s)[0]  # type: ignore[arg-type]
