"""What an administrator lays down: pools of nodes, projects and their shares, classes of work, who may call something urgent.

One frozen value, recorded as an event (`cluster.yaml` is its file), read by every decision. Amounts of a quota are by name of
a resource: a kind of GPU (`h100`), `gpus` (of any kind), `cpus`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

Labels = tuple[tuple[str, str], ...]  # sorted by name
UNBOUNDED = float("inf")
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
DEFAULT_POLICY = "fair-share"  # of a pool that names none
URGENT = 1_000_000  # what being urgent adds to a priority: above every class
PRIORITY_MAX = 100  # a job's own is from minus this to this


@dataclass(frozen=True, slots=True)
class Window:
    """A maintenance window: the nodes that `nodes` match (glob patterns) take nothing that would still run at `from_s`."""

    from_s: float  # seconds since the epoch
    until_s: float
    nodes: tuple[str, ...] = ("*",)
    reason: str = ""
    every_s: float = 0.0  # again after so long, and the first time is long ago; 0: once

    def turn(self, now_s: float) -> tuple[float, float] | None:
        """From when until when it is the time that goes on at `now_s`, or else the next time; None once it is over for good."""
        if now_s < self.until_s:
            return self.from_s, self.until_s
        if not self.every_s:
            return None
        later_s = ((now_s - self.until_s) // self.every_s + 1) * self.every_s
        return self.from_s + later_s, self.until_s + later_s

    def touches(self, node: str) -> bool:
        """Whether a node is among those that it closes."""
        return matches(self.nodes, node)


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind: those that `nodes` match by name. A node is in the first pool that matches it."""

    name: str
    nodes: tuple[str, ...] = ("*",)  # glob patterns
    labels: Labels = ()  # of all of them: zone, rack; more specific ones in `node_labels`
    node_labels: tuple[tuple[str, Labels], ...] = ()  # (pattern, labels)
    price: float = 0.0  # per GPU and hour; of a pool without GPUs, per CPU and hour
    policy: str = DEFAULT_POLICY
    windows: tuple[Window, ...] = ()
    speed: float = 1.0  # of its GPUs, beside those of other pools

    def labels_of(self, node: str) -> Labels:
        """The labels of one of its nodes: what is said of the node itself wins, the last that matches it first."""
        found = dict(self.labels)
        for pattern, labels in self.node_labels:
            if matches((pattern,), node):
                found.update(labels)
        return tuple(sorted(found.items()))

    def closes_s(self, node: str, now_s: float) -> float:
        """From when on nothing may run on one of its nodes: the beginning of the window that is open, or is next."""
        turns = [window.turn(now_s) for window in self.windows if window.touches(node)]
        return min((turn[0] for turn in turns if turn is not None), default=UNBOUNDED)

    def holds_s(self, now_s: float) -> float:
        """Until when `closes_s` of its nodes says the same."""
        turns = [window.turn(now_s) for window in self.windows]
        return min((turn[1] for turn in turns if turn is not None), default=UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Quota:
    """`guarantee` is never lent; up to `nominal` is a project's own, lent while idle and taken back; beyond it borrows."""

    guarantee: float = 0.0
    nominal: float = UNBOUNDED
    limit: float = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant. `parent` is the project that it is part of in the tree of shares."""

    name: str
    weight: float = 1.0
    parent: str | None = None
    members: tuple[tuple[str, float], ...] = ()  # (user, weight); one who is not named has weight 1
    quotas: tuple[tuple[str, Quota], ...] = ()  # by resource
    running_max: int | None = None  # jobs at a time
    running_per_member_max: int | None = None
    urgent: tuple[str, ...] = ()  # members who may call a job urgent; "*": all

    @property
    def bounded(self) -> bool:
        """Whether there is a quota, or a number of jobs (none, too), to hold it to."""
        return bool(self.quotas) or (self.running_max, self.running_per_member_max) != (None, None)


@dataclass(frozen=True, slots=True)
class Work:
    """A workload class. Targets are promises to people, shown beside what was reached."""

    name: str
    priority: int = 0  # added to the job's own, which is -100 … 100
    preemptible: bool = True
    wait_target_s: float | None = None
    completion_target_s: float | None = None
    recovery_target_s: float | None = None
    slice_s: float | None = None  # time slices: makes way for its like after so long; None: never
    express_gpus: float = 0.0  # express lane: so many GPUs are kept for jobs of this class no larger and no longer than
    express_limit_s: float = 0.0  # this time limit


CLASSES = (
    Work("production", 3000, preemptible=False),
    Work("interactive", 2000, wait_target_s=60.0, slice_s=1800.0),
    Work("evaluation", 1000, wait_target_s=300.0),
    Work("training", 0),
    Work("trial", -1000),
)


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each factor counts in the order `multifactor`; a negative weight turns it round (size: small ones first)."""

    workload_class: float = 1000.0
    priority: float = 100.0
    age: float = 1000.0
    fair_share: float = 1000.0
    size: float = 0.0
    age_max_s: float = 7 * DAY_S  # a wait that counts fully


@dataclass(frozen=True, slots=True)
class Cluster:
    """The whole. Whoever is not named has the defaults of its noun."""

    pools: tuple[Pool, ...] = (Pool("default", ()),)
    projects: tuple[Project, ...] = ()
    classes: tuple[Work, ...] = CLASSES
    half_life_s: float = 7 * DAY_S  # of usage that fair share looks back on
    min_run_s: float = 300.0  # nobody makes way for another before having run this long
    currency: str = "USD"
    weights: Weights = Weights()
    _pools: Mapping[str, Pool] = field(init=False, repr=False, compare=False, hash=False)
    _projects: Mapping[str, Project] = field(init=False, repr=False, compare=False, hash=False)
    _classes: Mapping[str, Work] = field(init=False, repr=False, compare=False, hash=False)
    _lines: dict[str, tuple[Project, ...]] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Look up by name from now on."""
        object.__setattr__(self, "_pools", {one.name: one for one in self.pools})
        object.__setattr__(self, "_projects", {one.name: one for one in self.projects})
        object.__setattr__(self, "_classes", {one.name: one for one in self.classes})
        object.__setattr__(self, "_lines", {})

    def project(self, name: str) -> Project:
        """A project, whether it is named or not."""
        return self._projects.get(name) or Project(name)

    def line(self, name: str) -> tuple[Project, ...]:
        """A project and those that it is part of, the nearest first."""
        found = self._lines.get(name)
        if found is None:
            line = [self.project(name)]
            while line[-1].parent is not None and all(one.name != line[-1].parent for one in line):
                line.append(self.project(line[-1].parent))
            found = self._lines[name] = tuple(line)
        return found

    def work(self, name: str) -> Work:
        """A workload class, whether it is named or not."""
        return self._classes.get(name) or Work(name)

    def pool(self, name: str) -> Pool:
        """A pool, whether it is named or not."""
        return self._pools.get(name) or Pool(name, ())

    def pool_of(self, node: str, own: str) -> Pool:
        """The pool of a node: the first that matches its name, else the one (`own`) that its engine says it is in."""
        return next((pool for pool in self.pools if matches(pool.nodes, node)), None) or self.pool(own)

    def may_call_urgent(self, project: str, member: str) -> bool:
        """Whether a member of a project may call a job of it urgent."""
        named = self.project(project).urgent
        return member in named or "*" in named


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of the glob patterns matches."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
