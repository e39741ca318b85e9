"""For how long a job's nodes must stay: what begins before maintenance is to end before it."""

from typing import NamedTuple

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling import words
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.task import Kind

WINDOW_MIN_S = 3600.0  # before a node leaves nothing is begun on it that would probably have to be stopped


class Need(NamedTuple):
    """For how long a job's nodes must stay."""

    least_s: float
    limited: bool  # it says itself how long it takes
    stops: bool  # it may be stopped, and goes on elsewhere

    def __str__(self) -> str:
        """The end of `waiting for 2 GPUs …`."""
        if self.least_s == FOREVER:
            return "without a time limit"
        return f"for {words.length(self.least_s)}{'' if self.limited else ' at least'}"


def need_of(kind: Kind, estimate_s: float | None, rules: Cluster) -> Need:
    """Who may be stopped and says no time goes on elsewhere when its nodes leave."""
    stops = rules.work(kind.work).preemptible
    if estimate_s is not None:
        return Need(estimate_s, True, stops)
    return Need(WINDOW_MIN_S if stops else FOREVER, False, stops)
