"""What would let a waiting job start: a smallest set of changes, found by trying them on the decision itself.

A change is a job that runs and ends, a node that takes work again, a pool without maintenance, a project whose quota does not
count, or a job ahead in the queue that is not there. First is found what the job needs were it alone in the queue,
trying likely changes first; then which jobs ahead of it must leave; then whether fewer would do, one size after another. Laws:
the changes let it start, and none can be left out. No smaller set does, unless there were too many to try (`TRIES_MAX`).
Source: QuickXplain, U. Junker, AAAI 2004.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import comb
from typing import NamedTuple, TypeVar

from trainmaster.model.cluster import UNBOUNDED, Project
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.forward import settled
from trainmaster.scheduling.explanation.standing import ordered
from trainmaster.scheduling.model.cells import FOREVER
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import GONE, Site
from trainmaster.scheduling.policies.policy import Policy

ENDS, OPENS, WINDOW, QUOTA, LEAVES, TURN = "ends", "opens", "window", "quota", "leaves", "turn"
AHEAD_MAX = 64  # jobs ahead, each a change of its own; more than that are one change together
TRIES_MAX = 1_000  # decisions to look for a smaller set; a size with more sets than decisions are left is not tried
_LOOKED_MAX = 100_000  # jobs that these decisions look at together
T = TypeVar("T")


class Change(NamedTuple):
    """`what` is one of the constants above. `name`: of a job, node, pool or project; for `TURN` of the job that goes first."""

    what: str
    name: str


def remedy(snapshot: Snapshot, policy: Policy, id: str) -> tuple[Change, ...] | None:
    """A smallest set of changes that lets `id` start at once; None: no changes do.

    Of several smallest sets: the likeliest changes (`_wishes`). If there are too many sets to try (`TRIES_MAX`), a smaller one
    may exist, but none of the changes can be left out. (): the next decision starts the job. Its back-off counts as over.
    """
    queue = ordered(snapshot, policy)
    place = next(at for at, task in enumerate(queue) if task.id == id)
    it, others = queue[place]._replace(not_before_s=0.0), queue[:place]  # jobs behind it are tried later
    if policy.shares or policy.parts:  # except where a start changes the order
        others = [*others, *queue[place + 1 :]]
    ahead = [Change(LEAVES, task.id) for task in reversed(others)] if len(others) <= AHEAD_MAX else [Change(TURN, id)]
    world = snapshot._replace(waiting={**{task.id: task for task in others}, id: it})
    alone = world._replace(waiting={id: it})

    def starts(snapshot: Snapshot, changes: Sequence[Change]) -> bool:
        plan = cycle(changed(snapshot, changes), policy)
        return id in {one.job for one in plan.placements} | {one.job for one in plan.handovers}

    if starts(world, ()):
        return ()
    wishes = _wishes(snapshot)
    needed = _fewest(lambda some: starts(alone, some), wishes)
    if needed is None:
        return None
    first = _fewest(lambda some: starts(world, (*needed, *some)), ahead)
    assert first is not None, "it starts if all of them leave"
    found = _without_more(lambda some: starts(world, some), (*needed, *first))
    tries = min(TRIES_MAX, _LOOKED_MAX // (len(world.waiting) + len(world.running)))
    smaller = _smaller(lambda some: starts(world, some), (*wishes, *ahead), len(found), tries)
    return found if smaller is None else smaller


def changed(snapshot: Snapshot, changes: Iterable[Change]) -> Snapshot:
    """The snapshot as it would be after `changes`."""
    by: dict[str, set[str]] = {what: set() for what in (ENDS, OPENS, WINDOW, QUOTA, LEAVES, TURN)}
    for change in changes:
        by[change.what].add(change.name)
    sites, rules, left = snapshot.sites, snapshot.rules, by[LEAVES]
    for id in by[TURN]:
        left = left | snapshot.waiting.keys() - {id}
    if by[OPENS]:
        sites = tuple(site._replace(open=True) if site.name in by[OPENS] else site for site in sites)
    if by[WINDOW]:
        sites = tuple(_left_alone(site) if site.pool in by[WINDOW] else site for site in sites)
    if by[QUOTA]:
        rules = replace(rules, projects=tuple(_unbounded(one) if one.name in by[QUOTA] else one for one in rules.projects))
    usage = dict(snapshot.usage)
    for id in sorted(by[ENDS]):
        owner, account = settled(usage, snapshot.running[id], snapshot.now_s, rules)
        usage[owner] = account
    return snapshot._replace(
        usage=usage,
        sites=sites,
        rules=rules,
        waiting=_others(snapshot.waiting, left),
        running=_others(snapshot.running, by[ENDS]),
        promised=_others(snapshot.promised, left),
    )


def _others(jobs: Mapping[str, T], without: set[str]) -> Mapping[str, T]:
    return {id: one for id, one in jobs.items() if id not in without} if without else jobs


def _left_alone(site: Site) -> Site:
    """Without maintenance."""
    return site._replace(cell=site.cell._replace(closes_s=FOREVER))


def _unbounded(project: Project) -> Project:
    """Without quotas and limits."""
    quotas = tuple((name, replace(quota, nominal=UNBOUNDED, limit=UNBOUNDED)) for name, quota in project.quotas)
    return replace(project, quotas=quotas, running_max=None, running_per_member_max=None)


def _wishes(snapshot: Snapshot) -> list[Change]:
    """What may change besides the queue, the likeliest first: ends, soonest first; nodes; windows; quotas."""
    runs = sorted(snapshot.running.values(), key=lambda run: (not run.stopping, run.end_s, run.placed_s, run.task.seq))
    closed = [site.name for site in snapshot.sites if not site.open and site.why != GONE]
    bounded = [one.name for one in snapshot.rules.projects if one != _unbounded(one)]
    kept = dict.fromkeys(site.pool for site in snapshot.sites if site.cell.closes_s < FOREVER and site.why != GONE)
    named = ((ENDS, (run.task.id for run in runs)), (OPENS, closed), (WINDOW, kept), (QUOTA, bounded))
    return [Change(what, name) for what, names in named for name in names]


def _fewest(enough: Callable[[Sequence[Change]], bool], wishes: Sequence[Change]) -> tuple[Change, ...] | None:
    """A smallest part of `wishes` that is enough, rather of the first ones; None: not even all of them are enough."""
    if not enough(wishes):
        return None
    return () if enough(()) else tuple(sorted(_explain((), False, wishes, enough), key=wishes.index))


def _explain(
    given: tuple[Change, ...], news: bool, wishes: Sequence[Change], enough: Callable[[Sequence[Change]], bool]
) -> tuple[Change, ...]:
    """What is needed of `wishes` besides `given`. `news`: `given` has grown since it was last tried."""
    if news and enough(given):
        return ()
    if len(wishes) == 1:
        return tuple(wishes)
    front, back = tuple(wishes[: len(wishes) // 2]), tuple(wishes[len(wishes) // 2 :])
    late = _explain((*given, *front), True, back, enough)
    early = _explain((*given, *late), bool(late), front, enough)
    return (*early, *late)


def _without_more(starts: Callable[[Sequence[Change]], bool], found: tuple[Change, ...]) -> tuple[Change, ...]:
    """Fewer of these changes, if they are enough: a change can make another unnecessary."""
    at = len(found) - 1
    while at >= 0:
        fewer = found[:at] + found[at + 1 :]
        found = fewer if starts(fewer) else found
        at -= 1
    return found


def _smaller(
    starts: Callable[[Sequence[Change]], bool], offered: Sequence[Change], size: int, tries: int
) -> tuple[Change, ...] | None:
    """The first set of fewer than `size` changes that is enough, the smallest sizes first; None: none, or too many to try."""
    for count in range(1, size):
        tries -= comb(len(offered), count)
        if tries < 0:
            return None
        found = next(filter(starts, _sets(offered, count)), None)
        if found is not None:
            return found
    return None


def _sets(offered: Sequence[Change], count: int) -> Iterator[tuple[Change, ...]]:
    """The sets of that size, ordered by their last change."""
    if not count:
        yield ()
    for last in range(count - 1, len(offered)) if count else ():
        for rest in _sets(offered[:last], count - 1):
            yield (*rest, offered[last])
