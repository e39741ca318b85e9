"""The empty nodes and the rules, and what follows from these alone. Each result is computed once."""

from collections.abc import Sequence
from functools import cached_property

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.admission.feasible import Group, grouped, refusal
from trainmaster.scheduling.admission.windows import Staying
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.cells import Cells
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.space import Site
from trainmaster.scheduling.placement.choices import Market


class Inventory:
    """Sites and rules, the cells that the nodes have been in, and the reasons for requests that wait."""

    def __init__(self, sites: Sequence[Site], rules: Cluster) -> None:
        self.sites, self.rules, self.cells = sites, rules, Cells()
        self._busy: dict[Ask, Refusal] = {}
        self._kept_back: dict[Ask, Refusal] = {}

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Groups of equal nodes."""
        return grouped(self.sites)

    @cached_property
    def market(self) -> Market:
        """Ranks the choices of jobs."""
        return Market(self.rules, self.groups)

    @cached_property
    def staying(self) -> Staying:
        """What maintenance windows leave of the nodes."""
        return Staying(self.rules, self.groups)

    def busy(self, ask: Ask) -> Refusal:
        """Why a request waits that does not fit now or never fits."""
        found = self._busy.get(ask)
        if found is None:
            found = self._busy[ask] = refusal(ask, self.groups)
        return found

    def kept_back(self, ask: Ask) -> Refusal:
        """Why a request waits although it fits: the nodes are reserved."""
        found = self._kept_back.get(ask)
        if found is None:
            text = f"waiting for {words.describe(ask)}: what is free is kept for a job ahead of it"
            found = self._kept_back[ask] = Refusal(Reason.RESERVED, text)
        return found
