"""What a cycle remembers from one snapshot to the next, so that it need not begin anew. It may be thrown away at any time."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any

from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.cells import FOREVER, Cells
from trainmaster.scheduling.choices import Market
from trainmaster.scheduling.explain import Group, grouped, kept_back
from trainmaster.scheduling.fair import Holdings
from trainmaster.scheduling.line import Line, line_of
from trainmaster.scheduling.order import STILL_S, Key
from trainmaster.scheduling.policy import Policy
from trainmaster.scheduling.quota import Tally
from trainmaster.scheduling.snapshot import ARRIVED, DEFAULT, ENDED, LEFT, STARTED, Changes, Refusal, Snapshot
from trainmaster.scheduling.space import Grant, Site, Space
from trainmaster.scheduling.staying import Staying
from trainmaster.scheduling.task import Herd, Kind, Run, Task, by_kind

Queue = list[tuple[float, int, Task]]  # order within the kind, order of submission, who

MARGIN_S = 1.0  # more than sums of times are rounded by
_KIND, _SEQ = attrgetter("kind"), attrgetter("seq")
Head = tuple[Key, int, Queue, int]  # rank, order of submission, queue, place in it


class Carry:
    """The queue by kind, the space and the ends of those that run, as they were when the last snapshot was looked at."""

    def __init__(self) -> None:
        self.sites: tuple[Site, ...] = ()
        self.cells = Cells()
        self.space = Space(())
        self.queues: dict[Kind | str, Queue] = {}  # by kind, or by job
        self.owned: dict[Hashable, list[Head]] = {}  # heads of the queues by whose they are (all one's: steady), in their order
        self.herds: dict[Herd | None, dict[Kind | str, Queue]] | None = None  # the queues by herd: once a cycle follows another
        self._rest_s = 0.0  # then every back-off is over
        self._least: dict[Herd | None, float] = {}  # of the run times that they say: where that was asked for
        self.tasks: dict[str, Task] = {}
        self.runs: dict[str, Run] = {}
        self.ends: list[tuple[float, int, Run]] = []
        self.wide: set[str] = set()  # those that have more nodes than their least
        self.changes: Changes | None = None
        self.policy: Policy | None = None
        self.seen = 0
        self.latest: tuple[Key, int] = ((), -1)  # the last in a steady order of all that waited before those that are new
        self._newest = self.latest
        self._oldest_s = FOREVER  # nobody has waited for longer
        self.expected: dict[str, tuple[Task, Grant]] = {}  # what the last plan took, until it is on record
        self.busy: dict[Ask, Refusal] = {}  # in words, of this inventory
        self.groups: tuple[Group, ...] = ()
        self.market, self.staying = Market(DEFAULT, ()), Staying(DEFAULT, ())
        self._reserved: dict[Ask, Refusal] = {}
        self.kept: dict[str, Any] = {}  # the policy's own
        self.holdings = Holdings()
        self.tally = Tally(DEFAULT, ())
        self._line: Line | None = None  # the same in numbers, where these are enough
        self.last: Any = None  # the last one, to go on with where only more has arrived

    def kept_back(self, ask: Ask) -> Refusal:
        """Why one waits that would fit."""
        found = self._reserved.get(ask)
        if found is None:
            found = self._reserved[ask] = kept_back(ask)
        return found

    def lined_up(self, snapshot: Snapshot, policy: Policy) -> Line | None:
        """The snapshot as a line; None where counting nodes is not enough, or was not when this began."""
        if self._line is not None and self._line.follow(snapshot, policy):
            return self._line
        if self._line is not None or not self._knows(snapshot, policy):
            self._line = line_of(snapshot, policy)
        return self._line

    def _knows(self, snapshot: Snapshot, policy: Policy) -> bool:
        """Whether the log leads from what it has seen to this snapshot."""
        same = snapshot.changes is not None and snapshot.changes is self.changes and self.sites is snapshot.sites
        return same and self.tally.rules is snapshot.rules and policy is self.policy

    def follow(self, snapshot: Snapshot, policy: Policy) -> list[Task] | None:
        """Become what the snapshot says. The arrivals, if all else that happened is what the last plan asked for; else None."""
        changes = snapshot.changes
        if changes is None or not self._knows(snapshot, policy):
            self.policy = policy
            self._begin(snapshot, policy)
            return None
        if self.herds is None and policy.sharing is not None:
            self.herds, self._rest_s = {}, max((task.not_before_s for task in self.tasks.values()), default=0.0)
            for name, queue in self.queues.items():
                self.herds.setdefault(queue[0][2].kind.herd, {})[name] = queue
        log, calm, fresh = changes.log, True, []
        self.latest = max(self.latest, self._newest)
        for at in range(self.seen, len(log)):
            what, id = log[at]
            if what == ARRIVED:
                task = snapshot.waiting.get(id)
                if task is not None and id not in self.tasks:
                    self._arrive(task)
                    fresh.append(task)
            elif what == LEFT:
                calm = False
                self._leave(id)
            elif what == STARTED:
                self._leave(id)
                run = snapshot.running.get(id)
                if run is not None and id not in self.runs:
                    calm = self._start(run) and calm
            elif what == ENDED:
                calm = False
                self._end(id)
        self.seen = len(log)
        for task, grant in self.expected.values():  # a plan that nobody carried out
            calm = False
            self._untake(task, grant)
        self.expected = {}
        return fresh if calm else None

    def _begin(self, snapshot: Snapshot, policy: Policy) -> None:
        if self.sites is not snapshot.sites:
            self.cells, self.busy, self.groups = Cells(), {}, grouped(snapshot.sites)
        self.staying = Staying(snapshot.rules, self.groups)
        self.market = Market(snapshot.rules, self.groups)
        self.sites, self.changes = snapshot.sites, snapshot.changes
        self.seen = len(snapshot.changes.log) if snapshot.changes is not None else 0
        self.space = Space(snapshot.sites, self.cells, (run.grant for run in snapshot.running.values()))
        self.expected, self.kept, self.last, self.latest = {}, {}, None, ((), -1)
        self.tasks = dict(snapshot.waiting)
        self._line_up(policy)
        self.runs = dict(snapshot.running)
        self.ends = sorted((run.end_s, run.task.seq, run) for run in self.runs.values())
        self.wide = {id for id, run in self.runs.items() if run.task.kind.choices is not None and run.surplus > 0}
        self._enter_all(snapshot)

    def _line_up(self, policy: Policy) -> None:
        """All queues from `tasks`."""
        tasks, within = self.tasks.values(), policy.within
        if within is None:
            self.queues = {task.id: [(0.0, task.seq, task)] for task in tasks}
        else:
            by_kind = defaultdict[Kind | str, Queue](list)
            entries = zip(map(within, tasks), map(_SEQ, tasks), tasks, strict=True)
            for kind, entry in zip(map(_KIND, tasks), entries, strict=True):
                by_kind[kind].append(entry)
            for queue in by_kind.values():
                queue.sort()
            self.queues = dict(by_kind)
        self.owned, queues, self.herds, self._least = {}, self.queues, None, {}
        self._oldest_s = self._oldest()
        rank, owner = self._rank, self._owner
        if rank is not None:
            for queue in queues.values():
                head = queue[0][2]
                self.owned.setdefault(owner(head), []).append((rank(head), head.seq, queue, 0))
            for heads in self.owned.values():
                heads.sort()
        if policy.steady is not None:
            self.latest = max(((policy.steady(queue[-1][2]), queue[-1][1]) for queue in queues.values()), default=self.latest)
        self._newest = self.latest

    def _enter_all(self, snapshot: Snapshot) -> None:
        """What all `runs` hold."""
        alike = by_kind(self.runs.values())
        self.tally = Tally(snapshot.rules, snapshot.sites)
        self.tally.fill(alike)
        self.holdings = self.kept["holdings"] = Holdings()
        self.holdings.fill(alike)

    def _arrive(self, task: Task) -> None:
        self.tasks[task.id] = task
        queue, entry = self.queues.setdefault(self._queue(task), []), (self._within(task), task.seq, task)
        if self.herds is not None:
            herd, self._rest_s = task.kind.herd, max(self._rest_s, task.not_before_s)
            self.herds.setdefault(herd, {})[self._queue(task)] = queue
            if herd in self._least:
                self._least[herd] = min(self._least[herd], task.estimate_s or 0.0)
        first = not queue or entry < queue[0]
        if first:
            self._show(queue, task, False)
        insort(queue, entry)
        if first:
            self._show(queue, task, True)
        self._oldest_s = min(self._oldest_s, task.since_s)
        if self.policy is not None and self.policy.steady is not None:
            self._newest = max(self._newest, (self.policy.steady(task), task.seq))

    def turn_s(self, now_s: float) -> float:
        """When somebody will have waited for so long that it is his turn; or before: whoever asks looks closer then."""
        if now_s >= self._oldest_s + STILL_S - MARGIN_S:  # the one of whom that was thought may be gone
            self._oldest_s = self._oldest()
        return self._oldest_s + STILL_S - MARGIN_S

    def _oldest(self) -> float:
        """Since when the first is there: who came first is at the head of its queue."""
        return min((queue[0][2].since_s for queue in self.queues.values()), default=FOREVER)

    def _leave(self, id: str) -> None:
        task = self.tasks.pop(id, None)
        if task is None:
            return
        queue = self.queues[self._queue(task)]
        at = bisect_left(queue, (self._within(task), task.seq))
        if not at:
            self._show(queue, task, False)
        del queue[at]
        if not at:
            self._show(queue, task, True)
        if not queue:
            del self.queues[self._queue(task)]
        if self.herds is not None:
            self._leave_herd(task, not queue)

    def _leave_herd(self, task: Task, last: bool) -> None:
        """`last`: there are no more of its kind."""
        assert self.herds is not None
        herd = task.kind.herd
        if (task.estimate_s or 0.0) <= self._least.get(herd, -1.0):
            del self._least[herd]
        if last:
            del self.herds[herd][self._queue(task)]
            if not self.herds[herd]:
                del self.herds[herd]

    def together(self, now_s: float) -> list[Herd | None] | None:
        """The herds; None where they are not known, or somebody's back-off is not over."""
        return None if self.herds is None or self._rest_s > now_s else list(self.herds)

    def least_s(self, herd: Herd) -> float:
        """No job of a herd says that it will run for less; 0: one says nothing."""
        assert self.herds is not None
        if herd not in self._least:
            self._least[herd] = min(task.estimate_s or 0.0 for queue in self.herds[herd].values() for _, _, task in queue)
        return self._least[herd]

    def _show(self, queue: Queue, task: Task, there: bool) -> None:
        """Take a queue's head away from its owner's, or put it there."""
        if self._rank is None or not queue:
            return
        heads, head = self.owned.setdefault(self._owner(task), []), queue[0][2]
        if there:
            insort(heads, (self._rank(head), head.seq, queue, 0))
        else:
            del heads[bisect_left(heads, (self._rank(head), head.seq))]

    @property
    def _rank(self) -> Callable[[Task], Key] | None:
        """The order of one owner's, where time does not change it."""
        assert self.policy is not None
        return self.policy.steady if self.policy.sharing is None else self.policy.sharing.rank

    def _owner(self, task: Task) -> Hashable:
        return None if self.policy is None or self.policy.sharing is None else self.policy.sharing.owner(task.kind)

    def _queue(self, task: Task) -> Kind | str:
        return task.id if self.policy is None or self.policy.within is None else task.kind

    def _within(self, task: Task) -> float:
        return 0.0 if self.policy is None or self.policy.within is None else self.policy.within(task)

    def _start(self, run: Run) -> bool:
        """Whether it is what the last plan asked for, at once."""
        id = run.task.id
        self.runs[id] = run
        insort(self.ends, (run.end_s, run.task.seq, run))
        self.holdings.enter(run)
        if run.surplus > 0:
            self.wide.add(id)
        task, taken = self.expected.pop(id, (None, None))
        if task is not None and task.kind is run.task.kind and taken == run.grant:
            return self.last is not None and bool(run.placed_s == self.last.now_s)
        if task is not None and taken is not None:
            self._untake(task, taken)
        self.space.hold(run.grant)
        self.tally.enter(run.task.kind, run.grant)
        return False

    def take(self, task: Task, grant: Grant) -> None:
        """A plan starts this job; `grant` is taken out of the space already."""
        self.expected[task.id] = (task, grant)
        self.tally.enter(task.kind, grant)

    def _untake(self, task: Task, grant: Grant) -> None:
        self.space.give(grant)
        self.tally.enter(task.kind, grant, -1)

    def _end(self, id: str) -> None:
        run = self.runs.pop(id, None)
        if run is None:
            return
        self.space.give(run.grant)
        self.tally.enter(run.task.kind, run.grant, -1)
        self.holdings.enter(run, -1)
        self.wide.discard(id)
        del self.ends[bisect_left(self.ends, (run.end_s, run.task.seq))]
