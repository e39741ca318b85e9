"""Who goes first: keys of tasks, the smallest first. Every order is total: the cycle adds the order of submission."""

from typing import Any, NamedTuple

from trainmaster.scheduling.ask import WHOLE, Ask
from trainmaster.scheduling.cells import FOREVER
from trainmaster.scheduling.hazards import Hazards, urgency
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.task import Task

Key = tuple[Any, ...]
STILL_S = 23 * 86_400.0  # so long without a turn, and a job goes first for once
QUEUES = tuple(14_400.0 * 6**i for i in range(4))  # GPU-seconds at which a job moves to the next of five queues


def since(task: Task) -> float:
    """Who came first."""
    return task.since_s


def left(task: Task) -> float:
    """Who needs least."""
    return FOREVER if task.estimate_s is None else task.estimate_s


def attained(task: Task) -> float:
    """Who has had least."""
    return float(sum(task.attained_s * service_rate(task) >= bound for bound in QUEUES))


def priority_then_fifo(snapshot: Snapshot, task: Task) -> Key:
    """Higher priority first, then who came first."""
    return (-task.kind.priority, task.since_s)


def shortest_first(snapshot: Snapshot, task: Task) -> Key:
    """The shortest time still to run."""
    return (-task.kind.priority, left(task))


def smallest_first(snapshot: Snapshot, task: Task) -> Key:
    """The least service still to get: time times GPUs."""
    return (-task.kind.priority, left(task) * service_rate(task))


def least_attained(snapshot: Snapshot, task: Task) -> Key:
    """Who has had least, by queues that grow by a factor, and in each who came first (Tiresias, NSDI'19)."""
    return (-task.kind.priority, attained(task))


class Study(NamedTuple):
    """What the learned order looks at."""

    hazards: Hazards
    now_s: float


def learned(study: Study, task: Task) -> Key:
    """The best chance to end soon, by what is known of its like; before them who has stood still for too long."""
    width = service_rate(task)
    moves = task.running or study.now_s - task.since_s < STILL_S
    index = study.hazards.index(task.seq, width, task.attained_s)
    return (-task.kind.priority, moves, urgency(index, width, task.running))


def service_rate(task: Task) -> float:
    """GPUs that it holds, or CPUs where it asks for none."""
    return width_of(task.kind.ask)


def width_of(ask: Ask) -> float:
    """GPUs of a request, or CPUs where it asks for none."""
    return (ask.gpu_milli or ask.each.cpus * ask.nodes) / WHOLE
