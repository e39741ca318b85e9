"""Guarantees: what is guaranteed to a project and not used by it is kept from other projects.

It is set aside where its jobs can start, not as a mere number: of what is guaranteed in GPUs, as many devices stay wholly free
with a CPU beside them on their node (less where nodes have fewer CPUs than GPUs); of CPUs, as many whole ones. What is
guaranteed within a project's own counts once.
"""

from collections.abc import Mapping, Sequence

from trainmaster.model.cluster import Cluster, Project
from trainmaster.scheduling.admission.stock import CPUS, GPUS, Held, Stock
from trainmaster.scheduling.model.cells import Cells
from trainmaster.scheduling.model.request import WHOLE, Shape
from trainmaster.scheduling.model.space import Space
from trainmaster.scheduling.reservation.backfill import Kept, Later


class Guarantees:
    """The guarantees of all projects, updated as jobs start and end."""

    def __init__(self, rules: Cluster) -> None:
        self._rules = rules
        self._owed: dict[str, Held] = {}  # by resource: how much is owed to which project
        for one in rules.projects:
            for resource, quota in one.quotas:
                if quota.guarantee:
                    self._owed.setdefault(resource, {})[one.name] = int(quota.guarantee * WHOLE)
        self._pledged = {resource: dict(owed) for resource, owed in self._owed.items()}  # the same while no job runs
        self._owing = {resource: sum(owed.values()) for resource, owed in self._owed.items()}
        self._nested = any(self._inside(one.name, owed) for owed in self._owed.values() for one in rules.projects)
        self._units: dict[str, _Units] = {}  # by resource

    def hold(self, name: str, resource: str, guaranteed: int, has: int) -> None:
        """A project with a guarantee now holds `has`."""
        owed = guaranteed - has if has < guaranteed else 0
        self._owing[resource] += owed - self._owed[resource][name]
        self._owed[resource][name] = owed

    def owing(self, resource: str) -> int:
        """What is owed to all projects. A guarantee inside the guarantee of a parent counts twice."""
        return self._owing.get(resource, 0)

    def to_others(self, resource: str, line: Sequence[Project]) -> int:
        """What is owed to projects outside `line`."""
        owed = self._owed.get(resource, {})
        if self._nested:
            return self._of_others(owed, line)
        return self._owing.get(resource, 0) - sum(owed.get(one.name, 0) for one in line)

    def below(self, name: str, resource: str, line: Sequence[Project]) -> int:
        """What is owed to projects below `name`, a project of `line`, and outside `line`."""
        owed = self._owed.get(resource, {})
        inner = {one: left for one, left in owed.items() if any(up.name == name for up in self._rules.line(one)[1:])}
        return self._of_others(inner, line)

    def pledged(self, resource: str, line: Sequence[Project]) -> int:
        """What is guaranteed to projects outside `line`, whatever they hold."""
        return self._of_others(self._pledged.get(resource, {}), line)

    def set_aside(self, space: Space, line: Sequence[Project], stock: Stock) -> Mapping[str, Kept]:
        """By resource what is kept now for projects that are not in `line`. Nodes that are elsewhere can give of it, too."""
        found: dict[str, Kept] = {}
        for resource, owing in self._owing.items():
            owed = self.to_others(resource, line) // WHOLE if owing else 0
            if owed > 0:
                units = self._units.setdefault(resource, _Units(space.cells, resource, stock.cpus_per_gpu))
                able = sum(units[number] * len(nodes) for number, nodes in space.nodes.items())
                able += sum(units[space.of[node]] for node in stock.elsewhere)
                found[resource] = Kept(Shape(), 0.0, able - owed, Later(space), None, units)
        return found

    def _of_others(self, guaranteed: Mapping[str, int], line: Sequence[Project]) -> int:
        """How much of `guaranteed` belongs to projects outside `line`. A guarantee inside that of a parent counts once."""
        own = {one.name for one in line}

        def kept(name: str) -> int:
            inner = sum(kept(one) for one in self._inside(name, guaranteed))
            return inner if name in own else max(guaranteed[name], inner)

        return sum(kept(name) for name in guaranteed if self._above(name, guaranteed) is None)

    def _inside(self, name: str, guaranteed: Mapping[str, int]) -> list[str]:
        """The nearest projects below `name` that are in `guaranteed`."""
        return [one for one in guaranteed if self._above(one, guaranteed) == name]

    def _above(self, name: str, guaranteed: Mapping[str, int]) -> str | None:
        """The nearest ancestor that is in `guaranteed`."""
        return next((one.name for one in self._rules.line(name)[1:] if one.name in guaranteed), None)


class _Units(dict[int, int]):
    """By the number of a cell: with how many whole units of a resource jobs could start on a node in it."""

    def __init__(self, cells: Cells, resource: str, cpus_per_gpu: int) -> None:
        super().__init__()
        self._cells, self._resource, self._cpus_per_gpu = cells, resource, cpus_per_gpu

    def __missing__(self, number: int) -> int:
        """Count the units of a cell once."""
        cell, resource = self._cells.values[number], self._resource
        cpus = max(cell.cpus, 0)
        gpus = sum(count for kind, count in zip(cell.kinds, cell.whole, strict=True) if resource in (GPUS, kind))
        found = self[number] = cpus // WHOLE if resource == CPUS else min(cpus // self._cpus_per_gpu, gpus)
        return found
