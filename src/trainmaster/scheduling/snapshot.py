"""All that one decision may see, and what it may answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.model.job import Job
from trainmaster.model.nodes import Allocation, Node


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world at `now_s`. `waiting` are the queued jobs in any order; `held` what live attempts hold, by job."""

    now_s: float
    nodes: tuple[Node, ...]
    waiting: tuple[Job, ...]
    held: Mapping[str, Allocation]
    seen_seq: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job was left waiting. The text names no momentary figure, so that it changes only when its reason does."""

    kind: str  # "backoff" | "impossible" | "busy"
    text: str


@dataclass(frozen=True, slots=True)
class Placement:
    """One job's allocation."""

    job: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision: who starts where, and why the others wait."""

    placements: tuple[Placement, ...] = ()
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    depth: int = 0
    policy: str = ""
