"""The free capacity: the cell of every node, and the nodes of each cell. A decision changes it in place."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from trainmaster.model.cluster import Labels
from trainmaster.scheduling.model.cells import FOREVER, Cell, Cells, Step
from trainmaster.scheduling.model.domains import Domain, domain_of, numbered
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape

GONE = "gone"  # `Site.why` of a node that no longer counts
FEW = 8  # if one list is so many times longer, bisection is faster


class Part(NamedTuple):
    """A part of a node that is freed (`sign` 1) or taken (-1). `devices` are indices of its GPUs."""

    shape: Shape
    devices: tuple[int, ...] = ()
    sign: int = 1


class Grant(NamedTuple):
    """What an attempt holds: node `nodes[i]` (an index in the inventory) gives `ask.first` for i = 0, else `ask.each`.

    `devices[i]` are the indices of its GPUs, last the one of which a share is taken; (): no GPU is requested.
    """

    ask: Ask
    nodes: tuple[int, ...]
    devices: tuple[tuple[int, ...], ...] = ()

    def shape(self, index: int) -> Shape:
        """What the member at `index` holds."""
        return self.ask.first if index == 0 else self.ask.each

    def held(self, index: int) -> tuple[int, ...]:
        """The GPUs of the member at `index`."""
        return self.devices[index] if self.devices else ()

    def part(self, index: int, sign: int = 1) -> Part:
        """What the member at `index` frees, or (`sign` -1) takes."""
        return Part(self.ask.first if index == 0 else self.ask.each, self.devices[index] if self.devices else (), sign)


_Held = tuple[Ask, bool, tuple[int, ...]]  # request, whether it is the first node, devices
_DEVICES = itemgetter(2)


class Site(NamedTuple):
    """An empty node. `open`: whether new jobs may be placed on it."""

    name: str
    cell: Cell
    devices: tuple[int, ...] = ()  # for each GPU the index of its kind in `cell.kinds`
    open: bool = True
    why: str = ""  # why it takes no new jobs: drained, lost, gone
    pool: str = "default"
    labels: Labels = ()
    host: str = ""  # its parts share a machine; "": a machine of its own
    elsewhere: bool = False  # another decision places work on it: only quotas and guarantees count it


class Space:
    """Free capacity. Nodes are indices in `sites`."""

    def __init__(self, sites: Sequence[Site], cells: Cells | None = None, grants: Iterable[Grant] = ()) -> None:
        """`grants` are taken from the start."""
        self.sites = tuple(sites)
        self.cells = cells or Cells()
        self.of = [self.cells.number(site.cell) for site in self.sites]  # number of each node's cell
        self.nodes: dict[int, list[int]] = {}  # open nodes of each cell, ascending; never an empty list
        self.free = [[WHOLE] * len(site.devices) for site in self.sites]  # thousandths of each GPU
        self.closing = any(site.cell.closes_s < FOREVER for site in self.sites)
        self.until_s = 0.0  # nodes that close before this time are left out of every count
        self._domains: dict[str, tuple[list[int], list[Domain]]] = {}
        self._fitting: dict[Shape, list[tuple[int, list[int]]]] = {}
        for node, site in enumerate(self.sites):
            if site.open:
                self.nodes.setdefault(self.of[node], []).append(node)
        self._by_gpus: dict[int, set[int]] = {}  # cells of `nodes` by their free GPUs, in thousandths
        for number in self.nodes:
            self._by_gpus.setdefault(self.cells.left[number][0], set()).add(number)
        self._shift(list(grants), -1)

    def fitting(self, shape: Shape) -> list[tuple[int, list[int]]]:
        """The cells that can give `shape`, with their open nodes. Valid until the next change."""
        found = None if self.closing else self._fitting.get(shape)
        if found is None:
            gives, gpus, nodes = self.giving(shape), shape.gpu_milli, self.nodes
            enough = chain.from_iterable([some for left, some in self._by_gpus.items() if left >= gpus]) if gpus else nodes
            found = self._fitting[shape] = [(number, nodes[number]) for number in enough if gives(number)]
        return found

    def domains(self, level: str) -> tuple[list[int], list[Domain]]:
        """The domain number of each node at a level, and the domains by number."""
        found = self._domains.get(level)
        if found is None:
            found = numbered([domain_of(level, site.name, site.labels, site.host) for site in self.sites])
            self._domains[level] = found
        return found

    def gives(self, number: int, shape: Shape) -> bool:
        """Whether a node in this cell can give `shape`, until `until_s`."""
        return bool(self.cells.steps(number, shape)) and not (
            self.closing and self.cells.values[number].closes_s < self.until_s
        )

    def giving(self, shape: Shape) -> Callable[[int], Any]:
        """`gives` for one shape as a function, for many calls. The result is only true or false."""
        if self.closing:
            return lambda number: self.gives(number, shape)
        return self.cells.ways(shape).__getitem__

    def count(self, shape: Shape) -> int:
        """How many open nodes can give `shape`."""
        count = 0
        for _, nodes in self.fitting(shape):
            count += len(nodes)
        return count

    def has(self, grant: Grant) -> bool:
        """Whether all of `grant`, with its devices, is free now and its nodes are open."""
        for index, node in enumerate(grant.nodes):
            if node < 0 or not self.sites[node].open:
                return False
            shape, cell, held = grant.shape(index), self.cells.values[self.of[node]], grant.held(index)
            counted = dict(cell.counted)
            if cell.cpus < shape.cpus or cell.memory < shape.memory:
                return False
            if any(counted.get(name, 0) < amount for name, amount in shape.counted):
                return False
            for place, device in enumerate(held):
                share = shape.share if shape.share and place == len(held) - 1 else WHOLE
                if self.free[node][device] < share:
                    return False
        return True

    def take(self, ask: Ask, chosen: Sequence[int]) -> Grant:
        """Take the `chosen` nodes for a gang. The first of them gives `ask.first`."""
        devices, numbers = [], []
        ways, shape = self.cells.ways(ask.first), ask.first
        for node in chosen:
            number, step = ways[self.of[node]][0]
            if shape.gpus or shape.share:
                devices.append(self.pick(self.free[node], node, shape, step))
            numbers.append(number)
            if shape is not ask.each:
                ways, shape = self.cells.ways(ask.each), ask.each
        self._settle(chosen, numbers)
        return Grant(ask, tuple(chosen), tuple(devices))

    def give(self, *grants: Grant) -> None:
        """Free grants."""
        self._shift(grants, 1)

    def hold(self, *grants: Grant) -> None:
        """Take grants with their devices, as attempts hold them. Amounts may become negative."""
        self._shift(grants, -1)

    def _shift(self, grants: Sequence[Grant], sign: int) -> None:
        nodes, numbers = self._changed(grants[0], sign) if len(grants) == 1 else self._changed_by_all(grants, sign)
        self._settle(nodes, numbers)

    def _changed_by_all(self, grants: Iterable[Grant], sign: int) -> tuple[Sequence[int], list[int]]:
        """`_changed` for several grants. Equal changes of equal nodes are computed once."""
        parts: dict[int, list[_Held]] = {}
        for ask, where, devices in grants:
            for index, node in enumerate(where):
                if node >= 0:
                    parts.setdefault(node, []).append((ask, index == 0, devices[index] if devices else ()))
        known: dict[tuple[Any, ...], tuple[int, list[int]]] = {}
        of, numbers = self.of, []
        for node, some in parts.items():
            if len(some) > 1:
                some.sort(key=_DEVICES)
            key = (of[node], self.sites[node].devices, *self.free[node], *some)
            found = known.get(key)
            if found is None:
                number, free = of[node], self.free[node].copy()
                for asked, first, gpus in some:
                    number = self.after(node, Part(asked.first if first else asked.each, gpus, sign), number, free)
                found = known[key] = number, free
            numbers.append(found[0])
            self.free[node] = found[1].copy()
        return list(parts), numbers

    def _changed(self, grant: Grant, sign: int) -> tuple[Sequence[int], list[int]]:
        """The nodes of a grant in this inventory, and their cells after their parts are freed (`sign` -1: taken)."""
        nodes, numbers = [], []
        alike: dict[
            tuple[int, bool], int
        ] = {}  # without devices, the nodes of one cell have the same new cell, except the first node
        for index, node in enumerate(grant.nodes):
            if node < 0:
                continue
            key = (self.of[node], index == 0)
            number = None if grant.devices else alike.get(key)
            if number is None:
                number = alike[key] = self.after(node, grant.part(index, sign), key[0], self.free[node])
            nodes.append(node)
            numbers.append(number)
        return nodes, numbers

    def after(self, node: int, part: Part, number: int, free: list[int]) -> int:
        """The cell of `node` after `part`, from cell `number` with the free GPUs `free`. Changes `free`."""
        shape, held, sign = part
        cells = self.cells
        if not held:
            cell = cells.values[number]
            return cells.back(number, shape, sign, (cell.whole, cell.parts))
        for place, device in enumerate(held):
            free[device] += sign * (shape.share if shape.share and place == len(held) - 1 else WHOLE)
        site, whole_ones = self.sites[node], free.count(WHOLE)
        if len(site.cell.kinds) == 1 and whole_ones + free.count(0) == len(free):
            return cells.back(number, shape, sign, ((whole_ones,), ()))
        whole = [0] * len(site.cell.kinds)
        parts = []
        for kind, left in zip(site.devices, free, strict=True):
            if left == WHOLE:
                whole[kind] += 1
            elif left > 0:
                parts.append((kind, left))
        return cells.back(number, shape, sign, (tuple(whole), tuple(sorted(parts))))

    def pick(self, free: list[int], node: int, shape: Shape, step: Step) -> tuple[int, ...]:
        """The GPUs that `step` takes of `free`, which changes: the first free ones of each kind, and for a share the first one
        in the state that the step names.
        """
        kinds = self.sites[node].devices
        left, found, missing = list(step.whole), list[int](), shape.gpus
        for device, kind in enumerate(kinds):
            if not missing:
                break
            if left[kind] and free[device] == WHOLE:
                left[kind] -= 1
                missing -= 1
                free[device] = 0
                found.append(device)
        if step.device is not None:
            kind, part = step.device
            device = next(i for i in range(len(free)) if kinds[i] == kind and free[i] == part)
            free[device] -= shape.share
            found.append(device)
        return tuple(found)

    def _settle(self, nodes: Sequence[int], numbers: Sequence[int]) -> None:
        """Record the new cells of nodes."""
        of, sites = self.of, self.sites
        moved: dict[tuple[int, int], list[int]] = {}
        for node, number in zip(nodes, numbers, strict=True):
            old = of[node]
            if old != number:
                of[node] = number
                if sites[node].open:
                    moved.setdefault((old, number), []).append(node)
        if moved:
            self._fitting.clear()
        for (old, number), some in moved.items():
            left = _without(self.nodes[old], some)
            if left:
                self.nodes[old] = left
            else:
                del self.nodes[old]
                self._by_gpus[self.cells.left[old][0]].remove(old)
            if number in self.nodes:
                self.nodes[number] = merged(self.nodes[number], some)
            else:
                self.nodes[number] = sorted(some)
                self._by_gpus.setdefault(self.cells.left[number][0], set()).add(number)


def _without(nodes: list[int], some: list[int]) -> list[int]:
    """Sorted nodes without some of them; in place if those are few."""
    if len(some) * FEW > len(nodes):
        gone = set(some)
        return [node for node in nodes if node not in gone]
    for node in some:
        del nodes[bisect_left(nodes, node)]
    return nodes


def merged(nodes: list[int], some: Sequence[int]) -> list[int]:
    """Sorted nodes with some more, in place."""
    if len(some) * FEW > len(nodes):
        nodes += some
        nodes.sort()
    else:
        for node in some:
            insort(nodes, node)
    return nodes
