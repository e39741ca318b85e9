"""What is free, and of how much use: the figures of a pool at one moment, to be watched over time."""

from typing import NamedTuple

from trainmaster.scheduling.ask import WHOLE, Shape
from trainmaster.scheduling.fragmentation import Fragmentation
from trainmaster.scheduling.space import Space


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
