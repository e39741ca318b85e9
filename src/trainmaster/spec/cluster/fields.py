"""The fields of `cluster.yaml` as pydantic models: the edge where text becomes values, and the source of its JSON Schema."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.policy import LIVE, POLICIES
from trainmaster.spec.cluster.windows import Span, span
from trainmaster.spec.faults import nearest
from trainmaster.spec.fields import values
from trainmaster.spec.fields.field_types import DURATION_SCHEMA, NAME_SCHEMA
from trainmaster.spec.fields.quantities import kind
from trainmaster.spec.fields.values import refusal

AMOUNT_MAX = 1e9
_WORD_MAX = 200  # characters of a user's name, a label, a pattern
_TRUTHS = {"yes": True, "no": False}  # texts in YAML 1.2, and what people write
_EVERYBODY = frozenset(("yes", "true", "on", "no", "false", "off", "all"))  # what people write where names are asked for
_DEFAULT = Cluster()
_WEIGHTS = _DEFAULT.weights


def _number(value: object, low: float, what: str) -> float:
    """A number from `low` on; below it only `low` itself is refused where it is not included."""
    if not values.is_number(value):
        quoted = isinstance(value, str) and value.strip().replace(".", "", 1).isdigit()
        raise refusal(what + (" (without quotes)" if quoted else ""), value, str(value) if quoted else None)
    if not low <= value <= AMOUNT_MAX:
        raise refusal(what, value)
    return float(value)


def _weight(value: object) -> float:
    return _number(value, 1e-6, "a weight greater than 0, such as 2")


def _amount(value: object) -> float:
    return _number(value, 0.0, f"an amount from 0 to {AMOUNT_MAX:,.0f}, such as 8")


def _factor(value: object) -> float:
    return _number(value, -AMOUNT_MAX, f"a weight from {-AMOUNT_MAX:,.0f} to {AMOUNT_MAX:,.0f}, such as 1000")


def _price(value: object) -> float:
    return _number(value, 0.0, "a price of 0 or more per GPU and hour, such as 2.5")


def _speed(value: object) -> float:
    return _number(value, 1e-6, "a speed greater than 0, such as 2.1")


def _truth(value: object) -> bool:
    if isinstance(value, str) and value in _TRUTHS:
        return _TRUTHS[value]
    if not isinstance(value, bool):
        raise refusal("true or false", value)
    return value


def _word(expected: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        found = values.text(value, expected)
        if len(found) > _WORD_MAX or not found.isprintable():
            raise refusal(f"{expected}, of up to {_WORD_MAX} printable characters", value)
        return found

    return read


def _policy(value: object) -> str:
    known = ", ".join(LIVE)
    expected = f"a policy: {known}"
    name = values.text(value, expected)
    if name in LIVE:
        return name
    if name in POLICIES and POLICIES[name].exact:
        message = f"{name!r} needs to know how long jobs will run: it is for `tm simulate` alone; here are {known}"
        raise refusal(expected, value, message=message)
    raise refusal(expected, value, nearest(name, LIVE))


def _resource(name: str) -> str:
    if name in ("gpu", "cpu"):
        raise refusal("a kind of GPU, 'gpus' (of any kind) or 'cpus'", name, f"{name}s")
    return kind(name)


def _span_or_zero(value: object) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else values.duration_s(value)


def _currency(value: object) -> str:
    expected = "three capital letters such as USD or EUR"
    name = values.text(value, expected)
    if len(name) != 3 or not (name.isascii() and name.isalpha() and name.isupper()):
        near = name.upper() if len(name) == 3 and name.isascii() and name.isalpha() else None
        raise refusal(expected, value, near)
    return name


def _short(key: str, kinds: tuple[type, ...], shapes: Any) -> BeforeValidator:
    """A bare value stands for the section with that one field; `shapes` are both, for the schema."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, kinds) and not isinstance(value, bool) else value

    return BeforeValidator(expand, json_schema_input_type=shapes)


def _many(value: object) -> object:
    """One alone stands for a list of it."""
    return [value] if isinstance(value, str | dict) else value


def _who(value: object) -> object:
    """As `_many`, but for one word that is meant to be no name. In a list it is one."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in _EVERYBODY):
        raise refusal("users' names: ['*'] is every member, [] nobody, [ann, bob] these two", value)
    return _many(value)


def _weighted(value: object) -> object:
    """A list of names stands for names of weight 1."""
    return dict.fromkeys(value, 1) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value


_STRING = WithJsonSchema({"type": "string", "maxLength": _WORD_MAX})
_AMOUNT_SCHEMA = WithJsonSchema({"type": "number", "minimum": 0, "maximum": AMOUNT_MAX})
_NOT_NEGATIVE = {name: value for name, value in DURATION_SCHEMA.items() if name != "exclusiveMinimum"}
_DURATION = WithJsonSchema(DURATION_SCHEMA)

Name = Annotated[str, AfterValidator(values.name)]
Parent = Annotated[str | None, PlainValidator(values.name), WithJsonSchema(NAME_SCHEMA)]
Pattern = Annotated[str, PlainValidator(_word("a node's name, or a pattern such as 'a-*'")), _STRING]
PatternKey = Annotated[str, AfterValidator(_word("a node's name, or a pattern such as 'a-*'"))]
Patterns = Annotated[list[Pattern], BeforeValidator(_many, json_schema_input_type=str | list[str])]
Label = Annotated[str, PlainValidator(_word("a text")), _STRING]
LabelName = Annotated[str, AfterValidator(values.name)]
Labels = dict[LabelName, Label]
Weight = Annotated[float, PlainValidator(_weight), WithJsonSchema({"type": "number", "minimum": 1e-6, "maximum": AMOUNT_MAX})]
Member = Annotated[str, AfterValidator(_word("a user's name"))]
Members = Annotated[dict[Member, Weight], BeforeValidator(_weighted, json_schema_input_type=dict[str, float] | list[str])]
UrgentMember = Annotated[str, PlainValidator(_word("a user's name, or '*' for every member")), _STRING]
UrgentMembers = Annotated[list[UrgentMember], BeforeValidator(_who, json_schema_input_type=str | list[str])]
Amount = Annotated[float | None, PlainValidator(_amount), _AMOUNT_SCHEMA]
Factor = Annotated[
    float, PlainValidator(_factor), WithJsonSchema({"type": "number", "minimum": -AMOUNT_MAX, "maximum": AMOUNT_MAX})
]
Speed = Annotated[float, PlainValidator(_speed), WithJsonSchema({"type": "number", "minimum": 1e-6, "maximum": AMOUNT_MAX})]
Price = Annotated[float, PlainValidator(_price), _AMOUNT_SCHEMA]
Count = Annotated[
    int | None,
    PlainValidator(lambda value: values.whole(value, 0, 1_000_000)),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 1_000_000}),
]
Priority = Annotated[
    int | None,
    PlainValidator(lambda value: values.whole(value, -100_000, 100_000)),
    WithJsonSchema({"type": "integer", "minimum": -100_000, "maximum": 100_000}),
]
Truth = Annotated[bool | None, PlainValidator(_truth), WithJsonSchema({"enum": [True, False, "yes", "no"]})]
Duration = Annotated[float | None, PlainValidator(values.duration_s), _DURATION]
SpanOrZero = Annotated[
    float,
    PlainValidator(_span_or_zero),
    WithJsonSchema({**_NOT_NEGATIVE, "minimum": 0}),
]
When = Annotated[Span | None, PlainValidator(span), _STRING]
PolicyName = Annotated[str | None, PlainValidator(_policy), WithJsonSchema({"enum": list(LIVE)})]
Resource = Annotated[str, AfterValidator(_resource)]
Currency = Annotated[str, PlainValidator(_currency), WithJsonSchema({"type": "string", "pattern": "^[A-Z]{3}$"})]
Text = Annotated[str, PlainValidator(_word("a text")), _STRING]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class WindowFields(_Section):
    """A time in which nodes are taken out of use: nothing starts on them that would still run then. A bare text: `when`."""

    when: When = Field(
        default=None,
        description="A date and a time, or a day of the week or `daily` and a time, UTC or with an offset; and how long.",
        examples=["2026-12-01T22:00/4h", "Sun 22:00/4h", "daily 03:00+01:00/30m"],
    )
    nodes: Patterns = Field(
        default_factory=lambda: ["*"], description="Which of the pool's nodes; default: all.", examples=[["a-0[1-4]"]]
    )
    reason: Text = Field(default="", description="Shown beside it.", examples=["new switches"])


_Window = Annotated[WindowFields, _short("when", (str,), str | WindowFields)]


class PoolFields(_Section):
    """Nodes of one kind. A node is in the first pool that matches its name."""

    nodes: Patterns = Field(
        default_factory=lambda: ["*"], description="Names of nodes, as glob patterns; default: all.", examples=[["a-*"]]
    )
    labels: Labels = Field(default_factory=dict, description="Labels of all its nodes.", examples=[{"zone": "eu"}])
    node_labels: dict[PatternKey, Labels] = Field(
        default_factory=dict, description="Labels of some of its nodes, by pattern.", examples=[{"a-0[1-4]": {"rack": "r1"}}]
    )
    price: Price = Field(default=0.0, description="Per GPU and hour; of nodes without GPUs, per CPU and hour.", examples=[2.5])
    speed: Speed = Field(
        default=1.0, description="How fast one of its GPUs trains, beside those of other pools.", examples=[2.1]
    )
    policy: PolicyName = Field(default=None, description="Who goes first, and who waits for whom.", examples=["easy"])
    maintenance: Annotated[list[_Window], BeforeValidator(_many)] = Field(
        default_factory=list, description="When nodes are taken out of use.", examples=[["Sun 22:00/4h"]]
    )


class QuotaFields(_Section):
    """What is a project's own of a resource. A bare number is both `nominal` and `limit`."""

    guarantee: Amount = Field(default=None, description="Never lent to others; default: 0.", examples=[4])
    nominal: Amount = Field(
        default=None,
        description="Its own, lent while idle, taken back when needed; default: the guarantee, else the limit.",
        examples=[8],
    )
    limit: Amount = Field(
        default=None, description="The most it may have, borrowed included; default: no bound.", examples=[16]
    )


_Quota = Annotated[QuotaFields, _short("limit", (int, float), float | QuotaFields)]


class ProjectFields(_Section):
    """A tenant."""

    weight: Weight = Field(default=1.0, description="Its share, held against that of its siblings.", examples=[2])
    parent: Parent = Field(default=None, description="The project that it is part of.", examples=["research"])
    members: Members = Field(
        default_factory=dict,
        description="Users and their weights, or a list of users; one who is not named has weight 1.",
        examples=[{"ann": 2, "bob": 1}, ["ann", "bob"]],
    )
    quota: dict[Resource, _Quota] = Field(
        default_factory=dict,
        description="By kind of GPU; `gpus` are of any kind, `cpus` those of jobs that ask for no GPU too.",
        examples=[{"a100": {"guarantee": 4, "nominal": 8, "limit": 16}, "gpus": 16}],
    )
    running: Count = Field(default=None, description="The most jobs that run at a time.", examples=[20])
    running_per_member: Count = Field(default=None, description="The same, of each member.", examples=[5])
    urgent: UrgentMembers = Field(
        default_factory=list, description="Who may call a job urgent; '*': every member.", examples=[["ann"]]
    )


class ExpressFields(_Section):
    """An express lane: room that is kept for short, small jobs of the class."""

    gpus: Amount = Field(default=None, description="GPUs that are kept, and the most that such a job asks for.", examples=[2])
    limit: Duration = Field(default=None, description="The longest time limit of such a job.", examples=["20m"])


class WorkFields(_Section):
    """A workload class. What is left out is as it is without the file."""

    priority: Priority = Field(default=None, description="Added to the job's own, which is -100 to 100.", examples=[2000])
    preemptible: Truth = Field(default=None, description="Whether its jobs may be stopped for others.", examples=[True])
    wait_target: Duration = Field(default=None, description="How long its jobs should wait at most.", examples=["1m"])
    completion_target: Duration = Field(
        default=None, description="How long they should take, waiting included.", examples=["8h"]
    )
    recovery_target: Duration = Field(
        default=None, description="How soon they should run again after a failure.", examples=["5m"]
    )
    time_slice: Duration = Field(default=None, description="After so long a job makes way for its like.", examples=["30m"])
    express: ExpressFields = Field(
        default_factory=ExpressFields.model_construct,
        description="Room for short, small jobs.",
        examples=[{"gpus": 2, "limit": "20m"}],
    )


class FairShareFields(_Section):
    """How fair share looks back."""

    half_life: Duration = Field(default=_DEFAULT.half_life_s, description="After so long, use counts half.", examples=["7d"])


class MultifactorFields(_Section):
    """What each factor counts in the policy `multifactor`. Each is within 0 and 1; a negative weight turns it round."""

    workload_class: Factor = Field(
        default=_WEIGHTS.workload_class, alias="class", description="The class: the lowest 0, the highest 1.", examples=[2000]
    )
    priority: Factor = Field(default=_WEIGHTS.priority, description="The job's own priority.", examples=[100])
    age: Factor = Field(default=_WEIGHTS.age, description="Time in the queue, full after `age_max`.", examples=[500])
    fair_share: Factor = Field(default=_WEIGHTS.fair_share, description="Half with each share's worth of use.", examples=[4000])
    size: Factor = Field(
        default=_WEIGHTS.size, description="The part of the cluster that it asks for; negative: small first.", examples=[-200]
    )
    age_max: Duration = Field(default=_WEIGHTS.age_max_s, description="A wait that counts fully.", examples=["3d"])


class PreemptionFields(_Section):
    """What holds for all who are stopped for others."""

    min_run: SpanOrZero = Field(
        default=_DEFAULT.min_run_s, description="Nobody is stopped for others before having run this long.", examples=["5m"]
    )


class ClusterFields(_Section):
    """The rules of a cluster. Every field is optional; what is left out is as it is without the file."""

    pools: dict[Name, PoolFields] = Field(
        default_factory=dict, description="Nodes of one kind, by name; the first that matches counts."
    )
    projects: dict[Name, ProjectFields] = Field(default_factory=dict, description="Who shares the cluster, by name.")
    classes: dict[Name, WorkFields] = Field(default_factory=dict, description="Kinds of work, by name.")
    fair_share: FairShareFields = Field(
        default_factory=FairShareFields.model_construct, description="How fair share looks back."
    )
    multifactor: MultifactorFields = Field(
        default_factory=MultifactorFields.model_construct,
        description="What each factor counts in the policy `multifactor`.",
        examples=[{"fair_share": 4000}],
    )
    preemption: PreemptionFields = Field(
        default_factory=PreemptionFields.model_construct, description="What holds for all who are stopped for others."
    )
    currency: Currency = Field(default=_DEFAULT.currency, description="Of all prices.", examples=["EUR"])


SECTIONS: dict[str, type[BaseModel]] = {  # `*` stands for a name or a place in a list
    "": ClusterFields,
    "pools.*": PoolFields,
    "pools.*.maintenance.*": WindowFields,
    "projects.*": ProjectFields,
    "projects.*.quota.*": QuotaFields,
    "classes.*": WorkFields,
    "classes.*.express": ExpressFields,
    "fair_share": FairShareFields,
    "multifactor": MultifactorFields,
    "preemption": PreemptionFields,
}
