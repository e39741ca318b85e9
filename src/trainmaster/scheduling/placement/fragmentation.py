"""Fragmentation: free GPUs that the typical jobs here cannot use, and where a request adds the least to it.

A free GPU is a fragment for a typical request if its node cannot hold the request, or if too little of this GPU is left. The
fragmentation of a node is the expectation over the mix of typical requests. A request goes to the node, and a share to the
device, where it grows least. Only GPUs and CPUs count: requests that differ only in other resources are equal.

Source: Weng et al., Beware of Fragmentation (USENIX ATC'23). Ours: changes smaller than `GRAIN` count as equal, since they
say less than how full a node is. Of equal nodes, the one with the fewest GPUs with anything left is taken, then the fullest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trainmaster.scheduling.model.cells import Cell, Step
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Space

COVERED = 0.95  # of all requests, the most frequent first; the rest are not typical
GRAIN = 200  # thousandths of a GPU
ENOUGH = 100  # with so many ended jobs, they alone say what is typical

Mix = tuple[tuple[Shape, int], ...]  # requests with their counts, the most frequent first
_Use = tuple[tuple[int, int], ...]  # with so many CPUs, so much of the GPUs is usable


def mix(counts: Mapping[Shape, int]) -> Mix:
    """The most frequent requests, until they are `COVERED` of all. Of equally frequent ones, the smaller comes first."""
    total, covered, found = sum(counts.values()), 0, []
    for shape, count in sorted(counts.items(), key=lambda item: (-item[1], _size(item[0]))):
        if covered >= COVERED * total:
            break
        covered += count
        found.append((shape, count))
    return tuple(found)


def _size(shape: Shape) -> tuple[int, int, int, tuple[str, ...], str]:
    return shape.gpu_milli, shape.gpus, shape.cpus, shape.kinds, shape.pool or ""


def counted(asks: Iterable[Ask]) -> Counter[Shape]:
    """How often each shape is requested of a node, reduced to GPUs and CPUs."""
    counts: Counter[Shape] = Counter()
    for ask, number in Counter(asks).items():  # a queue of thousands has a few dozen different ones
        counts[ask.each._replace(memory=0, counted=())] += ask.nodes * number
    return counts


class Fragmentation:
    """Expected fragments for one mix of typical requests. Results are cached."""

    def __init__(self, typical: Mix) -> None:
        self.mix = typical
        self._total = sum(count for _, count in typical)
        self._grain = GRAIN * max(self._total, 1)
        self._needs: dict[Shape, list[tuple[int, int]]] = {}  # by the requested GPUs: CPUs and count
        for shape, count in typical:
            self._needs.setdefault(shape._replace(cpus=0), []).append((shape.cpus, count))
        self._uses: dict[tuple[object, ...], _Use] = {}  # by the state of a node's GPUs
        self._known: dict[Cell, int] = {}

    def of(self, cell: Cell) -> float:
        """The expected fragments of a node in `cell`, in thousandths of a GPU."""
        return self._expected(cell) / self._total if self._total else 0.0

    def left(self, space: Space) -> float:
        """The expected fragments of all open nodes."""
        return sum(self.of(space.cells.values[number]) * len(nodes) for number, nodes in space.nodes.items())

    def cost(self, cell: Cell, shape: Shape, step: Step) -> tuple[int, ...]:
        """How bad a step is: first how many fragments it adds to its node, then how many GPUs it leaves free there."""
        change, left = self._expected(step.cell) - self._expected(cell), step.cell
        return round(change / self._grain), sum(left.whole) + len(left.parts), left.gpu_milli

    def _expected(self, cell: Cell) -> int:
        """The fragments summed over the mix."""
        found = self._known.get(cell)
        if found is None:
            gpus = (cell.pool, cell.kinds, cell.whole, cell.parts)
            uses = self._uses.get(gpus)
            if uses is None:
                uses = self._uses[gpus] = self._use(cell)
            have = cell.cpus
            found = cell.gpu_milli * self._total - sum(use for cpus, use in uses if cpus <= have)
            self._known[cell] = found
        return found

    def _use(self, cell: Cell) -> _Use:
        found: Counter[int] = Counter()
        for gpus, needs in self._needs.items():
            use = cell.gpu_milli - fragments(cell, gpus)
            if use:
                for cpus, count in needs:
                    found[cpus] += count * use
        return tuple(found.items())


def fragments(cell: Cell, shape: Shape) -> int:
    """The free GPUs of a node in `cell` that `shape` cannot use, in thousandths, if there is enough of everything else.

    For a request without GPUs: all of them.
    """
    if not shape.gpu_milli or shape.pool not in (None, cell.pool):
        return cell.gpu_milli
    right = [shape.takes(kind) for kind in cell.kinds]
    whole = sum(count for i, count in enumerate(cell.whole) if right[i])
    parts = sum(free for i, free in cell.parts if right[i] and free >= shape.share) if shape.share else 0
    fits = whole >= shape.gpus if not shape.share else whole > shape.gpus or (whole == shape.gpus and parts > 0)
    return cell.gpu_milli - (whole * WHOLE + parts if fits else 0)


def typical(snapshot: Snapshot, kept: dict[str, Any]) -> Fragmentation:
    """The typical requests here: of the ended jobs; if these are few, of the waiting and running jobs as well.

    `kept` holds the last result. It is computed again only when a few more jobs have ended.
    """
    past = snapshot.ended[: _prefix(len(snapshot.ended))]
    known: Fragmentation | None = kept.get("fragmentation")
    if past and known is not None and kept.get("fragmentation of") == len(past):
        return known
    counts = counted(one.kind.ask for one in past or snapshot.ended)
    if not past:
        counts += counted(task.kind.ask for task in snapshot.waiting.values())
        counts += counted(run.grant.ask for run in snapshot.running.values())
    found = mix(counts)
    if known is None or known.mix != found:
        known = kept["fragmentation"] = Fragmentation(found)
    kept["fragmentation of"] = len(past)
    return known


def _prefix(count: int) -> int:
    """How many ended jobs count: all but at most the last sixty-fourth, so that it rarely changes; 0 if they are few."""
    if count < ENOUGH:
        return 0
    low = max(count.bit_length() - 7, 0)
    return count >> low << low


class Capacity(NamedTuple):
    """The capacity of the open nodes of one pool. GPUs may be fractions: 0.25 is a quarter of one."""

    gpus: float  # in all
    free_gpus: float
    whole_gpus: int  # wholly free
    largest_gang_gpus: int  # of the largest gang of equal members that fits now
    fragmented_gpus: float  # free, but expected to be of no use to the typical jobs


def capacities(space: Space, typical: Fragmentation) -> dict[str, Capacity]:
    """The capacity of each pool now, by its name."""
    nodes: dict[str, list[int]] = {}
    for number, found in space.nodes.items():
        for node in found:
            nodes.setdefault(space.sites[node].pool, []).append(number)
    devices: dict[str, int] = {}
    for site in space.sites:
        if site.open:
            devices[site.pool] = devices.get(site.pool, 0) + len(site.devices)
    return {pool: _capacity(space, typical, nodes[pool], devices[pool]) for pool in sorted(nodes)}


def _capacity(space: Space, typical: Fragmentation, numbers: list[int], devices: int) -> Capacity:
    cells = [space.cells.values[number] for number in numbers]
    whole = [most_whole(space, number) for number in numbers]
    return Capacity(
        float(devices),
        sum(cell.gpu_milli for cell in cells) / WHOLE,
        sum(sum(cell.whole) for cell in cells),
        max((each * sum(1 for count in whole if count >= each) for each in set(whole)), default=0),
        sum(typical.of(cell) for cell in cells) / WHOLE,
    )


def most_whole(space: Space, number: int) -> int:
    """The most whole GPUs that a node in this cell can give to one job with one CPU per GPU."""
    cell = space.cells.values[number]
    most = min(sum(cell.whole), max(cell.cpus, 0) // WHOLE)
    return next((count for count in range(most, 0, -1) if space.cells.steps(number, Shape(count, cpus=count * WHOLE))), 0)
