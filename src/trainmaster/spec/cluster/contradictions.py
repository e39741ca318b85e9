"""Values of a cluster configuration that are valid alone and contradict each other: one promises what another forbids."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from trainmaster.model.cluster import UNBOUNDED, Cluster, Project, Quota, Work
from trainmaster.spec.cluster.fields import ClusterFields, ExpressFields
from trainmaster.spec.faults import Fault, nearest
from trainmaster.spec.yaml.reader import Path as FieldPath
from trainmaster.spec.yaml.reader import Positions, dotted

_GPUS, _CPUS = "gpus", "cpus"
_DEPTH_MAX = 20  # projects inside each other
_NEAREST_MAX = 20  # suggestions: each compares a name with all
_LOOKED_MAX = 20  # limits whose guarantees are listed: each looks at all projects inside
_PLACES_MAX = 5


class Conflict(NamedTuple):
    """A contradiction between values, and its position."""

    path: FieldPath
    fault: Fault


def contradictions(fields: ClusterFields, cluster: Cluster, where: Positions) -> Iterator[Conflict]:
    """Values that are valid alone but contradict each other. Linear in the file."""
    for name, given_pool in fields.pools.items():
        for index, window in enumerate(given_pool.maintenance):
            if window.when is None:
                path: FieldPath = ("pools", name, "maintenance", index)
                yield _wrong(path, "has no time; add one, as 'when: Sun 22:00/4h'", "a time")
    tree = _Tree(cluster)
    for project in cluster.projects:
        yield from tree.family(project)
    tangled = tree.tangled
    for project in cluster.projects:
        for resource, quota in project.quotas:
            yield from _ordered(("projects", project.name, "quota", resource), quota)
        if not tangled:
            yield from tree.unreachable(project, where)
    for name, given in fields.classes.items():
        yield from _class_faults(("classes", name), cluster.work(name), given.express)
        for index, named in enumerate(given.projects or ()):
            if named != "*":
                yield from tree.undeclared(("classes", name, "projects", index), named)


def guaranteed(cluster: Cluster) -> dict[str, float]:
    """What must be there of each resource for all guarantees to be held at once, of a configuration without contradictions.

    Guarantees of one kind of GPU count for GPUs of any kind where those are guaranteed too.
    """
    tree, total = _Tree(cluster), dict[str, float]()
    named = dict.fromkeys(name for one in cluster.projects for name, quota in one.quotas if quota.guarantee)
    for one in cluster.projects:
        for resource, need in tree.needed(one.name).items() if one.parent is None else ():
            total[resource] = total.get(resource, 0.0) + need
    return {resource: total[resource] for resource in named}


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


class _Tree:
    """The projects of a configuration, and what is inside what."""

    def __init__(self, cluster: Cluster) -> None:
        self.tangled = False  # whether a circle or too many levels were found: then nothing can be added up
        self._known = {one.name: one for one in cluster.projects}
        self._quotas: Mapping[str, Mapping[str, Quota]] = {one.name: dict(one.quotas) for one in cluster.projects}
        self._children: dict[str, list[Project]] = {}
        for one in cluster.projects:
            if one.parent is not None:
                self._children.setdefault(one.parent, []).append(one)
        self._suggested = self._looked = 0
        self.needed, self._inside = cache(self._need), cache(self._sum)

    def family(self, project: Project) -> Iterator[Conflict]:
        """Check that the parent exists, and that parents form no circle."""
        path = ("projects", project.name, "parent")
        if project.parent is None:
            return
        if project.parent not in self._known:
            yield from self.undeclared(path, project.parent)
            return
        chain, above = [project.name], self._known.get(project.parent)
        while above is not None and len(chain) <= _DEPTH_MAX:
            chain.append(above.name)
            if above.name == project.name:
                self.tangled = True
                yield _wrong(path, f"is a circle: {' is part of '.join(chain)}", "a parent that is not below it")
                return
            above = self._known.get(above.parent or "")
        if above is not None:
            self.tangled = True
            if len(set(chain)) == len(chain):  # else a circle above it, whose members report it
                yield _wrong(path, f"is inside of more than {_DEPTH_MAX} others, the maximum", "fewer levels")

    def undeclared(self, path: FieldPath, name: str) -> Iterator[Conflict]:
        """A project that is named and not declared."""
        if name not in self._known:
            self._suggested += 1
            near = nearest(name, list(self._known)) if self._suggested <= _NEAREST_MAX else None
            hint = f"; did you mean {near!r}?" if near else f"; add it under projects: {name}: {{}}"
            yield Conflict(path, Fault(dotted(path), f"there is no project {name!r} in this file{hint}", nearest=near))

    def unreachable(self, project: Project, where: Positions) -> Iterator[Conflict]:
        """What a quota promises that a limit of the project, or of one above it, never lets it hold."""
        line = self._line(project)
        idle = next((above for above in line if above.running_max == 0), None)
        for resource, quota in project.quotas:
            path: FieldPath = ("projects", project.name, "quota", resource)
            for what, amount in (("guarantee", quota.guarantee), ("nominal", quota.nominal)):
                if what == "nominal" and amount == quota.guarantee:
                    continue  # it is what the guarantee makes it
                far = next((far for far, limit in self._limits(resource, line) if limit < amount < UNBOUNDED), None)
                if far is not None:
                    yield _wrong((*path, what), f"{amount:g} is more than the limit of {_place(far, where)}", f"{what} ≤ limit")
            if quota.guarantee and idle is not None:
                place = _place(("projects", idle.name, "running"), where)
                message = f"{quota.guarantee:g} are guaranteed, but {place} lets no job run"
                yield _wrong((*path, "guarantee"), message, "running above 0, or no guarantee")
            yield from self._too_much_inside(project, resource, where)

    def _too_much_inside(self, project: Project, resource: str, where: Positions) -> Iterator[Conflict]:
        """Guarantees that fit into a limit one by one and not together: of the projects inside, or of kinds of GPU."""
        limit = self._quotas[project.name][resource].limit
        inside, here = self._inside(project.name).get(resource, 0.0), self.needed(project.name)
        kinds = [(kind, need) for kind, need in here.items() if kind not in (_GPUS, _CPUS)] if resource == _GPUS else []
        amount = inside if inside > limit else sum(need for _, need in kinds)
        if amount <= limit or self._looked >= _LOOKED_MAX:
            return
        self._looked += 1
        if inside > limit:
            children = [one.name for one in self._children[project.name] if self.needed(one.name).get(resource)]
            places = [_place(("projects", name), where) for name in children]
            told = any(self._own(name, resource) > limit for name in children)
        else:
            places = [_place(("projects", self._source(project.name, kind), "quota", kind), where) for kind, _ in kinds]
            told = any(self._own(project.name, kind) > limit for kind, _ in kinds)
        if not told:
            more = [f"{len(places) - _PLACES_MAX} more"] if len(places) > _PLACES_MAX else []
            of_whom = " and ".join([*places[:_PLACES_MAX], *more])
            message = f"{limit:g} is less than the {amount:g} that are guaranteed to {of_whom} together"
            yield _wrong(("projects", project.name, "quota", resource, "limit"), message, "limit ≥ the guarantees inside")

    def _need(self, name: str) -> Mapping[str, float]:
        """What must be held in a project for all guarantees in it; within a guarantee of its own, others count once."""
        found = {resource: quota.guarantee for resource, quota in self._quotas[name].items() if quota.guarantee}
        for resource, need in self._inside(name).items():
            found[resource] = max(found.get(resource, 0.0), need)
        kinds = sum(need for resource, need in found.items() if resource not in (_GPUS, _CPUS))
        return {**found, _GPUS: max(found.get(_GPUS, 0.0), kinds)} if kinds else found

    def _sum(self, name: str) -> Mapping[str, float]:
        """What must be held in all projects inside a project together."""
        found: dict[str, float] = {}
        for one in self._children.get(name, ()):
            for resource, need in self.needed(one.name).items():
                found[resource] = found.get(resource, 0.0) + need
        return found

    def _source(self, name: str, resource: str) -> str:
        """A project to which some of it is guaranteed, this one or the first inside."""
        while not self._own(name, resource):
            name = next(one.name for one in self._children[name] if resource in self.needed(one.name))
        return name

    def _own(self, name: str, resource: str) -> float:
        return self._quotas[name].get(resource, _NONE).guarantee

    def _limits(self, resource: str, line: Sequence[Project]) -> Iterator[tuple[FieldPath, float]]:
        """What bounds a resource besides its own limit: the same of those above, and for a kind of GPU those of all GPUs."""
        for at, above in enumerate(line):
            for name in (resource, _GPUS) if resource not in (_GPUS, _CPUS) else (resource,):
                quota = self._quotas[above.name].get(name)
                if quota is not None and (at or name != resource):
                    yield ("projects", above.name, "quota", name), quota.limit

    def _line(self, project: Project) -> list[Project]:
        """It and those that it is part of, the nearest first."""
        line = [project]
        while (parent := self._known.get(line[-1].parent or "")) is not None:
            line.append(parent)
        return line


_NONE = Quota()


def _place(path: FieldPath, where: Positions) -> str:
    """A field and its line, if it is in a file."""
    return f"{dotted(path)} (line {where.key(path)[0]})" if where.file else dotted(path)
