"""Who goes first: keys of tasks, the smallest first. Every order is total: the cycle adds the order of submission.

All of them age: a job that has waited for as long as its class allows (`wait_max`) goes before all that have not, whatever the
class. So no job waits for ever while jobs end that are like it.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.state.figures import Figures, Floats

Key = tuple[Any, ...]
Keys = tuple[Floats, ...]  # of jobs side by side: the first decides, then the next
Ints = npt.NDArray[np.intp]
Ranking = Callable[[Any, "Figures"], Keys]
LONG_S, LONG = 7 * 86_400.0, 2.0  # a wait of a week and twice what a job needs is long (see `aged`)


def waited_long(now_s: float, task: Task) -> bool:
    """Whether it is its turn before everybody else's; who has begun with it is done with that."""
    return not task.running and now_s - task.since_s >= task.kind.wait_max_s


def rank(kind: Kind) -> tuple[int, int]:
    """Higher classes first, and in a class higher priorities."""
    return -kind.tier, -kind.priority


def first(now_s: float, jobs: Figures) -> Keys:
    """With what every order begins: long waits, then class and priority."""
    late = np.zeros(len(jobs.seq)) if jobs.running else (now_s - jobs.since_s >= jobs.wait_max_s).astype(np.float64)
    return -late, -jobs.tier, -jobs.priority


def aged(service_s: Floats, waited_s: Floats, long_s: float = LONG_S) -> Floats:
    """The shortest service first, but for waits that are long beside it: they count more and more.

    Ours. Until a wait of `long_s` and `LONG` times the service it makes next to no difference: a rule that looks at the
    wait alone puts long jobs in front of short ones as soon as there is a queue, and costs up to half of what the order gains.
    Who runs keeps its age, so that nobody takes back at once what it was given for having waited.
    """
    found: Floats = service_s / (1.0 + (waited_s / (long_s + LONG * service_s)) ** 4)
    return found


def by_keys(keys: Keys, seq: Floats) -> Ints:
    """The places of jobs in their order: by the first of `keys`, then the next, and at last by submission."""
    return np.lexsort((seq, *reversed(keys)))


class Sharing(NamedTuple):
    """An order in steps: owners by `claim`, which `charge` raises when a task of theirs is started; then tasks of one owner by
    `rank`, which time never changes.
    """

    words: str
    owner: Callable[[Kind], Hashable]
    claim: Callable[[Any, Task], Key]
    rank: Callable[[Task], Key]
    charge: Callable[[Any, Task], None]

    def key(self, view: Any, task: Task) -> Key:
        """All of it: who has waited for too long, then by claim, then by rank."""
        return not waited_long(view.now_s, task), *self.claim(view, task), *self.rank(task)


def nobody(kind: Kind) -> None:
    """Whose a job is where that does not matter."""


def unclaimed(view: Any, task: Task) -> Key:
    """Nobody has more of a claim than others."""
    return ()


def uncharged(view: Any, task: Task) -> None:
    """A start changes nobody's claim."""
