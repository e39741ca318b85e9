"""Jobs to which any of several kinds and numbers of GPUs is welcome: which of their choices is better.

A choice is tried as if it were all that the job asks for. How fast it is, and what it costs, is told by the pools whose nodes
could give it, were they free: by the slowest and the dearest of them. A job's time limit, and what is predicted of its run
time, is taken to be of the slowest of its choices.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.cells import FOREVER, steps
from trainmaster.scheduling.explain import Group, impossible
from trainmaster.scheduling.order import width_of
from trainmaster.scheduling.task import Kind, Task, alone

GUESS_S = 3600.0  # a run time where nobody needs to know: choices are only held against each other


class Way(NamedTuple):
    """One choice: the job's kind as if it asked for that alone, and its time as a share of that of the slowest choice."""

    kind: Kind
    share: float
    price: float = 0.0  # per hour

    def run_s(self, task: Task, holds_s: float) -> float:
        """How long a job would run, where it is thought to hold its nodes for `holds_s`; a guess, where that is infinite."""
        return self.share * (holds_s if holds_s < FOREVER else max(GUESS_S, task.attained_s))


class Market:
    """What choices are worth in one inventory, under one set of rules. Each is looked at once."""

    def __init__(self, rules: Cluster, groups: Sequence[Group]) -> None:
        self._rules, self._groups = rules, groups
        self._ways: dict[Kind, tuple[Way, ...]] = {}

    def ways(self, kind: Kind) -> tuple[Way, ...]:
        """The choices of a kind, the best first; without those that there can never be, unless there is no other."""
        found = self._ways.get(kind)
        if found is None:
            found = self._ways[kind] = self._ranked(kind)
        return found

    def _ranked(self, kind: Kind) -> tuple[Way, ...]:
        asks = [ask for ask in kind.asks if impossible(ask, self._groups) is None] or kind.asks
        worths = [self._worth(ask, kind) for ask in asks]
        slowest = min(speed for speed, _ in worths)
        ways = [Way(alone(kind, ask), slowest / speed, price) for ask, (speed, price) in zip(asks, worths, strict=True)]
        by_cost = kind.choices is not None and kind.choices.by_cost
        return tuple(sorted(ways, key=lambda way: (way.price * way.share if by_cost else 0.0, way.share)))

    def _worth(self, ask: Ask, kind: Kind) -> tuple[float, float]:
        """Speed, of all that it asks for together, and price per hour."""
        pools = {group.cell.pool for group in self._groups if steps(group.cell, ask.each)}
        known, width = [self._rules.pool(pool) for pool in pools], width_of(ask)
        speed = min((pool.speed for pool in known), default=1.0)
        own = dict(kind.choices.speeds) if kind.choices is not None else {}
        speed = min((own[gpu] for gpu in ask.each.kinds if gpu in own), default=speed)
        return speed * width, max((pool.price for pool in known), default=0.0) * width
