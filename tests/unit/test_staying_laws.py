"""The laws of maintenance: what is said of one that waits is true, at every moment, and the state that is kept is that of the moment.

Windows come again every few seconds here, so that every moment at which something could change can be tried.
"""

from dataclasses import replace
from math import ceil
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_scheduling_laws import History, arrival, assert_same

from trainmaster.model.cluster import UNBOUNDED, Cluster, Pool, Project, Window
from trainmaster.scheduling.admission.forbidden import Forbidden
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation import remedies
from trainmaster.scheduling.explanation.why import why
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Choices, Owner, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Site
from trainmaster.scheduling.policies.known import POLICIES, chosen
from trainmaster.scheduling.policies.policy import Policy

seeds = st.integers(0, 2**32 - 1)
EVERY_S = 24.0
HOUR_S, DAY_S = 3600.0, 86_400.0


def windows(rng: Random) -> tuple[Window, ...]:
    found = []
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        every_s = rng.choice([EVERY_S, EVERY_S, EVERY_S / 2, 0.0])
        from_s = float(rng.randrange(int(every_s or EVERY_S))) - every_s  # what comes again has done so before anything began
        until_s = from_s + rng.choice([1.0, 3.0, 8.0])
        found.append(Window(from_s, until_s, rng.choice([("*",), ("*",), ("n0", "n1"), ("n2",)]), "", every_s))
    return tuple(found)


class Kept(History):
    """A queue on nodes that are maintained now and then."""

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.rules = Cluster((Pool("p", ("n0", "n2", "n4"), windows=windows(rng)), Pool("q", ("*",), windows=windows(rng))))
        self.bare, self.sites = self.sites, at(self.sites, self.rules, 0.0)

    def here(self) -> Snapshot:
        sites = at(self.bare, self.rules, self.now_s)
        if sites != self.sites:
            self.sites = sites
            for id in [id for id in self.running if self.rng.random() < 0.5]:
                self.end(id)
        return super().here()._replace(sites=self.sites, rules=self.rules)

    def queue(self, task: Task) -> None:
        if task.kind.project == "default":
            rng, ask = self.rng, task.kind.ask
            owner = Owner("a", rng.choice("xy"), rng.choice(["training", "training", "production"]))
            asks = Choices((ask, ask_of(1, ask.each))) if rng.random() < 0.1 else ask
            task = task._replace(kind=kind_of(asks, owner, task.kind.limit_s), since_s=self.now_s)
        super().queue(task)


def at(sites: tuple[Site, ...], rules: Cluster, now_s: float) -> tuple[Site, ...]:
    """The nodes as they are then."""
    found = []
    for site in sites:
        pool = rules.pool_of(site.name, "q")
        found.append(
            site._replace(cell=site.cell._replace(pool=pool.name, closes_s=pool.closes_s(site.name, now_s)), pool=pool.name)
        )
    return tuple(found)


def starts_alone(seen: Snapshot, policy: Policy, task: Task, now_s: float, up: bool = False) -> bool:
    """Whether it would start then on an otherwise empty cluster; `up`: on nodes that are all up."""
    sites = tuple(site._replace(open=site.open or up) for site in at(seen.sites, seen.rules, now_s))
    mine = task._replace(not_before_s=0.0)
    world = seen._replace(now_s=now_s, sites=sites, waiting={task.id: mine}, running={}, promised={})
    return [one.job for one in cycle(world, policy).placements] == [task.id]


@pytest.mark.parametrize("name", ["fifo", "easy", "fair-share", "srtf", "least-attained"])
@settings(max_examples=examples(4, 60), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_why_one_waits_is_true_and_the_state_is_that_of_the_moment(name: str, seed: int) -> None:
    rng = Random(seed)
    history, tried = Kept(rng, POLICIES[name]), set[object]()
    for _ in range(12):
        seen = history.step()
        plan = cycle(seen, history.policy, history.kept(seen))
        assert_same(plan, cycle(seen, history.policy), seen)
        began = {one.job for one in (*plan.placements, *plan.handovers)}
        for task in [task for task in seen.waiting.values() if task.id not in began and task.not_before_s <= seen.now_s]:
            told = plan.reason(task, seen.now_s)
            if (told, task.estimate_s) in tried:
                continue
            tried.add((told, task.estimate_s))
            first = ceil(seen.now_s)
            later = (float(moment) for moment in range(first, first + int(2 * EVERY_S)))
            if told.cause == "impossible":
                assert not any(starts_alone(seen, history.policy, task, moment, up=True) for moment in (seen.now_s, *later)), (
                    told
                )
            elif told.cause == "window":
                assert not starts_alone(seen, history.policy, task, seen.now_s), told
                assert any(starts_alone(seen, history.policy, task, moment, up=True) for moment in later), told
            elif told.cause == "reserved" or "other jobs hold" in told.text:
                assert starts_alone(seen, history.policy, task, seen.now_s), told
        history.act(plan)


@settings(max_examples=examples(10, 150), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_can_never_start_for_maintenance_is_known_before_it_waits(seed: int) -> None:
    rng = Random(seed)
    history = Kept(rng, POLICIES["fifo"])
    seen = history.step()
    forbidden = Forbidden(seen.rules, seen.sites)
    for seq in range(10):
        task = arrival(rng, seq, 0.0)
        task = task._replace(estimate_s=task.kind.limit_s)
        never = forbidden.why(task.kind) is not None
        moments = [seen.now_s, *(float(moment) for moment in range(100, 100 + int(EVERY_S)))]
        may = any(starts_alone(seen, history.policy, task, moment, up=True) for moment in moments)
        some = replace(seen.rules, pools=tuple(replace(pool, windows=()) for pool in seen.rules.pools))
        free = starts_alone(seen._replace(rules=some), history.policy, task, seen.now_s, up=True)
        assert may == (free and not never)


@settings(max_examples=examples(10, 150), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_making_the_changes_lets_it_start(seed: int) -> None:
    rng = Random(seed)
    history = Kept(rng, POLICIES["easy"])
    for _ in range(6):
        plan = cycle(history.step(), history.policy)
        history.act(plan)
    seen = history.here()
    for id, task in seen.waiting.items():
        found = remedies.remedy(seen, history.policy, id)
        bare = seen._replace(sites=tuple(site._replace(cell=site.cell._replace(closes_s=UNBOUNDED)) for site in seen.sites))
        assert (found is None) == (not starts_alone(bare._replace(rules=Cluster()), history.policy, task, seen.now_s, up=True))
        if found:
            after = remedies.changed(seen, found)
            waiting = {**after.waiting, id: after.waiting[id]._replace(not_before_s=0.0)}
            begun = cycle(after._replace(waiting=waiting), history.policy)
            assert id in {one.job for one in begun.placements}


def node(name: str, pool: Pool, now_s: float, cpus: int = 2) -> Site:
    return Site(name, Cell((), (), (), cpus * WHOLE, 0, (), pool.name, pool.closes_s(name, now_s)), pool=pool.name)


def decided(rules: Cluster, sites: tuple[Site, ...], *tasks: Task, now_s: float = 0.0) -> Snapshot:
    return Snapshot(now_s, sites, {task.id: task for task in tasks}, {}, rules=rules)


def asks(seq: int, limit_s: float | None, work: str = "training", nodes: int = 1) -> Task:
    kind = kind_of(ask_of(nodes, Shape(cpus=2 * WHOLE)), Owner(work=work), limit_s)
    return Task(seq, f"j-{seq}", kind, 0.0, estimate_s=limit_s)


def test_one_that_no_gap_between_windows_holds_can_never_start_and_is_told_what_to_do() -> None:
    daily = Pool("all", ("*",), windows=(Window(10_800.0, 12_600.0, every_s=DAY_S),))
    rules, sites = Cluster((daily,)), (node("n0", daily, 0.0),)
    long, loose, production = asks(1, 48 * HOUR_S), asks(2, None), asks(3, None, "production")
    seen = decided(rules, sites, long, loose, production)
    plan = cycle(seen, POLICIES["fair-share"])
    assert [one.job for one in plan.placements] == ["j-2"], "it goes on after the window from its last checkpoint"
    told = [plan.reason(task, 0.0) for task in (long, production)]
    text = "maintenance of pool all never leaves it more than 23 h 30 min: give it a time limit of 23 h 30 min or less"
    assert [(one.cause, one.text) for one in told] == [
        ("impossible", f"asks for 2 CPUs for 48 h; {text}, or none"),
        ("impossible", f"asks for 2 CPUs without a time limit; {text}"),
    ]
    assert Forbidden(rules, sites).why(long.kind) == f"it asks for 2 CPUs for 48 h; {text}, or none"
    assert Forbidden(rules, sites).why(loose.kind) is None
    alone = decided(rules, sites, long)
    assert remedies.remedy(alone, POLICIES["fair-share"], "j-1") == (remedies.Change(remedies.WINDOW, "all"),)


def test_one_that_ends_after_the_next_window_begins_waits_for_it_and_those_behind_do_not() -> None:
    once = Pool("all", ("n0",), windows=(Window(10 * HOUR_S, 14 * HOUR_S),))
    rules, sites = Cluster((once,)), (node("n0", once, 0.0),)
    long, short = asks(1, 48 * HOUR_S), asks(2, 48 * HOUR_S)._replace(estimate_s=8 * HOUR_S, attained_s=40 * HOUR_S)
    seen = decided(rules, sites, long, short)
    plan = cycle(seen, POLICIES["fair-share"])
    assert [one.job for one in plan.placements] == ["j-2"], "of the same kind, and nearly done"
    text = "waiting for 2 CPUs for 48 h: maintenance of pool all (from 1970-01-01 10:00 UTC) is in the way"
    assert (plan.reason(long, 0.0).cause, plan.reason(long, 0.0).text) == ("window", text)
    assert why(long, seen, 1, plan.reason(long, 0.0)) == f"j-1 is number 1 in the queue, {text}"
    assert Forbidden(rules, sites).why(long.kind) is None
    after = decided(rules, (node("n0", once, 14 * HOUR_S),), long, now_s=14 * HOUR_S)
    assert cycle(after, POLICIES["fair-share"]).placements


def test_where_only_a_node_that_is_away_stays_for_long_enough_that_is_said() -> None:
    daily = Pool("all", ("n0",), windows=(Window(10_800.0, 12_600.0, every_s=DAY_S),))
    calm = Pool("calm", ("n1",))
    rules, sites = Cluster((daily, calm)), (node("n0", daily, 0.0), node("n1", calm, 0.0)._replace(open=False, why="drained"))
    long = asks(1, 48 * HOUR_S)
    seen = decided(rules, sites, long)
    told = cycle(seen, POLICIES["fair-share"]).reason(long, 0.0)
    way = "n1 is drained, and maintenance of pool all never leaves it as long elsewhere"
    assert (told.cause, told.text) == ("window", f"waiting for 2 CPUs for 48 h: {way}")
    assert remedies.remedy(seen, POLICIES["fair-share"], "j-1") == (remedies.Change(remedies.OPENS, "n1"),)


def test_pools_with_orders_of_their_own_say_never_only_together() -> None:

    daily = Pool("a", ("n0",), windows=(Window(10_800.0, 12_600.0, every_s=DAY_S),), policy="fifo")
    rules = Cluster((daily, Pool("b", ("n1",))), (Project("default"),))
    sites = (node("n0", daily, 0.0), node("n1", rules.pools[1], 0.0))
    long, other = asks(2, 48 * HOUR_S), asks(1, 47 * HOUR_S)
    plan = cycle(decided(rules, sites, other, long), chosen(rules))
    assert [one.job for one in plan.placements] == ["j-1"]
    assert (plan.reason(long, 0.0).cause, plan.reason(long, 0.0).text) == (
        "busy",
        "waiting for 2 CPUs: other jobs hold what it needs",
    )
