"""Victims: the candidates by right or by order, and of these as few as are enough.

Whether all of them together are enough is tested before any job is touched.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from trainmaster.scheduling.admission.quota import Tally
from trainmaster.scheduling.admission.stock import asked
from trainmaster.scheduling.model.jobs import DOUBLINGS_MAX, Run, Task
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Space
from trainmaster.scheduling.reservation.backfill import Later
from trainmaster.scheduling.reservation.room import Room
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.state.figures import (
    DOUBLINGS,
    GPUS,
    PLACED_S,
    SINCE_S,
    STOPPING,
    WAIT_MAX_S,
    Floats,
    Mask,
    running,
    waiting,
)
from trainmaster.scheduling.state.order import Ranking, by_keys
from trainmaster.scheduling.state.queue import Line

MIN_RUN_S, MIN_TURN_S = 300.0, 3600.0


class Preempt(Protocol):
    """Which jobs may be preempted for which, under a policy."""

    def may_help(self, stage: "Stage", task: Task, line: Line) -> bool:
        """Whether a job, which waits in this line, may fit once others have made way. False is certain."""

    def candidates(self, stage: "Stage", task: Task) -> Sequence[Run]:
        """Live attempts that may be victims for it, the first to stop first."""

    def in_vain(self, stage: "Stage", task: Task) -> None:
        """It did not fit even without all of its candidates."""


class Stage:
    """The running jobs as candidates of one decision. They are sorted once, and only on demand."""

    def __init__(self, snapshot: Snapshot, state: ClusterState, view: Any) -> None:
        """`view`: what the policy's order reads."""
        self.snapshot, self.state, self.view = snapshot, state, view
        self.stopped: set[str] = set()  # already victims
        self._vain: dict[Hashable, int] = {}  # how many candidates together are not enough, by `_alike`
        self.groups: dict[Hashable, list[Run]] = {}  # candidates that several jobs share
        self._behind: _Behind | None = None
        self._relief: dict[Hashable, Mask | None] = {}  # what fits without a group; None: worked out on demand

    def stop(self, runs: Iterable[Run]) -> None:
        """Record victims."""
        self.stopped.update(run.task.id for run in runs)
        self.groups, self._behind, self._relief = {}, None, {}
        self._vain.clear()

    def not_enough(self, task: Task, ask: Ask, count: int, shrinking: bool = False) -> None:
        """Record that the first `count` candidates are not enough, nor later for a job like it: no more is free then."""
        self._vain[self._alike(task, ask, shrinking)] = count

    def enough(self, task: Task, ask: Ask, count: int, shrinking: bool = False) -> bool:
        """Whether the first `count` candidates may make room for a job. False is certain."""
        return count > self._vain.get(self._alike(task, ask, shrinking), 0)

    def _alike(self, task: Task, ask: Ask, shrinking: bool) -> Hashable:
        kind = task.kind
        return ask, shrinking, kind.tier, kind.work, kind.project, kind.member, self.state.space.until_s

    def relieves(self, group: Hashable, request: int) -> bool:
        """Whether a request may fit once all jobs of a group are gone."""
        if group not in self._relief:
            return True
        mask = self._relief[group]
        if mask is None:
            mask = self._relief[group] = self.state.requests.fits(_without(self.state.space, self.groups[group]))
        return bool(mask[request])

    def in_vain(self, group: Hashable) -> None:
        """A job did not fit without a group. At the next question all requests are tested at once."""
        self._relief.setdefault(group, None)

    def behind(self, may: "May", order: Ranking) -> "_Behind":
        """The running jobs that `may` permits, behind each waiting job in `order`. Both are the policy's: found once."""
        if self._behind is None:
            self._behind = self._find_behind(may, order)
        return self._behind

    def _find_behind(self, may: "May", order: Ranking) -> "_Behind":
        queue, live, now_s, space = self.state.queue, self.state.running, self.snapshot.now_s, self.state.space
        tasks = [line[0][2] for line in queue.all]
        waits, rows = waiting(tasks, queue.rows.array), live.rows.array
        stood = rows[:, PLACED_S] - rows[:, SINCE_S] >= rows[:, WAIT_MAX_S]
        able = may(now_s - rows[:, PLACED_S], stood) & self._unprotected(rows)
        if self.stopped:
            able &= np.array([run.task.id not in self.stopped for run in live.all], bool)
        some = np.flatnonzero(able)
        runs = running(rows[some], now_s)
        keys = tuple(np.concatenate(two) for two in zip(order(self.view, waits), order(self.view, runs), strict=True))
        places, count = by_keys(keys, np.concatenate([waits.seq, runs.seq])), len(waits.seq)
        is_run = places >= count
        ahead = np.cumsum(is_run)
        counts = np.zeros(count, np.int64)
        counts[places[~is_run]] = len(some) - ahead[~is_run]
        last_first = some[places[is_run] - count][::-1]
        self.groups[_ALL] = [live.all[at] for at in last_first]
        free = sum(space.cells.left[number][0] * len(nodes) for number, nodes in space.nodes.items())
        gpus = free + np.concatenate([[0.0], np.cumsum(rows[last_first, GPUS])])
        needs = np.array([task.kind.ask.gpu_milli for task in tasks])
        return _Behind(counts.tolist(), ((counts > 0) & (gpus[counts] >= needs)).tolist())

    def _unprotected(self, rows: Floats) -> Mask:
        """Which running jobs are not protected: not stopping yet, of a preemptible class, placed long enough ago."""
        rules = self.snapshot.rules
        classes = {work: rules.work(work).preemptible for work in {run.task.kind.work for run in self.state.running.all}}
        undisturbed_s = rules.min_run_s * 2.0 ** rows[:, DOUBLINGS]
        found: Mask = (rows[:, STOPPING] == 0) & (self.snapshot.now_s - rows[:, PLACED_S] >= undisturbed_s)
        if not all(classes.values()):
            found &= np.array([classes[run.task.kind.work] for run in self.state.running.all], bool)
        return found

    @cached_property
    def sliced(self) -> frozenset[str]:
        """The workload classes with a time slice."""
        return frozenset(one.name for one in self.snapshot.rules.classes if one.slice_s is not None)

    @cached_property
    def lowest(self) -> int:
        """The lowest class of the running jobs."""
        return min((run.task.kind.tier for run in self.state.running.all), default=0)

    @cached_property
    def softest(self) -> list[Run]:
        """The jobs that may be stopped: the lowest class first, then the least lost work, then the youngest."""
        rules = self.snapshot.rules
        works = {work: rules.work(work).preemptible for work in {run.task.kind.work for run in self.state.running.all}}
        able = [run for run in self.state.running.all if works[run.task.kind.work] and not run.stopping]
        return self._ranked([run for run in able if self._has_run(run, run.doublings)])

    @cached_property
    def swollen(self) -> list[Run]:
        """The elastic jobs that may shrink to their minimum, in the same order."""
        able = [run for run in map(self.state.running.by_id.__getitem__, self.state.running.wide) if not run.stopping]
        return self._ranked([run for run in able if self._has_run(run, min(run.task.shrinks, DOUBLINGS_MAX))])

    def _ranked(self, runs: Sequence[Run]) -> list[Run]:
        now_s = self.snapshot.now_s
        ranked = [
            (run.task.kind.tier, (now_s - run.kept_s) * run.grant.ask.gpu_milli, -run.placed_s, -run.task.seq, run)
            for run in runs
        ]
        return [one[-1] for one in sorted(ranked)]

    def _has_run(self, run: Run, doublings: int) -> bool:
        """Whether a job whose protection was doubled so often is no longer protected."""
        undisturbed_s = self.snapshot.rules.min_run_s * 2.0**doublings
        return 0 < self.snapshot.now_s - run.placed_s >= undisturbed_s


def _without(space: Space, runs: Sequence[Run]) -> dict[int, int]:
    """How many open nodes are in each cell once these jobs are gone."""
    later = Later(space)
    for run in runs:
        for index, node in enumerate(run.freed.nodes):
            if node >= 0:
                later.give(node, run.freed.part(index))
    counts = {number: len(nodes) for number, nodes in space.nodes.items()}
    for node, number in later.cells():
        if space.sites[node].open:
            counts[space.of[node]] -= 1
            counts[number] = counts.get(number, 0) + 1
    return counts


def shrinkable(stage: Stage, task: Task) -> Sequence[Run]:
    """Elastic jobs of its class or a lower one that can shrink. Under every policy: they asked for no more than that."""
    if not stage.state.running.wide:
        return ()
    able = (run for run in stage.swollen if run.task.kind.tier <= task.kind.tier and run.task.id not in stage.stopped)
    return [run._replace(shrinking=True) for run in able]


class _Behind(NamedTuple):
    """By the row of a waiting job: how many running jobs are behind it, and whether there are enough GPUs without them."""

    counts: Sequence[int]
    relieved: Sequence[bool]


_ALL = "behind"
May = Callable[[Floats, Mask], Mask]  # how long jobs have run, whether they had waited too long: which may be stopped


def at_once(ran_s: Floats, stood: Mask) -> Mask:
    """Every job, but one that had waited too long is protected for its turn."""
    return _has_run(ran_s, 0.0, stood)


def after_a_while(ran_s: Floats, stood: Mask) -> Mask:
    """Jobs that have run for a while; longer if they had waited too long."""
    return _has_run(ran_s, MIN_RUN_S, stood)


def _has_run(ran_s: Floats, least_s: float, stood: Mask) -> Mask:
    found: Mask = ran_s >= np.where(stood, MIN_TURN_S, least_s)
    return found


class Overtaking(NamedTuple):
    """Candidates are the running jobs behind it in `order` that `may` permits."""

    may: May
    order: Ranking

    def may_help(self, stage: Stage, task: Task, line: Line) -> bool:
        """As in `Preempt`."""
        behind = stage.behind(self.may, self.order)
        if not behind.relieved[line.at] or not stage.relieves(_ALL, line.request):
            return False
        return stage.enough(task, task.kind.ask, behind.counts[line.at])

    def candidates(self, stage: Stage, task: Task) -> Sequence[Run]:
        """As in `Preempt`."""
        # Whichever of its choices is tried, it has one place in the order.
        count = stage.behind(self.may, self.order).counts[stage.state.queue.lines[task.id].at]
        return stage.groups[_ALL][:count]

    def in_vain(self, stage: Stage, task: Task) -> None:
        """As in `Preempt`."""
        stage.in_vain(_ALL)


class ByRight:
    """A borrower for a project that takes back its quota, a lower class for a higher one, a job whose time slice is over.

    Two jobs never preempt each other in turn. A project that reclaims holds no more than its own, whatever the classes. A job
    that would borrow takes nothing that is another project's own. Otherwise the higher of two classes wins. Urgent jobs go
    before all of this.
    """

    def may_help(self, stage: Stage, task: Task, line: Line) -> bool:
        """As in `Preempt`."""
        group = self._group(stage, task)
        if group is None or not (count := len(self._of(stage, task, group))):
            return False
        return stage.relieves(group, line.request) and stage.enough(task, task.kind.ask, count)

    def candidates(self, stage: Stage, task: Task) -> Sequence[Run]:
        """As in `Preempt`."""
        group = self._group(stage, task)
        return () if group is None else self._of(stage, task, group)

    def in_vain(self, stage: Stage, task: Task) -> None:
        """As in `Preempt`."""
        group = self._group(stage, task)
        if group is not None:
            stage.in_vain(group)

    def _group(self, stage: Stage, task: Task) -> Hashable | None:
        """A name for all jobs with the same candidates; None: this job has none."""
        kind, tally = task.kind, stage.state.tally
        reclaims = bool(tally.borrowers) and tally.within(kind)
        sliced = kind.work in stage.sliced
        if not (reclaims or sliced or stage.lowest < kind.tier):
            return None
        borrows = not kind.urgent and tally.borrows(kind) is not None
        if not (reclaims or borrows):
            return kind.tier, kind.work if sliced else ""
        return kind.tier, kind.work if sliced else "", kind.project, borrows, tuple(asked(kind.ask))

    def _of(self, stage: Stage, task: Task, group: Hashable) -> Sequence[Run]:
        runs = stage.groups.get(group)
        if runs is None:
            assert isinstance(group, tuple)
            runs = stage.groups[group] = _by_right(stage, task, *group[3:])
        return runs


def _by_right(stage: Stage, task: Task, borrows: bool = False, resources: Sequence[str] = ()) -> list[Run]:
    """`borrows`: it takes nothing that is another project's own. Else it reclaims its own of `resources`, if any are named."""
    kind, tally = task.kind, stage.state.tally
    own = {one.name for one in stage.snapshot.rules.line(kind.project)}
    borrowed: dict[str, dict[str, float]] = {}
    first, then = [], []
    for run in stage.softest:
        other = run.task.kind
        if run.task.id in stage.stopped:
            continue
        if resources and not borrows and other.project not in own and not other.urgent:
            more = borrowed.setdefault(other.project, dict(tally.borrowed(other.project, resources)))
            amounts = tally.stock.amounts(run.grant)
            if any(more.get(resource, 0) > 0 and amounts.get(resource) for resource in resources):
                for resource in more:
                    more[resource] -= amounts.get(resource, 0)
                first.append(run)
                continue
        lower = other.tier < kind.tier or (other.tier == kind.tier and _slice_is_over(stage.snapshot, run, task))
        if lower and not (borrows and other.project not in own and tally.keeps(other.project, resources)):
            then.append(run)
    return [*first, *then]


def _slice_is_over(snapshot: Snapshot, run: Run, task: Task) -> bool:
    if run.task.kind.work != task.kind.work:
        return False
    slice_s = snapshot.rules.work(task.kind.work).slice_s
    return slice_s is not None and snapshot.now_s - run.placed_s >= slice_s


def victims(space: Space, task: Task, ask: Ask, candidates: Sequence[Run], tally: Tally) -> list[Run] | None:
    """Those of `candidates`, the first to stop first, whose nodes and the free ones hold the gang; None: all are not enough.

    No victim is superfluous. If a quota alone bars the job, the victims are those that make room in the quota.
    """
    kind, later, room, chosen = task.kind, Later(space), Room(space, ask), list[Run]()
    barred = tally.barrier(kind) is not None  # else no quota bars it, whichever jobs stop

    def enough() -> bool:
        return room.enough and (not barred or tally.barrier(kind) is None)

    for run in candidates:
        if enough():
            break
        chosen.append(run)
        room.come_back(later, run.freed)
        if barred:
            tally.leave([run])
    found = enough()
    needed = []
    for run in reversed(chosen):  # the last is the dearest: try without it first
        if barred:
            tally.stay([run])
        if found and ((barred and tally.barrier(kind) is not None) or not room.can_spare(later, run.freed)):
            if barred:
                tally.leave([run])
            needed.append(run)
    if barred:
        tally.stay(needed)
    return needed[::-1] or None
