"""Room kept for those who cannot start yet: when that will be, and whether one that starts now would delay it.

One code path from EASY (one reservation) to conservative backfill (one for every job): a reservation is a moment and the nodes
that can give the gang its part then; a job that would still run at that moment may spoil only as many of them as are to spare.
Source: A. Mu'alem and D. Feitelson, IEEE TPDS 12(6), 2001.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainmaster.scheduling.model.request import Ask, Shape
from trainmaster.scheduling.model.space import Grant, Part, Space


class Later:
    """Free capacity at some later time: a space, and what will be different by then."""

    def __init__(self, space: Space, of: dict[int, int] | None = None, free: Mapping[int, Sequence[int]] | None = None) -> None:
        """Of nodes that are known to be different: `of`, their cells, and `free`, what is free of their GPUs."""
        self._space = space
        self._of = {} if of is None else of
        self._known = {} if free is None else free
        self._free: dict[int, list[int]] = {}

    def cell(self, node: int) -> int:
        """The number of a node's cell then."""
        return self._of.get(node, self._space.of[node])

    def cells(self) -> Iterable[tuple[int, int]]:
        """The nodes that will be different, with the numbers of their cells then."""
        return self._of.items()

    def changed(self, nodes: Sequence[int]) -> bool:
        """Whether any of `nodes` will be different then."""
        of = self._of
        return bool(of) and any(node in of for node in nodes)

    def give(self, node: int, part: Part) -> None:
        """A member's part comes back, or goes."""
        free = self.gpus(node) if part.devices else self._space.free[node]
        self._of[node] = self._space.after(node, part, self.cell(node), free)

    def give_all(self, grant: Grant) -> Iterator[tuple[int, int, list[int]]]:
        """All of a grant without devices comes back, the same on each node: cells before and after, with their open nodes."""
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
        """`grant` has just been taken; `gone`: it will be back by then."""
        known, used_up, now = self._of, self._space.cells.used_up, self._space.of
        for index, node in enumerate(grant.nodes):
            if node in known:
                if not gone:
                    self.give(node, grant.part(index, -1))  # what was foreseen of this node did not know of it
            elif gone and not used_up(now[node]):  # else nobody gets anything of it meanwhile
                self.give(node, grant.part(index))

    def without(self, node: int, shape: Shape) -> int:
        """The number of a node's cell then, if it gives `shape` now: from the very GPUs that it would be given."""
        space = self._space
        step = space.cells.steps(space.of[node], shape)[0][1]
        return self.after(node, Part(shape, space.pick(space.free[node].copy(), node, shape, step), -1))

    def after(self, node: int, part: Part) -> int:
        """The number of a node's cell then, if a member's part came back, or went."""
        return self._space.after(node, part, self.cell(node), self.gpus(node).copy())

    def gpus(self, node: int) -> list[int]:
        """What is free of each GPU of a node then."""
        found = self._free.get(node)
        if found is None:
            found = self._free[node] = list(self._known.get(node, self._space.free[node]))
        return found


@dataclass(slots=True)
class Kept:
    """What is kept for somebody: at `at_s` nodes can give `spare` parts of it more than are needed, in a reservation one each.

    With `nodes` it is of those very nodes, and none of them is to spare. `units` says how many parts a node in a cell can give;
    None: one, where it can give `shape`.
    """

    shape: Shape
    at_s: float
    spare: int
    then: Later
    nodes: frozenset[int] | None = None
    units: Mapping[int, int] | None = None
    _harm: dict[tuple[int, Shape], int] = field(default_factory=dict)

    def harm(self, space: Space, number: int, shape: Shape) -> int:
        """How many parts fewer a node that will be in cell `number` can give, once it has given `shape` too."""
        key = (number, shape)
        found = self._harm.get(key)
        if found is None:
            found = self._gives(space, number)
            after = space.cells.steps(number, shape) if found else ()
            found = self._harm[key] = found - self._gives(space, after[0][0]) if after else found
        return found

    def harm_on(self, space: Space, node: int, shape: Shape) -> int:
        """The same of `shape` on `node`."""
        if self.nodes is not None and node not in self.nodes:
            return 0
        if not (shape.gpus or shape.share) or not self.then.changed((node,)):
            return self.harm(space, self.then.cell(node), shape)
        found = self._gives(space, self.then.cell(node))
        return found - self._gives(space, self.then.without(node, shape)) if found else 0

    def _gives(self, space: Space, number: int) -> int:
        return self.units[number] if self.units is not None else int(bool(space.cells.steps(number, self.shape)))


Share = tuple[Sequence[int], tuple[tuple[Kept, int], ...]]  # nodes, and what each of them would harm, and how much


class _Claims:
    """What is kept, and the nodes of it all where each names its own."""

    def __init__(self, kept: Sequence[Kept]) -> None:
        nodes = [one.nodes for one in kept if one.nodes is not None]
        self.kept, self.named = kept, frozenset[int]().union(*nodes) if len(nodes) == len(kept) else None

    def of(self, node: int) -> list[Kept]:
        """Those that name it."""
        return [one for one in self.kept if one.nodes is not None and node in one.nodes]


Order = Iterable[tuple[int, list[int]]]  # cells by number with their nodes, the best first


def choose(space: Space, ask: Ask, order: Order, kept: Sequence[Kept]) -> list[int] | None:
    """Nodes for a gang that harm nothing in `kept` that cannot be spared, in the `order` given; None when there are not enough.

    What harms nobody is taken first, so that a job that can start without delaying another does. The first node, where it gives
    more than the others, is chosen before them.
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
    """What a gang has used up of what can be spared, while its nodes are chosen."""

    def __init__(self, space: Space, kept: Sequence[Kept]) -> None:
        self._space, self._claims = space, _Claims(kept) if kept else None
        self._left: dict[int, int] = {}

    def choose(self, shape: Shape, order: Order, need: int) -> list[int] | None:
        """So many nodes that give a shape."""
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
        """Nodes of one cell by what they would harm: all alike, unless some will be different by then."""
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
