"""A trace for a replay: when jobs arrived, what they requested, how long they ran, and how their attempts ended."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainmaster.model.cluster import Cluster
from trainmaster.model.job import Cause
from trainmaster.model.spec import Restarts
from trainmaster.scheduling.admission.feasible import grouped, never
from trainmaster.scheduling.admission.forbidden import Forbidden
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Choices, Kind, kind_of, owner_of
from trainmaster.scheduling.model.request import ANYWHERE, WHOLE, Ask, Shape, Wish, ask_of
from trainmaster.scheduling.model.snapshot import DEFAULT
from trainmaster.scheduling.model.space import Site


class Try(NamedTuple):
    """One recorded attempt: how long its ranks ran, and why it failed (None: it succeeded)."""

    ran_s: float
    cause: Cause | None = None
    exit_code: int | None = None
    signal: int | None = None
    progressed: bool = True  # it got further than earlier attempts


class Arrival(NamedTuple):
    """One job of a trace. Times are seconds since the beginning of the trace."""

    id: str
    submit_s: float
    run_s: float  # undisturbed run time of all its attempts
    ask: Ask
    project: str = "default"
    member: str = ""
    limit_s: float | None = None  # its time limit
    command: str = ""
    work: str = "training"  # the workload class
    priority: int = 0
    line: int = 0  # in the file; 0: not from a file
    tries: tuple[Try, ...] = ()  # its attempts, if it failed or was restarted; (): one successful attempt
    restarts: Restarts = Restarts()  # the restarts that its spec allows
    waited_s: float | None = None  # its recorded wait, if known
    choices: Choices | None = None  # alternatives, of which `ask` is the first
    wish: Wish = ANYWHERE

    def kind(self, rules: Cluster) -> Kind:
        """Its kind for the scheduler under these rules."""
        owner = owner_of(rules, (self.project, self.member, self.work), self.priority)
        return kind_of(self.choices or self.ask, owner, self.limit_s, self.command, self.wish)


class Recorded(NamedTuple):
    """The contents of a file: its jobs in any order, the cluster to run them on, and its rules."""

    arrivals: list[Arrival]
    sites: tuple[Site, ...]
    rules: Cluster = DEFAULT
    down: bool = False  # none of `sites` was up when it was written


@dataclass(frozen=True, slots=True)
class Trace:
    """A named list of arrivals in order of submission, and the cluster of the recording."""

    name: str
    arrivals: tuple[Arrival, ...]
    sites: tuple[Site, ...]
    rules: Cluster = DEFAULT
    passed: int = 0  # skipped jobs, whose run time is unknown
    down: bool = False  # none of `sites` was up when it was written


def impossible(trace: Trace, rules: Cluster) -> dict[str, str]:
    """Jobs that the empty cluster cannot hold or that the rules never let start: the reason by id."""
    lacking: dict[Kind, str | None] = {}
    groups, forbidden, found = grouped(trace.sites), Forbidden(rules, trace.sites), {}
    for arrival in trace.arrivals:
        kind = arrival._replace(member="", priority=0, command="").kind(rules)
        if kind not in lacking:
            lacking[kind] = never(kind.asks, groups) or forbidden.why(kind)
        why = lacking[kind]
        if why is not None:
            found[arrival.id] = why.removeprefix("it ")
    return found


def without(trace: Trace, ids: Collection[str]) -> Trace:
    """The trace without these jobs."""
    return replace(trace, arrivals=tuple(arrival for arrival in trace.arrivals if arrival.id not in ids))


def from_zero(arrivals: list[Arrival]) -> list[Arrival]:
    """The arrivals with the first submission at 0."""
    begin_s = min((arrival.submit_s for arrival in arrivals), default=0.0)
    return [arrival._replace(submit_s=arrival.submit_s - begin_s) for arrival in arrivals]


def processors(count: int) -> tuple[Site, ...]:
    """A machine that schedules single processors: one site each."""
    digits = len(str(count - 1))
    return tuple(Site(f"p{i:0{digits}}", Cell(cpus=WHOLE)) for i in range(count))


def gpu_nodes(count: int, gpus: int, kind: str = "gpu") -> tuple[Site, ...]:
    """Equal nodes that have enough of everything but GPUs."""
    cell = Cell((kind,), (gpus,), (), gpus * WHOLE)
    return named(Site("", cell, (0,) * gpus), count, "n")


def named(site: Site, count: int, prefix: str) -> tuple[Site, ...]:
    """`count` nodes like `site`."""
    digits = len(str(max(count - 1, 1)))
    return tuple(site._replace(name=f"{prefix}{i:0{digits}}") for i in range(count))


def gang(gpus: int, per_node: int) -> Ask:
    """A job of so many GPUs, split evenly over as few nodes as possible, with a CPU per GPU. Raises: ValueError."""
    if gpus < 1:
        raise ValueError(f"{gpus} GPUs")
    nodes = next(n for n in range(-(-gpus // per_node), gpus + 1) if gpus % n == 0 and gpus // n <= per_node)
    each = gpus // nodes
    return ask_of(nodes, Shape(gpus=each, cpus=each * WHOLE))


def width_of_sites(sites: Sequence[Site]) -> float:
    """GPUs of all sites, or CPUs where there are none."""
    gpus = sum(len(site.devices) for site in sites)
    return float(gpus) if gpus else sum(site.cell.cpus for site in sites) / WHOLE
