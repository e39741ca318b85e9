"""Which nodes a gang gets: in the order of its strategy, in one domain if required, near to what its spec names."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop
from typing import Any

from trainmaster.model.spec import Strategy
from trainmaster.scheduling.model.cells import Cell, Taste
from trainmaster.scheduling.model.domains import CHECKPOINT, DATA, HOST, LEVELS, NOWHERE
from trainmaster.scheduling.model.jobs import Run, Task
from trainmaster.scheduling.model.request import Ask, Wish, confined
from trainmaster.scheduling.model.space import Space
from trainmaster.scheduling.reservation.backfill import Kept, choose

Places = Iterable[tuple[int, list[int]]]  # cells by number with their nodes, the best first; a cell may appear in parts


def pack(space: Space, ask: Ask) -> Places:
    """The fullest nodes first: the fewest free GPUs, then CPUs, then memory, then by index."""
    left = space.cells.left
    return in_turn([(left[number], nodes[0], number, nodes) for number, nodes in space.fitting(ask.each)])


def in_turn(ranked: list[tuple[Any, int, int, list[int]]]) -> Places:
    """Cells by rank, then by their first node. Often one is enough, so the rest are not sorted."""
    heapify(ranked)
    while ranked:
        _, _, number, nodes = heappop(ranked)
        yield number, nodes


def spread(space: Space, ask: Ask) -> Places:
    """The emptiest nodes first: the most free GPUs, then CPUs, then memory, then by index."""
    return sorted(space.fitting(ask.each), key=lambda item: (*(-left for left in space.cells.left[item[0]]), item[1][0]))


def balanced(space: Space, ask: Ask) -> Places:
    """The nodes first whose GPUs, CPUs and memory will be used most evenly, then the fullest."""
    parts: dict[tuple[int, Cell], list[int]] = {}
    for number, nodes in space.fitting(ask.each):
        for node in nodes:
            parts.setdefault((number, space.sites[node].cell), []).append(node)
    ranked = sorted(
        (_unevenness(bare, space.cells.steps(number, ask.each)[0][1].cell), *space.cells.left[number], nodes[0], number)
        for (number, bare), nodes in parts.items()
    )
    by_first = {nodes[0]: nodes for nodes in parts.values()}
    return [(rank[-1], by_first[rank[-2]]) for rank in ranked]


def least_fragments(taste: Taste) -> Callable[[Space, Ask], Places]:
    """The nodes first where the fewest fragments remain, then by index."""

    def places(space: Space, ask: Ask) -> Places:
        def cost(item: tuple[int, list[int]]) -> tuple[int, ...]:
            return (*taste.cost(space.cells.values[item[0]], ask.each, space.cells.steps(item[0], ask.each)[0][1]), item[1][0])

        return sorted(space.fitting(ask.each), key=cost)

    return places


STRATEGIES: Mapping[str, Callable[[Space, Ask], Places]] = {  # `Strategy.FRAGMENTATION` needs a taste: `least_fragments`
    Strategy.PACK: pack,
    Strategy.SPREAD: spread,
    Strategy.BALANCED: balanced,
}


def _unevenness(bare: Cell, left: Cell) -> float:
    """How far apart the free fractions of GPUs, CPUs and memory are, of the resources that the node has."""
    pairs = ((bare.gpu_milli, left.gpu_milli), (bare.cpus, left.cpus), (bare.memory, left.memory))
    fractions = [free / whole for whole, free in pairs if whole]
    return max(fractions) - min(fractions)


def given(space: Space, ask: Ask, places: Places, kept: Sequence[Kept], wish: Wish) -> list[int] | None:
    """Nodes for a gang that delay no reservation in `kept`; None if there are not enough.

    If the request must be in one domain: in the tightest domain that has enough nodes; with a wish to be near something, in the
    first domain that `places` reaches. A level that is only preferred is tried first, then wider ones.
    """
    levels = wish.levels(ask)
    if levels:
        places = list(places)
    for level in levels:
        found = _in_one(space, confined(ask, level), places, kept, wish)
        if found is not None:
            return found
    if ask.within is not None:
        return _in_one(space, ask, places, kept, wish)
    return choose(space, ask, places, kept)


def _in_one(space: Space, ask: Ask, places: Places, kept: Sequence[Kept], wish: Wish) -> list[int] | None:
    assert ask.within is not None
    of = space.domains(ask.within)[0]
    domains: dict[int, list[tuple[int, list[int]]]] = {}
    counts: dict[int, int] = {}
    for number, nodes in places:
        parts: dict[int, list[int]] = {}
        for node in nodes:
            parts.setdefault(of[node], []).append(node)
        for domain, own in parts.items():
            domains.setdefault(domain, []).append((number, own))
            counts[domain] = counts.get(domain, 0) + len(own)
    order = [domain for domain in domains if domain != NOWHERE and counts[domain] >= ask.nodes]
    if wish.near is None and wish.group is None:
        order.sort(key=lambda domain: (counts[domain], domain))
    for domain in order:
        found = choose(space, ask, domains[domain], kept)
        if found is not None:
            return found
    return None


def nearest(space: Space, places: Places, to: frozenset[int]) -> Places:
    """The same nodes, sorted: those in `to` first, then those on the host of one, in its rack, its block, its zone."""
    if not to:
        return places
    rank: dict[int, int] = {}
    levels = [space.domains(level)[0] for level in (HOST, *LEVELS[::-1])]
    shared = [{of[node] for node in to} - {NOWHERE} for of in levels]
    ranked: dict[int, list[tuple[int, list[int]]]] = {}
    for number, nodes in places:
        parts: dict[int, list[int]] = {}
        for node in nodes:
            if node not in rank:
                ranks = (i + 1 for i, of in enumerate(levels) if of[node] in shared[i])
                rank[node] = 0 if node in to else next(ranks, len(levels) + 1)
            parts.setdefault(rank[node], []).append(node)
        for own, few in parts.items():
            ranked.setdefault(own, []).append((number, few))
    return [item for own in sorted(ranked) for item in ranked[own]]


def anchors(space: Space, task: Task, running: Iterable[Run]) -> frozenset[int]:
    """The nodes that a job wants to be near: those of its group, with its data, or of its last attempt."""
    wish, found = task.kind.wish, set[int]()
    if wish.near == CHECKPOINT:
        found |= {node for node, site in enumerate(space.sites) if site.name in task.homes}
    elif wish.near is not None:
        found |= {node for node, site in enumerate(space.sites) if wish.near in dict(site.labels).get(DATA, "").split(",")}
    for run in running:
        with_it = wish.group is not None and beside(wish.group, run.task)
        same_data = wish.near not in (None, CHECKPOINT) and run.task.kind.wish.near == wish.near
        if with_it or same_data:
            found.update(node for node in run.grant.nodes if node >= 0)
    return frozenset(found)


def beside(group: str, task: Task) -> bool:
    """Whether a job is one that `with: group` in a spec names."""
    return task.kind.wish.group == group or group in _names(task.id)


def _names(id: str) -> tuple[str, str]:
    """The names that `with` may use for a job: its id and its experiment."""
    return id, id.rpartition("-")[0]


def to_taste(space: Space, ask: Ask) -> Places:
    """The nodes first that the policy's taste prefers, then by index."""
    assert space.cells.taste is not None, "a policy that asks its taste has one"
    costs = space.cells.costs(ask.each, space.cells.taste)
    return in_turn([(costs[number], nodes[0], number, nodes) for number, nodes in space.fitting(ask.each)])
