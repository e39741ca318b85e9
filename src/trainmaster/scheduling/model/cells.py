"""A cell: the free capacity of a node as a value. All nodes in a cell are equal, so a question is answered once per cell.

Ten thousand nodes are in a few dozen cells at a time. To which cell a node goes when a request takes or frees its part is
computed once, and then looked up.
"""

from functools import lru_cache
from typing import NamedTuple, Protocol

from trainmaster.scheduling.model.request import WHOLE, Amounts, Shape

FOREVER = float("inf")

Gpus = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]  # `whole` and `parts` of a `Cell`
Left = tuple[int, int, int]  # GPUs in thousandths, CPUs, memory
Cost = tuple[int, ...]  # lower is better


class Cell(NamedTuple):
    """The free capacity of a node.

    `kinds` are the GPU kinds of the node, sorted. `whole[i]` counts the free devices of `kinds[i]`. `parts` are the devices
    that are partly taken, as (index of the kind, thousandths free), sorted; devices with nothing left are not listed.
    """

    kinds: tuple[str, ...] = ()
    whole: tuple[int, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()
    cpus: int = 0
    memory: int = 0
    counted: Amounts = ()
    pool: str = ""
    closes_s: float = FOREVER  # no job may run on it from then on

    @property
    def gpu_milli(self) -> int:
        """The free GPUs, in thousandths."""
        return sum(self.whole) * WHOLE + sum(free for _, free in self.parts)


class Step(NamedTuple):
    """One way for a node to give a shape. A share comes from the GPU `device`: (index of its kind, thousandths free)."""

    cell: Cell
    device: tuple[int, int] | None = None
    whole: tuple[int, ...] = ()  # devices taken of each kind


@lru_cache(maxsize=1 << 18)
def steps(cell: Cell, shape: Shape) -> tuple[Step, ...]:
    """Every way in which a node in `cell` can give `shape`, the tightest device first; (): it does not fit."""
    if cell.cpus < shape.cpus or cell.memory < shape.memory or shape.pool not in (None, cell.pool):
        return ()
    if shape.gpus and sum(n for n, kind in zip(cell.whole, cell.kinds, strict=True) if shape.takes(kind)) < shape.gpus:
        return ()  # most questions end here
    counted = _less(cell.counted, shape.counted)
    if counted is None:
        return ()
    rest = cell._replace(cpus=cell.cpus - shape.cpus, memory=cell.memory - shape.memory, counted=counted)
    bare = ((rest, ()),) if not shape.gpus else _whole(rest, shape)
    if not shape.share:
        return tuple(Step(after, None, taken) for after, taken in bare)
    return tuple(step for after, taken in bare for step in _shares(after, shape, taken))


def _whole(cell: Cell, shape: Shape) -> tuple[tuple[Cell, tuple[int, ...]], ...]:
    """Whole devices of the requested kinds, in the order of the kinds."""
    left, whole, taken = shape.gpus, list(cell.whole), [0] * len(cell.whole)
    for i, kind in enumerate(cell.kinds):
        if shape.takes(kind):
            taken[i] = min(left, whole[i])
            whole[i] -= taken[i]
            left -= taken[i]
    return ((cell._replace(whole=tuple(whole)), tuple(taken)),) if not left else ()


def _shares(cell: Cell, shape: Shape, taken: tuple[int, ...]) -> list[Step]:
    """A share of one device: every device that can give it, partly taken ones before whole ones."""
    found = []
    for device in sorted(set(cell.parts), key=lambda part: (part[1], part[0])):
        if device[1] >= shape.share and shape.takes(cell.kinds[device[0]]):
            parts = list(cell.parts)
            parts.remove(device)
            found.append(Step(cell._replace(parts=_with(parts, device[0], device[1] - shape.share)), device, taken))
    for i, kind in enumerate(cell.kinds):
        if cell.whole[i] and shape.takes(kind):
            whole = tuple(count - (i == j) for j, count in enumerate(cell.whole))
            after = cell._replace(whole=whole, parts=_with(list(cell.parts), i, WHOLE - shape.share))
            found.append(Step(after, (i, WHOLE), taken))
    return found


def _with(parts: list[tuple[int, int]], kind: int, free: int) -> tuple[tuple[int, int], ...]:
    return tuple(sorted([*parts, (kind, free)])) if free else tuple(parts)


def _less(have: Amounts, want: Amounts) -> Amounts | None:
    """What is left; None: not enough. A name that is used up stays, at 0."""
    if not want:
        return have
    left = dict(have)
    for name, amount in want:
        left[name] = left.get(name, 0) - amount
        if left[name] < 0:
            return None
    return tuple(sorted(left.items()))


class Taste(Protocol):
    """Which way is better if a node can give a request in several ways."""

    def cost(self, cell: Cell, shape: Shape, step: Step) -> Cost:
        """How bad it is if a node in `cell` gives `shape` by `step`; lower is better."""
        ...


class Cells:
    """Cells by number, and the transitions between them: computed once for all spaces of one inventory."""

    def __init__(self) -> None:
        self.values: list[Cell] = []
        self.left: list[Left] = []  # of each
        self.taste: Taste | None = None
        self._numbers: dict[Cell, int] = {}
        self._ways: dict[Shape, Ways] = {}
        self._costs: dict[Shape, Costs] = {}
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
        """From now on the first way to give a shape is the one that `taste` likes best; None: the tightest."""
        if taste is not self.taste:
            self.taste, self._ways, self._costs = taste, {}, {}

    def ways(self, shape: Shape) -> "Ways":
        """By the number of a cell: every way in which a node in it can give `shape`, and the number of the cell after that.

        The first way is the one that is taken.
        """
        found = self._ways.get(shape)
        if found is None:
            found = self._ways[shape] = Ways(self, shape)
        return found

    def steps(self, number: int, shape: Shape) -> tuple[tuple[int, Step], ...]:
        """The ways of one cell."""
        return self.ways(shape)[number]

    def costs(self, shape: Shape, taste: Taste) -> "Costs":
        """By the number of a cell that can give `shape`: the cost of the first way under `taste`."""
        assert taste is self.taste, "another taste decides which way is taken"
        found = self._costs.get(shape)
        if found is None:
            found = self._costs[shape] = Costs(self, shape, taste)
        return found

    def used_up(self, number: int) -> bool:
        """Whether no request fits on a node in this cell: every request takes some CPU."""
        return self.values[number].cpus <= 0

    def back(self, number: int, shape: Shape, sign: int, gpus: Gpus) -> int:
        """The cell of a node after it gets `shape` back (`sign` 1) or gives it (-1). `gpus` are its free GPUs then."""
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
    """The ways of one shape by the number of a cell, computed on demand."""

    def __init__(self, cells: Cells, shape: Shape) -> None:
        super().__init__()
        self._cells, self._shape = cells, shape

    def __missing__(self, number: int) -> tuple[tuple[int, Step], ...]:
        """Compute once."""
        shape, taste, left = self._shape, self._cells.taste, self._cells.left[number]
        if left[0] < shape.gpu_milli or left[1] < shape.cpus or left[2] < shape.memory:
            self[number] = ()  # most questions end here
            return ()
        cell = self._cells.values[number]
        found = steps(cell, shape)
        if taste is not None and len(found) > 1:
            found = tuple(sorted(found, key=lambda step: taste.cost(cell, shape, step)))
        ways = self[number] = tuple((self._cells.number(step.cell), step) for step in found)
        return ways


class Costs(dict[int, Cost]):
    """The cost of the first way by the number of a cell, computed on demand."""

    def __init__(self, cells: Cells, shape: Shape, taste: Taste) -> None:
        super().__init__()
        self._cells, self._shape, self._taste = cells, shape, taste

    def __missing__(self, number: int) -> Cost:
        """Compute once."""
        step = self._cells.steps(number, self._shape)[0][1]
        found = self[number] = self._taste.cost(self._cells.values[number], self._shape, step)
        return found
