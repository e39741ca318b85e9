"""Whether a gang fits: how many nodes can hold a member, by domain if all must be in one."""

from trainmaster.scheduling.model.domains import NOWHERE
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.space import Grant, Part, Space
from trainmaster.scheduling.reservation.backfill import Later


class Room:
    """A count of the nodes that can hold a member of a gang (`able`), and of those that can hold its first member (`led`).

    It starts with the space as it is now, and is told of changes. For a gang that must be in one domain, each domain has its
    own count.
    """

    def __init__(self, space: Space, ask: Ask) -> None:
        self.space, self.ask = space, ask
        self.able = self.led = 0
        self._of = space.domains(ask.within)[0] if ask.within is not None else None
        self._counts: dict[int, list[int]] = {}  # by domain: able, led
        self._good: set[int] = set()  # domains in which the gang fits
        self._few: dict[int, tuple[int, list[Part]]] = {}  # by node with too few GPUs: how many, and the freed parts
        if self._of is None:
            self.able = space.count(ask.each)
            self.led = self.able if ask.lead is None else space.count(ask.lead)
            return
        for _, nodes in space.fitting(ask.each):
            for node in nodes:
                self.change(node, 1, 0)
        for _, nodes in space.fitting(ask.first):
            for node in nodes:
                self.change(node, 0, 1)

    @property
    def enough(self) -> bool:
        """Whether the gang fits."""
        return bool(self._good) if self._of is not None else self.able >= self.ask.nodes and self.led > 0

    @property
    def best(self) -> tuple[int, int, int]:
        """The tightest domain in which it fits (`NOWHERE`: any nodes), and its `able` and `led`."""
        if self._of is None:
            return NOWHERE, self.able, self.led
        domain = min(self._good, key=lambda one: (self._counts[one][0], one))
        able, led = self._counts[domain]
        return domain, able, led

    def change(self, node: int, able: int, led: int) -> None:
        """A node can from now on (1) give a part, or no longer (-1)."""
        if self._of is None:
            self.able += able
            self.led += led
            return
        domain = self._of[node]
        if domain == NOWHERE or not (able or led):
            return
        counts = self._counts.setdefault(domain, [0, 0])
        counts[0] += able
        counts[1] += led
        (self._good.add if counts[0] >= self.ask.nodes and counts[1] > 0 else self._good.discard)(domain)

    def can_spare(self, later: Later, grant: Grant) -> bool:
        """Whether the gang fits without this grant, which was freed in `later`. If so, the grant is taken again."""
        gives, each, lead = self.space.gives, self.ask.each, self.ask.lead
        missed, gone, sites = list[tuple[int, int, int]](), list[tuple[int, Part]](), self.space.sites
        for index, node in enumerate(grant.nodes):
            if node < 0 or not sites[node].open or not gives(before := later.cell(node), each):
                continue  # freeing this node made no difference
            part = grant.part(index, -1)
            gone.append((node, part))
            if self.space.cells.left[before][0] - part.shape.gpu_milli < each.gpu_milli:  # most questions end here
                missed.append((node, -1, -1 if lead is None else -gives(before, lead)))
                continue
            after = later.after(node, part)
            able = gives(after, each) - 1
            missed.append((node, able, able if lead is None else gives(after, lead) - gives(before, lead)))
        for node, able, led in missed:
            self.change(node, able, led)
        if self.enough:
            for node, part in gone:
                later.give(node, part)
            return True
        for node, able, led in missed:
            self.change(node, -able, -led)
        return False

    def come_back(self, later: Later, grant: Grant) -> None:
        """Free a grant in `later`: each node as soon as it has enough GPUs for a member, else at `settle`."""
        space, each, lead, gives = self.space, self.ask.each, self.ask.lead, self.space.gives
        if not (grant.devices or grant.ask.lead or lead or self._of):
            for before, after, nodes in later.give_all(grant):
                able = len(nodes) * (gives(after, each) - gives(before, each))
                self.change(nodes[0], able, able)
            return
        left, few, needs = space.cells.left, self._few, each.gpu_milli
        for index, node in enumerate(grant.nodes):
            if node < 0 or not space.sites[node].open:
                continue
            part, before = grant.part(index), later.cell(node)
            if needs:
                has, parts = few.get(node) or (left[before][0], [])
                has += part.shape.gpu_milli
                parts.append(part)
                if has < needs:
                    few[node] = has, parts
                    continue
                few.pop(node, None)
                for one in parts:
                    later.give(node, one)
            else:
                later.give(node, part)
            after = later.cell(node)
            if before != after:
                able = gives(after, each) - gives(before, each)
                led = able if lead is None else gives(after, lead) - gives(before, lead)
                self.change(node, able, led)

    def settle(self, later: Later) -> None:
        """Free in `later` the parts on nodes that cannot hold a member even so."""
        for node, (_, parts) in self._few.items():
            for part in parts:
                later.give(node, part)
        self._few = {}
