"""The order of the queue: keys of jobs, the smallest first. Every order is total: `by_keys` and `Queue` add that of
submission.

Jobs age: one that has waited as long as its class allows (`wait_max`) comes before all other jobs, whatever their class. So no
job starves while jobs like it end.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.state.figures import Figures, Floats

Key = tuple[Any, ...]
Keys = tuple[Floats, ...]  # columns of keys: the first decides, then the next
Ints = npt.NDArray[np.intp]
Ranking = Callable[[Any, "Figures"], Keys]
LONG_S, LONG = 7 * 86_400.0, 2.0  # a wait is long after a week and twice the run time (`aged`)


def waited_long(now_s: float, task: Task) -> bool:
    """Whether a job has waited too long and comes first. A running job has had its turn."""
    return not task.running and now_s - task.since_s >= task.kind.wait_max_s


def rank(kind: Kind) -> tuple[int, int]:
    """The higher class first, then the higher priority."""
    return -kind.tier, -kind.priority


def first(now_s: float, jobs: Figures) -> Keys:
    """The first keys of every ranking: too long a wait, then class and priority. `Sharing` has these by itself."""
    late = np.zeros(len(jobs.seq)) if jobs.running else (now_s - jobs.since_s >= jobs.wait_max_s).astype(np.float64)
    return -late, -jobs.tier, -jobs.priority


def aged(service_s: Floats, waited_s: Floats, long_s: float = LONG_S) -> Floats:
    """The shortest service first, but a wait that is long compared with the service counts more and more.

    Ours. A wait below `long_s` plus `LONG` times the service makes almost no difference. A rule that looks at the wait alone
    puts long jobs before short ones as soon as there is a queue. That costs up to half of what the order gains.
    A running job keeps its age, so a job that started because of its wait is not preempted at once.
    """
    found: Floats = service_s / (1.0 + (waited_s / (long_s + LONG * service_s)) ** 4)
    return found


def by_keys(keys: Keys, seq: Floats) -> Ints:
    """The indices of jobs in their order: by the first of `keys`, then the next, and last by submission."""
    return np.lexsort((seq, *reversed(keys)))


class Sharing(NamedTuple):
    """An order in two levels: owners by `claim`, and the jobs of one owner by `rank`.

    `charge` raises the claim of an owner when a job of it starts. Time never changes a rank.
    """

    words: str
    owner: Callable[[Kind], Hashable]
    claim: Callable[[Any, Task], Key]
    rank: Callable[[Task], Key]
    charge: Callable[[Any, Task], None]

    def key(self, view: Any, task: Task) -> Key:
        """The whole key: too long a wait, then the claim, then the rank."""
        return not waited_long(view.now_s, task), *self.claim(view, task), *self.rank(task)


def nobody(kind: Kind) -> None:
    """One owner for all jobs, where owners do not matter."""


def unclaimed(view: Any, task: Task) -> Key:
    """All owners have the same claim."""
    return ()


def uncharged(view: Any, task: Task) -> None:
    """A start changes no claim."""
