"""What orders compare of jobs, as columns: one row for each job, in the queue or running."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.model.request import width_of

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Figures(NamedTuple):
    """Jobs side by side; `left_s` is infinite where nobody knows. `running`: all of them run, or all wait."""

    tasks: Sequence[Task]  # of jobs that wait
    seq: Floats
    since_s: Floats
    left_s: Floats  # of the run time
    attained_s: Floats
    width: Floats  # GPUs, or CPUs where none is asked for
    tier: Floats
    priority: Floats
    wait_max_s: Floats
    running: bool = False


Row = tuple[float, ...]  # the figures of one job, from `seq` to `priority`; then those of its place


def row_of(task: Task, *more: float) -> Row:
    """The row of a job, with what else is wanted of it."""
    kind = task.kind
    left_s = FOREVER if task.estimate_s is None else task.estimate_s
    return task.seq, task.since_s, left_s, task.attained_s, width_of(kind.ask), kind.tier, kind.priority, kind.wait_max_s, *more


def figures_of(tasks: Sequence[Task]) -> Figures:
    """Of jobs in the queue."""
    return waiting(tasks, np.array([row_of(task) for task in tasks], np.float64).reshape(len(tasks), 8))


def waiting(tasks: Sequence[Task], rows: Floats) -> Figures:
    """Of jobs in the queue whose rows these are."""
    return Figures(tasks, *rows.T[:8])


def running(rows: Floats, now_s: float) -> Figures:
    """Of those that run whose rows these are, to hold them against those that wait."""
    seq, since_s, left_s, attained_s, width, tier, priority, wait_max_s, placed_s = rows.T[:9]
    ran_s = now_s - placed_s
    left_s, attained_s = np.maximum(0.0, left_s - ran_s), attained_s + ran_s
    return Figures((), seq, since_s, left_s, attained_s, width, tier, priority, wait_max_s, True)


SINCE_S, WAIT_MAX_S = 1, 7
REQUEST, SAID_S = 8, 9  # columns of lines, after the figures of their heads (`state.queue`)
PLACED_S, GPUS, STOPPING, EVICTIONS = 8, 9, 10, 11  # columns of those that run, after their figures


class Rows:
    """A table that grows; the row that leaves is taken by the last one."""

    def __init__(self, width: int) -> None:
        self._numbers = np.zeros((16, width))
        self.count = 0

    @property
    def array(self) -> Floats:
        """All rows."""
        return self._numbers[: self.count]

    def add(self, row: Row) -> None:
        """One more."""
        if self.count == len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
        self._numbers[self.count] = row
        self.count += 1

    def put(self, at: int, row: Row) -> None:
        """Other figures of a row."""
        self._numbers[at] = row

    def remove(self, at: int) -> None:
        """The last one comes to its place."""
        self.count -= 1
        self._numbers[at] = self._numbers[self.count]
