"""An order in steps: of owners, which starts change, and of the jobs of one owner, which nothing changes."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from trainmaster.scheduling.order import Key, waited_long
from trainmaster.scheduling.task import Kind, Task


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
