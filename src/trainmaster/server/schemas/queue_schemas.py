"""OpenAPI models for the queue, for why a job waits, and for plans. Documentation only, as in `models`."""

from typing import Any

from pydantic import Field

from trainmaster.server.schemas.described import Described


class Eta(Described):
    """Seconds from now until the start: the median, and bounds at 50 % and 90 %; null: possibly never."""

    low90: float
    low50: float
    p50: float | None
    high50: float | None
    high90: float | None
    jobs: int = Field(description="number of finished jobs behind the run time estimates")
    few: bool = Field(description="whether they are too few for reliable bounds")


class QueuedJob(Described):
    """A job in the queue."""

    id: str
    position: int
    project: str
    member: str
    workload_class: str = Field(alias="class", examples=["training"])
    priority: int
    asks: str = Field(examples=["2 nodes with 8 GPUs, 16 CPUs each, all at once"])
    queued_s: float = Field(description="time of queueing, in seconds since the epoch")
    reason: str
    eta_s: Eta | None = Field(description="null: it can never start, or too many jobs are ahead of it")


class HeldJob(Described):
    """A held job. It is not in the queue until it is released."""

    id: str
    project: str
    reason: str = Field(examples=["held by ann: until the data is there"])


class Queue(Described):
    """The waiting jobs in order, and the held jobs."""

    jobs: list[QueuedJob]
    total: int
    held: list[HeldJob]
    now_s: float


class Cost(Described):
    """The cost of a job at its pool's price: expected, and at most."""

    currency: str
    per_hour: float
    run_s: float = Field(description="expected run time")
    few: bool = Field(description="whether fewer than ten jobs have finished, so that the run time is a guess")
    expected: float
    at_most: float | None = Field(description="for the whole time limit; null without one")


class Delay(Described):
    """A job that would start later."""

    job: str
    by_s: float


class Planned(Described):
    """What would happen to a job if it were submitted now."""

    placement: list[dict[str, Any]] | None = Field(description="node, cpus, memory_bytes, devices; null: it would wait")
    reason: str | None = Field(description="why it would wait")
    position: int | None
    eta_s: Eta | None = Field(description="expected waiting time; null: it starts at once, or there is no estimate")
    cost: Cost | None = Field(description="null: no node has a price")
    delays: list[Delay] = Field(description="jobs that would start later because of it, the most delayed first")
    notes: list[str] = Field(description="parts of the spec's placement that have no effect on the present nodes")
    spec: dict[str, Any] = Field(description="complete, with defaults")
    code: dict[str, Any]


class Need(Described):
    """One change that the job waits for.

    A job ends, a node opens, a maintenance window ends, a project's quota is raised, a job ahead leaves or starts.
    """

    what: str = Field(examples=["ends", "opens", "window", "quota", "leaves", "turn"])
    name: str


class Why(Described):
    """Why a job waits."""

    id: str
    state: str
    kind: str | None = Field(
        description="the obstacle: busy, reserved, quota, window, handover, backoff, impossible; or starting; or null"
    )
    reason: str
    text: str = Field(description="the reason, and what would let the job start")
    position: int | None = Field(description="place in the queue, from 1; null if it is not waiting")
    ahead: int | None
    needs: list[Need] = Field(description="a smallest set of changes that would let it start; empty if there is none")
    eta_s: Eta | None = Field(description="remaining waiting time")
    troubles: list[dict[str, Any]] = Field(description="warnings about the job, as in its own view")
    terms: dict[str, float] | None = Field(description="the terms whose sum is its priority; null: no such sum is used")
    speeds: dict[str, Any] | None = Field(
        description="measured speed by kind of GPU: {times (the slowest is 1), runs}; null: unknown, or set by the job"
    )
