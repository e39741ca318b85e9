"""The nodes as they are when nothing runs, with the rules for them, and what follows from that alone: found out once."""

from collections.abc import Sequence
from functools import cached_property

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.cells import Cells
from trainmaster.scheduling.choices import Market
from trainmaster.scheduling.explain import Group, grouped, kept_back, refusal
from trainmaster.scheduling.snapshot import Refusal
from trainmaster.scheduling.space import Site
from trainmaster.scheduling.staying import Staying


class Inventory:
    """Sites and rules; the cells that their nodes have been in; the words for requests that wait."""

    def __init__(self, sites: Sequence[Site], rules: Cluster) -> None:
        self.sites, self.rules, self.cells = sites, rules, Cells()
        self._busy: dict[Ask, Refusal] = {}
        self._kept_back: dict[Ask, Refusal] = {}

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Nodes that are alike."""
        return grouped(self.sites)

    @cached_property
    def market(self) -> Market:
        """What choices are worth here."""
        return Market(self.rules, self.groups)

    @cached_property
    def staying(self) -> Staying:
        """What maintenance leaves of the nodes."""
        return Staying(self.rules, self.groups)

    def busy(self, ask: Ask) -> Refusal:
        """Why a request waits that does not fit now, or never can."""
        found = self._busy.get(ask)
        if found is None:
            found = self._busy[ask] = refusal(ask, self.groups)
        return found

    def kept_back(self, ask: Ask) -> Refusal:
        """Why a request waits that would fit."""
        found = self._kept_back.get(ask)
        if found is None:
            found = self._kept_back[ask] = kept_back(ask)
        return found
