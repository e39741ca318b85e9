"""Commands to the control plane: the rows of the inbox, as values."""

from dataclasses import dataclass, field
from typing import get_args

from trainmaster.model.cluster import Cluster
from trainmaster.model.lineage import Lineage
from trainmaster.model.nodes import NodeState
from trainmaster.model.options.start_conditions import StartConditions
from trainmaster.model.spec import CodeCopy, DataVersion, JobSpec, Origin, Urgency


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Accept a job. The api assigned its id in the transaction of the inbox row."""

    job: str
    spec: JobSpec
    origin: Origin
    code: CodeCopy
    hold: str | None = None
    data: tuple[DataVersion, ...] = ()
    lineage: Lineage | None = None
    urgent: Urgency | None = None
    member: str = ""  # the job's owner, from the token of the submission
    start: StartConditions | None = None


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End a job in any state."""

    job: str
    by: str
    reason: str = ""
    grace_s: float | None = None  # from TERM to KILL; None: the default


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Keep a waiting job from starting."""

    job: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """Let a held job be scheduled."""

    job: str
    by: str


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Change fields of a job's spec. None, or an empty mapping, leaves a field as it is."""

    job: str
    by: str
    priority: int | None = None
    time_limit_s: float | None = None
    no_time_limit: bool = False  # remove the limit
    work: str | None = None  # its workload class
    tags: dict[str, str | None] = field(default_factory=dict)  # None: remove the tag


@dataclass(frozen=True, slots=True)
class SetNodeState:
    """Drain a node, resume it, or declare it lost."""

    node: str
    state: NodeState
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ConfigureCluster:
    """Apply a complete cluster configuration: pools, projects, classes. It replaces the previous one."""

    cluster: Cluster
    by: str


@dataclass(frozen=True, slots=True)
class TakeNote:
    """Write a logbook note. `job` is empty for a note about an experiment or a project."""

    job: str
    by: str
    text: str
    project: str
    experiment: str | None = None


@dataclass(frozen=True, slots=True)
class GiveUpCheckpoints:
    """Free space: remove older checkpoints of a job that is over."""

    job: str
    by: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundDamaged:
    """A verification of the store found that checkpoints of a job have other bytes than their digests say."""

    job: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveUpBytes:
    """Free space: remove bytes of these kinds (`model.storage_kinds.StorageKind`)."""

    job: str
    by: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordCommand:
    """Record a command that a person ran beside the ranks of an attempt."""

    job: str
    attempt: int
    by: str
    command: str
    node_index: int
    rank: int | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class RecordForecast:
    """Record the forecast of a queued job's wait, to compare it with the actual wait."""

    job: str
    waits_s: tuple[float, ...]  # quantiles in seconds


@dataclass(frozen=True, slots=True)
class WarnJob:
    """Record a problem of a job that the api noticed; an empty text withdraws it."""

    job: str
    topic: str
    text: str


@dataclass(frozen=True, slots=True)
class AgentReport:
    """One report of an agent, as `trainmaster.wire.messages` defines it; the key's attempt is the fence."""

    key: str
    report: dict[str, object]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that this version cannot read: written by a newer version, or damaged. Never accepted; skipped when drained."""

    type: str
    fault: str


Command = (
    SubmitJob
    | CancelJob
    | HoldJob
    | ReleaseJob
    | UpdateJob
    | SetNodeState
    | ConfigureCluster
    | TakeNote
    | GiveUpCheckpoints
    | FoundDamaged
    | GiveUpBytes
    | RecordCommand
    | RecordForecast
    | WarnJob
    | AgentReport
)
COMMANDS: dict[str, type] = {cls.__name__: cls for cls in get_args(Command)}


def ends_something(command: Command) -> bool:
    """Whether a command ends a job or gives room back, or tells of an end: it is taken even where the disk is full."""
    if isinstance(command, AgentReport):
        return command.report.get("kind") == "ended"
    return isinstance(command, CancelJob | HoldJob | GiveUpCheckpoints | GiveUpBytes | SetNodeState)
