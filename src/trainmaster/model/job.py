"""A job and its attempts: the life-cycle state, and all data that decisions about it need."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from trainmaster.model.checkpoints import Checkpoint, SavedAfter
from trainmaster.model.ids import AgentKey
from trainmaster.model.ledger import Rate
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import Allocation
from trainmaster.model.options.start_conditions import StartConditions
from trainmaster.model.progress import Progress
from trainmaster.model.spec import CodeCopy, DataVersion, JobSpec, Origin, Urgency
from trainmaster.wire.names import RUN

DOUBTS_MAX = 3  # after this many attempts that could not read a checkpoint, an older one is tried first


class State(StrEnum):
    """The life-cycle states. The command line, REST and the pages use these words only."""

    HELD = "held"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the job is over for good."""
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)

    @property
    def live(self) -> bool:
        """Whether an attempt may have processes."""
        return self in (State.STARTING, State.RUNNING, State.STOPPING)


class StopFor(StrEnum):
    """Why a job is `stopping`. A later reason may outrank an earlier one; cancel outranks all."""

    CANCEL = "cancel"
    LIMIT = "limit"
    EVICT = "evict"
    SHRINK = "shrink"  # gives back nodes beyond its minimum and continues at once on the rest
    START = "start"  # took longer to start than its limit
    FAILURE = "failure"  # one agent of the gang failed: stop the others, then decide about a restart


class Cause(StrEnum):
    """Why an attempt did not succeed."""

    PROGRAM = "program"  # it exited with an error
    CRASH = "crash"  # SEGV, ABRT, BUS, ILL, FPE: caused by the program itself
    KILLED = "killed"  # by a signal that we did not send
    OUT_OF_MEMORY = "out_of_memory"
    AGENT_LOST = "agent_lost"
    NODE_LOST = "node_lost"
    LAUNCH = "launch"  # the program or its spec cannot be started
    MACHINE = "machine"  # the machine, its disk, the store or the network prevented the start
    START_LIMIT = "start_limit"  # its ranks did not start in time
    RENDEZVOUS = "rendezvous"  # the rendezvous port was in use before the first step
    TIME_LIMIT = "time_limit"
    EVICTED = "evicted"
    SHRUNK = "shrunk"  # it gave back nodes and continues on fewer
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How one rank ended. Exactly one of `exit_code` and `signal` is set, unless the rank never started."""

    rank: int
    exit_code: int | None = None
    signal: int | None = None
    stopped_by_us: bool = False  # we signaled it before it ended
    ended_after_s: float = 0.0  # since the agent's start, on that node's monotonic clock
    last_lines: tuple[str, ...] = ()
    error: str | None = None  # message of the torch error file, if it wrote one
    peak_memory_bytes: int = 0
    cpu_s: float = 0.0
    role: str | None = None  # name of the role, whose `rank` is -1
    outside: str | None = None  # a relative path of its last lines that exists in the submit directory, but not in the copy
    raised: str | None = None  # the exception that it printed, also before `last_lines`; None: none, or from an older agent

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"rank {self.rank}" if self.role is None else f"role {self.role}"


_LATE_S = 1.0  # after an end, its record is late


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one agent's part of an attempt ended: from its `exit.json`, or `lost` if it is proven to be gone."""

    ranks: tuple[RankEnd, ...] = ()
    lost: bool = False  # no exit record: the agent or the node is gone
    launch_error: str | None = None  # the program or the spec cannot be started; the text says what to do
    machine_error: str | None = None  # the machine, its disk, the store or the network prevented the start or the restore
    over_memory: bool = False
    memory_limit_bytes: int | None = None
    peak_memory_bytes: int = 0
    port_in_use: bool = False  # "address in use" before the first step, perhaps of the rendezvous port
    last_step: int | None = None
    first_step: int | None = None  # of this attempt
    ran_s: float = 0.0
    roles: tuple[RankEnd, ...] = ()  # programs beside the ranks
    launch_lines: tuple[str, ...] = ()  # output of a failed preparation program
    killed_for_memory: bool = False  # the kernel killed in its cgroup for lack of memory, under its own limit or not
    failed_ago_s: float = 0.0  # time from its first rank's failure to the record of its end; 0: none failed, or unknown
    declared_lost: str | None = None  # who declared the node lost; nothing else is known then
    bad: tuple[str, ...] = ()  # checkpoints whose digest differed at restore
    doubted: tuple[str, ...] = ()  # checkpoints that could not be read at restore
    progress: Progress | None = None  # None: from an agent of an older version
    unread: str = ""  # why output was not read or searched: steps may be missing
    terminated: bool = False  # the agent had SIGTERM or SIGINT, not from us, so its ranks were stopped or not started
    ended_ago_s: float = 0.0  # time from its end to the record of it, if that is long; 0 if unknown

    @property
    def clean(self) -> bool:
        """Whether every rank exited 0, and every role too unless we stopped it."""
        well = all(r.exit_code == 0 for r in self.ranks) and all(r.exit_code == 0 or r.stopped_by_us for r in self.roles)
        return well and not self.lost and not self.terminated and self.launch_error is None and self.machine_error is None

    def recorded_later(self, waited_s: float) -> "Outcome":
        """It, as it is recorded that long after the agent told it."""
        told = replace(self, failed_ago_s=self.failed_ago_s + waited_s) if self.failed_ago_s > 0 else self
        return replace(told, ended_ago_s=self.ended_ago_s + waited_s) if waited_s > _LATE_S else told


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of an attempt: a value, never an exception."""

    cause: Cause
    message: str
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()


class Action(StrEnum):
    """Recovery's decision about an ended attempt."""

    FINISH = "finish"
    RESTART = "restart"
    REQUEUE = "requeue"
    STOP = "stop"


class RestartBudget(StrEnum):
    """Which budget pays for a restart."""

    NONE = "none"
    PROGRAM = "program"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Recovery's complete decision: recorded in the event, never recomputed on replay."""

    action: Action
    state: State  # the job's next state
    reason: str
    delay_s: float = 0.0
    ledger: RestartBudget = RestartBudget.NONE
    failure: Failure | None = None
    fruitless: bool = False  # killed without progress; consecutive ones are limited


class NodePhase(StrEnum):
    """The phase of one agent of an attempt."""

    LAUNCHING = "launching"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One agent of an attempt."""

    phase: NodePhase = NodePhase.LAUNCHING
    lost: bool = False  # the agent is gone; its ranks may still run
    reports: int = 0  # highest report number that became an event
    restored: str | None = None  # id of the checkpoint that it restored
    outcome: Outcome | None = None
    environment: str | None = None  # SHA-256 of its recorded environment (`wire.environment`); None: not known yet
    declared_lost: str | None = None  # who declared its node lost; stays whatever is declared of the node later
    ended_s: float | None = None  # when its end was recorded: orders the ends in a gang, whose clocks do not compare
    unread: bool = False  # not all of its part of the restored checkpoint was read from the store


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a job on one allocation. `number` is the fence."""

    number: int
    allocation: Allocation
    placed_s: float
    nodes: tuple[NodeRun, ...]
    resume: tuple[str, ...] = ()  # ids of the checkpoints to restore, in the order to try them
    started_s: float | None = None
    stopping_s: float | None = None
    ended_s: float | None = None
    ran_s: float | None = None  # from its `AttemptEnded`; None in logs of versions that did not record it
    master_address: str | None = None
    master_port: int | None = None
    restored: str | None = None  # id of the restored checkpoint
    resumed_from_step: int | None = None
    resumed_about: bool = False  # that step is approximate: the last one printed before the checkpoint was written, or a bound
    # Of a checkpoint without a step. `resumed_from_step` is then the step that its attempt had been given:
    resumed_saved: SavedAfter | None = None
    given: Progress | None = None  # what the program had shown when the restored checkpoint was saved
    progress: Progress | None = None  # what it has shown in this attempt, before its end
    before: Progress | None = None  # what the attempt before it showed; if that is not known, the one before that
    saved_step: int | None = None  # of the first checkpoint that it saved, if that step is exact
    failure: Failure | None = None
    verdict: Verdict | None = None
    rates: tuple[Rate, ...] = ()  # what it is charged
    data_seen: dict[str, str] = field(default_factory=dict)  # entry of `data` -> `wire.data.SAME`, CHANGED or UNKNOWN

    @property
    def shown(self) -> Progress | None:
        """What the program has shown, at its end if that is known; else what it showed in the attempt before."""
        ends = [n.outcome for n in self.nodes[:1] if n.outcome is not None]  # the first node has the lowest rank
        return next((end.progress for end in ends if end.progress is not None), self.progress or self.before)

    def key(self, job_id: str, node_index: int) -> AgentKey:
        """The key of this attempt's agent on one node of its gang."""
        return AgentKey(job_id, self.number, node_index)

    @property
    def span(self) -> tuple[float | None, float | None]:
        """When it began and ended, by what its agents say: the server may have been down, and recorded it later.

        What they say of it is bounded by what is recorded, and by how long the ranks ran.
        """
        if self.started_s is None or self.ended_s is None:
            return self.started_s, self.ended_s
        ran_s = self.ran_s or 0.0
        ago_s = min((node.outcome.ended_ago_s for node in self.nodes if node.outcome is not None), default=0.0)
        ended_s = min(self.ended_s, max(self.ended_s - ago_s, self.placed_s + ran_s))
        return min(self.started_s, max(self.placed_s, ended_s - ran_s)), ended_s


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast, made at `at_s`, of the remaining wait: quantiles in seconds, lowest first, as drawn."""

    at_s: float
    waits_s: tuple[float, ...]


CONTROL = -1  # stands for a node index in a warning that control itself gives
DAMAGED = "damaged checkpoint"  # topic of the warning that a checkpoint was passed over


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem that a person should know of although the job continues. One for each topic and node."""

    topic: str  # checkpoint, artifact, start, clock, ...
    text: str
    attempt: int  # 0: before the first one
    node_index: int  # or CONTROL
    since_s: float


@dataclass(frozen=True, slots=True)
class Job:
    """The unit of admission: a validated spec and its life-cycle state."""

    id: str
    seq: int  # order of submission over all jobs
    spec: JobSpec
    origin: Origin
    code: CodeCopy
    created_s: float
    state: State
    reason: str
    queued_s: float
    not_before_s: float = 0.0  # back-off: no new attempt before this
    stopping_for: StopFor | None = None
    attempt: Attempt | None = None  # the live one, else the last one
    promised: Allocation | None = None  # reserved for it while it waits
    keeps: bool = False  # the reservation is part of its own previous allocation: it shrank and continues there
    evictions: int = 0  # number of times it was preempted
    waited_s: float = 0.0  # in the queue before it was preempted, since it was last restarted for another reason
    shrinks: int = 0  # number of times it gave back nodes
    checkpoints: tuple[Checkpoint, ...] = ()  # kept, oldest first
    staged: tuple[Checkpoint, ...] = ()  # incomplete checkpoints
    deleting: tuple[str, ...] = ()  # checkpoints whose bytes are still to be deleted
    clearing: tuple[str, ...] = ()  # `StorageKind`s that were given up and whose bytes still exist
    removed: tuple[str, ...] = ()  # kinds that were given up: reads no longer look for them
    removed_by: str = ""  # who gave the last order
    restarts_program: int = 0
    restarts_infrastructure: int = 0
    progress_step: int | None = None  # the step at the last failure
    progress_checkpoint: str | None = None  # the newest checkpoint at the last failure
    fruitless_restarts: int = 0  # consecutive restarts without a newer checkpoint or a higher step: sets the back-off
    fruitless_kills: int = 0  # consecutive ones that `Verdict.fruitless` counts
    ran_s: float = 0.0  # sum over ended attempts
    started_s: float | None = None
    ended_s: float | None = None
    failure: Failure | None = None
    data: tuple[DataVersion, ...] = ()
    lineage: Lineage | None = None  # the job it was made from
    stop_grace_s: float | None = None  # grace of a cancel; None: the default
    not_kept: tuple[str, ...] = ()  # the latest checkpoints and artifacts that are not in the store, and why
    troubles: tuple[Trouble, ...] = ()  # the newest current ones, oldest first
    run_params: dict[str, str] = field(default_factory=dict)  # logged by the program; each keeps its first value
    run_tags: dict[str, str] = field(default_factory=dict)  # logged by the program; each keeps its last value
    run_prefixes: dict[str, str] = field(default_factory=dict)  # of names in its record: what they belong to (`names.RUN`, …)
    urgent: Urgency | None = None
    forecast: Forecast | None = None  # the first one, to calibrate others
    start: StartConditions | None = None
    blocked: bool = False  # held until its start conditions are met
    hold: str = ""  # the reason of a person who holds it
    member: str = ""  # owner, from the token of the submission; empty for jobs from before tokens had roles

    @property
    def owner(self) -> str:
        """The owner: charged for the job, subject to its limits, and allowed to change it."""
        return self.member or self.origin.user

    @property
    def span(self) -> tuple[float | None, float | None]:
        """When its first attempt that started did so, and when it ended: see `Attempt.span`."""
        if self.attempt is None:
            return self.started_s, self.ended_s
        began_s, ended_s = self.attempt.span
        of_first, of_last = self.attempt.started_s == self.started_s, self.attempt.ended_s == self.ended_s
        return began_s if of_first else self.started_s, ended_s if of_last else self.ended_s

    @property
    def own_counts(self) -> frozenset[str]:
        """The first parts of metric names whose steps are not the training's: those of roles and of further MLflow runs."""
        return frozenset((*self.spec.roles, *(name for name, kind in self.run_prefixes.items() if kind == RUN)))

    def counts_apart(self, metric: str) -> bool:
        """Whether the steps of a metric are those of a role or of a further MLflow run."""
        first, slash, _ = metric.partition("/")
        return bool(slash) and first in self.own_counts

    @property
    def counts_as_running(self) -> bool:
        """Whether it counts for `max_running` of other jobs: it is placed or runs, or was let into the queue to run."""
        let_in = self.state is State.QUEUED and self.start is not None and self.start.max_running > 0
        return self.state.live or let_in

    @property
    def good_checkpoints(self) -> tuple[Checkpoint, ...]:
        """Checkpoints that a restart may use, newest last."""
        return tuple(c for c in self.checkpoints if c.good)

    def progressed(self, attempt: Attempt) -> bool:
        """Whether the attempt got further than the last failure: a newer checkpoint or a higher step.

        If the newest one was found damaged since, the one before it is not newer.
        """
        steps = [n.outcome.last_step for n in attempt.nodes if n.outcome is not None and n.outcome.last_step is not None]
        ids = [c.id for c in self.checkpoints]
        known = ids.index(self.progress_checkpoint) + 1 if self.progress_checkpoint in ids else 0
        newer = any(c.good and c.id != self.progress_checkpoint for c in self.checkpoints[known:])
        return newer or max(steps, default=-1) > (-1 if self.progress_step is None else self.progress_step)

    @property
    def epoch_counts(self) -> tuple[int | None, int | None, bool | None]:
        """How its program numbers epochs: the newest `epoch_first`, `epoch_steps` and `epoch_anew` beside its checkpoints.

        Without them, those of the attempt before: a program may find its files and go on without a checkpoint of ours.
        """
        origin = self.lineage.checkpoint if self.lineage is not None else None
        kept = (*reversed(self.checkpoints), *((origin,) if origin is not None else ()))
        before = self.attempt.before if self.attempt is not None else None
        shown = [one for one in (*(one.progress for one in kept), before) if one is not None]
        first = next((one.epoch_first for one in shown if one.epoch_first is not None), None)
        steps = next((one.epoch_steps for one in shown if one.epoch_steps is not None), None)
        return first, steps, next((one.epoch_anew for one in shown if one.epoch_anew is not None), None)

    def resumable(self) -> tuple[str, ...]:
        """Checkpoints to restore in the next attempt, in order: its good ones, newest first, then the one it was forked from.

        Checkpoints that `DOUBTS_MAX` consecutive attempts could not read come after the others. Law: the result is not empty
        while the job has checkpoints. If none is good any more, the corrupt ones are returned, to be verified again.
        """
        newest = tuple(reversed(self.good_checkpoints or self.checkpoints))
        own = tuple(c.id for c in sorted(newest, key=lambda c: c.doubts >= DOUBTS_MAX))
        inherited = self.lineage.inherited if self.lineage is not None else None
        return own if inherited is None else (*own, inherited)
