"""What is free: every node's cell, and the nodes of each cell in their order. Changed in place while plans are made."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from trainmaster.model.cluster import Labels
from trainmaster.scheduling.ask import WHOLE, Ask, Shape
from trainmaster.scheduling.cells import FOREVER, Cell, Step, steps
from trainmaster.scheduling.domains import Domain, domain_of, numbered

FEW = 8  # of so many times as many it is quicker to look for each by itself
Gpus = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]  # `whole` and `parts` of a `Cell`


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


_Held = tuple[Ask, bool, tuple[int, ...]]  # of whose request, whether as its first node, devices
Left = tuple[int, int, int]  # GPUs in thousandths, CPUs, memory
Worth = tuple[int, ...]  # less is better


class Taste(Protocol):
    """What is better, where a request can be given in several ways."""

    def worth(self, cell: Cell, shape: Shape, step: Step) -> Worth:
        """How good it is that a node in `cell` gives `shape` by `step`."""
        ...


class Cells:
    """Cells by number, and what becomes of them: found out once for all spaces of one inventory."""

    def __init__(self) -> None:
        self.values: list[Cell] = []
        self.left: list[Left] = []  # of each
        self.taste: Taste | None = None
        self._numbers: dict[Cell, int] = {}
        self._ways: dict[Shape, Ways] = {}
        self._worths: dict[Shape, Worths] = {}
        self._back: dict[tuple[int, Shape, int, Gpus], int] = {}

    def number(self, cell: Cell) -> int:
        """The number of a cell."""
        found = self._numbers.get(cell)
        if found is None:
            found = self._numbers[cell] = len(self.values)
            self.values.append(cell)
            self.left.append((cell.gpu_milli, cell.cpus, cell.memory))
        return found

    def prefer(self, taste: Taste | None) -> None:
        """Of the ways in which a node can give a shape the first is from now on what `taste` likes best; None: the tightest."""
        if taste is not self.taste:
            self.taste, self._ways, self._worths = taste, {}, {}

    def ways(self, shape: Shape) -> "Ways":
        """By a cell's number: every way in which a node of it can give `shape`, with the number of the cell that it goes to.

        The first is the one that is taken.
        """
        found = self._ways.get(shape)
        if found is None:
            found = self._ways[shape] = Ways(self, shape)
        return found

    def steps(self, number: int, shape: Shape) -> tuple[tuple[int, Step], ...]:
        """The same for one cell."""
        return self.ways(shape)[number]

    def worths(self, shape: Shape, taste: Taste) -> "Worths":
        """By the number of a cell that can give `shape`: how good it is that it does so, to the taste that it is given by."""
        assert taste is self.taste, "another taste decides which way is taken"
        found = self._worths.get(shape)
        if found is None:
            found = self._worths[shape] = Worths(self, shape, taste)
        return found

    def used_up(self, number: int) -> bool:
        """Whether a node of this cell has nothing left that anybody could ask for: every request takes some CPU."""
        return self.values[number].cpus <= 0

    def back(self, number: int, shape: Shape, sign: int, gpus: Gpus) -> int:
        """The cell that a node goes to when it gets `shape` back (`sign` 1) or gives it (-1); its GPUs are then `gpus`."""
        key = (number, shape, sign, gpus)
        found = self._back.get(key)
        if found is None:
            cell = self.values[number]
            counted = dict(cell.counted)
            for name, amount in shape.counted:
                counted[name] = counted.get(name, 0) + sign * amount
            cpus, memory, more = (
                cell.cpus + sign * shape.cpus,
                cell.memory + sign * shape.memory,
                tuple(sorted(counted.items())),
            )
            found = self.number(cell._replace(whole=gpus[0], parts=gpus[1], cpus=cpus, memory=memory, counted=more))
            self._back[key] = found
        return found


class Ways(dict[int, tuple[tuple[int, Step], ...]]):
    """Of one shape, by the number of a cell; found out when first asked for."""

    def __init__(self, cells: Cells, shape: Shape) -> None:
        super().__init__()
        self._cells, self._shape = cells, shape

    def __missing__(self, number: int) -> tuple[tuple[int, Step], ...]:
        """Ask once."""
        cell, shape, taste = self._cells.values[number], self._shape, self._cells.taste
        found = steps(cell, shape)
        if taste is not None and len(found) > 1:
            found = tuple(sorted(found, key=lambda step: taste.worth(cell, shape, step)))
        ways = self[number] = tuple((self._cells.number(step.cell), step) for step in found)
        return ways


class Worths(dict[int, Worth]):
    """Of the first way, by the number of a cell that has one; found out when first asked for."""

    def __init__(self, cells: Cells, shape: Shape, taste: Taste) -> None:
        super().__init__()
        self._cells, self._shape, self._taste = cells, shape, taste

    def __missing__(self, number: int) -> Worth:
        """Ask once."""
        step = self._cells.steps(number, self._shape)[0][1]
        found = self[number] = self._taste.worth(self._cells.values[number], self._shape, step)
        return found


class Space:
    """Free capacity. Nodes are known by their place in `sites`."""

    def __init__(self, sites: Sequence[Site], cells: Cells | None = None, grants: Iterable[Grant] = ()) -> None:
        """`grants` are held from the beginning."""
        self.sites = tuple(sites)
        self.cells = cells or Cells()
        self.of = [self.cells.number(site.cell) for site in self.sites]  # number of each node's cell
        # The cell of every node when nothing runs, where they are all alike and open; else None.
        self.even = self.of[0] if len(set(self.of)) == 1 and all(site.open for site in self.sites) else None
        self.nodes: dict[int, list[int]] = {}  # open nodes of each cell, ascending; never an empty list
        self.tenants = [0] * len(self.sites)
        self.shared = 0  # attempts beyond one on their node: 0 where no two sit on one
        self.free = [[WHOLE] * len(site.devices) for site in self.sites]  # thousandths of each GPU
        self.closing = any(site.cell.closes_s < FOREVER for site in self.sites)
        self.until_s = 0.0  # nodes that close before are left out of every count
        self._domains: dict[str, tuple[list[int], list[Domain]]] = {}
        self._fill(grants)
        for node, site in enumerate(self.sites):
            if site.open:
                self.nodes.setdefault(self.of[node], []).append(node)

    def _fill(self, grants: Iterable[Grant]) -> None:
        """As `hold` for each of them, but that nodes of which the same is held are looked at once."""
        taken: dict[int, list[_Held]] = {}
        for grant in grants:
            ask, devices = grant.ask, grant.devices
            for index, node in enumerate(grant.nodes):
                if node >= 0:
                    taken.setdefault(node, []).append((ask, index == 0, devices[index] if devices else ()))
        known: dict[tuple[Any, ...], tuple[int, list[int]]] = {}
        for node, held in taken.items():
            self.tenants[node] = len(held)
            self.shared += len(held) - 1
            key = (self.of[node], self.sites[node].devices, *held)
            found = known.get(key)
            if found is None:
                number, free = self.of[node], self.free[node].copy()
                for ask, first, devices in held:
                    number = self.after(node, Part(ask.first if first else ask.each, devices, -1), number, free)
                found = known[key] = number, free
            self.of[node], self.free[node] = found[0], found[1].copy()

    def fitting(self, shape: Shape) -> Iterator[tuple[int, list[int]]]:
        """Cells that can give `shape`, with their open nodes."""
        if not self.closing:
            ways = self.cells.ways(shape)
            return ((number, nodes) for number, nodes in self.nodes.items() if ways[number])
        return ((number, nodes) for number, nodes in self.nodes.items() if self.gives(number, shape))

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

    def count(self, shape: Shape, enough: float = FOREVER) -> int:
        """How many open nodes can give `shape`; where they are `enough` the rest are not counted."""
        total = 0
        for _, nodes in self.fitting(shape):
            total += len(nodes)
            if total >= enough:
                break
        return total

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
        self._settle(chosen, numbers, 1)
        return Grant(ask, tuple(chosen), tuple(devices))

    def give(self, grant: Grant) -> None:
        """Take a gang's nodes back."""
        self._settle(*self._changed(grant, 1), -1)

    def hold(self, grant: Grant) -> None:
        """Take out what an attempt holds already, on those very devices. What is more than there is goes below zero."""
        self._settle(*self._changed(grant, -1), 1)

    def _changed(self, grant: Grant, sign: int) -> tuple[Sequence[int], list[int]]:
        """Its nodes that are in this inventory, and the cell each goes to when its part comes back (or goes: `sign` -1)."""
        nodes, numbers = [], []
        alike: dict[tuple[int, Shape], int] = {}  # where no devices are held, nodes of one cell go the same way
        for index, node in enumerate(grant.nodes):
            if node < 0:
                continue
            old, part = self.of[node], None if grant.devices else (self.of[node], grant.shape(index))
            number = None if part is None else alike.get(part)
            if number is None:
                number = self.after(node, grant.part(index, sign), old, self.free[node])
            if part is not None:
                alike[part] = number
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

    def _settle(self, nodes: Sequence[int], numbers: Sequence[int], came: int) -> None:
        """Enter the new cells of a gang's nodes, and one attempt more (1) or less (-1) on each."""
        of, sites, tenants = self.of, self.sites, self.tenants
        moved: dict[tuple[int, int], list[int]] = {}
        for node, number in zip(nodes, numbers, strict=True):
            there = tenants[node]
            self.shared += came * (there + (came > 0) > 1)
            tenants[node] = there + came
            old = of[node]
            if old != number:
                of[node] = number
                if sites[node].open:
                    moved.setdefault((old, number), []).append(node)
        for (old, number), some in moved.items():
            left = _without(self.nodes[old], some)
            if left:
                self.nodes[old] = left
            else:
                del self.nodes[old]
            self.nodes[number] = _with(self.nodes.get(number, []), some)


def _without(nodes: list[int], some: list[int]) -> list[int]:
    """Sorted nodes without some of them, in place where those are few."""
    if len(some) * FEW > len(nodes):
        gone = set(some)
        return [node for node in nodes if node not in gone]
    for node in some:
        del nodes[bisect_left(nodes, node)]
    return nodes


def _with(nodes: list[int], some: list[int]) -> list[int]:
    """Sorted nodes with some more, in place."""
    if len(some) * FEW > len(nodes):
        nodes += some
        nodes.sort()
    else:
        for node in some:
            insort(nodes, node)
    return nodes
