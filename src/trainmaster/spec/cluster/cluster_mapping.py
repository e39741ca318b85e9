"""Converts a cluster configuration back into its mapping and YAML, and lists differences between two of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trainmaster.model.cluster import CLASSES, DEFAULT_POLICY, UNBOUNDED, Cluster, Pool, Project, Quota, Weights, Work
from trainmaster.spec.cluster.windows import span_text
from trainmaster.spec.mapping import duration_value
from trainmaster.spec.yaml.scalars import scalar

_EVERY = ["*"]


def to_mapping(cluster: Cluster) -> dict[str, Any]:
    """The mapping of a configuration without default values. `from_mapping` of it gives the same configuration."""
    default, known = Cluster(), {work.name: work for work in CLASSES}
    pools = {} if cluster.pools == default.pools else {pool.name: _pool(pool) for pool in cluster.pools}
    classes = {work.name: _work(work, known.get(work.name) or Work(work.name)) for work in cluster.classes}
    return _said(
        {
            "pools": pools,
            "projects": {project.name: _project(project) for project in cluster.projects},
            "classes": {name: given for name, given in classes.items() if given or name not in known},
            "fair_share": _unless(_shares(cluster), _shares(default)),
            "multifactor": _unless(_weights(cluster.weights), _weights(default.weights)),
            "preemption": _unless({"min_run": _span(cluster.min_run_s)}, {"min_run": _span(default.min_run_s)}),
            "currency": None if cluster.currency == default.currency else cluster.currency,
        }
    )


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.2 would read as something else; PyYAML's own rules follow YAML 1.1."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = isinstance(scalar(text), str)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _text)


def to_yaml(cluster: Cluster) -> str:
    """The configuration as a YAML file."""
    mapping = to_mapping(cluster)
    if not mapping:
        return "{}  # every default\n"
    return str(yaml.dump(mapping, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def differences(before: Cluster, after: Cluster) -> list[str]:
    """The differences of `after` from `before`, one line per field, named as in the file."""
    old, new = dict(_flat(to_mapping(before))), dict(_flat(to_mapping(after)))
    lines = []
    for path in dict.fromkeys((*old, *new)):
        was, now = old.get(path), new.get(path)
        if was == now:
            continue
        if was is None:
            lines.append(f"{path}: {now} (new)")
        else:
            lines.append(f"{path}: removed (was {was})" if now is None else f"{path}: {now} (was {was})")
    order_was, order_now = [pool.name for pool in before.pools], [pool.name for pool in after.pools]
    if sorted(order_was) == sorted(order_now) and order_was != order_now:
        lines.append(f"pools: matched in the order {', '.join(order_now)} (was {', '.join(order_was)})")
    return lines


def _flat(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and values as text, including empty ones."""
    for name, item in value.items():
        path = f"{above}{name}"
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{path}.")
        elif isinstance(item, Mapping):
            yield path, "as by default"
        else:
            yield path, (", ".join(_window(one) for one in item) or "none") if isinstance(item, list) else f"{item}"


def _window(item: object) -> str:
    if not isinstance(item, Mapping):
        return f"{item}"
    nodes = f" on {', '.join(item['nodes'])}" if "nodes" in item else ""
    return f"{item['when']}{nodes}" + (f" ({item['reason']})" if "reason" in item else "")


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without empty ones."""
    return {name: value for name, value in fields.items() if value is not None and value != {} and value != []}


def _unless(fields: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value != default.get(name)}


def _pool(pool: Pool) -> dict[str, Any]:
    windows: list[Any] = []
    for window in pool.windows:
        when, nodes = span_text((window.from_s, window.until_s, window.every_s)), list(window.nodes)
        more = {**({} if nodes == _EVERY else {"nodes": nodes}), **({"reason": window.reason} if window.reason else {})}
        windows.append({"when": when, **more} if more else when)
    nodes = list(pool.nodes)
    fields = {
        "labels": dict(pool.labels),
        "node_labels": {pattern: dict(labels) for pattern, labels in pool.node_labels},
        "price": _plain(pool.price) or None,
        "speed": None if pool.speed == 1 else _plain(pool.speed),
        "policy": None if pool.policy == DEFAULT_POLICY else pool.policy,
        "maintenance": windows,
    }
    return {**({} if nodes == _EVERY else {"nodes": nodes}), **_said(fields)}


def _project(project: Project) -> dict[str, Any]:
    return _said(
        {
            "weight": None if project.weight == 1 else _plain(project.weight),
            "parent": project.parent,
            "members": {name: _plain(weight) for name, weight in project.members},
            "quota": {resource: _quota(quota) for resource, quota in project.quotas},
            "running": project.running_max,
            "running_per_member": project.running_per_member_max,
            "urgent": list(project.urgent),
        }
    )


def _shares(cluster: Cluster) -> dict[str, Any]:
    return {"half_life": _span(cluster.half_life_s), "cpu_weight": _plain(cluster.cpu_weight)}


def _weights(weights: Weights) -> dict[str, Any]:
    numbers = {name: _plain(getattr(weights, name)) for name in ("priority", "age", "fair_share", "size")}
    return {"class": _plain(weights.workload_class), **numbers, "age_max": _span(weights.age_max_s)}


def _quota(quota: Quota) -> dict[str, Any]:
    fields = (("guarantee", quota.guarantee, 0.0), ("nominal", quota.nominal, UNBOUNDED), ("limit", quota.limit, UNBOUNDED))
    return {name: _plain(value) for name, value, unsaid in fields if value != unsaid}


def _work(work: Work, known: Work) -> dict[str, Any]:
    fields = {
        "priority": (work.priority, known.priority),
        "preemptible": (work.preemptible, known.preemptible),
        "wait_target": (_span(work.wait_target_s), _span(known.wait_target_s)),
        "wait_max": (_span(work.wait_max_s), _span(known.wait_max_s)),
        "completion_target": (_span(work.completion_target_s), _span(known.completion_target_s)),
        "recovery_target": (_span(work.recovery_target_s), _span(known.recovery_target_s)),
        "time_slice": (_span(work.slice_s), _span(known.slice_s)),
    }
    express = _said(
        {"gpus": _plain(work.express_gpus) or None, "limit": _span(work.express_limit_s) if work.express_gpus else None}
    )
    said = {name: now for name, (now, was) in fields.items() if now not in (was, None)}
    may = {name: list(names) for name in ("projects", "members") if (names := getattr(work.access, name)) is not None}
    return {**said, **({"express": express} if express else {}), **may}


def _span(seconds: float | None) -> Any:
    """A duration as in the file; 0 is a number."""
    return None if seconds is None else duration_value(seconds) if seconds else 0


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number
