"""Jobs that accept any of several kinds and numbers of GPUs: which of their choices is better.

A choice is tried as if the job asked for nothing else. Its price is that of the dearest pool whose empty nodes could hold it.
Its speed is what the job itself states, else what similar jobs measured (`speeds`), else the speed of the slowest such pool.
The time limit and the predicted run time of a job are taken to be those of its slowest choice.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainmaster.model.cluster import Cluster, Pool
from trainmaster.scheduling.admission.feasible import Group, impossible
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.cells import FOREVER, steps
from trainmaster.scheduling.model.jobs import Kind, Past, Task, alone
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask, Wish, width_of
from trainmaster.scheduling.prediction.speeds import Speeds, work_of

GUESS_S = 3600.0  # an unknown run time: choices are only compared with each other


class Way(NamedTuple):
    """One choice: the kind of the job as if it asked for that alone, and the run time relative to the slowest choice."""

    kind: Kind
    share: float
    price: float = 0.0  # per hour

    def of(self, task: Task) -> Task:
        """The job as if it asked for this choice alone."""
        return task if task.kind is self.kind else task._replace(kind=self.kind)

    def run_s(self, task: Task, holds_s: float) -> float:
        """How long a job would run that is expected to hold its nodes for `holds_s`; a guess if that is infinite."""
        return self.share * (holds_s if holds_s < FOREVER else max(GUESS_S, task.attained_s))


class Market:
    """Ranks choices in one inventory, under one set of rules, after the jobs in `ended`.

    Each result is computed once, and again when similar jobs have ended.
    """

    def __init__(self, rules: Cluster, groups: Sequence[Group], ended: Sequence[Past] = ()) -> None:
        self._rules, self._groups = rules, groups
        self._ways: dict[Kind, tuple[Way, ...]] = {}
        self._speeds = Speeds()
        self.ended = ended  # only ever added to

    def ways(self, kind: Kind) -> tuple[Way, ...]:
        """The choices of a kind, the best first, without those that can never fit, unless none can."""
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
        """The speed of one GPU of each request.

        Measured kinds have their measured ratios to each other. As a group they are scaled to the others by the stated or pool
        speed of the kind with the most runs.
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
        """The pools whose nodes could hold a member."""
        names = {group.cell.pool for group in self._groups if steps(group.cell, ask.each)}
        return [self._rules.pool(name) for name in names]


def gpu_of(ask: Ask) -> str:
    """The kind of GPU; "": any kind."""
    return ask.each.kinds[0] if ask.each.kinds else ""


def patience(found: Refusal, kind: Kind) -> Refusal:
    """Why a job waits for a better place and accepts any other only later."""
    within = f" in one {kind.ask.within}" if kind.ask.within is not None else ""
    after = words.duration(kind.wish.prefer_s)
    return Refusal(Reason.PLACE, f"{found.text}; after {after} in the queue it takes any place{within}")


def cheapest(found: Refusal, wish: Wish) -> Refusal:
    """Why a job waits for the cheapest of its choices and accepts the others only later."""
    after = words.duration(wish.prefer_s)
    return Refusal(Reason.CHOICE, f"{found.text}; after {after} in the queue it takes any of its choices")


def sooner(ask: Ask, free: Ask) -> Refusal:
    """Why a job waits for one of its choices while another is `free`."""
    there = words.describe(free)
    return Refusal(Reason.CHOICE, f"waiting for {words.describe(ask)}: it is expected to end sooner there than with {there}")


def sought(task: Task, now_s: float, told: Callable[[Ask], Refusal]) -> Ask:
    """The request with which a job may start: while it waits for a better place, that place, unless it can never exist.

    `told` says why a request does not fit.
    """
    ask, wish = task.kind.ask, task.kind.wish
    best = wish.best(ask) if wish.patient(task.since_s, now_s) else ask
    return ask if best is not ask and told(best).cause is Reason.IMPOSSIBLE else best
