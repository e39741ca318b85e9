"""The fields of a spec file as pydantic models: they parse text into values and give the JSON Schema.

The models hold what the file says. `document` fills in defaults and makes the `JobSpec` that all other code uses.
`RESERVED` lists names that are not supported yet.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainmaster.model.spec import DEFAULT_PROJECT
from trainmaster.spec.fields import values
from trainmaster.spec.fields.field_types import (
    ITEMS_MAX,
    Amount,
    Bandwidth,
    CheckpointPath,
    ChooseWord,
    Command,
    Count,
    CountedName,
    Cpus,
    DataName,
    DataUri,
    DefaultName,
    Duration,
    Function,
    Glob,
    Index,
    Interpreter,
    Interval,
    Keep,
    Kind,
    LabelName,
    MaxRunning,
    MetricName,
    ModeWord,
    Name,
    Nodes,
    NodesOrNone,
    NotifyOn,
    NotifyTarget,
    Param,
    Pattern,
    Priority,
    Ranks,
    Requirements,
    RestartCount,
    ResumeArguments,
    RoleName,
    Size,
    Speed,
    StrategyWord,
    Tag,
    Truth,
    VariableName,
    VariableValue,
    Workdir,
)
from trainmaster.spec.fields.gpu_fields import Choices, Gpus

RESERVED: dict[str, tuple[str, str]] = {  # field -> what it will be, what to do instead
    "budget": ("what the job may cost", "bound the job with 'time_limit'"),
    "stages": ("smoke and canary runs with their gates", "submit a short job first, with fewer steps and its own 'time_limit'"),
    "environment.image": (
        "a container image",
        "name an interpreter with 'environment.python', or packages with 'environment.requirements'",
    ),
    "environment.secrets": (
        "secrets by name",
        "keep the secret in a file that only the program's user can read; never write its value into a spec",
    ),
}


def _inside(key: str, kinds: tuple[type, ...]) -> Callable[[object], object]:
    """A section's short form: a bare value is short for the section with that one field."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, kinds) and not isinstance(value, bool) else value

    return expand


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class RoleResourcesFields(_Section):
    """Resources of one role, on the first node of the gang, in addition to the ranks' resources."""

    gpus: Gpus = Field(
        default_factory=lambda: (0, None),
        description="GPUs per node: a number, or a kind and a number; below 1 a fraction of one GPU.",
        examples=[2, "h100:8", 0.25],
    )
    cpus: Cpus = Field(
        default=1.0, description="CPU cores per node; numeric libraries start as many threads.", examples=[16, 0.5]
    )
    memory: Size = Field(default=None, description="Memory limit per node; default: none.", examples=["64GiB"])
    disk: Size = Field(default=None, description="Scratch space per node, counted.", examples=["200GiB"])
    network: Bandwidth = Field(default=None, description="Network bandwidth per node, counted.", examples=["100Gbps"])
    accelerators: dict[Kind, Count] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Accelerators per node other than GPUs, by kind.",
        examples=[{"tpu-v5e": 4}],
    )
    custom: dict[CountedName, Amount] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Resources that your administrator defines, per node, by name.",
        examples=[{"license": 1}],
    )


class ResourcesFields(RoleResourcesFields):
    """Resources of one attempt. All but `nodes` are per node."""

    gpus: Choices = Field(  # type: ignore[assignment]
        default=((0, None),),
        description="GPUs per node: a number, or a kind and a number; below 1 a fraction of one GPU, which all ranks share. "
        "A list of kinds and numbers means any one of them.",
        examples=[2, "h100:8", 0.25, ["h100:4", "a100:8"]],
    )
    nodes: Nodes = Field(default=1, description="Number of nodes.", examples=[2])
    ranks: Ranks = Field(
        default=None,
        description="Training processes per node; default: its GPUs, else 1. If it is given (even as 1), or with several "
        "nodes or GPUs, the processes get torchrun's variables (`RANK`, `WORLD_SIZE`).",
        examples=[8],
    )


class RoleFields(_Section):
    """A program that runs beside the ranks, on the first node, and ends with them. A bare text is `command`."""

    command: Command = Field(description="A line for bash, or a list of arguments.", examples=["python eval.py --watch"])
    resources: RoleResourcesFields = Field(
        default_factory=RoleResourcesFields.model_construct, description="Its resources, in addition to the ranks'."
    )


class CheckpointFields(_Section):
    """How to find checkpoints without changing the program. A bare path is `path`."""

    path: CheckpointPath = Field(
        default=None,
        description="Glob relative to the work directory; may contain {step}.",
        examples=["out/ckpt*.pt", "out/step-{step}"],
    )
    interval: Interval = Field(
        default=None,
        description="How often sdk.should_checkpoint() returns true; default: only on request.",
        examples=["10m", 90],
    )
    keep: Keep = Field(default=3, description="How many checkpoints to keep.", examples=[3])
    resume_arguments: ResumeArguments = Field(
        default=None,
        description="Added to the command if there is a checkpoint, with its {path}, {directory} or {step}.",
        examples=["--resume {path}"],
    )


class PlacementFields(_Section):
    """Where the job may run, and preferences. Levels: zone, block, rack or another node label; host, node."""

    pool: DefaultName = Field(default=None, description="The pool to take nodes from; default: any.", examples=["a100"])
    strategy: StrategyWord = Field(
        default=None,
        description="How to choose nodes: the fullest (pack), the emptiest (spread), those whose GPUs, CPUs and memory are "
        "then used most evenly (balanced), or least fragmentation (fragmentation); default: as the policy does.",
        examples=["spread"],
    )
    within: DefaultName = Field(
        default=None, description="A level: all nodes must be in one domain of it.", examples=["rack"]
    )
    prefer: DefaultName = Field(
        default=None, description="A level: all nodes are in one domain of it if possible.", examples=["rack"]
    )
    prefer_for: Duration = Field(
        default=None,
        description="How long to wait in the queue for that, or for the cheapest choice; default: not at all.",
        examples=["30m"],
    )
    choose: ChooseWord = Field(
        default=None,
        description="Between several choices of GPUs: the one expected to end first (finish), or to cost least (cost); "
        "default: finish.",
        examples=["cost"],
    )
    speed: dict[Kind, Speed] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="How fast this job trains on one GPU of each kind, relative to the others; default: as in their pools.",
        examples=[{"h100": 2.1, "a100": 1}],
    )
    near: DefaultName = Field(
        default=None,
        description="Prefer nodes that have this data (by their label `data`, or by jobs there with the same value); "
        "checkpoint: nodes of its previous attempt.",
        examples=["imagenet", "checkpoint"],
    )
    group: DefaultName = Field(
        default=None,
        alias="with",
        description="Prefer nodes close to live jobs of this id, experiment or group.",
        examples=["digits"],
    )


class ElasticFields(_Section):
    """How many nodes the job can use. Default: exactly `resources.nodes`."""

    nodes_min: NodesOrNone = Field(
        default=None, description="Fewest nodes to start with; default: `resources.nodes`.", examples=[2]
    )
    nodes_max: NodesOrNone = Field(
        default=None, description="Most nodes: taken at its start if no other job waits for them.", examples=[8]
    )


class RestartsFields(_Section):
    """How many restarts are allowed. A bare number is `program`."""

    program: RestartCount = Field(default=3, description="After failures of the program.", examples=[3])
    infrastructure: RestartCount = Field(
        default=20,
        description="After failures of nodes and agents. Six kills in a row without progress end the job in any case.",
        examples=[20],
    )


class EnvironmentFields(_Section):
    """Changes to the environment that was recorded at submit."""

    python: Interpreter = Field(
        default=None, description="Interpreter to use instead of the recorded one.", examples=[".venv/bin/python"]
    )
    requirements: Requirements = Field(
        default=None,
        description="Requirements file in the work directory, installed once into an environment for it.",
        examples=["requirements.lock"],
    )
    variables: dict[VariableName, VariableValue] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Variables. A list of names takes the values from the submitting shell.",
        examples=[{"OMP_NUM_THREADS": "4"}, ["HF_TOKEN"]],
    )


class MetricsFields(_Section):
    """How to read metrics from standard output and from files, and which one is primary."""

    pattern: Pattern = Field(
        default=None,
        description="Regular expression (RE2: no look-arounds). Each named group is a metric; `step` is the step.",
        examples=[r"loss (?P<loss>[\d.]+)"],
    )
    primary: MetricName = Field(default=None, description="The primary metric.", examples=["loss"])
    mode: ModeWord | None = Field(
        default=None, description="Whether smaller or larger is better; default: by the words of its name (loss, accuracy)."
    )
    automatic: Truth = Field(True, description="Whether lines that the pattern does not match are read, too.", examples=[False])
    files: list[Glob] = Field(
        default_factory=list, max_length=ITEMS_MAX, examples=[["lightning_logs/*/metrics.csv"]],
        description="Files that the program writes row by row (CSV, or lines of JSON), as globs.",
    )  # fmt: skip


class NotifyFields(_Section):
    """Who is told when the job has ended. A bare text or list is `to`."""

    to: list[NotifyTarget] = Field(
        default_factory=list,
        max_length=ITEMS_MAX,
        description="Webhooks, e-mail addresses, or commands that the server runs (`run:`).",
        examples=[["https://chat.example.com/hook", "ada@example.com", "run:notify-send done"]],
    )
    on: NotifyOn = Field(default="end", description="Tell of every end, or only of a failure.", examples=["failure"])


def _to(value: object) -> object:
    return {"to": [value] if isinstance(value, str) else value} if isinstance(value, str | list) else value


def _absent(section: type[_Section]) -> Callable[[], Any]:
    """The default of a section, made only once: it is immutable, and making it takes half of the validation time."""
    value = section.model_construct()
    return lambda: value


class JobFields(_Section):
    """A training job. Every field is optional, except `command` or `python`."""

    name: DefaultName = Field(default=None, description="Default: the script's name.", examples=["digits-ddp"])
    project: Name = Field(default=DEFAULT_PROJECT, description="The project of the job.", examples=["vision"])
    experiment: DefaultName = Field(default=None, description="A collection of jobs; default: the name.", examples=["digits"])
    work: Name = Field(
        default="training",
        alias="class",
        description="Workload class: production, interactive, evaluation, training, trial, or one of your administrator.",
        examples=["interactive"],
    )
    priority: Priority = Field(default=0, description="Higher goes first within the class; -100 to 100.", examples=[10])
    command: Command = Field(
        default=(), description="A line for bash, or a list of arguments.", examples=["python train.py --epochs 20"]
    )
    python: Function = Field(
        default=None,
        description="A function to call with the params, instead of a command.",
        examples=["package.module:function"],
    )
    workdir: Workdir = Field(default=".", description="Directory to copy at submit.", examples=["."])
    resources: ResourcesFields = Field(default_factory=_absent(ResourcesFields), description="Requested resources.")
    elastic: Annotated[ElasticFields, BeforeValidator(lambda value: values.not_a_range(value, "a mapping"))] = Field(
        default_factory=_absent(ElasticFields), description="How many nodes the job can use."
    )
    placement: PlacementFields = Field(default_factory=_absent(PlacementFields), description="Where the job may run.")
    roles: dict[RoleName, Annotated[RoleFields, BeforeValidator(_inside("command", (str,)))]] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Programs that run beside the ranks.",
        examples=[{"evaluator": {"command": "python eval.py --watch", "resources": {"cpus": 4}}}],
    )
    time_limit: Duration = Field(
        default=None, description="Maximum run time, over all attempts.", examples=["12h", "1h30m", 90]
    )
    start_limit: Duration = Field(
        default=None,
        description="Maximum time for an attempt's start (code, environment, checkpoint) until its ranks run; default: 30 min.",
        examples=["2h"],
    )
    checkpoint: Annotated[CheckpointFields, BeforeValidator(_inside("path", (str,)))] = Field(
        default_factory=_absent(CheckpointFields),
        description="How to find checkpoints.",
        examples=["out/ckpt*.pt", {"path": "out/ckpt*.pt", "keep": 3}],
    )
    restarts: Annotated[RestartsFields, BeforeValidator(_inside("program", (int, float)))] = Field(
        default_factory=_absent(RestartsFields),
        description="How many restarts are allowed.",
        examples=[3, {"program": 3, "infrastructure": 20}],
    )
    environment: EnvironmentFields = Field(
        default_factory=EnvironmentFields.model_construct, description="Interpreter, packages and variables."
    )
    data: dict[DataName, DataUri] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Paths or URLs, passed as TRAINMASTER_DATA_NAME; their content is fingerprinted at submit.",
        examples=[{"train": "data/train.csv"}],
    )
    params: dict[LabelName, Param] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Recorded, and passed as TRAINMASTER_PARAMS; {lr} in the command is the value of lr.",
        examples=[{"lr": 3e-4}],
    )
    notify: Annotated[NotifyFields, BeforeValidator(_to)] = Field(
        default_factory=_absent(NotifyFields),
        description="Who is told when the job has ended.",
        examples=["ada@example.com", {"to": ["https://chat.example.com/hook"], "on": "failure"}],
    )
    index: Index = Field(
        default=None,
        description="The index of a task of an array, passed as TRAINMASTER_ARRAY_INDEX; {index} in the command.",
        examples=[3],
    )
    max_running: MaxRunning = Field(
        default=None,
        description="The job starts only while fewer jobs of its owner run.",
        examples=[3],
    )
    metrics: MetricsFields = Field(default_factory=_absent(MetricsFields), description="How to read metrics.")
    tags: dict[LabelName, Tag] = Field(
        default_factory=dict, max_length=ITEMS_MAX, description="Tags to find the job by.", examples=[{"owner": "team-a"}]
    )
    artifacts: list[Glob] = Field(
        default_factory=list,
        max_length=ITEMS_MAX,
        description="Files to store as artifacts, as globs.",
        examples=[["out/*.png", "out/model.safetensors"]],
    )


SECTIONS: dict[str, type[BaseModel]] = {  # `roles.*` stands for each role
    "roles.*": RoleFields,
    "roles.*.resources": RoleResourcesFields,
    "resources": ResourcesFields,
    "elastic": ElasticFields,
    "placement": PlacementFields,
    "checkpoint": CheckpointFields,
    "restarts": RestartsFields,
    "environment": EnvironmentFields,
    "metrics": MetricsFields,
    "notify": NotifyFields,
}
