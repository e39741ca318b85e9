"""All that one decision may see, and what it may answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.model.jobs import Kind, Past, Run, Task
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.model.usage import Accounts

DEFAULT = Cluster()
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Snapshot(NamedTuple):
    """The world at `now_s`. `waiting` are the queued jobs by id, `running` the live attempts by job.

    `promised` are nodes that others are giving back for a job in `waiting`, or that it keeps itself while it shrinks: it starts
    there as soon as they are free.
    """

    now_s: float
    sites: tuple[Site, ...]
    waiting: Mapping[str, Task]
    running: Mapping[str, Run]
    seen_seq: int = 0
    ended: Sequence[Past] = ()  # jobs that are over, in the order of their ends; only ever added to
    rules: Cluster = DEFAULT
    usage: Accounts = NOTHING  # of attempts that are over
    promised: Mapping[str, Grant] = NOTHING
    depth: int = 1  # reservations for which the loop found time lately


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job was left waiting. The text names no momentary figure, so that it changes only when its reason does."""

    kind: str  # "backoff" | "impossible" | "busy" | "reserved" | "quota" | "window" | "handover" | "place" | "choice"
    text: str


class Rest(Protocol):
    """Why jobs wait of whom a plan says nothing else."""

    def reason(self, kind: Kind) -> Refusal:
        """By their kind."""


class Placement(NamedTuple):
    """A job to start."""

    job: str
    grant: Grant


class Handover(NamedTuple):
    """A job that starts on what others give back: `victims` are to be stopped first, and what they free is for it.

    Those that are `shrunk` give back only what they have beyond their least, and go on with that.
    """

    job: str
    grant: Grant
    victims: tuple[str, ...]
    shrunk: tuple[str, ...] = ()  # of the victims


class Reservation(NamedTuple):
    """When a job that waits will start at the latest, by what is thought of those that run."""

    job: str
    at_s: float


BACKOFF = Refusal("backoff", "waiting before the next restart (back-off)")


class Plan(NamedTuple):
    """One decision: who starts where, for whom room is kept, and why the others wait (see `reason`).

    `broken` are jobs to which nodes had been promised that will not come: they wait like all others.
    """

    placements: tuple[Placement, ...] = ()
    handovers: tuple[Handover, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    refused: Mapping[Kind, Refusal] = NOTHING
    depth: int = 0
    policy: str = ""
    promised: Mapping[str, Refusal] = NOTHING  # jobs whose nodes are still being given back
    broken: tuple[str, ...] = ()
    rest: "Rest | None" = None  # of all others
    patient: Mapping[str, Refusal] = NOTHING  # jobs that wait for a better place, as their specs say
    terms: Mapping[str, Mapping[str, float]] = NOTHING  # of those that start, where the order is a sum

    def reason(self, task: Task, now_s: float) -> Refusal:
        """Why a job that was not started waits."""
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
