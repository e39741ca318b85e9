"""The fields of `cluster.yaml` as pydantic models: they parse text into values and give the JSON Schema."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.policies.known import LIVE, POLICIES
from trainmaster.spec.cluster.windows import Span, span
from trainmaster.spec.faults import nearest
from trainmaster.spec.fields import values
from trainmaster.spec.fields.field_types import DURATION_SCHEMA, NAME_SCHEMA, Truth
from trainmaster.spec.fields.quantities import kind
from trainmaster.spec.fields.values import refusal

AMOUNT_MAX = 1e9
_WORD_MAX = 200  # characters of a user's name, a label, a pattern
_EVERYBODY = frozenset(("yes", "true", "on", "no", "false", "off", "all"))  # words that are not meant as user names
_DEFAULT = Cluster()
_WEIGHTS = _DEFAULT.weights


def _number(value: object, low: float, what: str) -> float:
    """A number >= `low`. If `low` itself is to be excluded, pass the smallest valid value."""
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
        message = f"{name!r} needs to know run times in advance, so it works in `tm simulate` only; here are {known}"
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
    """A bare value is short for the section with that one field; `shapes` are both forms, for the schema."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, kinds) and not isinstance(value, bool) else value

    return BeforeValidator(expand, json_schema_input_type=shapes)


def _many(value: object) -> object:
    """A single item is short for a list of one."""
    return [value] if isinstance(value, str | dict) else value


def _who(value: object) -> object:
    """Like `_many`, but reject a single word such as `all`, which is probably not a user's name."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in _EVERYBODY):
        raise refusal("users' names: ['*'] is every member, [] no one, [ann, bob] these two", value)
    return _many(value)


def _weighted(value: object) -> object:
    """A list of names is short for names with weight 1."""
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
    """A maintenance window. A job whose time limit reaches into it does not start on its nodes. A bare text is `when`."""

    when: When = Field(
        default=None,
        description="A date and time, or a day of the week or `daily` and a time, in UTC or with an offset; then the length.",
        examples=["2026-12-01T22:00/4h", "Sun 22:00/4h", "daily 03:00+01:00/30m"],
    )
    nodes: Patterns = Field(
        default_factory=lambda: ["*"], description="Which of the pool's nodes; default: all.", examples=[["a-0[1-4]"]]
    )
    reason: Text = Field(default="", description="Shown with the window.", examples=["new switches"])


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
    price: Price = Field(default=0.0, description="Per GPU and hour; on nodes without GPUs, per CPU and hour.", examples=[2.5])
    speed: Speed = Field(
        default=1.0, description="How fast its GPUs train, relative to those of other pools.", examples=[2.1]
    )
    policy: PolicyName = Field(default=None, description="The scheduling policy of the pool.", examples=["easy"])
    maintenance: Annotated[list[_Window], BeforeValidator(_many)] = Field(
        default_factory=list, description="Maintenance windows.", examples=[["Sun 22:00/4h"]]
    )


class QuotaFields(_Section):
    """A project's quota of one resource. A bare number is both `nominal` and `limit`."""

    guarantee: Amount = Field(default=None, description="Never lent to other projects; default: 0.", examples=[4])
    nominal: Amount = Field(
        default=None,
        description="The quota: lent while idle, taken back when needed; default: the guarantee, else the limit.",
        examples=[8],
    )
    limit: Amount = Field(
        default=None, description="The maximum, including borrowed resources; default: unlimited.", examples=[16]
    )


_Quota = Annotated[QuotaFields, _short("limit", (int, float), float | QuotaFields)]


class ProjectFields(_Section):
    """A project, which shares the cluster with other projects."""

    weight: Weight = Field(default=1.0, description="Its share, relative to its siblings.", examples=[2])
    parent: Parent = Field(default=None, description="The project that contains it.", examples=["research"])
    members: Members = Field(
        default_factory=dict,
        description="Users and their weights, or a list of users; other users have weight 1.",
        examples=[{"ann": 2, "bob": 1}, ["ann", "bob"]],
    )
    quota: dict[Resource, _Quota] = Field(
        default_factory=dict,
        description="By kind of GPU; `gpus` counts all kinds, `cpus` the CPUs of jobs without GPUs too.",
        examples=[{"a100": {"guarantee": 4, "nominal": 8, "limit": 16}, "gpus": 16}],
    )
    running: Count = Field(default=None, description="Maximum number of running jobs.", examples=[20])
    running_per_member: Count = Field(default=None, description="Maximum number of running jobs per member.", examples=[5])
    urgent: UrgentMembers = Field(
        default_factory=list, description="Members that may call a job urgent; '*': every member.", examples=[["ann"]]
    )


class ExpressFields(_Section):
    """An express lane: GPUs reserved for short, small jobs of the class."""

    gpus: Amount = Field(default=None, description="Reserved GPUs, and the most that such a job may request.", examples=[2])
    limit: Duration = Field(default=None, description="The longest time limit of such a job.", examples=["20m"])


class WorkFields(_Section):
    """A workload class. Fields that are left out keep their defaults."""

    priority: Priority = Field(default=None, description="Added to the job's own, which is -100 to 100.", examples=[2000])
    preemptible: Truth | None = Field(default=None, description="Whether its jobs may be preempted.", examples=[True])
    wait_target: Duration = Field(default=None, description="Target for the waiting time.", examples=["1m"])
    completion_target: Duration = Field(
        default=None, description="Target for the time until completion, waiting included.", examples=["8h"]
    )
    recovery_target: Duration = Field(
        default=None, description="Target for the time until a job runs again after a failure.", examples=["5m"]
    )
    time_slice: Duration = Field(
        default=None, description="After this time a job may be preempted by jobs of the same class.", examples=["30m"]
    )
    express: ExpressFields = Field(
        default_factory=ExpressFields.model_construct,
        description="GPUs reserved for short, small jobs.",
        examples=[{"gpus": 2, "limit": "20m"}],
    )


class FairShareFields(_Section):
    """How fair share counts past usage."""

    half_life: Duration = Field(default=_DEFAULT.half_life_s, description="When usage counts half.", examples=["7d"])


class MultifactorFields(_Section):
    """Weights of the factors in the policy `multifactor`. Each factor is between 0 and 1; a negative weight inverts it."""

    workload_class: Factor = Field(
        default=_WEIGHTS.workload_class, alias="class", description="The class: lowest 0, highest 1.", examples=[2000]
    )
    priority: Factor = Field(default=_WEIGHTS.priority, description="The job's own priority.", examples=[100])
    age: Factor = Field(default=_WEIGHTS.age, description="Time in the queue; 1 after `age_max`.", examples=[500])
    fair_share: Factor = Field(default=_WEIGHTS.fair_share, description="Halves with each share's usage.", examples=[4000])
    size: Factor = Field(
        default=_WEIGHTS.size, description="The requested part of the cluster; negative: small first.", examples=[-200]
    )
    age_max: Duration = Field(default=_WEIGHTS.age_max_s, description="Waiting time at which `age` is 1.", examples=["3d"])


class PreemptionFields(_Section):
    """Limits on preemption."""

    min_run: SpanOrZero = Field(
        default=_DEFAULT.min_run_s,
        description="No job is preempted before it has run this long, twice as long after each preemption.",
        examples=["5m"],
    )


class ClusterFields(_Section):
    """A cluster configuration. Every field is optional and has a default."""

    pools: dict[Name, PoolFields] = Field(
        default_factory=dict, description="Groups of nodes of one kind, by name; the first that matches a node counts."
    )
    projects: dict[Name, ProjectFields] = Field(default_factory=dict, description="Projects that share the cluster, by name.")
    classes: dict[Name, WorkFields] = Field(default_factory=dict, description="Workload classes, by name.")
    fair_share: FairShareFields = Field(
        default_factory=FairShareFields.model_construct, description="How fair share counts past usage."
    )
    multifactor: MultifactorFields = Field(
        default_factory=MultifactorFields.model_construct,
        description="Weights of the factors in the policy `multifactor`.",
        examples=[{"fair_share": 4000}],
    )
    preemption: PreemptionFields = Field(
        default_factory=PreemptionFields.model_construct, description="Limits on preemption."
    )
    currency: Currency = Field(default=_DEFAULT.currency, description="The currency of all prices.", examples=["EUR"])


SECTIONS: dict[str, type[BaseModel]] = {  # `*` stands for a name or an index
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
