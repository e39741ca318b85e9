"""The types of a spec's fields: parsers, and bounds of every text, number and list, also for the JSON Schema."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from trainmaster.agent.metrics.patterns import TEXT_MAX as PATTERN_MAX
from trainmaster.model.spec import Choose, Strategy
from trainmaster.spec.fields import quantities, sources, values

STRATEGIES = tuple(map(str, Strategy))
CHOOSE = tuple(map(str, Choose))
NOTIFY_ON = ("end", "failure")
GANG_VARIABLES = frozenset(
    (
        "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
        "ROLE_RANK", "ROLE_WORLD_SIZE",
    )
)  # fmt: skip
_OUR_PREFIXES = ("TRAINMASTER_", "TORCHELASTIC_")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SIZE_SCHEMA = {
    "type": ["string", "integer"],
    "maximum": 2**60,
    "maxLength": 40,
    "pattern": r"^\d+(\.\d+)?\s*([kMGTP]?B|[KMGTP]iB)$",
}
DURATION_SCHEMA = {
    "type": ["string", "number"],
    "exclusiveMinimum": 0,
    "maximum": 315_360_000,
    "maxLength": 60,
    "pattern": r"^[\d. dhms]+$",
}
_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"], "maxLength": values.PARAM_MAX}
NAME_SCHEMA = {"type": "string", "pattern": r"^[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9_])?$"}


def _whole(low: int, high: int) -> PlainValidator:
    return PlainValidator(lambda value: values.whole(value, low, high))


def _text(expected: str) -> PlainValidator:
    return PlainValidator(lambda value: values.text(value, expected))


def _variable(name: str) -> str:
    if _VARIABLE.match(name) is None:
        near = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("0123456789")
        raise values.refusal("a variable's name: letters, digits and '_'", name, near or None)
    if name == "CUDA_VISIBLE_DEVICES" or name.startswith(_OUR_PREFIXES):
        instead = "; say how many GPUs the job needs with gpus" if name == "CUDA_VISIBLE_DEVICES" else ""
        told = f"{name} is set by Trainmaster for each rank{instead}"
        raise values.refusal("a variable that the program may set", name, message=told)
    return name


def _interval(value: object) -> float:
    if value == "auto":
        instead = "give a duration such as 10m, at which sdk.should_checkpoint() returns true"
        raise values.unsupported("'interval: auto'", instead, value)
    return values.duration_s(value)


def _integer_schema(low: int, high: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": low, "maximum": high})


ITEMS_MAX = 1000  # in a list or a mapping


def _string(most: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "maxLength": most})


_STRING = _string(values.TEXT_MAX)

# A type that allows None allows it only as its default: a null in a file is rejected like any wrong value.
Name = Annotated[str, PlainValidator(values.name), WithJsonSchema(NAME_SCHEMA)]
DefaultName = Annotated[str | None, PlainValidator(values.name), WithJsonSchema(NAME_SCHEMA)]
Priority = Annotated[int, _whole(-100, 100), _integer_schema(-100, 100)]
Nodes = Annotated[int, PlainValidator(lambda value: values.nodes(value, 10_000)), _integer_schema(1, 10_000)]
NodesOrNone = Annotated[int | None, _whole(1, 10_000), _integer_schema(1, 10_000)]
Ranks = Annotated[int | None, _whole(1, 4096), _integer_schema(1, 4096)]
Index = Annotated[int | None, _whole(0, 1_000_000_000), _integer_schema(0, 1_000_000_000)]
MaxRunning = Annotated[int | None, _whole(1, 10_000), _integer_schema(1, 10_000)]
Keep = Annotated[int, _whole(1, 10_000), _integer_schema(1, 10_000)]
RestartCount = Annotated[int, _whole(0, 1_000_000), _integer_schema(0, 1_000_000)]
Workdir = Annotated[str, _text("a directory"), _STRING]
Interpreter = Annotated[str | None, _text("an interpreter such as .venv/bin/python"), _STRING]
MetricName = Annotated[str | None, _text("a metric's name such as loss"), _STRING]
Glob = Annotated[str, PlainValidator(lambda value: values.glob(value, "a path or glob")), _string(values.GLOB_MAX)]
Param = Annotated[Any, PlainValidator(values.param), WithJsonSchema(_SCALAR_SCHEMA)]
Tag = Annotated[str, PlainValidator(lambda v: v if v == "" else values.text(v)), _STRING]
LabelName = Annotated[str, AfterValidator(values.label)]
VariableName = Annotated[str, AfterValidator(_variable)]
VariableValue = Annotated[
    str, PlainValidator(values.argument), WithJsonSchema({"type": ["string", "number"], "maxLength": values.COMMAND_MAX})
]
_COMMAND = {"maxLength": values.COMMAND_MAX, "maxItems": values.COMMAND_MAX}
Command = Annotated[
    str | tuple[str, ...],
    PlainValidator(values.command),
    WithJsonSchema(
        {"type": ["string", "array"], "items": {"type": ["string", "number"]}, "minItems": 1, "minLength": 1, **_COMMAND}
    ),
]
Cpus = Annotated[float, PlainValidator(values.cpus), WithJsonSchema({"type": "number", "minimum": 0.001, "maximum": 100_000})]
Size = Annotated[int | None, PlainValidator(values.size_bytes), WithJsonSchema(_SIZE_SCHEMA)]
Duration = Annotated[float | None, PlainValidator(values.duration_s), WithJsonSchema(DURATION_SCHEMA)]
CheckpointPath = Annotated[str | None, PlainValidator(values.checkpoint_path), _string(values.GLOB_MAX)]
ResumeArguments = Annotated[str | None, PlainValidator(values.resume_arguments), _STRING]
Pattern = Annotated[str | None, PlainValidator(values.metrics_pattern), _string(PATTERN_MAX)]
Truth = Annotated[bool, PlainValidator(values.truth), WithJsonSchema({"enum": [True, False, "yes", "no"]})]
ModeWord = Annotated[str, PlainValidator(lambda v: values.choice(v, ("min", "max"))), WithJsonSchema({"enum": ["min", "max"]})]
StrategyWord = Annotated[
    str | None, PlainValidator(lambda v: values.choice(v, STRATEGIES)), WithJsonSchema({"enum": list(STRATEGIES)})
]
ChooseWord = Annotated[str | None, PlainValidator(lambda v: values.choice(v, CHOOSE)), WithJsonSchema({"enum": list(CHOOSE)})]
NotifyTarget = Annotated[str, PlainValidator(values.notify_target), _STRING]
NotifyOn = Annotated[str, PlainValidator(lambda v: values.choice(v, NOTIFY_ON)), WithJsonSchema({"enum": list(NOTIFY_ON)})]
Interval = Annotated[float | None, PlainValidator(_interval), WithJsonSchema(DURATION_SCHEMA)]
Function = Annotated[
    str | None,
    PlainValidator(sources.function),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"}),
]
RoleName = Annotated[str, AfterValidator(values.name)]
DataName = Annotated[str, AfterValidator(sources.data_name)]
DataUri = Annotated[str, PlainValidator(sources.data_uri), _STRING]
Requirements = Annotated[str | None, PlainValidator(sources.requirements), _STRING]
Bandwidth = Annotated[
    float | None,
    PlainValidator(quantities.bandwidth_bps),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?\s*[kMGT]?bps$"}),
]
Kind = Annotated[str, AfterValidator(quantities.kind)]
CountedName = Annotated[str, AfterValidator(quantities.counted_name)]
Count = Annotated[int, PlainValidator(quantities.count), _integer_schema(1, quantities.COUNT_MAX)]
Speed = Annotated[
    float,
    PlainValidator(quantities.amount),
    WithJsonSchema({"type": "number", "minimum": 0.001, "maximum": quantities.AMOUNT_MAX}),
]
Amount = Speed
