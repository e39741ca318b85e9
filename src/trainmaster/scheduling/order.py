"""Who goes first: keys of tasks, the smallest first. Every order is total: the cycle adds the order of submission.

All of them age: who has not had a turn for `STILL_S` goes before everybody who has, whatever the class. So nobody waits for
ever while jobs end that are like it.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from trainmaster.scheduling.ask import WHOLE, Ask
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.hazards import Hazards, urgency
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.task import Kind, Task

Key = tuple[Any, ...]
STILL_S = 23 * 86_400.0  # so long without a turn, and a job goes first for once
LONG_S, LONG = 7 * 86_400.0, 2.0  # a wait of a week and twice what a job needs is long (see `aged`)
QUEUES = tuple(14_400.0 * 6**i for i in range(4))  # GPU-seconds at which a job moves to the next of five queues

since: Callable[[Task], float] = attrgetter("since_s")  # who came first


def left(task: Task) -> float:
    """Who needs least."""
    return FOREVER if task.estimate_s is None else task.estimate_s


def attained(task: Task) -> float:
    """Who has had least."""
    return float(sum(task.attained_s * service_rate(task) >= bound for bound in QUEUES))


def waited_long(now_s: float, task: Task) -> bool:
    """Whether it is its turn before everybody else's; who has begun with it is done with that."""
    return not task.running and now_s - task.since_s >= STILL_S


def rank(kind: Kind) -> tuple[int, int]:
    """Higher classes first, and in a class higher priorities."""
    return -kind.tier, -kind.priority


def first(now_s: float, task: Task) -> Key:
    """With what every key begins: long waits, then class and priority."""
    return (not waited_long(now_s, task), *rank(task.kind))


def aged(service_s: float, waited_s: float, long_s: float = LONG_S) -> float:
    """The shortest service first, but for waits that are long beside it: they count more and more.

    Ours. Until a wait of `long_s` and `LONG` times the service it makes next to no difference: a rule that looks at the
    wait alone puts long jobs in front of short ones as soon as there is a queue, and costs up to half of what the order gains.
    Who runs keeps its age, so that nobody takes back at once what it was given for having waited.
    """
    if service_s == FOREVER:
        return FOREVER
    return service_s / (1.0 + (waited_s / (long_s + LONG * service_s)) ** 4)


def in_line(task: Task) -> Key:
    """The order of `priority_then_fifo` among those who have not waited for long: time does not change it."""
    return (*rank(task.kind), task.since_s)


def priority_then_fifo(snapshot: Snapshot, task: Task) -> Key:
    """Higher priority first, then earlier submission."""
    return (*first(snapshot.now_s, task), task.since_s)


def shortest_first(snapshot: Snapshot, task: Task) -> Key:
    """The shortest remaining run time."""
    return (*first(snapshot.now_s, task), aged(left(task), snapshot.now_s - task.since_s))


def smallest_first(snapshot: Snapshot, task: Task) -> Key:
    """The least remaining GPU time."""
    return (*first(snapshot.now_s, task), aged(left(task), snapshot.now_s - task.since_s) * service_rate(task))


def least_attained(snapshot: Snapshot, task: Task) -> Key:
    """The least GPU time so far, in five queues, and in each of them earlier submission (Tiresias, NSDI'19)."""
    return (*first(snapshot.now_s, task), attained(task))


class Study(NamedTuple):
    """What the learned order looks at."""

    hazards: Hazards
    now_s: float


def learned(study: Study, task: Task) -> Key:
    """The best chance to end soon, by the run times of similar jobs."""
    width = service_rate(task)
    index = study.hazards.index(task.seq, width, task.attained_s)
    return (*first(study.now_s, task), urgency(index, width, task.running))


def service_rate(task: Task) -> float:
    """GPUs that it holds, or CPUs where it asks for none."""
    return width_of(task.kind.ask)


def width_of(ask: Ask) -> float:
    """GPUs of a request, or CPUs where it asks for none."""
    return (ask.gpu_milli or ask.each.cpus * ask.nodes) / WHOLE
