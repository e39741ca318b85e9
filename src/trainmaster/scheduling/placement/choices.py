"""Jobs to which any of several kinds and numbers of GPUs is welcome: which of their choices is better.

A choice is tried as if it were all that the job asks for. What it costs is told by the pools whose nodes could give it, were
they free: by the dearest of them. How fast it is the job itself says, or else what its like took there (`speeds`), or else
those pools: the slowest of them. A job's time limit, and what is predicted of its run
time, is taken to be of the slowest of its choices.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainmaster.model.cluster import Cluster, Pool
from trainmaster.scheduling.admission.feasible import Group, impossible
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.cells import FOREVER, steps
from trainmaster.scheduling.model.jobs import Kind, Past, Task, alone
from trainmaster.scheduling.model.request import Ask, Wish, width_of
from trainmaster.scheduling.model.snapshot import Refusal
from trainmaster.scheduling.prediction.speeds import Speeds, work_of

GUESS_S = 3600.0  # a run time where nobody needs to know: choices are only held against each other


class Way(NamedTuple):
    """One choice: the job's kind as if it asked for that alone, and its time as a share of that of the slowest choice."""

    kind: Kind
    share: float
    price: float = 0.0  # per hour

    def of(self, task: Task) -> Task:
        """A job as if it asked for this alone."""
        return task if task.kind is self.kind else task._replace(kind=self.kind)

    def run_s(self, task: Task, holds_s: float) -> float:
        """How long a job would run, where it is thought to hold its nodes for `holds_s`; a guess, where that is infinite."""
        return self.share * (holds_s if holds_s < FOREVER else max(GUESS_S, task.attained_s))


class Market:
    """What choices are worth in one inventory, under one set of rules, after what has `ended`. Each is looked at once, and
    anew when more of its like is over.
    """

    def __init__(self, rules: Cluster, groups: Sequence[Group], ended: Sequence[Past] = ()) -> None:
        self._rules, self._groups = rules, groups
        self._ways: dict[Kind, tuple[Way, ...]] = {}
        self._speeds = Speeds()
        self.ended = ended  # only ever added to

    def ways(self, kind: Kind) -> tuple[Way, ...]:
        """The choices of a kind, the best first; without those that there can never be, unless there is no other."""
        if self._speeds.seen < len(self.ended):
            news = self._speeds.follow(self.ended)
            self._ways = {known: ways for known, ways in self._ways.items() if work_of(known) not in news}
        found = self._ways.get(kind)
        if found is None:
            found = self._ways[kind] = self._ranked(kind)
        return found

    def _ranked(self, kind: Kind) -> tuple[Way, ...]:
        asks = [ask for ask in kind.asks if impossible(ask, self._groups) is None] or kind.asks
        speeds = [speed * width_of(ask) for speed, ask in zip(self._fast(asks, kind), asks, strict=True)]
        slowest = min(speeds)
        prices = [max((pool.price for pool in self._pools(ask)), default=0.0) * width_of(ask) for ask in asks]
        ways = [Way(alone(kind, ask), slowest / speed, price) for ask, speed, price in zip(asks, speeds, prices, strict=True)]
        by_cost = kind.choices is not None and kind.choices.by_cost
        return tuple(sorted(ways, key=lambda way: (way.price * way.share if by_cost else 0.0, way.share)))

    def _fast(self, asks: Sequence[Ask], kind: Kind) -> list[float]:
        """Of one GPU of each. What was measured says how those stand to each other; all together, to the rest, as the one with
        most runs does by its word or its pool's.
        """
        own = dict(kind.choices.speeds) if kind.choices is not None else {}
        found = [min((pool.speed for pool in self._pools(ask)), default=1.0) for ask in asks]
        found = [own.get(gpu_of(ask), speed) for ask, speed in zip(asks, found, strict=True)]
        measured = self._speeds.of(work_of(kind))
        known = [(-measured[gpu_of(ask)].runs, gpu_of(ask), at) for at, ask in enumerate(asks) if gpu_of(ask) in measured]
        if len({gpu for _, gpu, _ in known}) > 1:
            _, base, at = min(known)
            one = found[at] / measured[base].times
            for _, gpu, at in known:
                found[at] = own.get(gpu, one * measured[gpu].times)
        return found

    def _pools(self, ask: Ask) -> list[Pool]:
        """Those whose nodes could give it."""
        names = {group.cell.pool for group in self._groups if steps(group.cell, ask.each)}
        return [self._rules.pool(name) for name in names]


def gpu_of(ask: Ask) -> str:
    """The kind of GPU; "" where any will do."""
    return ask.each.kinds[0] if ask.each.kinds else ""


def patience(found: Refusal, kind: Kind) -> Refusal:
    """Why one waits that would take less than it wants, but not yet."""
    within = f" in one {kind.ask.within}" if kind.ask.within is not None else ""
    return Refusal("place", f"{found.text}; after {words.duration(kind.wish.prefer_s)} in the queue it takes any place{within}")


def cheapest(found: Refusal, wish: Wish) -> Refusal:
    """Why one waits for the cheapest of its choices, but not for ever."""
    return Refusal("choice", f"{found.text}; after {words.duration(wish.prefer_s)} in the queue it takes any of its choices")


def sooner(ask: Ask, free: Ask) -> Refusal:
    """Why one waits for one of its choices while another is `free`."""
    there = words.describe(free)
    return Refusal("choice", f"waiting for {words.describe(ask)}: it is expected to end sooner there than with {there}")


def sought(task: Task, now_s: float, told: Callable[[Ask], Refusal]) -> Ask:
    """What a job may start with: while it waits for a better place, that place; where there can be none it does not wait.

    `told` says why a request does not fit.
    """
    ask, wish = task.kind.ask, task.kind.wish
    best = wish.best(ask) if wish.patient(task.since_s, now_s) else ask
    return ask if best is not ask and told(best).kind == "impossible" else best
