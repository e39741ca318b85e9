"""Query parameters of lists and logs."""

from collections.abc import Sequence
from typing import TypedDict


class JobFilter(TypedDict, total=False):
    """Which jobs to list; `before` is the `seq` of the last job on the previous page."""

    limit: int
    all: int  # 1: every job, ignoring `limit`
    state: str | Sequence[str]
    project: str
    experiment: str
    before: int
    member: str  # the owner
    mine: int  # 1: the caller's own
    name: str  # `digits*`: names that begin with digits
    tag: str | Sequence[str]  # NAME or NAME=VALUE, all of them
    since_s: float  # accepted then or later
    until_s: float  # accepted before


class QueueFilter(TypedDict, total=False):
    """Which part of the queue; `after` is the `position` of the last job on the previous page."""

    limit: int
    after: int
    project: str


class LogFilter(TypedDict, total=False):
    """Which part of the logs; `after` is the previous response's cursor, `wait_s` how long to wait for new output."""

    rank: int | Sequence[int] | None
    role: str | None
    attempt: int | None
    after: str | None
    wait_s: float
    tail: int | None
    since_s: float | None  # written then or later
    times: int | None  # 1: with the times of the lines
