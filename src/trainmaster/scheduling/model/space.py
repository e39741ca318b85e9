"""What is free: every node's cell, and the nodes of each cell in their order. Changed in place while plans are made."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from trainmaster.model.cluster import Labels
from trainmaster.scheduling.model.cells import FOREVER, Cell, Cells, Step
from trainmaster.scheduling.model.domains import Domain, domain_of, numbered
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape

GONE = "gone"  # why a site does not count any more
FEW = 8  # of so many times as many it is quicker to look for each by itself


class Part(NamedTuple):
    """What one node gives, or gets back (`sign` 1: it comes back; -1: it goes); `devices` are indices of its GPUs."""

    shape: Shape
    devices: tuple[int, ...] = ()
    sign: int = 1


class Grant(NamedTuple):
    """What an attempt holds: node `nodes[i]` (its place in the inventory) gives `ask.first` for i = 0, else `ask.each`.

    `devices[i]` are indices of GPUs on it, the one that a share comes from last; () where no GPU is asked for.
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
        """What the member at `index` gives back, or (`sign` -1) takes."""
        return Part(self.ask.first if index == 0 else self.ask.each, self.devices[index] if self.devices else (), sign)


_Held = tuple[Ask, bool, tuple[int, ...]]  # of whose request, whether as its first node, devices
_DEVICES = itemgetter(2)


class Site(NamedTuple):
    """A node as it is when nothing runs on it. `open` says whether new work may be placed on it."""

    name: str
    cell: Cell
    devices: tuple[int, ...] = ()  # for each GPU the index of its kind in `cell.kinds`
    open: bool = True
    why: str = ""  # it takes no new work: drained, lost, gone
    pool: str = "default"
    labels: Labels = ()
    host: str = ""  # its parts share a machine; "": a machine of its own
    elsewhere: bool = False  # it is open in a pool that is planned by itself (`pools`): guarantees may be met there


class Space:
    """Free capacity. Nodes are known by their place in `sites`."""

    def __init__(self, sites: Sequence[Site], cells: Cells | None = None, grants: Iterable[Grant] = ()) -> None:
        """`grants` are held from the beginning."""
        self.sites = tuple(sites)
        self.cells = cells or Cells()
        self.of = [self.cells.number(site.cell) for site in self.sites]  # number of each node's cell
        self.nodes: dict[int, list[int]] = {}  # open nodes of each cell, ascending; never an empty list
        self.free = [[WHOLE] * len(site.devices) for site in self.sites]  # thousandths of each GPU
        self.closing = any(site.cell.closes_s < FOREVER for site in self.sites)
        self.until_s = 0.0  # nodes that close before are left out of every count
        self._domains: dict[str, tuple[list[int], list[Domain]]] = {}
        self._fitting: dict[Shape, list[tuple[int, list[int]]]] = {}
        for node, site in enumerate(self.sites):
            if site.open:
                self.nodes.setdefault(self.of[node], []).append(node)
        self._by_gpus: dict[int, set[int]] = {}  # cells of `nodes` by the GPUs that they have left, in thousandths
        for number in self.nodes:
            self._by_gpus.setdefault(self.cells.left[number][0], set()).add(number)
        self._shift(list(grants), -1)

    def fitting(self, shape: Shape) -> list[tuple[int, list[int]]]:
        """Cells that can give `shape`, with their open nodes: as they are until something is taken or comes back."""
        found = None if self.closing else self._fitting.get(shape)
        if found is None:
            gives, gpus, nodes = self.giving(shape), shape.gpu_milli, self.nodes
            enough = chain.from_iterable([some for left, some in self._by_gpus.items() if left >= gpus]) if gpus else nodes
            found = self._fitting[shape] = [(number, nodes[number]) for number in enough if gives(number)]
        return found

    def domains(self, level: str) -> tuple[list[int], list[Domain]]:
        """The number of each node's domain of a level, and the domains by number."""
        found = self._domains.get(level)
        if found is None:
            found = numbered([domain_of(level, site.name, site.labels, site.host) for site in self.sites])
            self._domains[level] = found
        return found

    def gives(self, number: int, shape: Shape) -> bool:
        """Whether a node of this cell can give `shape`, for as long as it is asked for."""
        return bool(self.cells.steps(number, shape)) and not (
            self.closing and self.cells.values[number].closes_s < self.until_s
        )

    def giving(self, shape: Shape) -> Callable[[int], Any]:
        """`gives` of one shape, for many questions: true or not."""
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
        """Whether all that is in `grant`, on those very devices, is free now and its nodes are open."""
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
        """Give a gang its nodes, the first of `chosen` what the first is asked for."""
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
        """Take gangs' nodes back."""
        self._shift(grants, 1)

    def hold(self, *grants: Grant) -> None:
        """Take out what attempts hold already, on those very devices. What is more than there is goes below zero."""
        self._shift(grants, -1)

    def _shift(self, grants: Sequence[Grant], sign: int) -> None:
        nodes, numbers = self._changed(grants[0], sign) if len(grants) == 1 else self._changed_by_all(grants, sign)
        self._settle(nodes, numbers)

    def _changed_by_all(self, grants: Iterable[Grant], sign: int) -> tuple[Sequence[int], list[int]]:
        """As `_changed` for several: nodes to which the same happens are looked at once. One of each is left to enter."""
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
        """Its nodes that are in this inventory, and the cell each goes to when its part comes back (or goes: `sign` -1)."""
        nodes, numbers = [], []
        alike: dict[
            tuple[int, bool], int
        ] = {}  # where no devices are held, those of one cell go the same way, but for the first
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
        """The cell that `node`, now in cell `number` with its GPUs as in `free`, goes to with `part`; `free` is changed."""
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
        """The GPUs that a step takes of those in `free`, which is changed: of each kind the first that are wholly free, and for
        a share the first one in the state that the step names.
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
        """Enter the new cells of a gang's nodes."""
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
    """Sorted nodes without some of them, in place where those are few."""
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
