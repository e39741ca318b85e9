"""The Policy contract, and the policies known by name: a policy is a frozen value of four pure functions over the snapshot."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trainmaster.model.cluster import DEFAULT_POLICY, Cluster
from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.fair import Holdings, Shares, fair_share
from trainmaster.scheduling.hazards import Hazards, Life
from trainmaster.scheduling.order import (
    STILL_S,
    Key,
    Study,
    attained,
    learned,
    least_attained,
    left,
    priority_then_fifo,
    service_rate,
    shortest_first,
    since,
    smallest_first,
    width_of,
)
from trainmaster.scheduling.preempt import Candidates, by_right, overtaking
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.space import Space
from trainmaster.scheduling.task import Past, Run, Task

MIN_RUN_S, MIN_TURN_S = 300.0, 3600.0
Cells = Iterable[tuple[int, list[int]]]


def plainly(snapshot: Snapshot, kept: dict[str, Any]) -> Snapshot:
    """The snapshot itself is enough."""
    return snapshot


@dataclass(frozen=True, slots=True)
class Policy:
    """`order` gives a task's sort key; `place` the cells that can hold a member of a gang, best first; `depth` how many of
    those that cannot start get a reservation.

    `within` is the order among waiting tasks of one kind, which time alone never changes and with which `order` agrees; None:
    there is no such order, each is looked at for itself.
    `preempt` gives live attempts that may be stopped for a task, the first to go first; None: none ever. `steady`: the order of
    two waiting tasks never changes by time alone. `beat_s`: how often to look again though nothing happened. `study` makes of
    the snapshot what `order` is given, once for each cycle; it may keep things in the dictionary, which may be thrown away.
    `charge`: a start counts in that at once, so that the keys of those behind it change within a cycle, never to smaller ones.
    """

    name: str
    order: Callable[[Any, Task], Key]
    place: Callable[[Space, Ask], Cells]
    depth: Callable[[Snapshot], int]
    within: Callable[[Task], float] | None = since
    preempt: Candidates | None = None
    steady: bool = True
    beat_s: float | None = None
    exact: bool = False  # it is meaningful only where run times are known beforehand: in a simulation
    study: Callable[[Snapshot, dict[str, Any]], Any] = plainly
    charge: Callable[[Any, Task], None] | None = None


def pack(space: Space, ask: Ask) -> Cells:
    """The fullest nodes that can: fewest GPUs left, then CPUs, then memory, then by the node's place."""
    values = space.cells.values

    def fullness(item: tuple[int, list[int]]) -> tuple[int, int, int, int]:
        cell = values[item[0]]
        return cell.gpu_milli, cell.cpus, cell.memory, item[1][0]

    return sorted(space.fitting(ask.each), key=fullness)


def whenever(snapshot: Snapshot, run: Run, task: Task) -> bool:
    """Everybody makes way."""
    return True


def no_reservations(snapshot: Snapshot) -> int:
    """Whoever fits may start; nobody is waited for."""
    return 0


def one_reservation(snapshot: Snapshot) -> int:
    """EASY: the first that cannot start is not delayed by those behind it."""
    return 1


def after_a_while(snapshot: Snapshot, run: Run, task: Task) -> bool:
    """Whoever has run long enough to have got somewhere; for one that had stood still for long that is longer."""
    stood_s = run.placed_s - run.task.since_s
    return snapshot.now_s - run.placed_s >= (MIN_TURN_S if stood_s >= STILL_S else MIN_RUN_S)


def learn(snapshot: Snapshot, kept: dict[str, Any]) -> Study:
    """What the lives of all jobs so far say."""
    hazards, seen = kept.get("hazards"), kept.get("seen", 0)
    if hazards is None:
        hazards = kept["hazards"] = Hazards()
        seen = 0
    living = sorted((*snapshot.waiting.values(), *(run.at(snapshot.now_s) for run in snapshot.running.values())))
    lives = [Life(task.seq, service_rate(task), task.attained_s, False) for task in living]
    if seen == 0:
        lives = sorted([*lives, *map(_life, snapshot.ended)])
    else:
        lives += map(_life, snapshot.ended[seen:])
    for life in lives:
        hazards.learn(life)
    kept["seen"] = len(snapshot.ended)
    return Study(hazards, snapshot.now_s)


def shares(snapshot: Snapshot, kept: dict[str, Any]) -> Shares:
    """What everybody has had."""
    holdings = kept.get("holdings")
    if holdings is None:
        holdings = kept["holdings"] = Holdings()
        for run in snapshot.running.values():
            holdings.enter(run)
    return Shares(snapshot, holdings)


def _life(past: Past) -> Life:
    return Life(past.seq, width_of(past.kind.ask), past.ran_s, True)


POLICIES = {
    policy.name: policy
    for policy in (
        Policy("fifo", priority_then_fifo, pack, no_reservations),
        Policy("easy", priority_then_fifo, pack, one_reservation),
        Policy("sjf", shortest_first, pack, no_reservations, left, exact=True),
        Policy("srtf", shortest_first, pack, no_reservations, left, overtaking(whenever), steady=False, exact=True),
        Policy("srsf", smallest_first, pack, no_reservations, left, overtaking(whenever), steady=False, exact=True),
        Policy(
            "learned", learned, pack, no_reservations, None, overtaking(after_a_while), steady=False, beat_s=1200.0, study=learn
        ),
        Policy(
            "least-attained",
            least_attained,
            pack,
            no_reservations,
            attained,
            overtaking(after_a_while),
            steady=False,
            beat_s=MIN_RUN_S,
        ),
        Policy(
            "fair-share",
            fair_share,
            pack,
            one_reservation,
            preempt=by_right,
            steady=False,
            study=shares,
            charge=Shares.charge,
        ),
    )
}

LIVE = tuple(name for name, policy in POLICIES.items() if not policy.exact)  # those that a cluster may choose


def chosen(rules: Cluster) -> Policy:
    """The policy of the first pool, which holds for the whole cluster; one that only a newer version knows is the default."""
    return POLICIES.get(rules.pools[0].policy, POLICIES[DEFAULT_POLICY])
