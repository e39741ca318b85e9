"""Events: what happened, as frozen values in the past tense. The life-cycle table turns them into the next state.

An event never contains an open decision, a secret, or a clock reading other than the recorded `now_s`, which the event log
stores beside it. `EVENTS` is the closed set; the store uses the class name as the event's type.
"""

from dataclasses import dataclass, field
from typing import get_args

from trainmaster.model.checkpoints import Artifact, Part
from trainmaster.model.cluster_events import ClusterConfigured as ClusterConfigured
from trainmaster.model.cluster_events import NodeSeen as NodeSeen
from trainmaster.model.cluster_events import NodeStateSet as NodeStateSet
from trainmaster.model.cluster_events import Planned as Planned
from trainmaster.model.job import Outcome, StopFor, Verdict
from trainmaster.model.ledger import Rate
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import Allocation
from trainmaster.model.options.start_conditions import StartConditions
from trainmaster.model.progress import Progress
from trainmaster.model.spec import CodeCopy, DataVersion, JobSpec, Origin, Urgency


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job was accepted."""

    seq: int
    spec: JobSpec
    origin: Origin
    code: CodeCopy
    created_s: float  # when the api accepted it
    held: str | None = None  # why it is held from the start
    data: tuple[DataVersion, ...] = ()
    lineage: Lineage | None = None
    urgent: Urgency | None = None
    member: str = ""  # the job's owner, from the token of the submission; empty in logs from before tokens had roles
    start: StartConditions | None = None  # what it waits for before it joins the queue


@dataclass(frozen=True, slots=True)
class Held:
    """A person held the job."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """A person released a held job."""

    by: str


@dataclass(frozen=True, slots=True)
class Updated:
    """A person changed fields of the job's spec. None, or an empty mapping, left a field as it was."""

    by: str
    priority: int | None = None
    time_limit_s: float | None = None
    no_time_limit: bool = False  # the limit was removed
    work: str | None = None  # its workload class
    tags: dict[str, str | None] = field(default_factory=dict)  # None: the tag was removed


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A person asked to end the job."""

    by: str
    reason: str = ""
    grace_s: float | None = None  # from TERM to KILL; None: the default, 0: kill at once


@dataclass(frozen=True, slots=True)
class Waited:
    """The scheduler left the job waiting. Written only when the reason changes."""

    reason: str


@dataclass(frozen=True, slots=True)
class StartAllowed:
    """The start conditions of a held job are met."""

    reason: str


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The start conditions of a held job can never be met: `job` ended otherwise than they require."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A forecast, made at `at_s`, of how long the job would still wait: quantiles in seconds, as drawn."""

    at_s: float
    waits_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """The scheduler gave the job an allocation. `attempt` is the new fence."""

    attempt: int
    allocation: Allocation
    resume: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()  # what it is charged; empty for attempts from before there was a ledger
    terms: dict[str, float] = field(default_factory=dict)  # terms of its priority score, if the policy uses one


@dataclass(frozen=True, slots=True)
class Promised:
    """Nodes were reserved for a waiting job: free ones, and those that preemption victims give back."""

    allocation: Allocation
    victims: tuple[str, ...]  # jobs
    shrunk: tuple[str, ...] = ()  # victims that give back only some nodes and continue on the rest


@dataclass(frozen=True, slots=True)
class PromiseBroken:
    """The reservation is void: one of its nodes is unavailable. The job waits without a reservation again."""

    reason: str


@dataclass(frozen=True, slots=True)
class RendezvousChosen:
    """Node 0's agent chose the rendezvous address."""

    attempt: int
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class PreparationBegan:
    """One agent began a long preparation before its ranks can start, such as building an environment."""

    attempt: int
    node_index: int
    doing: str


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """One agent has its ranks running."""

    attempt: int
    node_index: int
    restored: str | None = None
    step: int | None = None  # of the restored checkpoint
    bad: tuple[str, ...] = ()  # checkpoints that failed verification before it
    report: int = 0  # the agent's report number; its exit record may repeat the report
    environment: str | None = None  # digest of the environment, if an earlier job recorded it
    approximate: bool = False  # that step is, as the agent knows of a checkpoint that is not in the store
    unread: bool = False  # not all of it was read from the store, because equal files were in place
    ago_s: float = 0.0  # for how long the ranks had run when it was recorded, if its agent could not tell it at once


@dataclass(frozen=True, slots=True)
class EnvironmentSeen:
    """One agent recorded its environment: packages, interpreter, machine. Only if no earlier job has the same one."""

    attempt: int
    node_index: int
    environment: str  # SHA-256 of the record (`wire.environment`)


@dataclass(frozen=True, slots=True)
class NodeLost:
    """One agent is gone without an exit record. What is left of its ranks is being ended."""

    attempt: int
    node_index: int
    evidence: str
    declared: bool = False  # by a person: agents that the engine cannot see count as ended


@dataclass(frozen=True, slots=True)
class NodeEnded:
    """One agent's part is over: none of its processes run any more."""

    attempt: int
    node_index: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CheckpointStaged:
    """One node's part of a checkpoint is durable. The event that adds the last part commits the checkpoint."""

    attempt: int
    id: str
    step: int | None
    part: Part
    parts_expected: int = 1
    approximate: bool = False
    report: int = 0
    at_least: int | None = None  # if the step is unknown: the step that its attempt was given
    after_s: float | None = None  # if the step is unknown: when it was saved, in seconds since the ranks started
    progress: Progress | None = None  # what the program had shown by then
    name: str = ""  # its path in the work directory; "" for one of the SDK


@dataclass(frozen=True, slots=True)
class CheckpointDeleted:
    """The bytes of a checkpoint that was given up are deleted."""

    id: str


@dataclass(frozen=True, slots=True)
class CheckpointsGivenUp:
    """A person asked to remove older checkpoints of a job that is over."""

    by: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckpointsDamaged:
    """A verification of the store found that their bytes do not have their digests."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BytesGivenUp:
    """A person or the retention asked to remove bytes of a job. Its record stays."""

    by: str
    kinds: tuple[str, ...]  # `model.storage_kinds.StorageKind`


@dataclass(frozen=True, slots=True)
class BytesRemoved:
    """Bytes that were given up are deleted."""

    kind: str
    bytes: int  # number removed; 0 if the store does not report it


@dataclass(frozen=True, slots=True)
class ArtifactKept:
    """A file was stored as an artifact."""

    attempt: int
    node_index: int
    artifact: Artifact
    report: int = 0


@dataclass(frozen=True, slots=True)
class NotKept:
    """A checkpoint or an artifact is not in the store although the program wrote it: rejected, or not uploaded."""

    attempt: int
    node_index: int
    what: str  # "checkpoint" or "artifact"
    name: str  # the step of a checkpoint, if known; the path of an artifact
    why: str
    report: int = 0


@dataclass(frozen=True, slots=True)
class Warned:
    """An agent or control reports a problem that a person should know of; the job continues.

    A later event of the same topic and node replaces the earlier one. One with `data` and no text clears nothing.
    """

    attempt: int  # 0: before the first attempt
    node_index: int  # -1: control
    topic: str
    text: str  # empty: the problem is gone
    report: int = 0
    data: dict[str, str] = field(default_factory=dict)  # as `Attempt.data_seen`


@dataclass(frozen=True, slots=True)
class Noted:
    """A person wrote a logbook note about a job (then it is the job's event), an experiment or a project."""

    by: str
    text: str  # Markdown
    at_s: float  # when the api accepted it
    project: str
    experiment: str | None = None  # None: about the project


@dataclass(frozen=True, slots=True)
class RunDataLogged:
    """The program logged parameters and tags through a tracker's API (None: the tag was removed)."""

    attempt: int
    node_index: int
    params: dict[str, str]
    tags: dict[str, str | None]
    report: int = 0
    prefixes: dict[str, str] = field(default_factory=dict)  # see `Job.run_prefixes`


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """What the program of a restarted attempt has shown so far. A later event replaces the earlier one."""

    attempt: int
    node_index: int
    progress: Progress
    report: int = 0


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A person ran a command beside the ranks (`tm exec`). Only its first words are recorded."""

    attempt: int
    by: str
    command: str
    node_index: int
    rank: int | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class StopOrdered:
    """The control plane stops the attempt: time limit, eviction, or shrinking."""

    stop_for: StopFor
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """All agents of the attempt have ended. The verdict is recorded here and never recomputed."""

    attempt: int
    verdict: Verdict
    ran_s: float | None = None  # how long its ranks ran, by its agents' clocks; None: until now, as far as is known


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The machine's clock was set. Earlier dates move by `by_s`, whole seconds, so that no duration changes.

    Recorded once for the server, then for each job that is not over or that ended in a repeated interval of time.
    """

    by_s: float


JobEvent = (
    Submitted
    | Held
    | Released
    | Updated
    | StartAllowed
    | StartRefused
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
    | CheckpointsDamaged
    | BytesGivenUp
    | BytesRemoved
    | ArtifactKept
    | NotKept
    | Warned
    | Noted
    | RunDataLogged
    | ProgressSeen
    | CommandRun
    | StopOrdered
    | AttemptEnded
    | ClockSet
)
ClusterEvent = NodeSeen | NodeStateSet | ClusterConfigured | Planned | ClockSet
Event = JobEvent | ClusterEvent
EVENTS: dict[str, type] = {cls.__name__: cls for cls in get_args(Event)}
