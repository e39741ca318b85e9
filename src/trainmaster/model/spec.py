"""What a person asks for: a job's spec, validated (by `trainmaster.spec`) and complete, defaults filled in."""

from dataclasses import dataclass, field
from enum import StrEnum

Scalar = str | int | float | bool | None


class Mode(StrEnum):
    """Whether the primary metric is better when smaller or larger."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one attempt holds, per node. `ranks` is per node too."""

    nodes: int = 1
    gpus: int = 0
    gpu_kind: str | None = None
    cpus: float = 1.0
    memory_bytes: int | None = None  # None: no limit, and none is counted
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """How checkpoints are found without changing the program, and how many are kept."""

    path: str | None = None  # glob relative to the work directory; may hold `{step}`
    keep: int = 3
    resume_arguments: str | None = None  # may hold `{path}`; added to the command when there is a checkpoint


@dataclass(frozen=True, slots=True)
class Restarts:
    """How many restarts each ledger pays for."""

    program: int = 3
    infrastructure: int = 20


@dataclass(frozen=True, slots=True)
class Environment:
    """What the ranks' environment adds to the one recorded at submit."""

    python: str | None = None
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricsSpec:
    """How metrics are read from standard output, and which one matters."""

    pattern: str | None = None  # regular expression with named groups; `step` is the step
    primary: str | None = None
    mode: Mode = Mode.MIN


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A complete spec. `command` as a string is a line for bash, as a tuple it is argv."""

    command: str | tuple[str, ...]
    name: str = "job"
    project: str = "default"
    experiment: str = "job"
    priority: int = 0
    workdir: str = "."
    resources: Resources = Resources()
    time_limit_s: float | None = None
    checkpoint: CheckpointSpec = CheckpointSpec()
    restarts: Restarts = Restarts()
    environment: Environment = Environment()
    params: dict[str, Scalar] = field(default_factory=dict)
    metrics: MetricsSpec = MetricsSpec()
    tags: dict[str, str] = field(default_factory=dict)
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where and by whom a job was submitted: recorded so that a run can be told and repeated."""

    user: str = ""
    host: str = ""
    directory: str = ""  # absolute path of the work directory at submit
    python: str = ""  # version of the submitting interpreter
    variables: dict[str, str] = field(default_factory=dict)  # PATH VIRTUAL_ENV CONDA_PREFIX PYTHONPATH LD_LIBRARY_PATH LANG TZ
    git_commit: str | None = None
    git_dirty: bool = False


@dataclass(frozen=True, slots=True)
class CodeCopy:
    """The content-addressed copy of the work directory: `digest` names a tree in the code store.

    With `in_place` there is no copy: the program runs in `Origin.directory` itself.
    """

    digest: str | None = None
    files: int = 0
    bytes: int = 0
    linked: int = 0
    in_place: bool = False
