"""A job as the scheduler sees it. What many jobs have in common is one object, their kind: they are planned together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trainmaster.model.cluster import URGENT, WAIT_MAX_S, Cluster
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.request import ANYWHERE, Ask, Wish, ask_of
from trainmaster.scheduling.model.space import Grant

CARRIED = 3.0  # so that a job that was let go first has to wait again before it goes first once more


class Choices(NamedTuple):
    """Requests any of which will do, in the order of the spec."""

    asks: tuple[Ask, ...]
    by_cost: bool = False  # the cheapest is wanted, else the one with which it ends first
    speeds: tuple[tuple[str, float], ...] = ()  # of a GPU of a kind, for this very job; else as the pools say
    most: int = 0  # nodes that it takes while nobody waits for them; 0: no more than it asks for


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Everything about a job that decides, but for when it came and what it has had. Equal ones are one object (`kind_of`)."""

    ask: Ask
    project: str = "default"
    member: str = ""
    work: str = "training"  # the workload class
    priority: int = 0  # the class's and its own together, and `URGENT` where somebody called it so
    tier: int = 0  # the same of the class alone
    wait_max_s: float = WAIT_MAX_S  # after so long in the queue it goes first
    limit_s: float | None = None  # time limit
    command: str = ""  # what runs, without what it is told; "" where nobody knows
    wish: Wish = ANYWHERE
    choices: Choices | None = None  # the first of them is `ask`

    @property
    def plain(self) -> bool:
        """Whether nothing but what it asks for is welcome to it, at once and anywhere."""
        return self.choices is None and self.wish.prefer is None

    @property
    def asks(self) -> tuple[Ask, ...]:
        """All requests that will do."""
        return (self.ask,) if self.choices is None else self.choices.asks

    def choice_of(self, ask: Ask) -> int:
        """The number of that choice, whatever number of nodes it has grown to."""
        return 0 if self.choices is None else [one.each for one in self.choices.asks].index(ask.each)

    @property
    def urgent(self) -> bool:
        """Whether somebody called it urgent."""
        return self.tier > URGENT // 2  # a class may count less than nothing


class Owner(NamedTuple):
    """Whose a job is, and how much it matters to them."""

    project: str = "default"
    member: str = ""
    work: str = "training"  # the workload class
    priority: int = 0
    tier: int = 0
    wait_max_s: float = WAIT_MAX_S


NOBODY = Owner()


def owner_of(rules: Cluster, whose: tuple[str, str, str], priority: int, urgent: bool = False) -> Owner:
    """`whose`: project, member and workload class; `priority`: the job's own."""
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
    """The same as if `ask`, one of its choices, were all that it asks for."""
    if kind.choices is None:
        return kind
    owner = Owner(kind.project, kind.member, kind.work, kind.priority, kind.tier, kind.wait_max_s)
    return kind_of(ask, owner, kind.limit_s, kind.command, kind.wish)


class Task(NamedTuple):
    """A job in the queue, or one that runs. `seq` is the order of submission, total."""

    seq: int
    id: str
    kind: Kind
    since_s: float  # in the queue since; for one that was restarted: again; for one that was evicted: see `again_since_s`
    not_before_s: float = 0.0  # back-off
    estimate_s: float | None = None  # how long it will run from here; None: nobody knows
    attained_s: float = 0.0  # running time it has had
    running: bool = False
    evictions: int = 0  # so many times it has made way for others
    shrinks: int = 0  # so many times it has given back nodes
    keeps: bool = False  # what it is promised it has held all the while
    homes: tuple[str, ...] = ()  # nodes on which its last attempt ran, by name, if it would be near to what it left there

    @property
    def turns_s(self) -> tuple[float, float]:
        """When its back-off is over, and when it stops waiting for a better place."""
        return self.not_before_s, self.since_s + self.kind.wish.prefer_s


class Run(NamedTuple):
    """A live attempt."""

    task: Task
    grant: Grant
    placed_s: float
    stopping: bool = False  # its end has been ordered; its nodes come back when it is gone
    saved_s: float | None = None  # when its last checkpoint was; None: it has none of this attempt
    shrinking: bool = False  # it is stopped to give back what it has beyond its least, and goes on with that

    @property
    def surplus(self) -> int:
        """How many nodes it has beyond its least."""
        choices = self.task.kind.choices
        return len(self.grant.nodes) - choices.asks[0].nodes if choices is not None and choices.most else 0

    @property
    def least(self) -> Grant:
        """What it keeps when it shrinks: the first of its nodes, as many as it asks for."""
        ask, count = self.grant.ask, len(self.grant.nodes) - self.surplus
        return Grant(ask_of(count, ask.each, ask.lead, ask.within), self.grant.nodes[:count], self.grant.devices[:count])

    @property
    def freed(self) -> Grant:
        """What comes back when it has stopped."""
        if not self.shrinking:
            return self.grant
        ask, count = self.grant.ask, len(self.grant.nodes) - self.surplus
        return Grant(ask_of(self.surplus, ask.each), self.grant.nodes[count:], self.grant.devices[count:])

    @property
    def kept_s(self) -> float:
        """What it did before this is not lost when it makes way."""
        return self.placed_s if self.saved_s is None else max(self.saved_s, self.placed_s)

    def again_since_s(self, now_s: float) -> float:
        """In the queue since, once it has made way: its wait before counts, up to a third of the longest."""
        waited_s = min(max(0.0, self.placed_s - self.task.since_s), self.task.kind.wait_max_s / CARRIED)
        return now_s - waited_s

    @property
    def end_s(self) -> float:
        """When it will end as far as one thinks; infinite where nobody knows."""
        return FOREVER if self.task.estimate_s is None else self.placed_s + self.task.estimate_s

    def at(self, now_s: float) -> Task:
        """The job as an order looks at it, to hold it against those that wait."""
        task, ran_s = self.task, now_s - self.placed_s
        left_s = None if task.estimate_s is None else max(0.0, task.estimate_s - ran_s)
        return task._replace(attained_s=task.attained_s + ran_s, estimate_s=left_s, running=True)


def by_kind(runs: Iterable[Run]) -> Mapping[Kind, list[Run]]:
    """Those of each kind."""
    found = defaultdict[Kind, list[Run]](list)
    for run in runs:
        found[run.task.kind].append(run)
    return found


class Past(NamedTuple):
    """A job that is over."""

    seq: int
    kind: Kind
    ran_s: float  # in all its attempts
    well: bool = True  # it ended by itself, and well
    on: Ask | None = None  # what it held; None: it had more than one attempt, or nobody knows
