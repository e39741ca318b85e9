"""What a person asks for: a job's spec, validated (by `trainmaster.spec`) and complete, defaults filled in."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

Scalar = str | int | float | bool | None
Counts = tuple[tuple[str, float], ...]  # how much of each name, by name; never of nothing


class Mode(StrEnum):
    """Whether the primary metric is better when smaller or larger."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """One of several ways in which a job would take its GPUs, and the ranks that it would run on them; per node."""

    gpu_kind: str
    gpus: int
    gpu_share: float = 0.0
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Resources:
    """What one attempt holds, per node. `ranks` is per node too. Hashable: the scheduler looks requests up by it."""

    nodes: int = 1
    gpus: int = 0
    gpu_kind: str | None = None
    cpus: float = 1.0
    memory_bytes: int | None = None  # None: no limit, and none is counted
    ranks: int = 1
    # The rarer fields are left out of the hash, of which the scheduler takes one for each waiting job.
    disk_bytes: int = field(default=0, hash=False)
    network_bps: float = field(default=0.0, hash=False)  # bits per second
    accelerators: Counts = field(default=(), hash=False)  # other than GPUs, by kind
    custom: Counts = field(default=(), hash=False)  # whatever an administrator counts: licenses
    gpu_share: float = field(default=0.0, hash=False)  # of a single GPU, which others may have parts of too; then `gpus` is 0
    choices: tuple[GpuChoice, ...] = field(default=(), hash=False)  # any of these; the fields above are as in the first
    nodes_max: int = field(default=0, hash=False)  # it takes so many while nobody waits for them; 0: no more than `nodes`
    ranks_given: bool = field(default=True, hash=False)  # `ranks` is in the spec; of earlier logs nobody knows: True

    def chosen(self, index: int) -> "Resources":
        """What an attempt holds that was given the choice of that number; without any, the same."""
        if not self.choices:
            return self
        one = self.choices[index]
        gpus, share = one.gpus, one.gpu_share
        return replace(self, gpus=gpus, gpu_kind=one.gpu_kind, gpu_share=share, ranks=one.ranks, choices=())

    @property
    def ranks_follow(self) -> bool:
        """Whether it has one rank for each GPU, which then need not be said."""
        return all(one.ranks == (one.gpus or 1) for one in self.choices or (self,))

    @property
    def distributed(self) -> bool:
        """Whether it asks for a gang: `ranks` given, be it 1, or more than one rank or node in any of its ways."""
        several = any(one.ranks > 1 for one in self.choices or (self,))
        return self.ranks_given or several or max(self.nodes, self.nodes_max) > 1

    @property
    def devices(self) -> int:
        """GPUs that it has all or a part of."""
        return self.gpus + (self.gpu_share > 0)

    @property
    def counted(self) -> Counts:
        """What is counted besides GPUs, CPUs and memory, under the names that nodes have it by."""
        if not (self.custom or self.accelerators or self.disk_bytes or self.network_bps):
            return ()
        return counts(
            {
                "disk_bytes": self.disk_bytes,
                "network_bps": self.network_bps,
                **{f"accelerators.{kind}": number for kind, number in self.accelerators},
                **{f"custom.{name}": amount for name, amount in self.custom},
            }
        )


def counts(amounts: Mapping[str, float]) -> Counts:
    """What a mapping says, as a value that can be compared and hashed."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


@dataclass(frozen=True, slots=True)
class Role:
    """A program that runs beside the ranks, on the first node of the gang, and ends with them. `resources` are of one node."""

    command: str | tuple[str, ...]
    resources: Resources = Resources()


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """How checkpoints are found without changing the program, and how many are kept."""

    path: str | None = None  # glob relative to the work directory; may hold `{step}`
    keep: int = 3
    resume_arguments: str | None = None  # may hold `{path}`; added to the command when there is a checkpoint
    interval_s: float | None = None  # how often `sdk.should_checkpoint()` says yes; None: only when somebody asks


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
    requirements: str | None = None  # file relative to the work directory, as pip reads it: installed once for each digest


@dataclass(frozen=True, slots=True)
class MetricsSpec:
    """How metrics are read from standard output, and which one matters."""

    pattern: str | None = None  # regular expression with named groups; `step` is the step
    primary: str | None = None
    mode: Mode = Mode.MIN


class Strategy(StrEnum):
    """How nodes are chosen among those that can."""

    PACK = "pack"  # the fullest
    SPREAD = "spread"  # the emptiest
    BALANCED = "balanced"  # of which GPUs, CPUs and memory get used most evenly
    FRAGMENTATION = "fragmentation"  # on which least is left over that the typical jobs cannot use


class Choose(StrEnum):
    """Which of several choices of GPUs is taken."""

    FINISH = "finish"  # with which it is expected to end first
    COST = "cost"  # with which it is expected to cost least


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """Where a job may run (`pool`, `within`), and where it would like to.

    Levels are labels of nodes (`zone`, `block`, `rack`), `host` and `node`.
    """

    pool: str | None = None  # None: in any
    strategy: Strategy | None = None  # None: the policy's own way
    within: str | None = None  # all nodes are in one domain of this level
    prefer: str | None = None  # likewise, where there is one
    prefer_s: float = 0.0  # so long it waits for one, or for the cheapest of its choices
    near: str | None = None  # "checkpoint", or a name of data
    group: str | None = None  # `with` in a file: jobs of this name, id or experiment
    choose: Choose = Choose.FINISH  # where `resources` leave a choice
    speed: Counts = ()  # of a GPU of each kind beside the others', for this job; a kind that is not named: as its pool says


START_LIMIT_S = 1800.0  # from an attempt's placing to its ranks' start, unless the spec says otherwise


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A complete spec. `command` as a string is a line for bash, as a tuple it is argv; it is () where `python` is given."""

    command: str | tuple[str, ...]
    name: str = "job"
    project: str = "default"
    experiment: str = "job"
    priority: int = 0
    workdir: str = "."
    resources: Resources = Resources()
    time_limit_s: float | None = None
    start_limit_s: float = START_LIMIT_S
    checkpoint: CheckpointSpec = CheckpointSpec()
    restarts: Restarts = Restarts()
    environment: Environment = Environment()
    params: dict[str, Scalar] = field(default_factory=dict)
    metrics: MetricsSpec = MetricsSpec()
    tags: dict[str, str] = field(default_factory=dict)
    artifacts: tuple[str, ...] = ()
    python: str | None = None  # `package.module:function`, called with `params`, in place of a command
    roles: dict[str, Role] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)  # name -> path (absolute, or relative to the work directory) or URL
    work: str = "training"  # its workload class (`class` in a file)
    placement: PlacementSpec = PlacementSpec()

    @property
    def line(self) -> str:
        """What runs, in one line for people."""
        if self.python is not None:
            return f"python: {self.python}"
        return self.command if isinstance(self.command, str) else shlex.join(self.command)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """What lay behind one entry of `data` when the job was submitted."""

    name: str
    uri: str  # an absolute path, or a URL as it was written
    digest: str | None = None  # SHA-256; None where nobody looked
    exact: bool = False  # of the bytes themselves, not of names, sizes and times alone
    files: int = 0
    bytes: int = 0


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
    git_remote: str | None = None  # URL of `origin`, without credentials
    git_diff: str | None = None  # SHA-256 of the patch from `git_commit` to the files as they were
    git_diff_bytes: int = 0  # of the whole patch; what is stored of it ends at a limit
    git_diff_cut: bool = False  # the stored patch is not the whole one


@dataclass(frozen=True, slots=True)
class Urgency:
    """Somebody said that a job cannot wait for its turn; shown to whoever waits for it instead."""

    by: str
    reason: str


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
