"""Actions of people in a simulated world: submit, fork, cancel, hold, free space, configure, declare nodes lost."""

import random
from dataclasses import dataclass, field, replace

from trainmaster.engines.simulated.engine import SimulatedEngine
from trainmaster.lifecycle.checkpoints import spare
from trainmaster.model.commands import (
    CancelJob,
    Command,
    ConfigureCluster,
    GiveUpBytes,
    GiveUpCheckpoints,
    HoldJob,
    ReleaseJob,
    SetNodeState,
    SubmitJob,
    UpdateJob,
)
from trainmaster.model.job import Job
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.nodes import NodeState
from trainmaster.model.options.start_conditions import Dependency, StartConditions, When
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
from trainmaster.model.storage_kinds import StorageKind
from trainmaster.ports.clock import Clock
from trainmaster.ports.store import Inbox, JobQuery, NewRow
from trainmaster.store.events import SqlEventStore
from trainmaster.testing.cluster_rules_contract import SOME_RULES
from trainmaster.testing.histories.faulty_stores import garbage

_MOMENTS = 4
_REPAIRED_AFTER_S = 600.0  # at most, until it is back
_LOST_AFTER_S = 60.0  # at most, from a node's failure to a person's declaration that it is lost


@dataclass(slots=True)
class People:
    """They act through the inbox, as the api does for them, and see the recorded state."""

    rng: random.Random
    clock: Clock
    engine: SimulatedEngine
    inbox: Inbox
    events: SqlEventStore
    submitted: list[str] = field(default_factory=list)
    forks: dict[str, Lineage] = field(default_factory=dict)  # as requested
    _seen: list[Lineage] = field(default_factory=list)  # possible origins of forks, at some moment
    _silent: dict[str, float] = field(default_factory=dict)  # failed nodes, and when they will be declared lost
    declared: list[str] = field(default_factory=list)  # nodes that were declared lost, once per declaration
    _away: dict[str, float] = field(default_factory=dict)  # nodes that were declared lost, and when they are repaired

    def disturb(self, jobs: int) -> None:
        """Actions of people and failures of machines. At most `jobs` are submitted."""
        if len(self.submitted) < jobs and self.rng.random() < 0.3:
            self._submit()
        if self.rng.random() < 0.2:
            self.ask_for_room()
        if self.rng.random() < 0.3:
            self._seen += [found] if (found := self._look_up()) is not None else []
        if self.submitted and self.rng.random() < 0.2:
            job_id = self.rng.choice(self.submitted)
            asked: list[Command] = [CancelJob(job_id, "ann"), HoldJob(job_id, "ann", ""), ReleaseJob(job_id, "ann")]
            self.ask(self.rng.choice(asked))
        if self.submitted and self.rng.random() < 0.1:
            self.ask(self._update())
        if self.rng.random() < 0.05 and self.engine.truth.starts:
            self.ask(garbage(self.rng.choice(list(self.engine.truth.starts)), self.rng))
        if self.rng.random() < 0.02:
            self.inbox.trim(self.events.head().inbox_cursor, self.clock.now_s())
        if self.rng.random() < 0.05:
            self.ask(ConfigureCluster(self.rng.choice(SOME_RULES), "ann"))
        self._machines()

    def _update(self) -> UpdateJob:
        """A change of any job, also of an ended one."""
        tags = {self.rng.choice("ab"): self.rng.choice(["x", "y", None])}
        limit_s = self.rng.choice([None, None, 10_000.0])  # a lower one is not what its past attempts obeyed
        work, priority = self.rng.choice([None, "interactive"]), self.rng.choice([None, -1, 1])
        return UpdateJob(self.rng.choice(self.submitted), "ann", priority, limit_s, self.rng.random() < 0.1, work, tags)

    def _machines(self) -> None:
        """Nodes hang for a while, restart, or fail for good: then a person declares them lost and has them repaired."""
        node = self.rng.choice(self.engine.network.nodes).name
        if self.rng.random() < 0.03:
            self.engine.partition(node, self.rng.uniform(1.0, 60.0))
        if self.rng.random() < 0.03:
            self.engine.reboot(node)
        if self.rng.random() < 0.01 and node not in self._silent | self._away:
            self.engine.lose(node)
            self._silent[node] = self.clock.now_s() + self.rng.uniform(1.0, _LOST_AFTER_S)
        self.declare()

    def declare(self, at_once: bool = False) -> None:
        """Declare failed nodes lost, when it is time or `at_once`, then bring them back."""
        now_s = self.clock.now_s()
        for node, at_s in list(self._silent.items()):
            if at_once or at_s <= now_s:
                if node in {known.name for known in self.events.nodes()}:  # the api rejects unknown nodes
                    self.ask(SetNodeState(node, NodeState.LOST, "ann", "its power supply burned"))
                    if self.rng.random() < 0.3:
                        self.ask(SetNodeState(node, NodeState.UP, "ann", "sooner than it answers"))
                    self.declared.append(node)
                del self._silent[node]
                self._away[node] = now_s + self.rng.uniform(0.0, _REPAIRED_AFTER_S)
        for node, at_s in list(self._away.items()):
            if at_once or at_s <= now_s:
                self.engine.find(node)
                self.ask(SetNodeState(node, NodeState.UP, "ann", "repaired"))
                del self._away[node]

    def ask(self, command: Command) -> None:
        """Accept one command."""
        self.inbox.accept([NewRow(f"ask-{self.rng.random()}", command, self.clock.now_s())])

    def ask_for_room(self) -> None:
        """Ask ended jobs for their older checkpoints, even if forks start from them."""
        for job in [job for job in self._on_record() if spare(job)]:
            self.ask(GiveUpCheckpoints(job.id, "ann", tuple(one.id for one in spare(job))))

    def ask_for_bytes(self, rng: random.Random) -> None:
        """Ask for all bytes of some kinds of one job, ended or not."""
        if found := self._on_record():
            kinds = rng.sample(list(StorageKind), rng.randint(1, len(StorageKind)))
            self.ask(GiveUpBytes(rng.choice(found).id, "ann", tuple(kind.value for kind in kinds)))

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
        spec = replace(spec, checkpoint=CheckpointSpec(keep=self.rng.choice([1, 2, 4])), project=f"p{len(self.submitted) % 3}")
        spec = replace(spec, time_limit_s=self.rng.choice([None, None, None, 20.0]))
        lineage = self._lineage()
        command = SubmitJob("", spec, Origin(), CodeCopy(), lineage=lineage, start=self._start())
        row = NewRow(f"submit-{len(self.submitted)}", command, self.clock.now_s(), "sim")
        ids = self.inbox.accept([row])
        if self.rng.random() < 0.2:
            assert self.inbox.accept([row]) == ids, "the same key made a second job"
        self.submitted += ids
        self.forks.update({id: lineage for id in ids if lineage is not None})

    def _start(self) -> StartConditions | None:
        """Some jobs wait for another one, a time, or their turn in an array."""
        rng = random.Random(len(self.submitted))  # of its own: the rest of the history stays as it was
        if rng.random() < 0.7:
            return None
        jobs = [rng.choice(self.submitted)] if self.submitted and rng.random() < 0.5 else []
        after = tuple(Dependency(job, rng.choice(list(When))) for job in jobs)
        begin_s = self.clock.now_s() + rng.uniform(-5.0, 60.0) if rng.random() < 0.3 else None
        array, at_most = rng.choice("ab"), rng.choice([0, 1, 2])
        return StartConditions(after, begin_s, array, at_most, relative=True, max_running=rng.choice([0, 0, 1, 3]))

    def _lineage(self) -> Lineage | None:
        """Mostly a fork, if there is a possible origin: as the api sees it now, or saw it a moment ago."""
        if self.rng.random() < 0.2:
            return None
        if self._seen and self.rng.random() < 0.4:
            return self._seen[-_MOMENTS:][0]
        self._seen += [found] if (found := self._look_up()) is not None else []
        return found

    def _look_up(self) -> Lineage | None:
        parents = [job for job in self._on_record() if job.good_checkpoints]
        if not parents:
            return None
        parent = self.rng.choice([job for job in parents if not job.state.ended] or parents)
        return Lineage(Relation.FORK, parent.id, self.rng.choice(parent.good_checkpoints), parent.id)

    def _on_record(self) -> list[Job]:
        """All jobs, in order of submission."""
        return sorted(self.events.jobs(JobQuery(limit=10_000)), key=lambda job: self.submitted.index(job.id))
