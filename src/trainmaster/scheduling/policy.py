"""The Policy contract, and the policies known by name: a policy is a frozen value of four pure functions over the snapshot."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from trainmaster.model.cluster import DEFAULT_POLICY, Cluster
from trainmaster.scheduling import multifactor
from trainmaster.scheduling.ask import Ask, width_of
from trainmaster.scheduling.cells import Taste
from trainmaster.scheduling.fair import Shares, claim, owner, rank, shares
from trainmaster.scheduling.figures import Floats, Mask
from trainmaster.scheduling.fragmentation import typical
from trainmaster.scheduling.hazards import Hazards, Life
from trainmaster.scheduling.multifactor import Terms
from trainmaster.scheduling.order import (
    STILL_S,
    Ranking,
    Study,
    in_line,
    learned,
    least_attained,
    nobody,
    service_rate,
    shortest_first,
    smallest_first,
    uncharged,
    unclaimed,
)
from trainmaster.scheduling.places import Places, in_turn, pack
from trainmaster.scheduling.predict import foresee, predicted, shortest
from trainmaster.scheduling.preempt import ByRight, Overtaking, Preempt
from trainmaster.scheduling.sharing import Sharing
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.space import Space
from trainmaster.scheduling.task import Past, Task

MIN_RUN_S, MIN_TURN_S = 300.0, 3600.0


def plainly(snapshot: Snapshot, kept: dict[str, Any]) -> Snapshot:
    """The snapshot itself is enough."""
    return snapshot


def tightest(snapshot: Snapshot, kept: dict[str, Any]) -> Taste | None:
    """A share comes from the device that has least left of those that have enough."""
    return None


@dataclass(frozen=True, slots=True)
class Policy:
    """`order` says who goes first; `place` the cells that can hold a member of a gang, best first; `depth` how many of
    those that cannot start get a reservation.

    `preempt` gives live attempts that may be stopped for a task, the first to go first; None: none ever. `beat_s`: how often to
    look again though nothing happened. `study` makes of the snapshot what `order` is given, once for each cycle; it may keep
    things in the dictionary, which may be thrown away.
    `parts` are policies of several sets of pools, by name; where there are any, nothing else here is looked at.
    `trusts`: what a job says of its run time is believed; else, and of one that says nothing, run times are predicted.
    An order is `Sharing`, where jobs of one kind are in an order that time never changes and the first of them is looked at, or
    it gives keys of jobs side by side, each ranked by itself.
    `terms` says what an order by a sum is the sum of; it is kept with each start.
    `taste` says which of several devices a share comes from, and `place` may ask it too (`Cells.worths`).
    """

    name: str
    order: "Sharing | Ranking"
    place: Callable[[Space, Ask], Places]
    depth: Callable[[Snapshot], int]
    preempt: Preempt | None = None
    beat_s: float | None = None
    exact: bool = False  # it is meaningful only where run times are known beforehand: in a simulation
    study: Callable[[Snapshot, dict[str, Any]], Any] = plainly
    terms: Callable[[Any, Task], Terms] | None = None
    trusts: bool = True
    parts: "tuple[tuple[frozenset[str], Policy], ...]" = ()
    taste: Callable[[Snapshot, dict[str, Any]], Taste | None] = tightest

    @property
    def sharing(self) -> Sharing | None:
        """The order, where it is one in steps."""
        return self.order if isinstance(self.order, Sharing) else None

    @property
    def words(self) -> str:
        """What the order says of itself."""
        return self.order.words if isinstance(self.order, Sharing) else self.order.__doc__ or ""

    @property
    def shares(self) -> bool:
        """Whether a start changes the order of those who wait."""
        return self.sharing is not None and self.sharing.charge is not uncharged


def to_taste(space: Space, ask: Ask) -> Places:
    """What the policy's taste likes best, then by the node's place."""
    assert space.cells.taste is not None, "a policy that asks its taste has one"
    worths = space.cells.worths(ask.each, space.cells.taste)
    return in_turn([(worths[number], nodes[0], number, nodes) for number, nodes in space.fitting(ask.each)])


def at_once(now_s: float, since_s: Floats, placed_s: Floats) -> Mask:
    """Everybody makes way, but whoever had to stand still for long has its turn."""
    return _has_run(now_s - placed_s, 0.0, placed_s - since_s)


def no_reservations(snapshot: Snapshot) -> int:
    """Whoever fits may start; nobody is waited for."""
    return 0


def one_reservation(snapshot: Snapshot) -> int:
    """EASY: the first that cannot start is not delayed by those behind it."""
    return 1


def as_the_loop_can(snapshot: Snapshot) -> int:
    """As many as there is time for."""
    return snapshot.depth


def one_for_everybody(snapshot: Snapshot) -> int:
    """Conservative: nobody is delayed by anyone behind."""
    return len(snapshot.waiting)


def after_a_while(now_s: float, since_s: Floats, placed_s: Floats) -> Mask:
    """Whoever has run long enough to have got somewhere; for one that had stood still for long that is longer."""
    return _has_run(now_s - placed_s, MIN_RUN_S, placed_s - since_s)


def _has_run(ran_s: Floats, least_s: float, stood_s: Floats) -> Mask:
    found: Mask = ran_s >= np.where(stood_s >= STILL_S, MIN_TURN_S, least_s)
    return found


def learn(snapshot: Snapshot, kept: dict[str, Any]) -> Study:
    """What the lives of all jobs so far say."""
    runs = (run.at(snapshot.now_s) for run in snapshot.running.values())
    living = [Life(task.seq, service_rate(task), task.attained_s, False) for task in (*snapshot.waiting.values(), *runs)]
    hazards, seen = kept.get("hazards"), kept.get("seen", 0)
    if hazards is None or not hazards.follow(living, [_life(past) for past in snapshot.ended[seen:]]):
        hazards = kept["hazards"] = Hazards()
        hazards.follow(living, [_life(past) for past in snapshot.ended])
    kept["seen"] = len(snapshot.ended)
    return Study(hazards, snapshot.now_s)


def _life(past: Past) -> Life:
    return Life(past.seq, width_of(past.kind.ask), past.ran_s, True)


FIRST_COME = Sharing("Higher priority first, then earlier submission.", nobody, unclaimed, in_line, uncharged)
FAIR = Sharing(
    "The class, then the project and user with the least use for their share, then priority and submission.",
    owner,
    claim,
    rank,
    Shares.charge,
)
FACTORS = Sharing(
    "The sum of weighted factors: class, own priority, age, fair share, size; urgent jobs first.",
    multifactor.owner,
    multifactor.claim,
    multifactor.rank,
    multifactor.charge,
)

POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", FIRST_COME, pack, no_reservations),
        Policy("fragmentation", FIRST_COME, to_taste, no_reservations, taste=typical),
        Policy("easy", FIRST_COME, pack, one_reservation),
        Policy("conservative", FIRST_COME, pack, one_for_everybody),
        Policy("sjf", shortest_first, pack, no_reservations, exact=True),
        Policy("srtf", shortest_first, pack, no_reservations, Overtaking(at_once, shortest_first), exact=True),
        Policy("srsf", smallest_first, pack, no_reservations, Overtaking(at_once, smallest_first), exact=True),
        Policy("learned", learned, pack, no_reservations, Overtaking(after_a_while, learned), beat_s=1200.0, study=learn),
        Policy("shortest", shortest, pack, one_reservation, beat_s=600.0, exact=True),
        Policy("predicted", predicted, pack, one_reservation, beat_s=600.0, study=foresee, trusts=False),
        Policy(
            "least-attained", least_attained, pack, no_reservations, Overtaking(after_a_while, least_attained), beat_s=MIN_RUN_S
        ),
        Policy("fair-share", FAIR, pack, as_the_loop_can, ByRight(), study=shares),
        Policy(
            "multifactor",
            FACTORS,
            pack,
            as_the_loop_can,
            ByRight(),
            beat_s=600.0,
            study=multifactor.weigh,
            terms=multifactor.terms,
        ),
    )
}

LIVE = tuple(name for name, policy in POLICIES.items() if not policy.exact)  # those that a cluster may choose


def chosen(rules: Cluster) -> Policy:
    """What the pools' policies come to; one that only a newer version knows is the default."""
    by_policy: dict[str, list[str]] = {}
    for pool in rules.pools:
        by_policy.setdefault(pool.policy if pool.policy in LIVE else DEFAULT_POLICY, []).append(pool.name)
    if len(by_policy) == 1:
        return POLICIES[next(iter(by_policy))]
    first = POLICIES[next(iter(by_policy))]
    return replace(first, name="by pool", parts=_parts(tuple((name, tuple(pools)) for name, pools in by_policy.items())))


@lru_cache(maxsize=64)
def _parts(names: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[tuple[frozenset[str], Policy], ...]:
    return tuple((frozenset(pools), POLICIES[name]) for name, pools in names)
