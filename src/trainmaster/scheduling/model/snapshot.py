"""The input of one decision, the snapshot, and its output, the plan."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.model.jobs import Kind, Past, Run, Task
from trainmaster.scheduling.model.reasons import BACKOFF, Refusal
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.model.usage import Accounts

DEFAULT = Cluster()
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Snapshot(NamedTuple):
    """All input of one cycle at `now_s`. `waiting` are the queued jobs by id, `running` the live attempts by job.

    `promised` are nodes of a handover to a job in `waiting`, or those that a job keeps while it shrinks. The job starts on them
    as soon as they are free.
    """

    now_s: float
    sites: tuple[Site, ...]
    waiting: Mapping[str, Task]
    running: Mapping[str, Run]
    seen_seq: int = 0
    ended: Sequence[Past] = ()  # ended jobs, in the order of their ends; only appended to
    rules: Cluster = DEFAULT
    usage: Accounts = NOTHING  # of ended attempts
    promised: Mapping[str, Grant] = NOTHING


class Rest(Protocol):
    """The reasons of jobs for which a plan has no other."""

    def reason(self, kind: Kind) -> Refusal:
        """Why jobs of this kind wait."""


class Placement(NamedTuple):
    """A job to start."""

    job: str
    grant: Grant


class Handover(NamedTuple):
    """A job that starts on nodes of `victims`, which must exit first. Their nodes are reserved for it.

    The victims in `shrunk` free only what they have beyond their minimum, and resume with that.
    """

    job: str
    grant: Grant
    victims: tuple[str, ...]
    shrunk: tuple[str, ...] = ()  # of the victims


class Reservation(NamedTuple):
    """When a waiting job will start at the latest, if running jobs end as expected."""

    job: str
    at_s: float


class Plan(NamedTuple):
    """One decision: which jobs start where, which have reservations, and why the others wait (see `reason`).

    `broken` are jobs whose promised nodes will not become free. They wait like all others.
    """

    placements: tuple[Placement, ...] = ()
    handovers: tuple[Handover, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    refused: Mapping[Kind, Refusal] = NOTHING
    depth: int = 0
    policy: str = ""
    promised: Mapping[str, Refusal] = NOTHING  # jobs whose victims still run
    broken: tuple[str, ...] = ()
    rest: "Rest | None" = None  # gives the reasons of all others
    patient: Mapping[str, Refusal] = NOTHING  # jobs that wait for a reason of their own, such as a better place
    terms: Mapping[str, Mapping[str, float]] = NOTHING  # of jobs that start, if the order is a sum

    def reason(self, task: Task, now_s: float) -> Refusal:
        """Why a job that did not start waits."""
        if task.id in self.promised:
            return self.promised[task.id]
        if task.id in self.patient:
            return self.patient[task.id]
        if task.not_before_s > now_s:
            return BACKOFF
        found = self.refused.get(task.kind)
        if found is None:
            assert self.rest is not None, "somebody knows why it waits"
            found = self.rest.reason(task.kind)
        return found
