"""Values of a cluster configuration that are valid alone and contradict each other: one promises what another forbids."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmaster.model.cluster import UNBOUNDED, Cluster, Project, Quota, Work
from trainmaster.spec.cluster.fields import ClusterFields, ExpressFields
from trainmaster.spec.faults import Fault, nearest
from trainmaster.spec.yaml.reader import Path as FieldPath
from trainmaster.spec.yaml.reader import Positions, dotted

_GPUS, _CPUS = "gpus", "cpus"


class Conflict(NamedTuple):
    """A contradiction between values, and its position."""

    path: FieldPath
    fault: Fault


def contradictions(fields: ClusterFields, cluster: Cluster, where: Positions) -> Iterator[Conflict]:
    """Values that are valid alone but contradict each other."""
    for name, given_pool in fields.pools.items():
        for index, window in enumerate(given_pool.maintenance):
            if window.when is None:
                path: FieldPath = ("pools", name, "maintenance", index)
                yield _wrong(path, "has no time; add one, as 'when: Sun 22:00/4h'", "a time")
    for project in cluster.projects:
        yield from _family(project, cluster)
        for resource, quota in project.quotas:
            yield from _ordered(("projects", project.name, "quota", resource), quota)
        yield from _unreachable(project, cluster, where)
    for name, given in fields.classes.items():
        yield from _class_faults(("classes", name), cluster.work(name), given.express)


def _family(project: Project, cluster: Cluster) -> Iterator[Conflict]:
    """Check that the parent exists, and that parents form no circle."""
    names, path = [one.name for one in cluster.projects], ("projects", project.name, "parent")
    if project.parent is None:
        return
    if project.parent not in names:
        near = nearest(project.parent, names)
        hint = f"; did you mean {near!r}?" if near else f"; add it under projects: {project.parent}: {{}}"
        yield Conflict(path, Fault(dotted(path), f"there is no project {project.parent!r} in this file{hint}", nearest=near))
        return
    above, chain = project, [project.name]
    while above.parent is not None and above.parent in names:
        above = cluster.project(above.parent)
        chain.append(above.name)
        if above.name == project.name:
            yield _wrong(path, f"is a circle: {' is part of '.join(chain)}", "a parent that is not below it")
            return
        if chain.count(above.name) > 1:
            return  # the circle does not include this project: its members report it


def _ordered(path: FieldPath, quota: Quota) -> Iterator[Conflict]:
    pairs = (("guarantee", quota.guarantee, "nominal", quota.nominal), ("nominal", quota.nominal, "limit", quota.limit))
    for lower, low, upper, high in pairs:
        if low > high:
            yield _wrong((*path, lower), f"{low:g} is more than its {upper} {high:g}", "guarantee ≤ nominal ≤ limit")


def _class_faults(path: FieldPath, work: Work, express: ExpressFields) -> Iterator[Conflict]:
    if work.slice_s is not None and not work.preemptible:
        message = "has no effect in a class that is not preemptible: its jobs are never preempted"
        yield _wrong((*path, "time_slice"), message, "preemptible: true")
    if bool(work.express_gpus) != bool(work.express_limit_s):
        missing = "limit" if work.express_gpus else "gpus"
        yield _wrong((*path, "express"), f"needs {missing!r} as well: both define its jobs", f"{missing} greater than 0")


def _wrong(path: FieldPath, message: str, expected: str) -> Conflict:
    return Conflict(path, Fault(dotted(path), message, expected))


def _unreachable(project: Project, cluster: Cluster, where: Positions) -> Iterator[Conflict]:
    """What a quota promises that a limit of the project, or of one above it, never lets it hold."""
    line = _above(project, cluster)
    idle = next((above for above in line if above.running_max == 0), None)
    for resource, quota in project.quotas:
        path: FieldPath = ("projects", project.name, "quota", resource)
        for what, amount in (("guarantee", quota.guarantee), ("nominal", quota.nominal)):
            if what == "nominal" and amount == quota.guarantee:
                continue  # it is what the guarantee makes it
            far = next((far for far, limit in _limits(resource, line) if limit < amount < UNBOUNDED), None)
            if far is not None:
                yield _wrong((*path, what), f"{amount:g} is more than the limit of {_place(far, where)}", f"{what} ≤ limit")
        if quota.guarantee and idle is not None:
            place = _place(("projects", idle.name, "running"), where)
            message = f"{quota.guarantee:g} are guaranteed, but {place} lets no job run"
            yield _wrong((*path, "guarantee"), message, "running above 0, or no guarantee")
        children = _children(project.name, cluster)
        inside = _guaranteed_inside(project.name, resource, cluster)
        if inside > quota.limit and all(_own(one, resource) <= quota.limit for one in children):  # else that is told
            of = " and ".join(_place(("projects", one.name), where) for one in children)
            message = f"{quota.limit:g} is less than the {inside:g} that are guaranteed to {of} together"
            yield _wrong((*path, "limit"), message, "limit ≥ the guarantees inside")


def _limits(resource: str, line: Sequence[Project]) -> Iterator[tuple[FieldPath, float]]:
    """What bounds a resource besides its own limit: the same of those above, and for a kind of GPU those of all GPUs."""
    for at, above in enumerate(line):
        for name, quota in above.quotas:
            of_kinds = name == _GPUS and resource not in (_GPUS, _CPUS)
            if of_kinds or (at and name == resource):
                yield ("projects", above.name, "quota", name), quota.limit


def _place(path: FieldPath, where: Positions) -> str:
    """A field and its line."""
    return f"{dotted(path)} (line {where.key(path)[0]})"


def _above(project: Project, cluster: Cluster) -> list[Project]:
    """It and those that it is part of, the nearest first; a circle, which is told apart, ends this."""
    line, known = [project], {one.name: one for one in cluster.projects}
    while (parent := known.get(line[-1].parent or "")) is not None and parent not in line:
        line.append(parent)
    return line


def _children(name: str, cluster: Cluster) -> list[Project]:
    return [one for one in cluster.projects if one.parent == name and one.name != name]


def _own(project: Project, resource: str) -> float:
    return next((quota.guarantee for name, quota in project.quotas if name == resource), 0.0)


def _guaranteed_inside(name: str, resource: str, cluster: Cluster, seen: tuple[str, ...] = ()) -> float:
    """What is guaranteed to those in a project; within a guarantee of theirs others count once."""
    if name in seen:
        return 0.0
    below = ((one, _guaranteed_inside(one.name, resource, cluster, (*seen, name))) for one in _children(name, cluster))
    return sum(max(_own(one, resource), inside) for one, inside in below)
