"""What someone asks of the control plane: the rows of the inbox, as values."""

from dataclasses import dataclass

from trainmaster.model.cluster import Cluster
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import NodeState
from trainmaster.model.spec import CodeCopy, DataVersion, JobSpec, Origin, Urgency


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Accept a job; its id was given out by the api in the same transaction as the inbox row."""

    job: str
    spec: JobSpec
    origin: Origin
    code: CodeCopy
    hold: str | None = None
    data: tuple[DataVersion, ...] = ()
    lineage: Lineage | None = None
    urgent: Urgency | None = None
    member: str = ""  # whose it is, by the token it was submitted with


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End a job, wherever it is."""

    job: str
    by: str
    reason: str = ""
    grace_s: float | None = None  # from TERM to KILL; None: the usual one


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Keep a waiting job from starting."""

    job: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """Let a held job go on."""

    job: str
    by: str


@dataclass(frozen=True, slots=True)
class SetNodeState:
    """Drain, resume or declare lost a node."""

    node: str
    state: NodeState
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ConfigureCluster:
    """Lay down the rules: pools, projects, classes. The whole of them, in place of those before."""

    cluster: Cluster
    by: str


@dataclass(frozen=True, slots=True)
class TakeNote:
    """Write into the logbook; `job` is empty for a note about an experiment or a project."""

    job: str
    by: str
    text: str
    project: str
    experiment: str | None = None


@dataclass(frozen=True, slots=True)
class GiveUpCheckpoints:
    """Make room: remove older checkpoints of a job that is over."""

    job: str
    by: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveUpBytes:
    """Make room: remove bytes of these kinds (`model.storage_kinds.StorageKind`)."""

    job: str
    by: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordCommand:
    """Note who ran what beside the ranks of an attempt."""

    job: str
    attempt: int
    by: str
    command: str
    node_index: int
    rank: int | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class RecordForecast:
    """Note how long a job in the queue is thought to wait, so that it can be held against what comes true."""

    job: str
    waits_s: tuple[float, ...]  # quantiles in seconds


@dataclass(frozen=True, slots=True)
class AgentReport:
    """One report of an agent, as `trainmaster.wire.messages` defines it; the key's attempt is the fence."""

    key: str
    report: dict[str, object]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that this version cannot read: of a newer one, or damaged. Never accepted, only drained and passed over."""

    type: str
    fault: str


Command = (
    SubmitJob
    | CancelJob
    | HoldJob
    | ReleaseJob
    | SetNodeState
    | ConfigureCluster
    | TakeNote
    | GiveUpCheckpoints
    | GiveUpBytes
    | RecordCommand
    | RecordForecast
    | AgentReport
)
COMMANDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        SubmitJob, CancelJob, HoldJob, ReleaseJob, SetNodeState, ConfigureCluster, TakeNote, GiveUpCheckpoints, GiveUpBytes,
        RecordCommand,
        RecordForecast,
        AgentReport,
    )
}  # fmt: skip


def ends_something(command: Command) -> bool:
    """Whether a command ends a job or gives room back, or tells of an end: it is taken even where the disk is full."""
    if isinstance(command, AgentReport):
        return command.report.get("kind") == "ended"
    return isinstance(command, CancelJob | HoldJob | GiveUpCheckpoints | GiveUpBytes | SetNodeState)
