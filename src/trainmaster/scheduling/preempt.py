"""Who makes way: candidates by right or by order, and of them the fewest.

They are found by trying the whole gain before anyone is touched.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from trainmaster.scheduling.ahead import Later
from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.order import Key
from trainmaster.scheduling.quota import Tally, asked
from trainmaster.scheduling.room import Room
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.space import Space
from trainmaster.scheduling.task import Run, Task

EVICTIONS_MAX = 6  # each eviction doubles the time that one runs undisturbed afterwards, so many times at most
_TIER = attrgetter("task.kind.tier")


@dataclass(slots=True)
class Stage:
    """Those that run, as a cycle looks for candidates among them. What is sorted is sorted once, and only when asked for."""

    snapshot: Snapshot
    runs: Mapping[str, Run]
    tally: Tally
    key: Callable[[Task], Key]
    wide: Collection[str] = ()  # those of them that have more than their least
    stopped: set[str] = field(default_factory=set)  # they make way already
    barren: set[tuple[int, str]] = field(default_factory=set)  # classes for which nobody makes way who does not borrow
    _weakest: list[tuple[Key, Run]] | None = None
    _softest: list[Run] | None = None
    _lowest: int | None = None
    _swollen: list[Run] | None = None

    def spares(self, tier: int, work: str) -> bool:
        """Whether it is known that nobody makes way by right for any job of this class."""
        return (tier, work) in self.barren and not self.tally.borrowers

    @property
    def weakest(self) -> list[tuple[Key, Run]]:
        """The last in order first."""
        if self._weakest is None:
            now_s = self.snapshot.now_s
            keys = [((*self.key(run.at(now_s)), run.task.seq), run) for run in self.runs.values() if not run.stopping]
            self._weakest = sorted(keys, key=lambda one: one[0], reverse=True)
        return self._weakest

    @property
    def lowest(self) -> int:
        """The lowest class of those that run."""
        if self._lowest is None:
            self._lowest = min(map(_TIER, self.runs.values()), default=0)
        return self._lowest

    @property
    def softest(self) -> list[Run]:
        """Those that may be stopped: the lowest class first, then the least work lost, then the youngest."""
        if self._softest is None:
            now_s, rules = self.snapshot.now_s, self.snapshot.rules
            undisturbed_s = [rules.min_run_s * 2.0**evictions for evictions in range(EVICTIONS_MAX + 1)]
            able = []
            for work, runs in self._by_work().items():
                if rules.work(work).preemptible:
                    ran = ((run, now_s - run.placed_s) for run in runs)
                    able += [one for one, s in ran if s > 0 and s >= undisturbed_s[min(one.task.evictions, EVICTIONS_MAX)]]
            self._softest = self._ranked(able)
        return self._softest

    def _by_work(self) -> Mapping[str, list[Run]]:
        """Those that may be told to stop, by their workload class."""
        found = defaultdict[str, list[Run]](list)
        for run in self.runs.values():
            if not run.stopping:
                found[run.task.kind.work].append(run)
        return found

    @property
    def swollen(self) -> list[Run]:
        """Those that may be told to give back what they have beyond their least, in the same order."""
        if self._swollen is None:
            able = [self.runs[id] for id in self.wide if not self.runs[id].stopping]
            self._swollen = self._ranked([run for run in able if self._has_run(run, run.task.shrinks)])
        return self._swollen

    def _ranked(self, runs: Sequence[Run]) -> list[Run]:
        now_s = self.snapshot.now_s
        ranked = [
            (run.task.kind.tier, (now_s - run.kept_s) * run.grant.ask.gpu_milli, -run.placed_s, -run.task.seq, run)
            for run in runs
        ]
        return [one[-1] for one in sorted(ranked)]

    def _has_run(self, run: Run, times: int) -> bool:
        """Whether it has run undisturbed for as long as one may that was disturbed so many times before."""
        undisturbed_s = self.snapshot.rules.min_run_s * 2.0 ** min(times, EVICTIONS_MAX)
        return 0 < self.snapshot.now_s - run.placed_s >= undisturbed_s


def shrinkable(stage: Stage, task: Task) -> Sequence[Run]:
    """Those of its class or a lower one that have more than their least: under every policy, for they asked for no more."""
    if not stage.wide:
        return ()
    able = (run for run in stage.swollen if run.task.kind.tier <= task.kind.tier and run.task.id not in stage.stopped)
    return [run._replace(shrinking=True) for run in able]


Candidates = Callable[[Stage, Task], Sequence[Run]]


def overtaking(may: Callable[[Snapshot, Run, Task], bool]) -> Candidates:
    """Those behind it in order of whom `may` says yes."""

    def candidates(stage: Stage, task: Task) -> Sequence[Run]:
        key, found = (*stage.key(stage.snapshot.waiting[task.id]), task.seq), []  # whichever of its choices is tried
        for other, run in stage.weakest:
            if other <= key:
                break
            if run.task.id not in stage.stopped and may(stage.snapshot, run, task):
                found.append(run)
        return found

    return candidates


def by_right(stage: Stage, task: Task) -> Sequence[Run]:
    """A lower class for a higher one, a borrower for a project that takes back its quota, a job whose time slice is over.

    Two jobs never stop each other in turn: of two classes one is the higher; a project that takes its own back holds no more
    than that, and only who holds more can be made to give, to its own class or a higher one.
    """
    kind = task.kind
    if stage.spares(kind.tier, kind.work):
        return ()
    reclaims = bool(stage.tally.borrowers) and stage.tally.within(kind)
    sliced = stage.snapshot.rules.work(kind.work).slice_s is not None
    if not (reclaims or sliced or stage.lowest < kind.tier):
        stage.barren.add((kind.tier, kind.work))
        return ()
    resources = asked(kind.ask)
    own = {one.name for one in stage.snapshot.rules.line(kind.project)}
    borrowed: dict[str, dict[str, float]] = {}
    first, then = [], []
    for run in stage.softest:
        other = run.task.kind
        if run.task.id in stage.stopped or other.tier > kind.tier:
            continue
        if reclaims and other.project not in own:
            more = borrowed.setdefault(other.project, dict(stage.tally.borrowed(other.project, resources)))
            amounts = stage.tally.amounts(run.grant)
            if any(more.get(resource, 0) > 0 and amounts.get(resource) for resource in resources):
                for resource in more:
                    more[resource] -= amounts.get(resource, 0)
                first.append(run)
                continue
        if other.tier < kind.tier or _slice_is_over(stage.snapshot, run, task):
            then.append(run)
    return [*first, *then]


def _slice_is_over(snapshot: Snapshot, run: Run, task: Task) -> bool:
    if run.task.kind.work != task.kind.work:
        return False
    slice_s = snapshot.rules.work(task.kind.work).slice_s
    return slice_s is not None and snapshot.now_s - run.placed_s >= slice_s


def victims(space: Space, task: Task, ask: Ask, candidates: Sequence[Run], tally: Tally) -> list[Run] | None:
    """Those of `candidates`, the first to go first, whose nodes together with what is free hold the gang; None: not even all.

    Nobody is among them whom it could do without. Where quota alone stands in its way, they are those whose going mends that.
    """
    kind, later, room, chosen = task.kind, Later(space), Room(space, ask), list[Run]()
    barred = tally.barrier(kind) is not None  # else quota does not stand in its way whoever goes

    def enough() -> bool:
        return room.enough and (not barred or tally.barrier(kind) is None)

    def quota(run: Run, sign: int) -> None:
        if barred:
            tally.leave([run], -sign)

    for run in candidates:
        if enough():
            break
        chosen.append(run)
        room.come_back(later, run.freed)
        quota(run, -1)
    found = enough()
    needed = []
    for run in reversed(chosen):  # the last to be taken in is the dearest: try without it first
        quota(run, 1)
        if found and ((barred and tally.barrier(kind) is not None) or not room.can_spare(later, run.freed)):
            quota(run, -1)
            needed.append(run)
    if barred:
        tally.leave(needed, -1)
    return needed[::-1] or None
