"""Why jobs wait.

A new reason is a `Reason` here, and a `Refusal` where it arises: rules in `admission`, nodes in `admission.feasible` and
`state.inventory`, choices in `placement.choices`. `steps.place.find` meets it for a job that is tried, and
`steps.fit.Reasons` for one that is not; `steps.attempt` records it for the job's kind, or for the job alone. `Reason` says what
a decision must know of it. What would let the job start is in `explanation.remedies`.
"""

from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """What keeps a job from starting."""

    IMPOSSIBLE = "impossible"  # no nodes here can ever hold it, or no rule ever lets it
    BUSY = "busy"  # other jobs hold the nodes, or these are closed
    RESERVED = "reserved"  # what is free is kept for a job ahead of it
    QUOTA = "quota"
    WINDOW = "window"  # maintenance begins too early
    HANDOVER = "handover"  # its nodes are on their way to it
    PLACE = "place"  # it waits for a better place by its own wish
    CHOICE = "choice"  # it waits for another of its choices, or each waits for a reason of its own
    BACKOFF = "backoff"  # after a failure

    @property
    def claims(self) -> bool:
        """Whether a job that waits for this could use nodes that become free: elastic jobs leave these to it."""
        return self not in (Reason.IMPOSSIBLE, Reason.QUOTA, Reason.WINDOW)

    @property
    def of_pool(self) -> bool:
        """Whether it is a reason only in the pool that gives it: in another pool the job may wait for something else."""
        return self in (Reason.IMPOSSIBLE, Reason.WINDOW)

    @property
    def for_nodes(self) -> bool:
        """Whether the job waits for nodes: then an answer says what is free now."""
        return self in (Reason.BUSY, Reason.PLACE)

    @property
    def passes(self) -> bool:
        """Whether it is a barrier that ends by itself."""
        return self is Reason.WINDOW


class Refusal(NamedTuple):
    """Why a job waits. The text has no momentary numbers, so it changes only when the reason changes.

    The text begins with `waiting for`, or, if it is impossible, with a verb after *it*: `asks for 9 GPUs …`.
    """

    cause: Reason
    text: str


BACKOFF = Refusal(Reason.BACKOFF, "waiting before the next restart (back-off)")
