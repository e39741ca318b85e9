"""Fills a cluster with pods that never end, to measure how many of its GPUs a placement can allocate.

The experiment of Weng et al. (USENIX ATC'23): the pods of a production cluster, many of which request a part of a GPU, arrive
in random order until they have requested a given share of all GPUs; pods that do not fit are skipped. One production decision
places them all, first come, first served.
"""
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from trainmaster.errors import UsageError
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Past, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Site, Space
from trainmaster.scheduling.placement.fragmentation import typical
from trainmaster.scheduling.placement.strategies import in_turn
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.simulator.line_reader import Lines, reading, rows

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")  # and optionally `gpu_spec`
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods, in file order, and the nodes to place them on."""

    sites: tuple[Site, ...]
    pods: tuple[Ask, ...]

    @property
    def gpu_milli(self) -> int:
        """All GPUs, in thousandths."""
        return sum(len(site.devices) for site in self.sites) * WHOLE


@dataclass(frozen=True, slots=True)
class Filled:
    """The result for one seed."""

    seed: int
    jobs: int
    placed: int
    allocated_percent: float  # of all GPUs
    fragmented_percent: float  # of all GPUs, for the workload's typical requests
    seconds: float  # of real time


@dataclass(frozen=True, slots=True)
class Filling:
    """The result for one policy, over all seeds."""

    policy: str
    demand: float  # requested GPUs as a share of all
    jobs: int  # of all seeds together
    allocated_percent_mean: float
    fragmented_percent_mean: float
    seconds: float
    seeds: tuple[Filled, ...]


def load(nodes: Path, pods: Path) -> Workload:
    """Load a workload from its two files. Raises: UsageError with the file and the line."""
    return Workload(reading(nodes, _nodes), reading(pods, _pods))


def fill(workload: Workload, policy: str, demand: float, seeds: Iterable[int]) -> Filling:
    """Fill the cluster once for each seed. `policy` is one of `names()`."""
    found = tuple(_fill(workload, policy, demand, seed) for seed in seeds)
    return Filling(
        policy,
        demand,
        sum(one.jobs for one in found),
        fmean(one.allocated_percent for one in found),
        fmean(one.fragmented_percent for one in found),
        sum(one.seconds for one in found),
        found,
    )


def names() -> list[str]:
    """The placements to compare."""
    return [*_PLACEMENTS, "random"]


def _fill(workload: Workload, policy: str, demand: float, seed: int) -> Filled:
    rng = Random(seed)
    arrivals = _arrivals(workload, demand, rng)
    waiting = {str(seq): Task(seq, str(seq), kind_of(ask), 0.0) for seq, ask in enumerate(arrivals)}
    past = [Past(seq, kind_of(ask), 0.0) for seq, ask in enumerate(workload.pods)]  # they define the typical requests
    snapshot = Snapshot(0.0, workload.sites, waiting, {}, ended=past)
    began_s = time.perf_counter()
    plan = cycle(snapshot, _policy(policy, rng))
    seconds = time.perf_counter() - began_s
    space = Space(workload.sites)
    for placement in plan.placements:
        space.hold(placement.grant)
    given = sum(placement.grant.ask.gpu_milli for placement in plan.placements)
    return Filled(
        seed,
        len(arrivals),
        len(plan.placements),
        100 * given / workload.gpu_milli,
        100 * typical(snapshot, {}).left(space) / workload.gpu_milli,
        seconds,
    )


def _arrivals(workload: Workload, demand: float, rng: Random) -> list[Ask]:
    """The pods in random order until they request enough; some are drawn again if all are too few."""
    pods = list(workload.pods)
    rng.shuffle(pods)
    want, found = demand * workload.gpu_milli, list[Ask]()
    while want > 0:
        ask = pods[len(found)] if len(found) < len(pods) else rng.choice(pods)
        found.append(ask)
        want -= ask.gpu_milli
    return found


def _policy(name: str, rng: Random) -> Policy:
    return replace(_PLACEMENTS["pack"], place=partial(_anywhere, rng)) if name == "random" else _PLACEMENTS[name]


def _spread(space: Space, ask: Ask) -> Any:
    """The emptiest nodes."""
    values = space.cells.values
    return in_turn([((-values[n].gpu_milli, -values[n].cpus), nodes[0], n, nodes) for n, nodes in space.fitting(ask.each)])


def _anywhere(rng: Random, space: Space, ask: Ask) -> Any:
    """Any node, with equal probability."""
    found = [(number, nodes) for number, nodes in space.fitting(ask.each)]
    if not found:
        return []
    number, nodes = rng.choices(found, [len(nodes) for _, nodes in found])[0]
    return [(number, [rng.choice(nodes)])]


_PLACEMENTS = {
    "fragmentation": POLICIES["fragmentation"],
    "pack": POLICIES["fifo"],
    "spread": replace(POLICIES["fifo"], place=_spread),
}


def _nodes(lines: Lines) -> tuple[Site, ...]:
    found = []
    for row in rows(lines):
        try:
            gpus, cpus, memory = int(row["gpu"]), int(row["cpu_milli"]), int(row["memory_mib"]) * _MIB
            kinds = (row["model"],) if gpus else ()
            found.append(Site(row["sn"], Cell(kinds, (gpus,) if gpus else (), (), cpus, memory), (0,) * gpus))
        except (KeyError, ValueError, TypeError) as error:
            raise _wrong(lines, "node", NODE_COLUMNS, error) from error
    if not any(site.devices for site in found):
        raise UsageError(f"{lines.path}: there is no node with a GPU in it")
    return tuple(found)


def _pods(lines: Lines) -> tuple[Ask, ...]:
    found = []
    for row in rows(lines):
        try:
            found.append(ask_of(1, _shape(row)))
        except (KeyError, ValueError, TypeError) as error:
            raise _wrong(lines, "pod", POD_COLUMNS, error) from error
    if not any(ask.gpu_milli for ask in found):
        raise UsageError(f"{lines.path}: there is no pod that asks for a GPU in it")
    return tuple(found)


def _shape(row: dict[str, str]) -> Shape:
    count, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    if count < 0 or not (milli == WHOLE or count == 0 or (count == 1 and 0 < milli < WHOLE)):
        raise ValueError(f"{count} GPUs of {milli} thousandths each: only one GPU can be shared")
    part = count == 1 and milli < WHOLE
    kinds = tuple(sorted({kind for kind in (row.get("gpu_spec") or "").split("|") if kind})) if count else ()
    return Shape(0 if part else count, milli if part else 0, kinds, int(row["cpu_milli"]), int(row["memory_mib"]) * _MIB)


def _wrong(lines: Lines, what: str, columns: tuple[str, ...], error: Exception) -> UsageError:
    text = f"column {error} is missing" if isinstance(error, KeyError) else str(error)
    return UsageError(f"{lines.path}:{lines.number}: not a {what}: {text}", f"columns: {', '.join(columns)}")
