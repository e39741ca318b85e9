"""Reads `cluster.yaml`, or its mapping, into a `Cluster`. Every cluster configuration passes through here.

Faults are collected with positions, as in a job's spec. What depends on the live cluster (whether guarantees can be met,
whether a pattern matches a node) is not checked here.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainmaster.errors import SpecError, UsageError
from trainmaster.model.cluster import (
    CLASSES,
    DEFAULT_POLICY,
    UNBOUNDED,
    Access,
    Cluster,
    Labels,
    Pool,
    Project,
    Quota,
    Weights,
    Window,
    Work,
)
from trainmaster.spec.cluster.contradictions import contradictions
from trainmaster.spec.cluster.fields import (
    SECTIONS,
    ClusterFields,
    MultifactorFields,
    PoolFields,
    ProjectFields,
    QuotaFields,
    WorkFields,
)
from trainmaster.spec.faults import FAULTS_MAX, Fault, describe, nearest, spec_error
from trainmaster.spec.yaml.fault_places import at, fault_of, unspeakable
from trainmaster.spec.yaml.reader import SIZE_MAX_BYTES, Document, Positions, dotted, parse
from trainmaster.spec.yaml.reader import Path as FieldPath

_HINT = "`tm schema cluster` lists every field."
_HABITS = {  # field names of other systems
    "queues": "projects", "tenants": "projects", "teams": "projects", "partitions": "pools", "node_pools": "pools",
    "priorities": "classes", "workloads": "classes", "priority_classes": "classes", "users": "members", "min": "guarantee",
    "max": "limit", "guaranteed": "guarantee", "reserved": "guarantee", "quotas": "quota", "share": "weight",
    "shares": "weight", "weights": "weight", "max_running": "running", "cost": "price", "windows": "maintenance",
    "downtime": "maintenance", "scheduler": "policy", "slice": "time_slice", "halflife": "half_life", "decay": "half_life",
    "hosts": "nodes", "preemptable": "preemptible", "borrowing_limit": "limit",
}  # fmt: skip
_OF_JOBS = ("project", "class")  # fields of a job that resemble fields of a cluster


def load_file(path: Path) -> Cluster:
    """Read a configuration file. Raises: SpecError, UsageError (unreadable, or empty, which is probably a mistake)."""
    document = _parsed(read(path), str(path))
    if document.value is None and not document.faults:
        raise UsageError(f"{path}: the file is empty", "for a configuration with all defaults, write {}")
    return _load(document.value, document)


def read(path: Path) -> bytes:
    """Read a file up to the size limit. Raises: UsageError."""
    try:
        with path.open("rb") as file:
            return file.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", "check the path") from error


def load_bytes(data: bytes, file: str) -> Cluster:
    """Read a configuration from bytes; `file` is its name in errors. Raises: SpecError."""
    document = _parsed(data, file)
    return _load(document.value, document)


def _parsed(data: bytes, file: str) -> Document:
    """Raises: SpecError if it is not YAML."""
    try:
        return parse(data, file)
    except SpecError as error:
        error.hint = _HINT
        raise


def from_mapping(mapping: object) -> Cluster:
    """Make a configuration from a mapping. Raises: SpecError."""
    return _load(mapping, Document(mapping, Positions(""), ()))


def is_cluster(data: bytes, file: str) -> bool:
    """Whether a file is a cluster configuration and not a job, judging by its field names, also misspelled ones.

    `{}` is a configuration with all defaults. Raises: SpecError if the file is not YAML.
    """
    value = parse(data, file).value
    if not isinstance(value, dict) or "command" in value or "python" in value:
        return False
    return not value or any(_means_cluster(name, below) for name, below in value.items())


def _means_cluster(name: object, below: object) -> bool:
    """Whether a field is one of a cluster, or a misspelled one. (A job's `project` and `class` hold plain text.)"""
    names = list(ClusterFields.model_fields)
    if not isinstance(name, str) or (name in _OF_JOBS and not isinstance(below, dict)):
        return False
    return name in names or _habit(name) in names or nearest(name, names, 0.8) is not None


def _habit(name: str) -> str | None:
    return _HABITS.get(name.lower().replace("-", "_"))


def _load(value: object, document: Document) -> Cluster:
    where, faults = document.where, list(document.faults)
    if value is None and not faults:
        value = {}  # an empty file: every default
    if not isinstance(value, dict):
        message = f"expected a mapping with pools, projects or classes, got {describe(value)}"
        raise spec_error([*faults, at(where, (), Fault("", message, "a mapping", describe(value)))], _HINT)
    if {"command", "python"} & value.keys() and not {"pools", "projects"} & value.keys():
        fault = at(where, (), Fault("", "this is a job's spec, not a cluster.yaml: it has a command", "a cluster.yaml"))
        raise spec_error([fault], "to see what it would do: tm plan FILE   to submit it: tm submit FILE")
    odd = unspeakable(value, where)
    if odd:
        raise spec_error([*faults, *odd], _HINT)
    try:
        fields = ClusterFields.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=True)
        faults += [fault_of(dict(item), where, _unknown) for item in found[:FAULTS_MAX]]
        raise spec_error(faults, _HINT) from None
    cluster = _complete(fields)
    faults += [at(where, written.path, written.fault) for written in contradictions(fields, cluster, where)]
    if faults:
        raise spec_error(faults, _HINT)
    return cluster


def _unknown(path: FieldPath, value: object) -> Fault:
    """The fault for an unknown field, with the most similar known one."""
    name, field = str(path[-1]), dotted(path)
    section = next((key for key in SECTIONS if _is(path[:-1], key)), "")
    names = [known.alias or own for own, known in SECTIONS[section].model_fields.items()]
    habit = _habit(name)
    near = habit if habit in names else nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else f"; known are {', '.join(names)}"
    return Fault(field, "unknown field" + hint, "one of " + ", ".join(names), name[:60], near)


def _is(path: FieldPath, section: str) -> bool:
    parts = section.split(".") if section else []
    return len(parts) == len(path) and all(part in ("*", one) for part, one in zip(parts, path, strict=True))


def _complete(fields: ClusterFields) -> Cluster:
    known = {work.name: work for work in CLASSES}
    classes = {**known, **{name: _work(known.get(name) or Work(name), given) for name, given in fields.classes.items()}}
    default = Cluster()
    return Cluster(
        tuple(_pool(name, given) for name, given in fields.pools.items()) or default.pools,
        tuple(_project(name, given) for name, given in fields.projects.items()),
        tuple(classes.values()),
        fields.fair_share.half_life or default.half_life_s,
        fields.preemption.min_run,
        fields.currency,
        _weights(fields.multifactor),
        default.cpu_weight if fields.fair_share.cpu_weight is None else fields.fair_share.cpu_weight,
    )


def _weights(given: MultifactorFields) -> Weights:
    age_max_s = given.age_max or Weights().age_max_s
    return Weights(given.workload_class, given.priority, given.age, given.fair_share, given.size, age_max_s)


def _pool(name: str, given: PoolFields) -> Pool:
    windows = tuple(
        Window(window.when[0], window.when[1], tuple(window.nodes), window.reason, window.when[2])
        for window in given.maintenance
        if window.when is not None
    )
    labels = tuple((pattern, _labels(found)) for pattern, found in given.node_labels.items())
    policy = given.policy or DEFAULT_POLICY
    return Pool(name, tuple(given.nodes), _labels(given.labels), labels, given.price, policy, windows, given.speed)


def _labels(given: Mapping[str, str]) -> Labels:
    return tuple(sorted(given.items()))


def _project(name: str, given: ProjectFields) -> Project:
    return Project(
        name,
        given.weight,
        given.parent,
        tuple(given.members.items()),
        tuple((resource, _quota(quota)) for resource, quota in given.quota.items()),
        given.running,
        given.running_per_member,
        tuple(given.urgent),
    )


def _quota(given: QuotaFields) -> Quota:
    """A quota. `nominal` defaults to the guarantee if given, else to the limit."""
    limit = UNBOUNDED if given.limit is None else given.limit
    own = given.nominal if given.nominal is not None else given.guarantee if given.guarantee is not None else limit
    return Quota(given.guarantee or 0.0, own, limit)


def _work(known: Work, given: WorkFields) -> Work:
    """The default class, changed by the fields in the file."""
    said = {
        "priority": given.priority,
        "preemptible": given.preemptible,
        "wait_target_s": given.wait_target,
        "wait_max_s": given.wait_max,
        "completion_target_s": given.completion_target,
        "recovery_target_s": given.recovery_target,
        "slice_s": given.time_slice,
        "express_gpus": given.express.gpus,
        "express_limit_s": given.express.limit,
    }
    changes: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if given.preemptible is False and given.time_slice is None:
            changes["slice_s"] = None  # the default class's time slice has no meaning here
    return replace(known, access=Access(_names(given.projects), _names(given.members)), **changes)


def _names(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
