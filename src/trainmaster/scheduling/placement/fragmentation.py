"""Fragmentation: GPUs that are free and yet of no use to the jobs that are typical here; and where a job adds least to it.

A free GPU is a fragment for a typical request when its node cannot give the request anything, or when not enough of this very
GPU is left; what is expected over the mix of typical requests is the fragmentation of a node. A request goes to the node, and a
share to the device, for which that grows least. What is asked for besides GPUs and CPUs is not looked at: requests that differ
in nothing else are one.

Source: Weng et al., Beware of Fragmentation (USENIX ATC'23). Ours: changes are told apart by `GRAIN` only, since smaller ones
say less than how full a node is; of equal ones the node is taken that has the fewest GPUs with anything left, then the least.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from trainmaster.scheduling.model.cells import Cell, Step
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Space

COVERED = 0.95  # of all requests, the most frequent first: the rest are not typical
GRAIN = 200  # thousandths of a GPU
ENOUGH = 100  # jobs that are over, to learn from them alone what is typical

Mix = tuple[tuple[Shape, int], ...]  # requests and how many there were of each, the most frequent first
_Use = tuple[tuple[int, int], ...]  # with so many CPUs, so much of the GPUs is of use


def mix(counts: Mapping[Shape, int]) -> Mix:
    """The most frequent requests, until they are `COVERED` of all; of equally frequent ones the smaller first."""
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
    """How often a node is asked for each shape, as far as fragmentation looks at it."""
    counts: Counter[Shape] = Counter()
    for ask, number in Counter(asks).items():  # a queue of thousands has a few dozen
        counts[ask.each._replace(memory=0, counted=())] += ask.nodes * number
    return counts


class Fragmentation:
    """Expected fragments for one mix of typical requests. It remembers what it has found out."""

    def __init__(self, typical: Mix) -> None:
        self.mix = typical
        self._total = sum(count for _, count in typical)
        self._grain = GRAIN * max(self._total, 1)
        self._needs: dict[Shape, list[tuple[int, int]]] = {}  # by what is asked of GPUs: CPUs, how many
        for shape, count in typical:
            self._needs.setdefault(shape._replace(cpus=0), []).append((shape.cpus, count))
        self._uses: dict[tuple[object, ...], _Use] = {}  # by the state of a node's GPUs
        self._known: dict[Cell, int] = {}

    def of(self, cell: Cell) -> float:
        """Thousandths of GPUs of a node in `cell` that are fragments, expected over the mix."""
        return self._expected(cell) / self._total if self._total else 0.0

    def left(self, space: Space) -> float:
        """The same of all open nodes."""
        return sum(self.of(space.cells.values[number]) * len(nodes) for number, nodes in space.nodes.items())

    def worth(self, cell: Cell, shape: Shape, step: Step) -> tuple[int, ...]:
        """How bad a step is: by how much it adds to the fragments of its node, then by the GPUs that it leaves free there."""
        change, left = self._expected(step.cell) - self._expected(cell), step.cell
        return round(change / self._grain), sum(left.whole) + len(left.parts), left.gpu_milli

    def _expected(self, cell: Cell) -> int:
        """Summed over the mix."""
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
    """Thousandths of free GPUs on a node in `cell` that are of no use for `shape`, were there enough of all else.

    All of them, for a request without GPUs.
    """
    if not shape.gpu_milli or shape.pool not in (None, cell.pool):
        return cell.gpu_milli
    right = [shape.takes(kind) for kind in cell.kinds]
    whole = sum(count for i, count in enumerate(cell.whole) if right[i])
    parts = sum(free for i, free in cell.parts if right[i] and free >= shape.share) if shape.share else 0
    fits = whole >= shape.gpus if not shape.share else whole > shape.gpus or (whole == shape.gpus and parts > 0)
    return cell.gpu_milli - (whole * WHOLE + parts if fits else 0)


def typical(snapshot: Snapshot, kept: dict[str, Any]) -> Fragmentation:
    """What is typical here: of the jobs that are over; where those are few, of all that wait and run as well.

    `kept` holds what was found for the last snapshot. A growing past is looked at again only when it is a little longer.
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
    """How much of the past counts: all but the last sixty-fourth at most, so that it rarely changes; 0 where it is short."""
    if count < ENOUGH:
        return 0
    low = max(count.bit_length() - 7, 0)
    return count >> low << low


class Capacity(NamedTuple):
    """Of the open nodes of one pool. GPUs are counted in parts: 0.25 is a quarter of one."""

    gpus: float  # that there are
    free_gpus: float
    whole_gpus: int  # wholly free
    largest_gang_gpus: int  # of the largest gang of equal parts that fits now
    fragmented_gpus: float  # free, and yet of no use to the typical jobs, as expected over these


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
    """The most whole GPUs that a node in this cell can give to one job with a CPU for each."""
    cell = space.cells.values[number]
    most = min(sum(cell.whole), max(cell.cpus, 0) // WHOLE)
    return next((count for count in range(most, 0, -1) if space.cells.steps(number, Shape(count, cpus=count * WHOLE))), 0)
