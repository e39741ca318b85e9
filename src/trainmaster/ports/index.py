"""The job index port: finds jobs by the references that people use."""

from collections.abc import Sequence
from typing import Protocol

from trainmaster.model.job import State


class JobIndex(Protocol):
    """Finds and counts jobs without decoding them. An event store is one too."""

    def resolve(self, ref: str, waiting: Sequence[tuple[str, str]] = (), near: bool = True) -> str:
        """The id for `ref`: an id, a job's name (its newest job), a unique prefix of an id, `@last`, or `@last-failed`.

        `waiting` are (id, name) of accepted jobs that control has not processed, in order of submission: newer than all
        others. `near`: suggest similar ids if there is none, which takes milliseconds.
        Raises: NotFoundError, ConflictError for an ambiguous prefix, UsageError for an unknown `@` reference.
        """
        ...

    def known(self, ids: Sequence[str]) -> set[str]:
        """The members of `ids` that are complete ids of jobs."""
        ...

    def live_counts(self) -> dict[State, int]:
        """The number of jobs in each state that is not over, zeros included."""
        ...

    def ends_after(self, after_seq: int, limit: int) -> tuple[list[str], int]:
        """Jobs that may have ended by an event after `after_seq`, in order, and the number up to which that is complete."""
        ...

    def numbers(self) -> dict[str, int]:
        """The highest job number of each experiment, for `Inbox.keep_ahead`."""
        ...
