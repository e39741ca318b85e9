"""The Policy contract, and the policies known by name: a policy is a frozen value of four pure functions over the snapshot."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from trainmaster.model.cluster import DEFAULT_POLICY, Cluster
from trainmaster.scheduling import multifactor
from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.cells import Taste
from trainmaster.scheduling.fair import Shares, claim, early_s, fair_share, owner, rank, shares
from trainmaster.scheduling.fragmentation import typical
from trainmaster.scheduling.hazards import Hazards, Life
from trainmaster.scheduling.multifactor import Terms
from trainmaster.scheduling.order import (
    STILL_S,
    Key,
    Study,
    in_line,
    learned,
    least_attained,
    priority_then_fifo,
    service_rate,
    shortest_first,
    since,
    smallest_first,
    width_of,
)
from trainmaster.scheduling.places import Places, in_turn, pack
from trainmaster.scheduling.predict import foresee, predicted, shortest
from trainmaster.scheduling.preempt import Candidates, by_right, overtaking
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.space import Space
from trainmaster.scheduling.task import Kind, Past, Run, Task

MIN_RUN_S, MIN_TURN_S = 300.0, 3600.0


def plainly(snapshot: Snapshot, kept: dict[str, Any]) -> Snapshot:
    """The snapshot itself is enough."""
    return snapshot


def tightest(snapshot: Snapshot, kept: dict[str, Any]) -> Taste | None:
    """A share comes from the device that has least left of those that have enough."""
    return None


Clock = list[int]  # of one number


class Sharing(NamedTuple):
    """An order in steps: who is in the queue since `early_s` or before; then owners by `claim`, which `charge` raises when a
    task of theirs is started; then tasks of one owner by `rank`. `order` is all of these keys one after the other. As long as
    the `clock` of a kind shows the same, its `claim` is the same.
    """

    owner: Callable[[Kind], Hashable]
    early_s: Callable[[Any], float]
    claim: Callable[[Any, Task], Key]
    rank: Callable[[Task], Key]
    charge: Callable[[Any, Task], None]
    clock: Callable[[Any, Kind], Clock]


@dataclass(frozen=True, slots=True)
class Policy:
    """`order` gives a task's sort key; `place` the cells that can hold a member of a gang, best first; `depth` how many of
    those that cannot start get a reservation.

    `within` is the order among waiting tasks of one kind, which time alone never changes and with which `order` agrees; None:
    there is no such order, each is looked at for itself.
    `preempt` gives live attempts that may be stopped for a task, the first to go first; None: none ever. `steady` is the order
    of waiting tasks where time alone never changes it, until one has waited for `STILL_S`; None: it may. `beat_s`: how often to
    look again though nothing happened. `study` makes of the snapshot what `order` is given, once for each cycle; it may keep
    things in the dictionary, which may be thrown away.
    `parts` are policies of several sets of pools, by name; where there are any, nothing else here is looked at.
    `trusts`: what a job says of its run time is believed; else, and of one that says nothing, run times are predicted.
    `sharing` is how `order` comes about where a start changes the keys of others at once.
    `terms` says what an order by a sum is the sum of; it is kept with each start.
    `taste` says which of several devices a share comes from, and `place` may ask it too (`Cells.worths`).
    """

    name: str
    order: Callable[[Any, Task], Key]
    place: Callable[[Space, Ask], Places]
    depth: Callable[[Snapshot], int]
    within: Callable[[Task], float] | None = since
    preempt: Candidates | None = None
    steady: Callable[[Task], Key] | None = None
    beat_s: float | None = None
    exact: bool = False  # it is meaningful only where run times are known beforehand: in a simulation
    study: Callable[[Snapshot, dict[str, Any]], Any] = plainly
    sharing: Sharing | None = None
    terms: Callable[[Any, Task], Terms] | None = None
    trusts: bool = True
    parts: "tuple[tuple[frozenset[str], Policy], ...]" = ()
    taste: Callable[[Snapshot, dict[str, Any]], Taste | None] = tightest


def to_taste(space: Space, ask: Ask) -> Places:
    """What the policy's taste likes best, then by the node's place."""
    assert space.cells.taste is not None, "a policy that asks its taste has one"
    worths = space.cells.worths(ask.each, space.cells.taste)
    return in_turn([(worths[number], nodes[0], number, nodes) for number, nodes in space.fitting(ask.each)])


def at_once(snapshot: Snapshot, run: Run, task: Task) -> bool:
    """Everybody makes way, but whoever had to stand still for long has its turn."""
    return snapshot.now_s - run.placed_s >= (MIN_TURN_S if _stood_long(run) else 0.0)


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


def after_a_while(snapshot: Snapshot, run: Run, task: Task) -> bool:
    """Whoever has run long enough to have got somewhere; for one that had stood still for long that is longer."""
    return snapshot.now_s - run.placed_s >= (MIN_TURN_S if _stood_long(run) else MIN_RUN_S)


def _stood_long(run: Run) -> bool:
    return run.placed_s - run.task.since_s >= STILL_S


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


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", priority_then_fifo, pack, no_reservations, steady=in_line),
        Policy("fragmentation", priority_then_fifo, to_taste, no_reservations, steady=in_line, taste=typical),
        Policy("easy", priority_then_fifo, pack, one_reservation, steady=in_line),
        Policy("conservative", priority_then_fifo, pack, one_for_everybody),
        Policy("sjf", shortest_first, pack, no_reservations, None, exact=True),
        Policy("srtf", shortest_first, pack, no_reservations, None, overtaking(at_once), exact=True),
        Policy("srsf", smallest_first, pack, no_reservations, None, overtaking(at_once), exact=True),
        Policy("learned", learned, pack, no_reservations, None, overtaking(after_a_while), beat_s=1200.0, study=learn),
        Policy(
            "shortest",
            shortest,
            pack,
            one_reservation,
            None,
            beat_s=600.0,
            exact=True,
        ),
        Policy(
            "predicted",
            predicted,
            pack,
            one_reservation,
            None,
            beat_s=600.0,
            study=foresee,
            trusts=False,
        ),
        Policy(
            "least-attained",
            least_attained,
            pack,
            no_reservations,
            None,
            overtaking(after_a_while),
            beat_s=MIN_RUN_S,
        ),
        Policy(
            "fair-share",
            fair_share,
            pack,
            as_the_loop_can,
            preempt=by_right,
            study=shares,
            sharing=Sharing(owner, early_s, claim, rank, Shares.charge, Shares.clock),
        ),
        Policy(
            "multifactor",
            multifactor.multifactor,
            pack,
            as_the_loop_can,
            preempt=by_right,
            beat_s=600.0,
            study=multifactor.weigh,
            sharing=Sharing(
                multifactor.owner,
                multifactor.early_s,
                multifactor.claim,
                multifactor.rank,
                multifactor.charge,
                multifactor.clock,
            ),
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
