"""The fields of a spec file as pydantic models: the edge where text becomes values, and the source of the JSON Schema.

The models hold what a file *said*; `document` fills in defaults and makes the `JobSpec` that everything else knows.
`RESERVED` are the names this version knows and does not support yet.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from trainmaster.spec import values

RESERVED: dict[str, str] = {
    "class": "workload class: interactive, evaluation, trial, training or production",
    "python": "a function to run: package.module:function",
    "roles": "programs that run beside the ranks",
    "elastic": "the smallest and largest number of nodes",
    "placement": "how nodes are chosen",
    "data": "data sets by name and version",
    "budget": "what the job may cost",
    "stages": "smoke and canary runs with their gates",
    "notify": "what to be told of",
    "resources.disk": "scratch space per node",
    "resources.accelerators": "accelerators other than GPUs",
    "resources.network": "network bandwidth per node",
    "resources.custom": "countable resources of your own",
    "environment.requirements": "a lock file to install",
    "environment.image": "a container image",
    "environment.secrets": "secrets by name",
}
_OURS = frozenset(
    (
        "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
        "ROLE_RANK", "ROLE_WORLD_SIZE", "CUDA_VISIBLE_DEVICES",
    )
)  # fmt: skip
_OUR_PREFIXES = ("TRAINMASTER_", "TORCHELASTIC_")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SIZE_SCHEMA = {"type": ["string", "integer"], "pattern": r"^\d+(\.\d+)?\s*([kMGTP]?B|[KMGTP]iB)$"}
_DURATION_SCHEMA = {"type": ["string", "number"], "exclusiveMinimum": 0, "pattern": r"^[\d. dhms]+$"}
_GPUS_SCHEMA = {"type": ["integer", "string"], "minimum": 0, "pattern": r"^[A-Za-z][A-Za-z0-9_.\-]*:[0-9]+$"}
_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"]}
_NAME_SCHEMA = {"type": "string", "pattern": r"^[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9_])?$"}


def _whole(low: int, high: int) -> PlainValidator:
    return PlainValidator(lambda value: values.whole(value, low, high))


def _text(expected: str) -> PlainValidator:
    return PlainValidator(lambda value: values.text(value, expected))


def _variable(name: str) -> str:
    if _VARIABLE.match(name) is None:
        near = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("0123456789")
        raise values.refusal("a variable's name: letters, digits and '_'", name, near or None)
    if name in _OURS or name.startswith(_OUR_PREFIXES):
        raise values.refusal(
            "a variable that is the program's own", name, message=f"{name} is set by Trainmaster for each rank"
        )
    return name


def _interval(value: object) -> str:
    if value != "auto":
        raise values.unsupported("'interval' other than auto", value)
    return "auto"


def _inside(key: str, kinds: tuple[type, ...]) -> Callable[[object], object]:
    """A section's short form: a bare value stands for the section with that one field."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, kinds) and not isinstance(value, bool) else value

    return expand


def _integer_schema(low: int, high: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": low, "maximum": high})


_STRING = WithJsonSchema({"type": "string"})

# A type that allows None has it as its default alone: written in a file, null is refused like any other wrong value.
Name = Annotated[str, PlainValidator(values.name), WithJsonSchema(_NAME_SCHEMA)]
DefaultName = Annotated[str | None, PlainValidator(values.name), WithJsonSchema(_NAME_SCHEMA)]
Priority = Annotated[int, _whole(-100, 100), _integer_schema(-100, 100)]
Nodes = Annotated[int, _whole(1, 10_000), _integer_schema(1, 10_000)]
Ranks = Annotated[int | None, _whole(1, 4096), _integer_schema(1, 4096)]
Keep = Annotated[int, _whole(1, 10_000), _integer_schema(1, 10_000)]
RestartCount = Annotated[int, _whole(0, 1_000_000), _integer_schema(0, 1_000_000)]
Workdir = Annotated[str, _text("a directory"), _STRING]
Interpreter = Annotated[str | None, _text("an interpreter such as .venv/bin/python"), _STRING]
MetricName = Annotated[str | None, _text("a metric's name such as loss"), _STRING]
Glob = Annotated[str, PlainValidator(lambda value: values.glob(value, "a path or glob")), _STRING]
Param = Annotated[Any, PlainValidator(values.param), WithJsonSchema(_SCALAR_SCHEMA)]
Tag = Annotated[str, PlainValidator(lambda v: v if v == "" else values.text(v)), _STRING]
VariableName = Annotated[str, AfterValidator(_variable)]
VariableValue = Annotated[str, PlainValidator(values.argument), WithJsonSchema({"type": ["string", "number"]})]
Command = Annotated[
    str | tuple[str, ...],
    PlainValidator(values.command),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": ["string", "number"]}, "minItems": 1, "minLength": 1}),
]
Cpus = Annotated[float, PlainValidator(values.cpus), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]
Gpus = Annotated[tuple[int, str | None], PlainValidator(values.gpus), WithJsonSchema(_GPUS_SCHEMA)]
Size = Annotated[int | None, PlainValidator(values.size_bytes), WithJsonSchema(_SIZE_SCHEMA)]
Duration = Annotated[float | None, PlainValidator(values.duration_s), WithJsonSchema(_DURATION_SCHEMA)]
CheckpointPath = Annotated[str | None, PlainValidator(values.checkpoint_path), _STRING]
ResumeArguments = Annotated[str | None, PlainValidator(values.resume_arguments), _STRING]
Pattern = Annotated[str | None, PlainValidator(values.metrics_pattern), _STRING]
ModeWord = Annotated[str, PlainValidator(lambda v: values.choice(v, ("min", "max"))), WithJsonSchema({"enum": ["min", "max"]})]
Interval = Annotated[str, PlainValidator(_interval), WithJsonSchema({"enum": ["auto"]})]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class ResourcesFields(_Section):
    """What one attempt holds. All but `nodes` is per node."""

    nodes: Nodes = Field(default=1, description="Number of nodes.", examples=[2])
    gpus: Gpus = Field(
        default_factory=lambda: (0, None),
        description="GPUs per node: a number, or a kind and a number.",
        examples=[2, "h100:8"],
    )
    cpus: Cpus = Field(default=1.0, description="CPU cores per node.", examples=[16, 0.5])
    memory: Size = Field(default=None, description="Memory limit per node; without it there is none.", examples=["64GiB"])
    ranks: Ranks = Field(default=None, description="Training processes per node; default: its GPUs, else 1.", examples=[8])


class CheckpointFields(_Section):
    """How checkpoints are found without changing the program. A bare path stands for `path`."""

    path: CheckpointPath = Field(
        default=None,
        description="Glob relative to the work directory; may hold {step}.",
        examples=["out/ckpt*.pt", "out/step-{step}"],
    )
    interval: Interval = Field(default="auto", description="How often to save; only auto is supported yet.")
    keep: Keep = Field(default=3, description="How many checkpoints are kept.", examples=[3])
    resume_arguments: ResumeArguments = Field(
        default=None, description="Added to the command when there is a checkpoint.", examples=["--resume {path}"]
    )


class RestartsFields(_Section):
    """How many restarts are paid for. A bare number stands for `program`."""

    program: RestartCount = Field(default=3, description="After failures of the program.", examples=[3])
    infrastructure: RestartCount = Field(default=20, description="After failures of nodes and agents.", examples=[20])


class EnvironmentFields(_Section):
    """What the program's environment adds to the one recorded at submit."""

    python: Interpreter = Field(
        default=None, description="Interpreter that takes the place of the recorded one.", examples=[".venv/bin/python"]
    )
    variables: dict[VariableName, VariableValue] = Field(
        default_factory=dict, description="Variables.", examples=[{"OMP_NUM_THREADS": "4"}]
    )


class MetricsFields(_Section):
    """How metrics are read from standard output, and which one matters."""

    pattern: Pattern = Field(
        default=None,
        description="Regular expression; each named group is a metric, `step` the step.",
        examples=[r"loss (?P<loss>[\d.]+)"],
    )
    primary: MetricName = Field(default=None, description="The metric that matters.", examples=["loss"])
    mode: ModeWord = Field(default="min", description="Whether smaller or larger is better.")


def _absent(section: type[_Section]) -> Callable[[], Any]:
    """A section that nobody wrote, made once: nobody changes it, and making it anew is half of a validation."""
    value = section.model_construct()
    return lambda: value


class JobFields(_Section):
    """A training job. Every field is optional but the command."""

    name: DefaultName = Field(default=None, description="Default: the script's name.", examples=["digits-ddp"])
    project: Name = Field(default="default", description="Who the job belongs to.", examples=["vision"])
    experiment: DefaultName = Field(default=None, description="Collection of jobs; default: the name.", examples=["digits"])
    priority: Priority = Field(default=0, description="Higher goes first.", examples=[10])
    command: Command = Field(description="A line for bash, or a list of arguments.", examples=["python train.py --epochs 20"])
    workdir: Workdir = Field(default=".", description="Directory that is copied at submit.", examples=["."])
    resources: ResourcesFields = Field(default_factory=_absent(ResourcesFields), description="What the job needs.")
    time_limit: Duration = Field(
        default=None, description="Longest time it may run, over all attempts.", examples=["12h", "1h30m", 90]
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
        default_factory=EnvironmentFields.model_construct, description="Interpreter and variables."
    )
    params: dict[str, Param] = Field(
        default_factory=dict, description="Recorded, and given as TRAINMASTER_PARAMS.", examples=[{"lr": 3e-4}]
    )
    metrics: MetricsFields = Field(
        default_factory=_absent(MetricsFields), description="Metrics without changing the program."
    )
    tags: dict[str, Tag] = Field(default_factory=dict, description="Texts to find the job by.", examples=[{"owner": "team-a"}])
    artifacts: list[Glob] = Field(
        default_factory=list, description="Files to keep, as globs.", examples=[["out/*.png", "out/model.safetensors"]]
    )


SECTIONS: dict[str, type[BaseModel]] = {
    "resources": ResourcesFields,
    "checkpoint": CheckpointFields,
    "restarts": RestartsFields,
    "environment": EnvironmentFields,
    "metrics": MetricsFields,
}
