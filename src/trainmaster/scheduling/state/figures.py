"""The numbers of jobs that orders compare, as columns: one row for each job, waiting or running."""

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
    """The numbers of several jobs. `left_s` is infinite where it is unknown. `running`: all of them run; else all wait."""

    tasks: Sequence[Task]  # only of waiting jobs
    seq: Floats
    since_s: Floats
    left_s: Floats  # of run time
    attained_s: Floats
    width: Floats  # GPUs; CPUs where the job asks for no GPU
    tier: Floats
    priority: Floats
    wait_max_s: Floats
    running: bool = False


Row = tuple[float, ...]  # the numbers of one job, from `seq` to `wait_max_s`; then more columns


def row_of(task: Task, *more: float) -> Row:
    """The row of a job; `more` are further columns."""
    kind = task.kind
    left_s = FOREVER if task.estimate_s is None else task.estimate_s
    return task.seq, task.since_s, left_s, task.attained_s, width_of(kind.ask), kind.tier, kind.priority, kind.wait_max_s, *more


def figures_of(tasks: Sequence[Task]) -> Figures:
    """The numbers of waiting jobs."""
    return waiting(tasks, np.array([row_of(task) for task in tasks], np.float64).reshape(len(tasks), 8))


def waiting(tasks: Sequence[Task], rows: Floats) -> Figures:
    """The numbers of waiting jobs, from their rows."""
    return Figures(tasks, *rows.T[:8])


def running(rows: Floats, now_s: float) -> Figures:
    """The numbers of running jobs, from their rows, to compare them with waiting jobs."""
    seq, since_s, left_s, attained_s, width, tier, priority, wait_max_s, placed_s = rows.T[:9]
    ran_s = now_s - placed_s
    left_s, attained_s = np.maximum(0.0, left_s - ran_s), attained_s + ran_s
    return Figures((), seq, since_s, left_s, attained_s, width, tier, priority, wait_max_s, True)


SINCE_S, WAIT_MAX_S = 1, 7
REQUEST, SAID_S = 8, 9  # columns of lines, after those of their heads (`state.queue`)
PLACED_S, GPUS, STOPPING, DOUBLINGS = 8, 9, 10, 11  # further columns of running jobs


class Rows:
    """A table that grows. The last row takes the place of a row that is removed."""

    def __init__(self, width: int) -> None:
        self._numbers = np.zeros((16, width))
        self.count = 0

    @property
    def array(self) -> Floats:
        """All rows."""
        return self._numbers[: self.count]

    def add(self, row: Row) -> None:
        """Append a row."""
        if self.count == len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
        self._numbers[self.count] = row
        self.count += 1

    def put(self, at: int, row: Row) -> None:
        """Replace a row."""
        self._numbers[at] = row

    def remove(self, at: int) -> None:
        """Remove a row; the last row takes its place."""
        self.count -= 1
        self._numbers[at] = self._numbers[self.count]
