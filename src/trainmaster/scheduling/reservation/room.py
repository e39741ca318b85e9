"""Whether there is room for a gang: how many nodes can give a member's part, where all must be in one domain by domains."""

from trainmaster.scheduling.model.domains import NOWHERE
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.space import Grant, Part, Space
from trainmaster.scheduling.reservation.backfill import Later


class Room:
    """A count of the nodes that can give a member's part of a gang (`able`), and of those that can give the first's (`led`).

    It begins with the space as it is now; what changes is told. Of a gang that must be in one domain every domain has a count
    of its own.
    """

    def __init__(self, space: Space, ask: Ask) -> None:
        self.space, self.ask = space, ask
        self.able = self.led = 0
        self._of = space.domains(ask.within)[0] if ask.within is not None else None
        self._counts: dict[int, list[int]] = {}  # of each domain: able, led
        self._good: set[int] = set()  # domains with room
        self._few: dict[int, tuple[int, list[Part]]] = {}  # of nodes with too few GPUs: how many, and what has come back
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
        """Where it fits: the domain that has least more than is needed (`NOWHERE`: no matter), how many can there, how many
        the first's part.
        """
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
        """Whether there is enough without these, which have come back in `later`: they go again then."""
        gives, each, lead = self.space.gives, self.ask.each, self.ask.lead
        missed, gone, sites = list[tuple[int, int, int]](), list[tuple[int, Part]](), self.space.sites
        for index, node in enumerate(grant.nodes):
            if node < 0 or not sites[node].open or not gives(before := later.cell(node), each):
                continue  # it makes no difference that it has gone from this one
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
        """What a run holds comes back in `later`: each as soon as it has GPUs enough for a member's part, else at `settle`."""
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
        """What has come back of nodes that cannot give a part even so."""
        for node, (_, parts) in self._few.items():
            for part in parts:
                later.give(node, part)
        self._few = {}
