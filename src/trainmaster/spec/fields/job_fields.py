"""The fields of a spec file as pydantic models: the edge where text becomes values, and the source of the JSON Schema.

The models hold what a file *said*; `document` fills in defaults and makes the `JobSpec` that everything else knows.
`RESERVED` are the names this version knows and does not support yet.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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
    Interpreter,
    Interval,
    Keep,
    Kind,
    LabelName,
    MetricName,
    ModeWord,
    Name,
    Nodes,
    NodesOrNone,
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
    VariableName,
    VariableValue,
    Workdir,
)
from trainmaster.spec.fields.gpu_fields import Choices, Gpus

RESERVED: dict[str, tuple[str, str]] = {  # field: what it will be, what to do instead
    "budget": ("what the job may cost", "bound the job with 'time_limit'"),
    "stages": ("smoke and canary runs with their gates", "submit a short job first, with fewer steps and its own 'time_limit'"),
    "notify": ("what to be told of", "wait for the job where you need to know: tm wait JOB"),
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
    """A section's short form: a bare value stands for the section with that one field."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, kinds) and not isinstance(value, bool) else value

    return expand


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class RoleResourcesFields(_Section):
    """What one role holds, on the first node of the gang, besides what the ranks hold there."""

    gpus: Gpus = Field(
        default_factory=lambda: (0, None),
        description="GPUs per node: a number, or a kind and a number; below 1 a part of a single one.",
        examples=[2, "h100:8", 0.25],
    )
    cpus: Cpus = Field(default=1.0, description="CPU cores per node.", examples=[16, 0.5])
    memory: Size = Field(default=None, description="Memory limit per node; without it there is none.", examples=["64GiB"])
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
        description="What your administrator counts per node, by name.",
        examples=[{"license": 1}],
    )


class ResourcesFields(RoleResourcesFields):
    """What one attempt holds. All but `nodes` is per node."""

    gpus: Choices = Field(  # type: ignore[assignment]
        default=((0, None),),
        description="GPUs per node: a number, or a kind and a number; below 1 a part of a single one. "
        "A list of kinds and numbers: any one of these.",
        examples=[2, "h100:8", 0.25, ["h100:4", "a100:8"]],
    )
    nodes: Nodes = Field(default=1, description="Number of nodes.", examples=[2])
    ranks: Ranks = Field(
        default=None,
        description="Training processes per node; default: its GPUs, else 1. Where it is given, be it 1, or where there are "
        "several nodes or GPUs, they find torchrun's variables (`RANK`, `WORLD_SIZE`).",
        examples=[8],
    )


class RoleFields(_Section):
    """A program that runs beside the ranks, on the first node, and ends with them. A bare line stands for `command`."""

    command: Command = Field(description="A line for bash, or a list of arguments.", examples=["python eval.py --watch"])
    resources: RoleResourcesFields = Field(
        default_factory=RoleResourcesFields.model_construct, description="What it needs, besides what the ranks need."
    )


class CheckpointFields(_Section):
    """How checkpoints are found without changing the program. A bare path stands for `path`."""

    path: CheckpointPath = Field(
        default=None,
        description="Glob relative to the work directory; may hold {step}.",
        examples=["out/ckpt*.pt", "out/step-{step}"],
    )
    interval: Interval = Field(
        default=None, description="How often sdk.should_checkpoint() says yes; default: only when asked.", examples=["10m", 90]
    )
    keep: Keep = Field(default=3, description="How many checkpoints are kept.", examples=[3])
    resume_arguments: ResumeArguments = Field(
        default=None, description="Added to the command when there is a checkpoint.", examples=["--resume {path}"]
    )


class PlacementFields(_Section):
    """Where the job may run, and where it would like to. Levels: zone, block, rack or another label of nodes; host, node."""

    pool: DefaultName = Field(default=None, description="The pool that its nodes are in; default: any.", examples=["a100"])
    strategy: StrategyWord = Field(
        default=None,
        description="How nodes are chosen: the fullest (pack), the emptiest (spread), where GPUs, CPUs and memory get used "
        "most evenly (balanced), where least is left that typical jobs cannot use (fragmentation); default: the policy's way.",
        examples=["spread"],
    )
    within: DefaultName = Field(
        default=None, description="A level: all nodes are in one domain of it, or it waits.", examples=["rack"]
    )
    prefer: DefaultName = Field(
        default=None, description="A level: all nodes are in one domain of it, where there is room in one.", examples=["rack"]
    )
    prefer_for: Duration = Field(
        default=None,
        description="How long it waits in the queue for that, or for the cheapest choice; default: not at all.",
        examples=["30m"],
    )
    choose: ChooseWord = Field(
        default=None,
        description="Of several choices of GPUs the one with which it is expected to end first (finish) or to cost least "
        "(cost); default: finish.",
        examples=["cost"],
    )
    speed: dict[Kind, Speed] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="How fast this job trains on one GPU of each kind, beside the others; default: as their pools say.",
        examples=[{"h100": 2.1, "a100": 1}],
    )
    near: DefaultName = Field(
        default=None,
        description="Nodes that have this data (their label `data`, or jobs there that say so too) are taken first; "
        "checkpoint: those of its attempt before.",
        examples=["imagenet", "checkpoint"],
    )
    group: DefaultName = Field(
        default=None,
        alias="with",
        description="Nodes close to live jobs of this id, experiment or group are taken first.",
        examples=["digits"],
    )


class ElasticFields(_Section):
    """How many nodes it would take. Without it they are `resources.nodes`."""

    nodes_min: NodesOrNone = Field(
        default=None, description="It starts with no fewer; default: `resources.nodes`.", examples=[2]
    )
    nodes_max: NodesOrNone = Field(
        default=None, description="It takes so many when it starts and nobody else waits; default: no more.", examples=[8]
    )


class RestartsFields(_Section):
    """How many restarts are paid for. A bare number stands for `program`."""

    program: RestartCount = Field(default=3, description="After failures of the program.", examples=[3])
    infrastructure: RestartCount = Field(
        default=20,
        description="After failures of nodes and agents; six kills in a row without progress end the job all the same.",
        examples=[20],
    )


class EnvironmentFields(_Section):
    """What the program's environment adds to the one recorded at submit."""

    python: Interpreter = Field(
        default=None, description="Interpreter that takes the place of the recorded one.", examples=[".venv/bin/python"]
    )
    requirements: Requirements = Field(
        default=None,
        description="Requirements file in the work directory, installed once into an environment of its own.",
        examples=["requirements.lock"],
    )
    variables: dict[VariableName, VariableValue] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Variables; of a list of names alone, each with its value in the shell that submits.",
        examples=[{"OMP_NUM_THREADS": "4"}, ["HF_TOKEN"]],
    )


class MetricsFields(_Section):
    """How metrics are read from standard output, and which one matters."""

    pattern: Pattern = Field(
        default=None,
        description="Regular expression (of RE2: no look-arounds); each named group is a metric, `step` the step.",
        examples=[r"loss (?P<loss>[\d.]+)"],
    )
    primary: MetricName = Field(default=None, description="The metric that matters.", examples=["loss"])
    mode: ModeWord = Field(default="min", description="Whether smaller or larger is better.")


def _absent(section: type[_Section]) -> Callable[[], Any]:
    """A section that nobody wrote, made once: nobody changes it, and making it anew is half of a validation."""
    value = section.model_construct()
    return lambda: value


class JobFields(_Section):
    """A training job. Every field is optional but `command`, or `python` in its place."""

    name: DefaultName = Field(default=None, description="Default: the script's name.", examples=["digits-ddp"])
    project: Name = Field(default="default", description="Who the job belongs to.", examples=["vision"])
    experiment: DefaultName = Field(default=None, description="Collection of jobs; default: the name.", examples=["digits"])
    work: Name = Field(
        default="training",
        alias="class",
        description="Workload class: production, interactive, evaluation, training, trial, or one of your administrator's.",
        examples=["interactive"],
    )
    priority: Priority = Field(default=0, description="Higher goes first within the class, from -100 to 100.", examples=[10])
    command: Command = Field(
        default=(), description="A line for bash, or a list of arguments.", examples=["python train.py --epochs 20"]
    )
    python: Function = Field(
        default=None,
        description="A function to call with the params, in place of a command.",
        examples=["package.module:function"],
    )
    workdir: Workdir = Field(default=".", description="Directory that is copied at submit.", examples=["."])
    resources: ResourcesFields = Field(default_factory=_absent(ResourcesFields), description="What the job needs.")
    elastic: Annotated[ElasticFields, BeforeValidator(lambda value: values.not_a_range(value, "a mapping"))] = Field(
        default_factory=_absent(ElasticFields), description="How many nodes it would take."
    )
    placement: PlacementFields = Field(default_factory=_absent(PlacementFields), description="Where the job may run.")
    roles: dict[RoleName, Annotated[RoleFields, BeforeValidator(_inside("command", (str,)))]] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Programs that run beside the ranks.",
        examples=[{"evaluator": {"command": "python eval.py --watch", "resources": {"cpus": 4}}}],
    )
    time_limit: Duration = Field(
        default=None, description="Longest time it may run, over all attempts.", examples=["12h", "1h30m", 90]
    )
    start_limit: Duration = Field(
        default=None,
        description="Longest time an attempt may take until its ranks run: code, environment, checkpoint; default: 30 minutes.",
        examples=["2h"],
    )
    checkpoint: Annotated[CheckpointFields, BeforeValidator(_inside("path", (str,)))] = Field(
        default_factory=_absent(CheckpointFields),
        description="Where checkpoints appear.",
        examples=["out/ckpt*.pt", {"path": "out/ckpt*.pt", "keep": 3}],
    )
    restarts: Annotated[RestartsFields, BeforeValidator(_inside("program", (int, float)))] = Field(
        default_factory=_absent(RestartsFields),
        description="How often to try again.",
        examples=[3, {"program": 3, "infrastructure": 20}],
    )
    environment: EnvironmentFields = Field(
        default_factory=EnvironmentFields.model_construct, description="Interpreter, packages and variables."
    )
    data: dict[DataName, DataUri] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Paths or URLs, given as TRAINMASTER_DATA_NAME; their content is fingerprinted at submit.",
        examples=[{"train": "data/train.csv"}],
    )
    params: dict[LabelName, Param] = Field(
        default_factory=dict,
        max_length=ITEMS_MAX,
        description="Recorded, and given as TRAINMASTER_PARAMS.",
        examples=[{"lr": 3e-4}],
    )
    metrics: MetricsFields = Field(default_factory=_absent(MetricsFields), description="Metrics without changing the program.")
    tags: dict[LabelName, Tag] = Field(
        default_factory=dict, max_length=ITEMS_MAX, description="Texts to find the job by.", examples=[{"owner": "team-a"}]
    )
    artifacts: list[Glob] = Field(
        default_factory=list,
        max_length=ITEMS_MAX,
        description="Files to keep, as globs.",
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
}
