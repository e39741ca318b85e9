"""How much of each resource the open nodes have and jobs hold, in thousandths."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.request import WHOLE, Ask, ask_of
from trainmaster.scheduling.model.space import GONE, Grant, Site

Held = dict[str, int]  # thousandths by resource
GPUS, CPUS = "gpus", "cpus"


class Stock:
    """The resources of one inventory."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._closed = frozenset(node for node, site in enumerate(sites) if not (site.open or site.elsewhere))
        self.elsewhere = [node for node, site in enumerate(sites) if site.elsewhere]
        self.held: Held = {}  # by all jobs together, on open nodes

    def enter(self, grant: Grant, amounts: Held, sign: int) -> None:
        """Add the `amounts` that a job holds (`sign` -1: subtract)."""
        self.add(amounts, sign)
        if not self._closed.isdisjoint(grant.nodes):
            self.add(self._on_closed(grant), -sign)

    def add(self, amounts: Held, times: int) -> None:
        """Add these amounts so many times."""
        for resource, milli in amounts.items():
            self.held[resource] = self.held.get(resource, 0) + times * milli

    def alike(self, ask: Ask) -> bool:
        """Whether all jobs with this request hold the same, wherever they are."""
        return not self._closed and (len(ask.each.kinds) == 1 or not ask.gpu_milli)

    def free(self, resource: str) -> int:
        """How much is free."""
        return self.capacity.get(resource, 0) - self.held.get(resource, 0)

    def amounts(self, grant: Grant) -> Held:
        """The amounts of a grant, with the kinds of its devices."""
        found = asked(grant.ask)
        if len(grant.ask.each.kinds) == 1 or not grant.ask.gpu_milli:
            return found
        found = dict(found)
        for index, node in enumerate(grant.nodes):
            devices = grant.held(index)
            if node < 0 or not devices:
                continue
            site, shape = self._sites[node], grant.shape(index)
            for place, device in enumerate(devices):
                milli = shape.share if shape.share and place == len(devices) - 1 else WHOLE
                kind = site.cell.kinds[site.devices[device]]
                found[kind] = found.get(kind, 0) + milli
        return found

    def _on_closed(self, grant: Grant) -> Held:
        """The amounts on nodes that are not open. These nodes do not count in `capacity` either."""
        found: Held = {}
        for index, node in enumerate(grant.nodes):
            if node in self._closed:
                part = Grant(ask_of(1, grant.shape(index)), (node,), grant.devices[index : index + 1])
                for resource, milli in self.amounts(part).items():
                    found[resource] = found.get(resource, 0) + milli
        return found

    @cached_property
    def cpus_per_gpu(self) -> int:
        """Of CPUs, in thousandths, what a job on one GPU can count on: one, or less where nodes have fewer than GPUs."""
        found = [site.cell.cpus // len(site.devices) for site in self._sites if site.devices]
        return max(1, min([WHOLE, *found]))

    @cached_property
    def capacity(self) -> Held:
        """The amounts on open nodes."""
        return _amounts_of(site.cell for site in self._sites if site.open or site.elsewhere)

    @cached_property
    def whole(self) -> Held:
        """The amounts on all nodes, including those that may come back."""
        return _amounts_of(site.cell for site in self._sites if site.open or site.elsewhere or site.why != GONE)


@lru_cache(maxsize=1 << 17)
def asked(ask: Ask) -> Held:
    """The amounts of a request that count for quotas, in thousandths; a kind of GPU only if it names one."""
    lead = ask.first
    found = {CPUS: ask.each.cpus * (ask.nodes - 1) + lead.cpus}
    if ask.gpu_milli:
        found[GPUS] = ask.gpu_milli
        if len(ask.each.kinds) == 1:
            found[ask.each.kinds[0]] = ask.gpu_milli
    return found


def _amounts_of(cells: Iterable[Cell]) -> Held:
    found: Held = {}
    for cell, nodes in Counter(cells).items():
        found[GPUS] = found.get(GPUS, 0) + WHOLE * sum(cell.whole) * nodes
        found[CPUS] = found.get(CPUS, 0) + cell.cpus * nodes
        for gpu, count in zip(cell.kinds, cell.whole, strict=True):
            found[gpu] = found.get(gpu, 0) + WHOLE * count * nodes
    return found
