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
    """A reservation: at `at_s` there are `spare` more nodes than are needed that can give `shape` then.

    With `nodes` it is of those very nodes, and none of them is to spare.
    """

    job: str
    shape: Shape
    at_s: float
    spare: int
    then: Later
    nodes: frozenset[int] | None = None
    _spoils: dict[tuple[int, Shape], bool] = field(default_factory=dict)

    def spoils(self, space: Space, number: int, shape: Shape) -> bool:
        """Whether a node that will be in cell `number` could give its part, and no longer once it has given `shape` too."""
        key = (number, shape)
        found = self._spoils.get(key)
        if found is None:
            steps = space.cells.steps
            fits = bool(steps(number, self.shape))
            after = steps(number, shape)
            found = self._spoils[key] = fits and not (after and steps(after[0][0], self.shape))
        return found

    def spoils_on(self, space: Space, node: int, shape: Shape) -> bool:
        """Whether `shape` on `node` spoils it."""
        if self.nodes is not None and node not in self.nodes:
            return False
        if not (shape.gpus or shape.share) or not self.then.changed((node,)):
            return self.spoils(space, self.then.cell(node), shape)
        fits = bool(space.cells.steps(self.then.cell(node), self.shape))
        return fits and not space.cells.steps(self.then.without(node, shape), self.shape)


Share = tuple[Sequence[int], tuple[Kept, ...]]  # nodes, and the reservations that each of them would spoil


class _Claims:
    """Reservations, and the nodes of them all where each names its own."""

    def __init__(self, kept: Sequence[Kept]) -> None:
        nodes = [one.nodes for one in kept if one.nodes is not None]
        self.kept, self.named = kept, frozenset[int]().union(*nodes) if len(nodes) == len(kept) else None

    def of(self, node: int) -> list[Kept]:
        """Those that name it."""
        return [one for one in self.kept if one.nodes is not None and node in one.nodes]


def choose(space: Space, ask: Ask, order: Iterable[tuple[int, list[int]]], kept: Sequence[Kept]) -> list[int] | None:
    """Nodes for a gang that spoil no reservation in `kept`, in the `order` of cells given; None when there are not enough.

    What harms nobody is taken first, so that whoever can start without delaying anyone does.
    """
    if ask.lead is not None:
        return _led(space, ask, order, kept)
    chosen: list[int] = []
    need = ask.nodes
    harmful, claims = list[Share](), _Claims(kept) if kept else None
    for number, nodes in order:
        parts: Sequence[Share] = ((nodes, ()),) if claims is None else _parts(space, number, nodes, ask.each, claims)
        for part in parts:
            if part[1]:
                harmful.append(part)
            else:
                chosen += part[0][: need - len(chosen)]
        if len(chosen) == need:
            return chosen
    return _spend(chosen, harmful, need)


def _parts(space: Space, number: int, nodes: list[int], shape: Shape, claims: _Claims) -> list[Share]:
    """Nodes of one cell by the reservations that they would spoil: all alike, unless some will be different by then."""
    kept, named = claims.kept, claims.named
    if named is not None:
        theirs = [node for node in nodes if node in named]
        rest: Share = ([node for node in nodes if node not in named] if theirs else nodes, ())
        spoilt = (tuple([one for one in claims.of(node) if one.spoils_on(space, node, shape)]) for node in theirs)
        return [rest, *(([node], some) for node, some in zip(theirs, spoilt, strict=True))]
    if not any(one.then.changed(nodes) for one in kept):
        return [(nodes, tuple([one for one in kept if one.spoils(space, number, shape)]))]
    return [([node], tuple([one for one in kept if one.spoils_on(space, node, shape)])) for node in nodes]


def _spend(chosen: list[int], harmful: list[Share], need: int) -> list[int] | None:
    """Fill up with nodes that reservations can spare."""
    left: dict[int, int] = {}
    for nodes, harmed in harmful:
        count = min(need - len(chosen), len(nodes), *(left.get(id(one), one.spare) for one in harmed))
        if count > 0:
            chosen += nodes[:count]
            for one in harmed:
                left[id(one)] = left.get(id(one), one.spare) - count
    return chosen if len(chosen) == need else None


def _led(space: Space, ask: Ask, order: Iterable[tuple[int, list[int]]], kept: Sequence[Kept]) -> list[int] | None:
    """As `choose`, where the first node gives more than the others: it could have been any other's place too."""
    assert ask.lead is not None
    cells = [(number, nodes) for number, nodes in order]
    head, claims = None, _Claims(kept)
    for number, nodes in cells:
        if space.cells.steps(number, ask.lead):
            parts = _parts(space, number, nodes, ask.lead, claims)
            head = next((part[0][0] for part in parts if part[0] and not part[1]), None)
        if head is not None:
            break
    if head is None:
        return None
    rest = Ask(ask.nodes - 1, ask.each)
    others = [(number, [node for node in nodes if node != head]) for number, nodes in cells]
    found = choose(space, rest, others, kept) if rest.nodes else []
    return None if found is None else [head, *found]
