"""Backfill: which nodes a job may take without delaying the reservations of jobs ahead of it.

One code path from EASY (one reservation) to conservative backfill (one for every job). A reservation is a time and the nodes
that can hold a member of the gang then. A job that would still run at that time may harm only as many of them as are spare.
Source: A. Mu'alem and D. Feitelson, IEEE TPDS 12(6), 2001.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.scheduling.model.request import Ask, Shape
from trainmaster.scheduling.model.space import Grant, Part, Space


class Later:
    """Free capacity at a later time: a space, and the nodes that will be different then."""

    def __init__(self, space: Space, of: dict[int, int] | None = None, free: Mapping[int, Sequence[int]] | None = None) -> None:
        """Of nodes that will be different: `of`, their cells, and `free`, what is free of each of their GPUs."""
        self._space = space
        self._of = {} if of is None else of
        self._known = {} if free is None else free
        self._free: dict[int, list[int]] = {}

    def cell(self, node: int) -> int:
        """The number of a node's cell then."""
        return self._of.get(node, self._space.of[node])

    def cells(self) -> Iterable[tuple[int, int]]:
        """The nodes that will be different, with their cells then."""
        return self._of.items()

    def changed(self, nodes: Sequence[int]) -> bool:
        """Whether any of `nodes` will be different then."""
        of = self._of
        return bool(of) and any(node in of for node in nodes)

    def give(self, node: int, part: Part) -> None:
        """A member frees its part of a node, or takes it."""
        free = self.gpus(node) if part.devices else self._space.free[node]
        self._of[node] = self._space.after(node, part, self.cell(node), free)

    def give_all(self, grant: Grant) -> Iterator[tuple[int, int, list[int]]]:
        """A whole grant without devices is freed: yields cells before and after, with their open nodes."""
        space, known, part = self._space, self._of, grant.part(0)
        now, sites = space.of, space.sites
        nodes = [node for node in grant.nodes if node >= 0 and sites[node].open]
        cells = [known.get(node, now[node]) for node in nodes]
        for before in set(cells):
            same = [node for node, cell in zip(nodes, cells, strict=True) if cell == before]
            after = space.after(same[0], part, before, space.free[same[0]])
            known.update(dict.fromkeys(same, after))
            yield before, after, same

    def placed(self, grant: Grant, gone: bool) -> None:
        """`grant` has just been taken. `gone`: it will be free again by then."""
        known, used_up, now = self._of, self._space.cells.used_up, self._space.of
        for index, node in enumerate(grant.nodes):
            if node in known:
                if not gone:
                    self.give(node, grant.part(index, -1))  # the forecast of this node did not include it
            elif gone and not used_up(now[node]):  # else no other job can use the node meanwhile
                self.give(node, grant.part(index))

    def without(self, node: int, shape: Shape) -> int:
        """The number of a node's cell then, if it gives `shape` now, with the GPUs that it would give."""
        space = self._space
        step = space.cells.steps(space.of[node], shape)[0][1]
        return self.after(node, Part(shape, space.pick(space.free[node].copy(), node, shape, step), -1))

    def after(self, node: int, part: Part) -> int:
        """The number of a node's cell then, if a member freed its part, or took it."""
        return self._space.after(node, part, self.cell(node), self.gpus(node).copy())

    def gpus(self, node: int) -> list[int]:
        """What is free of each GPU of a node then."""
        found = self._free.get(node)
        if found is None:
            found = self._free[node] = list(self._known.get(node, self._space.free[node]))
        return found


@dataclass(slots=True)
class Kept:
    """Capacity that is kept for a job or a project: at `at_s` nodes can give `spare` more parts than are needed.

    With `nodes` it is on these nodes, and none of them is spare. `units` is how many parts a node in a cell can give; None: one
    if it can give `shape`, as in a reservation.
    """

    shape: Shape
    at_s: float
    spare: int
    then: Later
    nodes: frozenset[int] | None = None
    units: Mapping[int, int] | None = None
    _harm: dict[tuple[int, Shape], int] = field(default_factory=dict)

    def harm(self, space: Space, number: int, shape: Shape) -> int:
        """How many fewer parts a node that will be in cell `number` can give if it also gives `shape`."""
        key = (number, shape)
        found = self._harm.get(key)
        if found is None:
            found = self._gives(space, number)
            after = space.cells.steps(number, shape) if found else ()
            found = self._harm[key] = found - self._gives(space, after[0][0]) if after else found
        return found

    def harm_on(self, space: Space, node: int, shape: Shape) -> int:
        """The same for `shape` on `node`."""
        if self.nodes is not None and node not in self.nodes:
            return 0
        if not (shape.gpus or shape.share) or not self.then.changed((node,)):
            return self.harm(space, self.then.cell(node), shape)
        found = self._gives(space, self.then.cell(node))
        return found - self._gives(space, self.then.without(node, shape)) if found else 0

    def _gives(self, space: Space, number: int) -> int:
        return self.units[number] if self.units is not None else int(bool(space.cells.steps(number, self.shape)))


Share = tuple[Sequence[int], tuple[tuple[Kept, int], ...]]  # nodes, and what taking each of them would harm, and how much


class _Claims:
    """All that is kept, and the union of its nodes if each names its own."""

    def __init__(self, kept: Sequence[Kept]) -> None:
        nodes = [one.nodes for one in kept if one.nodes is not None]
        self.kept, self.named = kept, frozenset[int]().union(*nodes) if len(nodes) == len(kept) else None

    def of(self, node: int) -> list[Kept]:
        """Those that name this node."""
        return [one for one in self.kept if one.nodes is not None and node in one.nodes]


Order = Iterable[tuple[int, list[int]]]  # cells by number with their nodes, the best first


def choose(space: Space, ask: Ask, order: Order, kept: Sequence[Kept]) -> list[int] | None:
    """Nodes for a gang, in the given `order`, that harm no more of `kept` than is spare; None if there are not enough.

    Nodes that harm nothing come first, so a job that can start without delaying another does. A first node that gives more than
    the others is chosen before them.
    """
    spent = _Spent(space, kept)
    if ask.lead is None:
        return spent.choose(ask.each, order, ask.nodes)
    cells = list(order)
    able = ((number, nodes) for number, nodes in cells if space.cells.steps(number, ask.lead))
    head = spent.choose(ask.lead, able, 1)
    if head is None or ask.nodes == 1:
        return head
    others = [(number, [node for node in nodes if node != head[0]]) for number, nodes in cells]
    found = spent.choose(ask.each, others, ask.nodes - 1)
    return None if found is None else head + found


class _Spent:
    """How much of the spare parts a gang has used while its nodes are chosen."""

    def __init__(self, space: Space, kept: Sequence[Kept]) -> None:
        self._space, self._claims = space, _Claims(kept) if kept else None
        self._left: dict[int, int] = {}

    def choose(self, shape: Shape, order: Order, need: int) -> list[int] | None:
        """`need` nodes that give a shape."""
        chosen: list[int] = []
        harmful = list[Share]()
        for number, nodes in order:
            for part in self._parts(number, nodes, shape):
                if part[1]:
                    harmful.append(part)
                else:
                    chosen += part[0][: need - len(chosen)]
            if len(chosen) == need:
                return chosen
        for several, harmed in harmful:
            spare = (self._left.get(id(one), one.spare) // harm for one, harm in harmed)
            count = min(need - len(chosen), len(several), *spare)
            if count > 0:
                chosen += several[:count]
                for one, harm in harmed:
                    self._left[id(one)] = self._left.get(id(one), one.spare) - count * harm
        return chosen if len(chosen) == need else None

    def _parts(self, number: int, nodes: list[int], shape: Shape) -> Sequence[Share]:
        """The nodes of one cell by what they would harm: all alike, unless some will be different then."""
        if self._claims is None:
            return ((nodes, ()),)
        space, kept, named = self._space, self._claims.kept, self._claims.named
        if named is not None:
            theirs = [node for node in nodes if node in named]
            rest: Share = ([node for node in nodes if node not in named] if theirs else nodes, ())
            harms = (_harmed((one, one.harm_on(space, node, shape)) for one in self._claims.of(node)) for node in theirs)
            return [rest, *(([node], some) for node, some in zip(theirs, harms, strict=True))]
        if not any(one.then.changed(nodes) for one in kept):
            return [(nodes, _harmed((one, one.harm(space, number, shape)) for one in kept))]
        return [([node], _harmed((one, one.harm_on(space, node, shape)) for one in kept)) for node in nodes]


def _harmed(harms: Iterable[tuple[Kept, int]]) -> tuple[tuple[Kept, int], ...]:
    return tuple([one for one in harms if one[1]])
