"""What happened, in the past tense: frozen values that the life-cycle table turns into the next state.

An event never holds a decision still to be made, a secret, or a clock reading other than the recorded `now_s` that
the event log keeps beside it. `EVENTS` is the closed set; the store writes the class name as the event's type.
"""

from dataclasses import dataclass, field

from trainmaster.model.checkpoints import Artifact, Part
from trainmaster.model.cluster import Cluster
from trainmaster.model.job import Outcome, StopFor, Verdict
from trainmaster.model.ledger import Rate
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import Allocation, Node, NodeState
from trainmaster.model.spec import CodeCopy, DataVersion, JobSpec, Origin, Urgency


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job was accepted."""

    seq: int
    spec: JobSpec
    origin: Origin
    code: CodeCopy
    created_s: float  # when the api accepted it
    held: str | None = None  # why it starts out held
    data: tuple[DataVersion, ...] = ()
    lineage: Lineage | None = None
    urgent: Urgency | None = None
    member: str = ""  # whose it is, by the token it was submitted with; empty in logs from before tokens had roles


@dataclass(frozen=True, slots=True)
class Held:
    """Someone asked that the job wait."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """Someone let a held job go on."""

    by: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Someone asked that the job end."""

    by: str
    reason: str = ""
    grace_s: float | None = None  # from TERM to KILL; None: the usual one, 0: killed at once


@dataclass(frozen=True, slots=True)
class Waited:
    """The scheduler looked and left the job waiting; written only when the reason changes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Somebody worked out, at `at_s`, how long the job would still wait: quantiles in seconds, as they were drawn."""

    at_s: float
    waits_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """The scheduler gave the job an allocation; `attempt` is the new fence."""

    attempt: int
    allocation: Allocation
    resume: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()  # what it is charged; of an attempt from before there was a ledger, nothing
    terms: dict[str, float] = field(default_factory=dict)  # what its place in the order was the sum of, where it was one


@dataclass(frozen=True, slots=True)
class Promised:
    """Others make way for a job that waits: what they give back, and what is free beside it, is kept for it until it starts."""

    allocation: Allocation
    victims: tuple[str, ...]  # jobs
    shrunk: tuple[str, ...] = ()  # those of them that give back nodes, and go on with fewer


@dataclass(frozen=True, slots=True)
class PromiseBroken:
    """What was promised will not come: a node of it is away. The job waits like all others."""

    reason: str


@dataclass(frozen=True, slots=True)
class RendezvousChosen:
    """Node 0's agent picked where the ranks meet."""

    attempt: int
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class PreparationBegan:
    """One agent has something to do that takes long before its ranks can run: an environment to build."""

    attempt: int
    node_index: int
    doing: str


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """One agent has its ranks running."""

    attempt: int
    node_index: int
    restored: str | None = None
    step: int | None = None  # of the checkpoint put back
    bad: tuple[str, ...] = ()  # checkpoints that failed verification on the way
    report: int = 0  # the agent's report number, so that its exit record does not tell it twice
    environment: str | None = None  # what its ranks run in, where that is known from an earlier job


@dataclass(frozen=True, slots=True)
class EnvironmentSeen:
    """One agent has found out what its ranks run in: packages, interpreter, machine. Only of what no job ran in before."""

    attempt: int
    node_index: int
    environment: str  # SHA-256 of the record (`wire.environment`)


@dataclass(frozen=True, slots=True)
class NodeLost:
    """One agent is gone without an exit record; what is left of its ranks is being ended."""

    attempt: int
    node_index: int
    evidence: str
    declared: bool = False  # a person says so: what the engine cannot see is taken for ended


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """One agent's part is over: nothing of it runs any more."""

    attempt: int
    node_index: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CheckpointStaged:
    """One node's part of a checkpoint is durable; once all parts are, the checkpoint is committed by this event."""

    attempt: int
    id: str
    step: int | None
    part: Part
    parts_expected: int = 1
    approximate: bool = False
    report: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointDeleted:
    """The bytes of a checkpoint that retention gave up are gone."""

    id: str


@dataclass(frozen=True, slots=True)
class CheckpointsGivenUp:
    """Someone asked for the room that older checkpoints take, of a job that is over."""

    by: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BytesGivenUp:
    """Someone, or the retention, asked for the room that bytes of a job take; its record stays."""

    by: str
    kinds: tuple[str, ...]  # `model.storage_kinds.StorageKind`


@dataclass(frozen=True, slots=True)
class BytesRemoved:
    """Bytes that were given up are gone."""

    kind: str
    bytes: int  # how many; 0 where the store does not say


@dataclass(frozen=True, slots=True)
class ArtifactKept:
    """A file was kept."""

    attempt: int
    node_index: int
    artifact: Artifact
    report: int = 0


@dataclass(frozen=True, slots=True)
class NotKept:
    """A checkpoint or an artifact is not in the store, though the program made it: refused there, or never brought so far."""

    attempt: int
    node_index: int
    what: str  # "checkpoint" or "artifact"
    name: str  # of a checkpoint its step where it has one, of an artifact its path
    why: str
    report: int = 0


@dataclass(frozen=True, slots=True)
class Warned:
    """An agent, or control, tells of something that a person would want to know; the job goes on.

    A later event of the same topic and node replaces the earlier one.
    """

    attempt: int  # 0: no attempt has begun
    node_index: int  # -1: control itself
    topic: str
    text: str  # empty: it no longer holds
    report: int = 0


@dataclass(frozen=True, slots=True)
class Noted:
    """A person wrote into the logbook, about a job (then it is the job's event), an experiment or a project."""

    by: str
    text: str  # Markdown
    at_s: float  # when the api accepted it
    project: str
    experiment: str | None = None  # None: of the project as a whole


@dataclass(frozen=True, slots=True)
class RunDataLogged:
    """What the program told of its run through a tracker's own calls: parameters and tags (None: the tag was removed)."""

    attempt: int
    node_index: int
    params: dict[str, str]
    tags: dict[str, str | None]
    report: int = 0


@dataclass(frozen=True, slots=True)
class CommandRun:
    """Someone ran a command beside the ranks (`tm exec`); its first words only."""

    attempt: int
    by: str
    command: str
    node_index: int
    rank: int | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class StopOrdered:
    """The control plane itself stops the attempt: time limit, eviction, nodes to be given back."""

    stop_for: StopFor
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """All agents of the attempt are over; recovery's verdict is part of the fact."""

    attempt: int
    verdict: Verdict
    ran_s: float | None = None  # how long its ranks ran, by its agents' clocks; None: until now, as far as anybody knows


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """An engine's inventory showed a node that is new or changed (not a job's event)."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeStateSet:
    """A person drained, resumed or declared lost a node, or its engine no longer has it (not a job's event)."""

    name: str
    state: NodeState
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClusterConfigured:
    """A person laid down the rules that hold from now on, the whole of them (not a job's event)."""

    cluster: Cluster
    by: str


@dataclass(frozen=True, slots=True)
class Planned:
    """The scheduler's plan changed something (not a job's event): replayable and explainable."""

    seen_seq: int  # last event the snapshot held
    placed: tuple[str, ...]  # attempt ids
    depth: int
    policy: str


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The machine's clock was set: dates from before move by `by_s`, whole seconds, so that no duration changes.

    Recorded once for the server, then for each job that is not over, and for those that ended at a time that is taken back.
    """

    by_s: float


JobEvent = (
    Submitted
    | Held
    | Released
    | CancelRequested
    | Waited
    | Promised
    | PromiseBroken
    | Foreseen
    | Placed
    | PreparationBegan
    | RendezvousChosen
    | NodeStarted
    | EnvironmentSeen
    | NodeLost
    | NodeEnded
    | CheckpointStaged
    | CheckpointDeleted
    | CheckpointsGivenUp
    | BytesGivenUp
    | BytesRemoved
    | ArtifactKept
    | NotKept
    | Warned
    | Noted
    | RunDataLogged
    | CommandRun
    | StopOrdered
    | AttemptEnded
    | ClockSet
)
ClusterEvent = NodeSeen | NodeStateSet | ClusterConfigured | Planned | ClockSet
Event = JobEvent | ClusterEvent
EVENTS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Submitted, Held, Released, CancelRequested, Waited, Promised, PromiseBroken, Placed, PreparationBegan,
        Foreseen, RendezvousChosen, NodeStarted,
        EnvironmentSeen, NodeLost, NodeEnded, CheckpointStaged, CheckpointDeleted, CheckpointsGivenUp, BytesGivenUp,
        BytesRemoved, ArtifactKept, NotKept,
        Warned, Noted, RunDataLogged, CommandRun, StopOrdered, AttemptEnded, NodeSeen, NodeStateSet, ClusterConfigured,
        Planned, ClockSet,
    )
}  # fmt: skip
