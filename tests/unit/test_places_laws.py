"""Laws of placement: a gang is in one rack if required, waits for one if preferred, and delays no other job. Random wishes."""

from itertools import combinations
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, example, given, settings
from test_scheduling_laws import History, assert_nobody_is_delayed, assert_same, occupied, seeds, started, thought
from test_sharing_laws import Shared

from trainmaster.scheduling.admission.feasible import grouped, impossible
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.domains import BOTH, domain_of
from trainmaster.scheduling.model.jobs import Owner, Task, kind_of
from trainmaster.scheduling.model.request import Wish, confined
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Site
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.policies.policy import Policy

LEVELS = ("zone", "rack", "host", "floor")


class Placed(Shared):
    """A shared cluster with racks, and jobs that say where they want to be."""

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.sites = tuple(map(self.somewhere, self.sites))

    def somewhere(self, site: Site) -> Site:
        labels = {"zone": self.rng.choice("ab"), "rack": self.rng.choice("12"), "data": self.rng.choice(["x", "x,y", ""])}
        named = [name for name in labels if self.rng.random() < 0.9]
        return site._replace(labels=tuple((name, labels[name]) for name in sorted(named)), host=self.rng.choice(["", "h", "i"]))

    def queue(self, task: Task) -> None:
        fresh = task.kind.project == "default"
        super().queue(task)
        if fresh:
            self.queue_anew(wishing(self.rng, self.waiting[task.id]))


class Wishing(History):
    """The same without quotas and classes: every job that fits may start."""

    somewhere = Placed.somewhere

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.sites = tuple(site._replace(open=True) for site in map(self.somewhere, self.sites))  # type: ignore[arg-type]

    def queue(self, task: Task) -> None:
        if task.attained_s == 0:  # it is new; some are like one that waits
            alike = [one.kind for one in self.waiting.values()] if self.rng.random() < 0.4 else []
            task = task._replace(kind=self.rng.choice(alike)) if alike else wishing(self.rng, task)
        super().queue(task)


def wishing(rng: Random, task: Task) -> Task:
    kind, ask = task.kind, task.kind.ask
    within = rng.choice([None, None, *LEVELS]) if ask.nodes > 1 else None
    prefer = rng.choice([None, *LEVELS])
    strategy, near = (
        rng.choice([None, "pack", "spread", "balanced", "fragmentation"]),
        rng.choice([None, None, "x", "checkpoint"]),
    )
    wish = Wish(strategy, prefer, rng.choice([0.0, 5.0, 30.0]) if prefer else 0.0, rng.choice([None, None, "g"]), near)
    owner = Owner(kind.project, kind.member, kind.work, kind.priority, kind.tier)
    return task._replace(kind=kind_of(confined(ask, within), owner, wish=wish), homes=("n0",) if near == "checkpoint" else ())


def in_one(snapshot: Snapshot, nodes: tuple[int, ...], level: str) -> bool:
    """Whether all of these nodes are in one domain of a level."""
    if BOTH in level:
        return all(in_one(snapshot, nodes, one) for one in level.split(BOTH))
    sites = [snapshot.sites[node] for node in nodes]
    domains = {domain_of(level, site.name, site.labels, site.host) for site in sites}
    return len(domains) == 1 and None not in domains


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=examples(3, 60), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(seed=seeds)
@example(seed=60)  # one arrives that would wait for a better place, behind one of its kind that no longer does
def test_a_gang_is_in_one_domain_whatever_is_remembered(name: str, seed: int) -> None:
    """Of the level that it must be in; while it waits for a better place, of the one that it would be in."""
    rng = Random(seed)
    history = rng.choice([Placed, Wishing])(rng, POLICIES[name])
    for _ in range(25):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy, history.kept(snapshot))
        assert_same(plan, cycle(snapshot, history.policy), snapshot)
        groups = grouped(snapshot.sites)
        for one in (*plan.placements, *plan.handovers):
            task = snapshot.waiting[one.job]
            ask, wish = task.kind.ask, task.kind.wish
            assert len(set(one.grant.nodes)) == ask.nodes, "a gang starts whole"
            if ask.within is not None:
                assert in_one(snapshot, one.grant.nodes, ask.within)
            best = wish.best(ask)
            if one.job not in snapshot.promised and best is not ask and wish.patient(task.since_s, snapshot.now_s):
                assert impossible(best, groups) or in_one(snapshot, one.grant.nodes, best.within or "node")
        assert all(plan.reason(task, snapshot.now_s).text for id, task in snapshot.waiting.items() if id not in started(plan))
        if rng.random() < 0.9:
            history.act(plan)


@pytest.mark.parametrize("name", ["fifo", "sjf"])
@settings(max_examples=examples(16, 300), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_can_start_where_its_spec_permits_does(name: str, seed: int) -> None:
    """Every choice of nodes is tried for every job that was left waiting."""
    history = Wishing(Random(seed), POLICIES[name])
    for _ in range(15):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        history.act(plan)
        space, groups = occupied(history.sites, history.running), grouped(history.sites)
        for task in history.waiting.values():
            ask, wish = task.kind.ask, task.kind.wish
            if task.not_before_s > history.now_s:
                continue
            best = wish.best(ask)
            if wish.patient(task.since_s, history.now_s) and impossible(best, groups) is None:
                ask = best
            able = sorted(node for _, nodes in space.fitting(ask.each) for node in nodes)
            for nodes in combinations(able, ask.nodes):
                led = any(space.gives(space.of[node], ask.first) for node in nodes)
                assert not led or (ask.within is not None and not in_one(snapshot, nodes, ask.within)), "it could start"


@settings(max_examples=examples(16, 300), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_has_a_reservation_starts_then(seed: int) -> None:
    """If running jobs end as predicted and no job arrives, the first in order starts no later than it was told."""
    history = Wishing(Random(seed), POLICIES["easy"])
    for _ in range(15):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        history.act(plan)
        ends = {run.task.id: end_s for end_s, _, run in thought(snapshot, history.running)}
        for one in plan.reservations:
            left = {id: run for id, run in history.running.items() if ends[id] > one.at_s}
            task = history.waiting[one.job]
            later = history.here()._replace(
                now_s=max(one.at_s, history.now_s), running=left, waiting={one.job: task}
            )
            assert started(cycle(later, history.policy)) == {one.job}


@pytest.mark.parametrize("depth", [1, 3, 100])
@settings(max_examples=examples(8, 150), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_no_reservation_is_delayed_by_who_starts(depth: int, seed: int) -> None:
    assert_nobody_is_delayed(Wishing(Random(seed), POLICIES["conservative"]), depth)
