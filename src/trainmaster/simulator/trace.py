"""A trace as the simulator replays it: who came when, what they asked for, and how long they ran."""

from dataclasses import dataclass
from typing import NamedTuple

from trainmaster.scheduling.ask import WHOLE, Ask, Shape, ask_of
from trainmaster.scheduling.cells import Cell
from trainmaster.scheduling.space import Site


class Arrival(NamedTuple):
    """One job of a trace. Times are seconds since the trace's own beginning."""

    id: str
    submit_s: float
    run_s: float  # how long it ran, undisturbed
    ask: Ask
    project: str = "default"
    member: str = ""
    limit_s: float | None = None  # what its owner said it would need at most
    command: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A named list of arrivals in the order of submission, and the cluster that they were recorded on."""

    name: str
    arrivals: tuple[Arrival, ...]
    sites: tuple[Site, ...]


def processors(count: int) -> tuple[Site, ...]:
    """A machine that gives out whole processors: a site each."""
    digits = len(str(count - 1))
    return tuple(Site(f"p{i:0{digits}}", Cell(cpus=WHOLE)) for i in range(count))


def gpu_nodes(count: int, gpus: int, kind: str = "gpu") -> tuple[Site, ...]:
    """Equal nodes that have enough of everything but GPUs."""
    digits = len(str(max(count - 1, 1)))
    cell = Cell((kind,), (gpus,), (), gpus * WHOLE)
    return tuple(Site(f"n{i:0{digits}}", cell, (0,) * gpus) for i in range(count))


def gang(gpus: int, per_node: int) -> Ask:
    """A job of so many GPUs, on as few nodes as can have equal parts of it, with a CPU for each. Raises: ValueError."""
    if gpus < 1:
        raise ValueError(f"{gpus} GPUs")
    nodes = next(n for n in range(-(-gpus // per_node), gpus + 1) if gpus % n == 0 and gpus // n <= per_node)
    each = gpus // nodes
    return ask_of(nodes, Shape(gpus=each, cpus=each * WHOLE))
