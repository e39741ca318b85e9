"""The cluster configuration: pools of nodes, projects and their shares, workload classes and who may use them.

One frozen value, recorded as an event (its file is `cluster.yaml`) and read by every decision. Quotas are by resource: a kind
of GPU (`h100`), `gpus` (of any kind), or `cpus`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

Labels = tuple[tuple[str, str], ...]  # sorted by name
UNBOUNDED = float("inf")
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
DEFAULT_POLICY = "fair-share"  # for a pool that names none
URGENT = 1_000_000  # added to the priority of an urgent job: above every class
WAIT_MAX_S = 23 * DAY_S
PRIORITY_MAX = 100  # a job's own priority is between minus this and this


@dataclass(frozen=True, slots=True)
class Window:
    """A maintenance window: nodes that match `nodes` (glob patterns) start nothing that would still run at `from_s`."""

    from_s: float  # seconds since the epoch
    until_s: float
    nodes: tuple[str, ...] = ("*",)
    reason: str = ""
    every_s: float = 0.0  # repeat interval; `from_s` may then be long ago; 0: no repetition

    def turn(self, now_s: float) -> tuple[float, float] | None:
        """Begin and end of the window that is open at `now_s`, or else of the next one; None if there is none any more."""
        if now_s < self.until_s:
            return self.from_s, self.until_s
        if not self.every_s:
            return None
        later_s = ((now_s - self.until_s) // self.every_s + 1) * self.every_s
        return self.from_s + later_s, self.until_s + later_s

    def touches(self, node: str) -> bool:
        """Whether the window closes a node."""
        return matches(self.nodes, node)


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind, matched by name. A node belongs to the first pool that matches it."""

    name: str
    nodes: tuple[str, ...] = ("*",)  # glob patterns
    labels: Labels = ()  # of all its nodes, such as zone and rack; `node_labels` are more specific
    node_labels: tuple[tuple[str, Labels], ...] = ()  # (pattern, labels)
    price: float = 0.0  # per GPU and hour; of a pool without GPUs, per CPU and hour
    policy: str = DEFAULT_POLICY
    windows: tuple[Window, ...] = ()
    speed: float = 1.0  # of its GPUs, relative to other pools

    def labels_of(self, node: str) -> Labels:
        """Labels of one of its nodes. `node_labels` take precedence, and of those the last match."""
        found = dict(self.labels)
        for pattern, labels in self.node_labels:
            if matches((pattern,), node):
                found.update(labels)
        return tuple(sorted(found.items()))

    def closes_s(self, node: str, now_s: float) -> float:
        """When one of its nodes closes: the beginning of the current or next maintenance window."""
        turns = [window.turn(now_s) for window in self.windows if window.touches(node)]
        return min((turn[0] for turn in turns if turn is not None), default=UNBOUNDED)

    def holds_s(self, now_s: float) -> float:
        """Until when the results of `closes_s` are valid."""
        turns = [window.turn(now_s) for window in self.windows]
        return min((turn[1] for turn in turns if turn is not None), default=UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Quota:
    """`guarantee` is never lent. Up to `nominal` is the project's own: lent while idle, and reclaimed. Beyond it borrows."""

    guarantee: float = 0.0
    nominal: float = UNBOUNDED
    limit: float = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Project:
    """A tenant. `parent` is the project above it in the tree of shares."""

    name: str
    weight: float = 1.0
    parent: str | None = None
    members: tuple[tuple[str, float], ...] = ()  # (user, weight); the default weight is 1
    quotas: tuple[tuple[str, Quota], ...] = ()  # by resource
    running_max: int | None = None  # concurrent jobs
    running_per_member_max: int | None = None
    urgent: tuple[str, ...] = ()  # members who may submit urgent jobs; "*": all

    @property
    def bounded(self) -> bool:
        """Whether it has a quota or a limit on concurrent jobs (0 is a limit too)."""
        return bool(self.quotas) or (self.running_max, self.running_per_member_max) != (None, None)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a class. None: all of them. `*` in the list, too; an empty list is nobody."""

    projects: tuple[str, ...] | None = None  # and the projects inside these
    members: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A workload class. Its targets are goals, shown beside the values that were reached."""

    name: str
    priority: int = 0  # added to the job's own priority, -100 … 100
    preemptible: bool = True
    wait_target_s: float | None = None
    completion_target_s: float | None = None
    recovery_target_s: float | None = None
    slice_s: float | None = None  # time slice: after this time it yields to jobs of the same class; None: never
    express_gpus: float = 0.0  # express lane: GPUs reserved for jobs of this class that are no larger, with no longer
    express_limit_s: float = 0.0  # time limit than this
    wait_max_s: float = WAIT_MAX_S  # after so long in the queue a job goes before all others, whatever their class
    access: Access = Access()


CLASSES = (
    Work("production", 3000, preemptible=False),
    Work("interactive", 2000, wait_target_s=60.0, slice_s=1800.0),
    Work("evaluation", 1000, wait_target_s=300.0),
    Work("training", 0),
    Work("trial", -1000),
)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weight of each factor in the order `multifactor`. A negative weight reverses the factor (size: small jobs first)."""

    workload_class: float = 1000.0
    priority: float = 100.0
    age: float = 1000.0
    fair_share: float = 1000.0
    size: float = 0.0
    age_max_s: float = 7 * DAY_S  # the wait at which the age factor is at its maximum


@dataclass(frozen=True, slots=True)
class Cluster:
    """The whole configuration. Pools, projects and classes that it does not name have defaults."""

    pools: tuple[Pool, ...] = (Pool("default", ()),)
    projects: tuple[Project, ...] = ()
    classes: tuple[Work, ...] = CLASSES
    half_life_s: float = 7 * DAY_S  # of past usage in fair share
    min_run_s: float = 300.0  # a job is not preempted before it has run this long
    currency: str = "USD"
    weights: Weights = Weights()
    cpu_weight: float = 1 / 16  # what a CPU of a job without GPUs counts in shares, beside a GPU
    _pools: Mapping[str, Pool] = field(init=False, repr=False, compare=False, hash=False)
    _projects: Mapping[str, Project] = field(init=False, repr=False, compare=False, hash=False)
    _classes: Mapping[str, Work] = field(init=False, repr=False, compare=False, hash=False)
    _lines: dict[str, tuple[Project, ...]] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Build the lookup tables."""
        object.__setattr__(self, "_pools", {one.name: one for one in self.pools})
        object.__setattr__(self, "_projects", {one.name: one for one in self.projects})
        object.__setattr__(self, "_classes", {one.name: one for one in self.classes})
        object.__setattr__(self, "_lines", {})

    def project(self, name: str) -> Project:
        """A project; one that is not configured has defaults."""
        return self._projects.get(name) or Project(name)

    def line(self, name: str) -> tuple[Project, ...]:
        """A project and its ancestors, nearest first."""
        found = self._lines.get(name)
        if found is None:
            line = [self.project(name)]
            while line[-1].parent is not None and all(one.name != line[-1].parent for one in line):
                line.append(self.project(line[-1].parent))
            found = self._lines[name] = tuple(line)
        return found

    def work(self, name: str) -> Work:
        """A workload class; one that is not configured has defaults."""
        return self._classes.get(name) or Work(name)

    def pool(self, name: str) -> Pool:
        """A pool; one that is not configured has defaults."""
        return self._pools.get(name) or Pool(name, ())

    def pool_of(self, node: str, own: str) -> Pool:
        """The pool of a node: the first that matches its name, else the one (`own`) that its engine reports."""
        return next((pool for pool in self.pools if matches(pool.nodes, node)), None) or self.pool(own)

    def takes(self, project: str) -> bool:
        """Whether a job may be submitted to a project: one that is declared, or any if none is."""
        return project in self._projects or not self._projects

    def may_call_urgent(self, project: str, member: str) -> bool:
        """Whether a member may submit urgent jobs in a project."""
        return _named(self.project(project).urgent, member)

    def may_use(self, work: str, project: str, member: str) -> bool:
        """Whether a member may give a job of this project this class."""
        access = self.work(work).access
        return _named(access.projects, *(one.name for one in self.line(project))) and _named(access.members, member)


def _named(names: tuple[str, ...] | None, *own: str) -> bool:
    """Whether a list of names holds one of `own`. No list, or `*` in it: yes."""
    return names is None or "*" in names or any(name in names for name in own)


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether one of the glob patterns matches."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
