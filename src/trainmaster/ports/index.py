"""Finding jobs by what a person calls them."""

from collections.abc import Sequence
from typing import Protocol

from trainmaster.model.job import State


class JobIndex(Protocol):
    """Finding jobs and counting them, without decoding them; an event store is one too."""

    def resolve(self, ref: str, waiting: Sequence[tuple[str, str]] = (), near: bool = True) -> str:
        """The id that `ref` means: an id, a job's name (the newest of it), the only id that begins so, `@last`, `@last-failed`.

        `waiting` are (id, name) of jobs accepted and not yet taken up, in order of submission: newer than all others.
        `near`: name the nearest ids where there is none, which takes milliseconds.
        Raises: NotFoundError, ConflictError when several ids begin so, UsageError for another `@`.
        """
        ...

    def known(self, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that are jobs' whole ids."""
        ...

    def live_counts(self) -> dict[State, int]:
        """How many jobs are in each state that is not over; every such state is there."""
        ...

    def numbers(self) -> dict[str, int]:
        """The highest number of each experiment's jobs, for `Inbox.keep_ahead`."""
        ...
