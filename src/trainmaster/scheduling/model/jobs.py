"""A job as the scheduler sees it. What many jobs have in common is one object, their kind, and they are planned together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trainmaster.model.cluster import URGENT, WAIT_MAX_S, Cluster
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.request import ANYWHERE, Ask, Wish, ask_of
from trainmaster.scheduling.model.space import Grant

DOUBLINGS_MAX = 16  # of protection after evictions: without a checkpoint, all work is lost each time
DOUBLINGS_SAVED = 6  # once it has saved a checkpoint in this attempt
CARRIED = 3.0  # a job that came first because of its wait must wait again before it does so once more


class Choices(NamedTuple):
    """The requests that a job accepts, in the order of the spec."""

    asks: tuple[Ask, ...]
    by_cost: bool = False  # the cheapest is best; else the one with which it ends first
    speeds: tuple[tuple[str, float], ...] = ()  # of a GPU of a kind, as the job states; else as the pools say
    most: int = 0  # nodes that it takes while no job waits for them; 0: it is not elastic


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """All that decides about a job except its times and its use so far. Equal kinds are one object (`kind_of`)."""

    ask: Ask
    project: str = "default"
    member: str = ""
    work: str = "training"  # the workload class
    priority: int = 0  # of the class plus its own; plus `URGENT` if it is urgent
    tier: int = 0  # of the class; plus `URGENT` if it is urgent
    wait_max_s: float = WAIT_MAX_S  # after so long in the queue it comes first
    limit_s: float | None = None  # time limit
    command: str = ""  # the program without its arguments; "": unknown
    wish: Wish = ANYWHERE
    choices: Choices | None = None  # the first of them is `ask`

    @property
    def plain(self) -> bool:
        """Whether the job accepts exactly one request, on any nodes."""
        return self.choices is None and self.wish.prefer is None

    @property
    def asks(self) -> tuple[Ask, ...]:
        """All requests that will do."""
        return (self.ask,) if self.choices is None else self.choices.asks

    def choice_of(self, ask: Ask) -> int:
        """The number of the choice of a request, even if the job has grown."""
        return 0 if self.choices is None else [one.each for one in self.choices.asks].index(ask.each)

    @property
    def urgent(self) -> bool:
        """Whether the job was submitted as urgent."""
        return self.tier > URGENT // 2  # the priority of a class may be negative


class Owner(NamedTuple):
    """The owner of a job, with class and priority."""

    project: str = "default"
    member: str = ""
    work: str = "training"  # the workload class
    priority: int = 0
    tier: int = 0
    wait_max_s: float = WAIT_MAX_S


NOBODY = Owner()


def owner_of(rules: Cluster, whose: tuple[str, str, str], priority: int, urgent: bool = False) -> Owner:
    """The owner of a job. `whose`: project, member and workload class. `priority`: the job's own."""
    work = rules.work(whose[2])
    tier = work.priority + (URGENT if urgent else 0)
    return Owner(*whose, tier + priority, tier, work.wait_max_s)


@lru_cache(maxsize=1 << 17)
def kind_of(
    ask: Ask | Choices, owner: Owner = NOBODY, limit_s: float | None = None, command: str = "", wish: Wish = ANYWHERE
) -> Kind:
    """The one `Kind` of these values."""
    choices = ask if isinstance(ask, Choices) else None
    return Kind(ask.asks[0] if isinstance(ask, Choices) else ask, *owner, limit_s, command, wish, choices)


def alone(kind: Kind, ask: Ask) -> Kind:
    """The kind as if the job asked only for `ask`, one of its choices."""
    if kind.choices is None:
        return kind
    owner = Owner(kind.project, kind.member, kind.work, kind.priority, kind.tier, kind.wait_max_s)
    return kind_of(ask, owner, kind.limit_s, kind.command, kind.wish)


class Task(NamedTuple):
    """A job in the queue, or one that runs. `seq` is the order of submission, total."""

    seq: int
    id: str
    kind: Kind
    since_s: float  # in the queue since, or since its restart; after an eviction: see `again_since_s`
    not_before_s: float = 0.0  # back-off
    estimate_s: float | None = None  # how long it will still run; None: unknown
    attained_s: float = 0.0  # run time so far
    running: bool = False
    evictions: int = 0  # times that it was preempted
    shrinks: int = 0  # times that it shrank
    keeps: bool = False  # it shrank, and its promised nodes are those that it kept
    homes: tuple[str, ...] = ()  # names of the nodes of its last attempt, if it wants to be near them

    @property
    def turns_s(self) -> tuple[float, float]:
        """When its back-off is over, and when it stops waiting for a better place."""
        return self.not_before_s, self.since_s + self.kind.wish.prefer_s


class Run(NamedTuple):
    """A live attempt."""

    task: Task
    grant: Grant
    placed_s: float
    stopping: bool = False  # it was told to stop; its nodes are free when it has exited
    saved_s: float | None = None  # time of its last checkpoint; None: none in this attempt
    shrinking: bool = False  # it stops to shrink to its minimum, and resumes with that

    @property
    def surplus(self) -> int:
        """How many nodes it has beyond its minimum."""
        choices = self.task.kind.choices
        return len(self.grant.nodes) - choices.asks[0].nodes if choices is not None and choices.most else 0

    @property
    def least(self) -> Grant:
        """What it keeps when it shrinks: the first of its nodes, as many as its minimum."""
        ask, count = self.grant.ask, len(self.grant.nodes) - self.surplus
        return Grant(ask_of(count, ask.each, ask.lead, ask.within), self.grant.nodes[:count], self.grant.devices[:count])

    @property
    def freed(self) -> Grant:
        """What it frees when it has stopped."""
        if not self.shrinking:
            return self.grant
        ask, count = self.grant.ask, len(self.grant.nodes) - self.surplus
        return Grant(ask_of(self.surplus, ask.each), self.grant.nodes[count:], self.grant.devices[count:])

    @property
    def kept_s(self) -> float:
        """The work before this time is not lost if it is preempted."""
        return self.placed_s if self.saved_s is None else max(self.saved_s, self.placed_s)

    @property
    def doublings(self) -> int:
        """How often the time that it is protected from an eviction doubles: once for each, less often once it has saved."""
        return min(self.task.evictions, DOUBLINGS_MAX if self.saved_s is None else DOUBLINGS_SAVED)

    def again_since_s(self, now_s: float) -> float:
        """`since_s` after an eviction now: its earlier wait counts, up to a third of the longest wait."""
        waited_s = min(max(0.0, self.placed_s - self.task.since_s), self.task.kind.wait_max_s / CARRIED)
        return now_s - waited_s

    @property
    def end_s(self) -> float:
        """When it is expected to end; infinite: unknown."""
        return FOREVER if self.task.estimate_s is None else self.placed_s + self.task.estimate_s

    def at(self, now_s: float) -> Task:
        """The job as an order compares it with waiting jobs."""
        task, ran_s = self.task, now_s - self.placed_s
        left_s = None if task.estimate_s is None else max(0.0, task.estimate_s - ran_s)
        return task._replace(attained_s=task.attained_s + ran_s, estimate_s=left_s, running=True)


def by_kind(runs: Iterable[Run]) -> Mapping[Kind, list[Run]]:
    """The runs of each kind."""
    found = defaultdict[Kind, list[Run]](list)
    for run in runs:
        found[run.task.kind].append(run)
    return found


class Past(NamedTuple):
    """An ended job."""

    seq: int
    kind: Kind
    ran_s: float  # in all its attempts
    well: bool = True  # it succeeded
    on: Ask | None = None  # what it held; None: it had several attempts, or unknown
