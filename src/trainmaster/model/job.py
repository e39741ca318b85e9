"""A job and its attempts: the life-cycle state and everything that decides about it."""

from dataclasses import dataclass, field
from enum import StrEnum

from trainmaster.model.checkpoints import Checkpoint
from trainmaster.model.ids import AgentKey
from trainmaster.model.ledger import Rate
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import Allocation
from trainmaster.model.spec import CodeCopy, DataVersion, JobSpec, Origin, Urgency

DOUBTS_MAX = 3  # attempts that could not read a checkpoint before an older one goes first


class State(StrEnum):
    """The life cycle's words; the command line, REST and the pages use nothing else."""

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
    """What `stopping` is for; a later one may outrank an earlier one (cancel outranks all)."""

    CANCEL = "cancel"
    LIMIT = "limit"
    EVICT = "evict"
    SHRINK = "shrink"  # what it has beyond its least is given back: it goes on at once with that
    START = "start"  # it took longer to start than it may
    FAILURE = "failure"  # one member of the gang ended badly: the others are stopped, then recovery judges


class Cause(StrEnum):
    """Why an attempt ended other than well."""

    PROGRAM = "program"  # its own failing exit
    CRASH = "crash"  # SEGV, ABRT, BUS, ILL, FPE: the program's own doing
    KILLED = "killed"  # a signal it did not get from us
    OUT_OF_MEMORY = "out_of_memory"
    AGENT_LOST = "agent_lost"
    NODE_LOST = "node_lost"
    LAUNCH = "launch"  # the program or its spec cannot be started
    MACHINE = "machine"  # the machine, its disk, the store or the network could not start it
    START_LIMIT = "start_limit"  # its ranks did not run in time
    RENDEZVOUS = "rendezvous"  # the rendezvous port was taken before the first step
    TIME_LIMIT = "time_limit"
    EVICTED = "evicted"
    SHRUNK = "shrunk"  # it gave back nodes, and goes on with fewer
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How one rank ended. Exactly one of `exit_code` and `signal` is set, unless the rank never started."""

    rank: int
    exit_code: int | None = None
    signal: int | None = None
    stopped_by_us: bool = False  # we had signalled it before it ended
    ended_after_s: float = 0.0  # since the agent's start, on that node's monotonic clock
    last_lines: tuple[str, ...] = ()
    error: str | None = None  # message of the torch error file, if it wrote one
    peak_memory_bytes: int = 0
    cpu_s: float = 0.0
    role: str | None = None  # the name of a role, whose `rank` is -1

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"rank {self.rank}" if self.role is None else f"role {self.role}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one agent's part of an attempt ended, from its `exit.json` or from proof that it is gone (`lost`)."""

    ranks: tuple[RankEnd, ...] = ()
    lost: bool = False  # no exit record: agent or node are gone
    launch_error: str | None = None  # the program or the spec cannot be started; what to do is in the text
    machine_error: str | None = None  # this machine, its disk, the store or the network could not start or restore it
    over_memory: bool = False
    memory_limit_bytes: int | None = None
    peak_memory_bytes: int = 0
    port_in_use: bool = False  # "address in use" before the first step
    last_step: int | None = None
    first_step: int | None = None  # of this attempt, to see a program that does not load what it got back
    ran_s: float = 0.0
    roles: tuple[RankEnd, ...] = ()  # what ran beside the ranks
    launch_lines: tuple[str, ...] = ()  # what a program said that should have prepared the start
    killed_for_memory: bool = False  # the kernel killed in its cgroup for want of memory, its own limit or not
    failed_ago_s: float = 0.0  # how long before this was recorded its first rank failed, on that node's monotonic clock
    declared_lost: str | None = None  # who said that its node is lost; then nothing else is known of it
    bad: tuple[str, ...] = ()  # checkpoints whose digest differed when they were to be put back
    doubted: tuple[str, ...] = ()  # checkpoints that could not be read then

    @property
    def clean(self) -> bool:
        """Whether every rank exited 0, and every role too unless we ended it."""
        well = all(r.exit_code == 0 for r in self.ranks) and all(r.exit_code == 0 or r.stopped_by_us for r in self.roles)
        return well and not self.lost and self.launch_error is None and self.machine_error is None


@dataclass(frozen=True, slots=True)
class Failure:
    """What is told of an attempt that did not end well: a value, never an exception."""

    cause: Cause
    message: str
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()


class Action(StrEnum):
    """What recovery says of an ended attempt."""

    FINISH = "finish"
    RESTART = "restart"
    REQUEUE = "requeue"
    STOP = "stop"


class RestartBudget(StrEnum):
    """Who pays for a restart."""

    NONE = "none"
    PROGRAM = "program"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Recovery's decision, recorded in the event and never made again on replay."""

    action: Action
    state: State  # the job's next state
    reason: str
    delay_s: float = 0.0
    ledger: RestartBudget = RestartBudget.NONE
    failure: Failure | None = None
    fruitless: bool = False  # a kill that left the job where it was: so many in a row are not restarted


class NodePhase(StrEnum):
    """Where one agent of an attempt is."""

    LAUNCHING = "launching"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One agent of an attempt."""

    phase: NodePhase = NodePhase.LAUNCHING
    lost: bool = False  # the agent is gone; its ranks may not be yet
    reports: int = 0  # number of its highest report that became an event
    restored: str | None = None  # id of the checkpoint that it put back
    outcome: Outcome | None = None
    environment: str | None = None  # SHA-256 of what its ranks ran in (`wire.environment`); None: not known yet
    declared_lost: str | None = None  # a person's word that its node is lost: it holds whatever is said of the node later
    ended_s: float | None = None  # when its end came on record: orders the ends of a gang, whose clocks do not compare


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a job on one allocation. `number` is the fence."""

    number: int
    allocation: Allocation
    placed_s: float
    nodes: tuple[NodeRun, ...]
    resume: tuple[str, ...] = ()  # ids of the checkpoints to try, best first
    started_s: float | None = None
    stopping_s: float | None = None
    ended_s: float | None = None
    ran_s: float | None = None  # as its `AttemptEnded` says; earlier versions did not, and their logs give what they gave
    master_address: str | None = None
    master_port: int | None = None
    restored: str | None = None  # id of the checkpoint that was put back
    resumed_from_step: int | None = None
    resumed_about: bool = False  # that step is the one printed last before its files were written
    failure: Failure | None = None
    verdict: Verdict | None = None
    rates: tuple[Rate, ...] = ()  # what it is charged

    def key(self, job_id: str, node_index: int) -> AgentKey:
        """The key of this attempt's agent on one node of its gang."""
        return AgentKey(job_id, self.number, node_index)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What was drawn, at `at_s`, of how long it would still wait: quantiles in seconds, lowest first, as they were drawn."""

    at_s: float
    waits_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that a person would want to know about a job although it goes on. One for each topic and node."""

    topic: str  # checkpoint, artifact, start, clock, ...
    text: str
    attempt: int  # 0: none had begun
    node_index: int  # -1: told by control
    since_s: float


@dataclass(frozen=True, slots=True)
class Job:
    """The unit of admission: a validated spec and its life-cycle state."""

    id: str
    seq: int  # order of submission, total
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
    promised: Allocation | None = None  # what others give back for it while it waits
    keeps: bool = False  # what it is promised it has kept itself: it goes on there with fewer nodes
    evictions: int = 0  # so many times it has made way for others
    shrinks: int = 0  # so many times it has given back nodes
    checkpoints: tuple[Checkpoint, ...] = ()  # kept, oldest first
    staged: tuple[Checkpoint, ...] = ()  # parts of a checkpoint that is not whole yet
    deleting: tuple[str, ...] = ()  # checkpoints whose bytes are still to be removed
    clearing: tuple[str, ...] = ()  # `StorageKind`s that were given up and whose bytes still exist
    removed: tuple[str, ...] = ()  # kinds that were given up: nothing of them is looked for any more
    removed_by: str = ""  # who gave up the last of them
    restarts_program: int = 0
    restarts_infrastructure: int = 0
    progress_step: int | None = None  # where the last program failure happened
    progress_checkpoint: str | None = None  # the newest checkpoint then
    fruitless_restarts: int = 0  # restarts in a row without a newer checkpoint or a higher step: sets the back-off
    fruitless_kills: int = 0  # of these, those in a row that `Verdict.fruitless` counts
    ran_s: float = 0.0  # over ended attempts
    started_s: float | None = None
    ended_s: float | None = None
    failure: Failure | None = None
    data: tuple[DataVersion, ...] = ()
    lineage: Lineage | None = None  # the job it was made from
    stop_grace_s: float | None = None  # that a cancel allows its ranks; None: the usual one
    not_kept: tuple[str, ...] = ()  # the last checkpoints and artifacts that are not in the store, and why
    troubles: tuple[Trouble, ...] = ()  # the newest few that nothing has taken back, oldest first
    run_params: dict[str, str] = field(default_factory=dict)  # logged by the program; the first value of each stays
    run_tags: dict[str, str] = field(default_factory=dict)  # likewise; the last value of each stays
    urgent: Urgency | None = None
    forecast: Forecast | None = None  # the first one, for the correction of others
    member: str = ""  # by the token that submitted it; empty of jobs from before tokens had roles

    @property
    def owner(self) -> str:
        """The member whose job it is: who is charged for it, whose limits hold for it, and who may change it."""
        return self.member or self.origin.user

    @property
    def good_checkpoints(self) -> tuple[Checkpoint, ...]:
        """Those a restart may use, newest last."""
        return tuple(c for c in self.checkpoints if c.good)

    def resumable(self) -> tuple[str, ...]:
        """What a next attempt is to put back, best first: its good checkpoints, newest first, then the one it was forked from.

        Those that `DOUBTS_MAX` attempts in a row could not read come behind the others. Law: while checkpoints are on
        record this is never empty. Where none is good any more, the corrupt ones are handed out to be verified again.
        """
        newest = tuple(reversed(self.good_checkpoints or self.checkpoints))
        own = tuple(c.id for c in sorted(newest, key=lambda c: c.doubts >= DOUBTS_MAX))
        inherited = self.lineage.inherited if self.lineage is not None else None
        return own if inherited is None else (*own, inherited)
