"""What the client may narrow an answer down by: the query parameters of lists and logs."""

from collections.abc import Sequence
from typing import TypedDict


class JobFilter(TypedDict, total=False):
    """Which jobs to list; `before` is the `seq` of the last job of the page before."""

    limit: int
    all: int  # 1: every job, not the newest `limit` only
    state: str | Sequence[str]
    project: str
    experiment: str
    before: int


class QueueFilter(TypedDict, total=False):
    """Which part of the queue; `after` is the `position` of the last job of the page before."""

    limit: int
    after: int
    project: str


class LogFilter(TypedDict, total=False):
    """Which log bytes; `after` is the cursor of the answer before, `wait_s` holds the answer until there are some."""

    rank: int | None
    role: str | None
    attempt: int | None
    after: str | None
    wait_s: float
    tail: int | None
