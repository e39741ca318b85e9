"""The spec of a job: validated by `trainmaster.spec`, complete, with defaults filled in."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

Scalar = str | int | float | bool | None
Counts = tuple[tuple[str, float], ...]  # (name, amount), sorted by name; without zero amounts


class Mode(StrEnum):
    """Whether smaller or larger values of the primary metric are better."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """One of several alternative GPU requests of a job, with its ranks; per node."""

    gpu_kind: str
    gpus: int
    gpu_share: float = 0.0
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one attempt, per node; `ranks` is per node too. Hashable: the scheduler uses it as a key."""

    nodes: int = 1
    gpus: int = 0
    gpu_kind: str | None = None
    cpus: float = 1.0
    memory_bytes: int | None = None  # None: no limit, and no memory is counted
    ranks: int = 1
    # Rare fields are left out of the hash, which the scheduler computes for each waiting job.
    disk_bytes: int = field(default=0, hash=False)
    network_bps: float = field(default=0.0, hash=False)  # bits per second
    accelerators: Counts = field(default=(), hash=False)  # other than GPUs, by kind
    custom: Counts = field(default=(), hash=False)  # resources that an administrator defines, such as licenses
    gpu_share: float = field(default=0.0, hash=False)  # share of one GPU, which other jobs may share; then `gpus` is 0
    choices: tuple[GpuChoice, ...] = field(default=(), hash=False)  # alternatives; the fields above repeat the first
    nodes_max: int = field(default=0, hash=False)  # nodes to use while no other job waits for them; 0: no more than `nodes`
    ranks_given: bool = field(default=True, hash=False)  # the spec sets `ranks`; True in earlier logs, which did not record it

    def chosen(self, index: int) -> "Resources":
        """The resources with the given alternative applied; unchanged without alternatives."""
        if not self.choices:
            return self
        one = self.choices[index]
        gpus, share = one.gpus, one.gpu_share
        return replace(self, gpus=gpus, gpu_kind=one.gpu_kind, gpu_share=share, ranks=one.ranks, choices=())

    @property
    def ranks_follow(self) -> bool:
        """Whether there is one rank per GPU, the default."""
        return all(one.ranks == (one.gpus or 1) for one in self.choices or (self,))

    @property
    def distributed(self) -> bool:
        """Whether it is a gang: the spec sets `ranks` (even to 1), or it has more than one rank or node in an alternative."""
        several = any(one.ranks > 1 for one in self.choices or (self,))
        return self.ranks_given or several or max(self.nodes, self.nodes_max) > 1

    @property
    def devices(self) -> int:
        """Number of GPUs, with a shared one counted as one."""
        return self.gpus + (self.gpu_share > 0)

    @property
    def counted(self) -> Counts:
        """Resources other than GPUs, CPUs and memory, by the names that nodes use."""
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
    """A mapping of amounts as a value that can be compared and hashed."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


@dataclass(frozen=True, slots=True)
class Role:
    """A program beside the ranks, on the first node of the gang; it ends with them. `resources` are of one node."""

    command: str | tuple[str, ...]
    resources: Resources = Resources()


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """How checkpoints are found in an unchanged program, and how many are kept."""

    path: str | None = None  # glob relative to the work directory; may hold `{step}`
    keep: int = 3
    resume_arguments: str | None = None  # added to the command when there is a checkpoint; may contain `{path}` and `{step}`
    interval_s: float | None = None  # how often `sdk.should_checkpoint()` says yes; None: only on request


@dataclass(frozen=True, slots=True)
class Restarts:
    """Number of restarts in each budget."""

    program: int = 3
    infrastructure: int = 20


@dataclass(frozen=True, slots=True)
class Environment:
    """Changes to the environment that was recorded at submission."""

    python: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    requirements: str | None = None  # pip requirements file, relative to the work directory; installed once per digest


@dataclass(frozen=True, slots=True)
class MetricsSpec:
    """How metrics are read from standard output and from files, and which one is primary."""

    pattern: str | None = None  # regular expression with named groups; the group `step` is the step
    primary: str | None = None
    mode: Mode | None = None  # None: by the words of its name (`metric_modes`)
    automatic: bool = True  # also read lines that the pattern does not match
    files: tuple[str, ...] = ()  # globs of files that the program writes row by row


class Strategy(StrEnum):
    """How nodes are chosen among the feasible ones."""

    PACK = "pack"  # the fullest
    SPREAD = "spread"  # the emptiest
    BALANCED = "balanced"  # most even use of GPUs, CPUs and memory
    FRAGMENTATION = "fragmentation"  # least capacity left over that typical jobs cannot use


class Choose(StrEnum):
    """Which of several GPU alternatives is chosen."""

    FINISH = "finish"  # the earliest expected end
    COST = "cost"  # the lowest expected cost


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """Where a job may run (`pool`, `within`), and where it prefers to run.

    Levels are labels of nodes (`zone`, `block`, `rack`), `host` and `node`.
    """

    pool: str | None = None  # None: any
    strategy: Strategy | None = None  # None: the policy's default
    within: str | None = None  # all nodes must be in one domain of this level
    prefer: str | None = None  # all nodes should be in one domain of this level
    prefer_s: float = 0.0  # how long to wait for that, or for the cheapest alternative
    near: str | None = None  # "checkpoint", or a name in `data`
    group: str | None = None  # `with` in a file: jobs with this name, id or experiment
    choose: Choose = Choose.FINISH  # among the alternatives of `resources`
    speed: Counts = ()  # relative speed of a GPU of each kind for this job; kinds not named have their pool's speed


@dataclass(frozen=True, slots=True)
class NotifySpec:
    """Who is told when the job has ended (`model.options.notify_targets`); `on`: `end`, or only `failure`."""

    to: tuple[str, ...] = ()
    on: str = "end"


DEFAULT_PROJECT = "default"  # of a job that names none
START_LIMIT_S = 1800.0  # default time from an attempt's placement to the start of its ranks


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A complete spec. A string `command` is run by bash, a tuple is argv; it is () if `python` is given."""

    command: str | tuple[str, ...]
    name: str = "job"
    project: str = DEFAULT_PROJECT
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
    python: str | None = None  # `package.module:function`, called with `params` instead of a command
    roles: dict[str, Role] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)  # name -> path (absolute, or relative to the work directory) or URL
    work: str = "training"  # its workload class (`class` in a file)
    placement: PlacementSpec = PlacementSpec()
    index: int | None = None  # of a task of an array
    notify: NotifySpec = NotifySpec()
    max_running: int | None = None  # it starts while fewer jobs of its owner run

    @property
    def line(self) -> str:
        """What runs, in one line for display."""
        if self.python is not None:
            return f"python: {self.python}"
        return self.command if isinstance(self.command, str) else shlex.join(self.command)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The version of one entry of `data` at submission."""

    name: str
    uri: str  # an absolute path, or a URL as it was written
    digest: str | None = None  # SHA-256; None if it was not computed
    exact: bool = False  # the digest covers the bytes, not only names, sizes and times
    files: int = 0
    bytes: int = 0
    stamp: str = field(default="", compare=False)  # `wire.data.stamp`, strict if exact: shows later changes; "": unknown
    doubt: str = ""  # what was not looked at, so that it has no digest or none of the bytes; "": it is only too large
    listing: str | None = field(default=None, compare=False)  # `wire.data.listing`; None: an older version did not look


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a submission: user, host and environment, recorded so that the run can be reproduced."""

    user: str = ""
    host: str = ""
    directory: str = ""  # absolute path of the work directory at submit
    python: str = ""  # version of the submitting interpreter
    variables: dict[str, str] = field(default_factory=dict)  # PATH VIRTUAL_ENV CONDA_PREFIX PYTHONPATH LD_LIBRARY_PATH LANG TZ
    git_commit: str | None = None
    git_dirty: bool = False
    git_remote: str | None = None  # URL of `origin`, without credentials
    git_diff: str | None = None  # SHA-256 of the patch from `git_commit` to the files as they were
    git_diff_bytes: int = 0  # size of the whole patch; the stored part is limited
    git_diff_cut: bool = False  # the stored patch is incomplete
    umask: int | None = None  # of the submitting process; None: unknown, the server's own holds
    editable: dict[str, str] = field(default_factory=dict)  # editable installs whose source is not in the copy -> the source
    reads_params: bool | None = None  # whether a file of the code mentions where parameters are read from; None: not known


@dataclass(frozen=True, slots=True)
class Urgency:
    """A job was marked as urgent. The reason is shown to the owners of the jobs that it delays."""

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
