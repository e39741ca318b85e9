"""What `/openapi.json` says of the queue, of why a job waits and of plans: documentation only, as in `models`."""

from typing import Any

from pydantic import BaseModel, Field


class Eta(BaseModel):
    """Seconds from now until a start: the middle, and the bounds within which it is with 50 and 90 %; null: maybe never."""

    low90: float
    low50: float
    p50: float | None
    high50: float | None
    high90: float | None
    jobs: int = Field(description="finished jobs from which run times were drawn")
    few: bool = Field(description="so few that the bounds say little")


class QueuedJob(BaseModel):
    """A job in the queue."""

    id: str
    position: int
    project: str
    member: str
    workload_class: str = Field(alias="class", examples=["training"])
    priority: int
    asks: str = Field(examples=["2 nodes with 8 GPUs, 16 CPUs each, all at once"])
    queued_s: float = Field(description="since when it has waited, in seconds since the epoch")
    reason: str
    eta_s: Eta | None = Field(description="null: it can never start, or too many are ahead of it")


class HeldJob(BaseModel):
    """A job that is not in the queue until it is released."""

    id: str
    project: str
    reason: str = Field(examples=["held by ann: until the data is there"])


class Queue(BaseModel):
    """Those that wait for their turn, in order, and those that are held."""

    jobs: list[QueuedJob]
    total: int
    held: list[HeldJob]
    now_s: float


class Cost(BaseModel):
    """What a job will cost by the price of its pool: for as long as its like ran, and at most."""

    currency: str
    per_hour: float
    run_s: float = Field(description="how long it is expected to run")
    expected: float
    at_most: float | None = Field(description="for its whole time limit; null: it has none")


class Delay(BaseModel):
    """A job that would start later."""

    job: str
    by_s: float


class Planned(BaseModel):
    """What would become of a job were it submitted now."""

    placement: list[dict[str, Any]] | None = Field(description="node, cpus, memory_bytes, devices; null: it would wait")
    reason: str | None = Field(description="what it would wait for")
    position: int | None
    eta_s: Eta | None = Field(description="how long it would wait; null where it starts at once, or nobody can say")
    cost: Cost | None = Field(description="null: no node has a price")
    delays: list[Delay] = Field(description="those that would start later for it, the most delayed first")
    notes: list[str] = Field(description="what its spec says of places that means nothing on the nodes there are")
    spec: dict[str, Any] = Field(description="complete, defaults filled in")
    code: dict[str, Any]


class Need(BaseModel):
    """Something that must change.

    A job ends, a node opens, maintenance of a pool is out of the way, a project's quota is raised, a job ahead leaves or has
    its turn.
    """

    what: str = Field(examples=["ends", "opens", "window", "quota", "leaves", "turn"])
    name: str


class Why(BaseModel):
    """Why a job waits."""

    id: str
    state: str
    kind: str | None = Field(
        description="what keeps it: busy, reserved, quota, window, handover, backoff, impossible; starting; null"
    )
    reason: str
    text: str = Field(description="the reason, and what would let it start")
    position: int | None = Field(description="place in the queue, from 1; null when it does not wait")
    ahead: int | None
    needs: list[Need] = Field(description="a smallest set of changes that would let it start; empty: nothing would")
    eta_s: Eta | None = Field(description="how long it will still wait")
    troubles: list[dict[str, Any]] = Field(description="what a person should know although the job goes on, as in its view")
    terms: dict[str, float] | None = Field(description="what its place is the sum of; null: the order is no sum")
    speeds: dict[str, Any] | None = Field(
        description="measured, by kind of GPU it may have: {times (the slowest is 1), runs}; null: not known, or its own word"
    )
