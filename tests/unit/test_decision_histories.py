"""All laws of decisions together, after each decision of histories of 200 events: trees of projects three deep, guarantees, lending,
classes, closed nodes, maintenance windows, racks, parts of GPUs, jobs without GPUs, gangs with roles, elastic jobs, choices, time
limits and predictions.
"""

from dataclasses import replace
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from test_choices_laws import leaving
from test_decision_laws import assert_claimed, assert_unprotected
from test_places_laws import Placed, in_one, wishing
from test_scheduling_laws import assert_same, occupied, seeds, started
from test_sharing_laws import Shared, amount, holds
from test_shrinking_laws import elastic
from test_staying_laws import at, windows

from trainmaster.model.cluster import Cluster, Pool, Project, Quota
from trainmaster.scheduling.admission.windows import need_of
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.jobs import Owner, Task, alone, kind_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Site
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.policies.policy import Policy

EVENTS = 200  # of a history
TREE = {"top": None, "mid": "top", "leaf": "mid", "twin": "mid", "b": None}
OWNED = [*TREE, "free"]  # and one of which the rules say nothing


class Deep(Shared):
    """Projects three deep, on nodes in racks that are closed and opened again, by hand and for maintenance."""

    somewhere = Placed.somewhere

    def __init__(self, rng: Random, policy: Policy, closes: bool) -> None:
        super().__init__(rng, policy)
        self.rules, self.closes, self.events = deep(rng), closes, 0
        self.racks, self.leaves = rng.random() < 0.5, rng.random() < 0.5
        if self.racks:
            self.sites = tuple(map(self.somewhere, self.sites))  # type: ignore[arg-type]
        if self.leaves:
            pools = Pool("p", ("n0", "n2", "n4"), windows=windows(rng)), Pool("q", ("*",), windows=windows(rng))
            self.rules = replace(self.rules, pools=pools)

    def here(self) -> Snapshot:
        sites = at(self.sites, self.rules, self.now_s) if self.leaves else self.sites
        if sites != self.sites:
            self.sites = sites
            for id in [id for id, run in self.running.items() if not run.stopping and self.rng.random() < 0.5]:
                self.end(id)
        return super().here()

    def step(self) -> Snapshot:
        before = self.seq + len(self.running) + len(self.waiting)
        if self.closes and self.rng.random() < 0.15:
            at = self.rng.randrange(len(self.sites))
            site = self.sites[at]
            self.sites = (*self.sites[:at], site._replace(open=not site.open, why="drained"), *self.sites[at + 1 :])
            self.events += 1
        seen = super().step()
        self.events += abs(self.seq + len(self.running) + len(self.waiting) - before)
        return seen

    def queue(self, task: Task) -> None:
        if task.kind.project == "default":
            rng, kind = self.rng, task.kind
            work = rng.choice(["training", "training", "interactive", "evaluation", "production", "trial"])
            owner = Owner(rng.choice(OWNED), rng.choice("xy"), work, kind.priority, self.rules.work(work).priority)
            change = rng.random()
            if change < 0.15:
                kind = leaving(rng, kind)
            elif change < 0.3:
                kind = elastic(rng, kind)
            task = task._replace(kind=kind_of(kind.choices or kind.ask, owner, kind.limit_s))
            if self.racks and kind.choices is None and rng.random() < 0.5:
                placed = wishing(rng, task)
                task = placed._replace(kind=kind_of(placed.kind.ask, owner, kind.limit_s, wish=placed.kind.wish))
        super().queue(task)

    def act(self, plan: Plan) -> None:
        self.events += len(plan.placements) + len(plan.handovers)
        super().act(plan)


def deep(rng: Random) -> Cluster:
    """Quotas that do not contradict each other: none is above a limit higher up, guarantees add up to no more."""

    def quota(most: float) -> Quota:
        guarantee, nominal, limit = sorted(rng.choice([0, 1, 1, 2, 4]) for _ in range(3))
        return Quota(min(guarantee, most / 2), min(nominal, most), min(limit, most))

    limits: dict[str, dict[str, float]] = {}
    projects = []
    for name, parent in TREE.items():
        quotas = []
        for resource in ("gpus", "cpus", "a"):
            above = limits[parent][resource] if parent is not None else 8.0
            own = quota(above) if rng.random() < 0.6 else None
            limits.setdefault(name, {})[resource] = above if own is None else own.limit
            if own is not None:
                quotas.append((resource, own))
        projects.append(Project(name, rng.choice([1.0, 2.0]), parent, (("x", 2.0),), tuple(quotas)))
    return Cluster(projects=tuple(projects), min_run_s=rng.choice([0.0, 3.0]))


@pytest.mark.parametrize("name", ["fair-share", "multifactor", "easy", "learned", "srtf"])
@settings(max_examples=examples(20, 1000), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_no_decision_of_a_history_breaks_a_law(name: str, seed: int) -> None:
    rng = Random(seed)
    history = Deep(rng, POLICIES[name], closes=rng.random() < 0.5)
    while history.events < EVENTS:
        seen = history.step()
        plan = cycle(seen, history.policy, history.kept(seen))
        if rng.random() < 0.1:
            assert_same(plan, cycle(seen, history.policy), seen)
        assert_placed(plan, seen)
        assert_victims(plan, seen, history.policy, needed=rng.random() < 0.3)
        if rng.random() < 0.2:
            assert_owed_start(plan, seen, history.policy)
            assert all(plan.reason(task, seen.now_s).text for id, task in seen.waiting.items() if id not in started(plan))
        history.act(plan)
        assert_held(history)


def assert_held(history: Deep) -> None:
    """No node gives more than it has, no project holds more than its limit."""
    space = occupied(history.sites, history.running)
    assert all(space.cells.values[number].cpus >= 0 for number in space.of)
    assert all(0 <= free <= WHOLE for node in space.free for free in node), "a device was given twice"
    for project in history.rules.projects:
        mine = holds(history.rules, project.name, history.running.values())
        for resource, quota in project.quotas:
            assert sum(amount(history.sites, run, resource) for run in mine) <= quota.limit * WHOLE


def assert_placed(plan: Plan, seen: Snapshot) -> None:
    """A gang starts whole, in one domain if it must, on nodes that stay until it ends."""
    grants = {one.job: one.grant for one in plan.placements} | {one.job: one.grant for one in plan.handovers}
    for id, grant in grants.items():
        task = seen.waiting[id]
        if id in seen.promised or task.kind.choices is not None:
            continue
        assert len(set(grant.nodes)) == task.kind.ask.nodes
        assert task.kind.ask.within is None or in_one(seen, grant.nodes, task.kind.ask.within)
        until_s = seen.now_s + need_of(task.kind, task.estimate_s, seen.rules).least_s
        assert all(seen.sites[node].open and seen.sites[node].cell.closes_s >= until_s for node in grant.nodes)


def assert_victims(plan: Plan, seen: Snapshot, policy: Policy, needed: bool) -> None:
    """None is protected, and somebody has a claim on each. `needed`: without none of them the job would start."""
    named = set[str]()
    for turn, handover in enumerate(plan.handovers):
        victims = [seen.running[id] for id in handover.victims if id not in {*handover.shrunk, *named}]
        named |= set(handover.victims)
        for run in (one for one in victims if not one.stopping):
            assert_unprotected(run, seen)
            if policy.shares:
                assert_claimed(run, alone(seen.waiting[handover.job].kind, handover.grant.ask), seen)
        if needed and not (turn or plan.placements or seen.promised or handover.shrunk):
            for spared in victims:
                gone = {run.task.id for run in victims} - {spared.task.id}
                left = {id: run for id, run in seen.running.items() if id not in gone}
                task = seen.waiting[handover.job]
                mine = {task.id: task._replace(kind=alone(task.kind, handover.grant.ask))}
                without = cycle(seen._replace(waiting=mine, running=left), policy)
                assert not without.placements, f"{spared.task.id} was not needed"


def assert_owed_start(plan: Plan, seen: Snapshot, policy: Policy) -> None:
    """A job whose project would hold no more than its own starts if it fits on what is free and on what may be taken back."""
    if plan.handovers or plan.reservations or seen.promised or plan.placements:
        return  # what is on its way to others, or kept for them, is not its
    for id, task in list(seen.waiting.items())[:8]:
        if task.not_before_s <= seen.now_s and not task.kind.choices:
            by_itself = cycle(seen._replace(waiting={id: task}), policy)
            assert not started(by_itself), f"{id} would start were it alone"


def test_the_owner_of_a_quota_gets_it_back_within_one_decision() -> None:
    """Three deep: what a cousin borrowed of the root's own is taken back, whatever its class."""
    own = {"top": 4, "mid": 4, "leaf": 2, "twin": 2}
    projects = tuple(Project(name, parent=TREE[name], quotas=(("gpus", Quota(nominal=own[name])),)) for name in own)
    rules = Cluster(projects=projects, min_run_s=0.0)
    history = Deep(Random(1), POLICIES["fair-share"], closes=False)
    history.rules = rules
    history.sites = tuple(replace_cpus(site) for site in history.sites[:1])

    def asks(project: str, seq: int, work: str = "training") -> Task:
        owner = Owner(project, "x", work, 0, rules.work(work).priority)
        return Task(seq, f"{project}{seq}", kind_of(ask_of(1, Shape(1, cpus=100)), owner), 0.0)

    lent = [asks("twin", at, "evaluation") for at in range(4)]
    seen = Snapshot(0.0, history.sites, {one.id: one for one in lent}, {}, rules=rules)
    history.waiting = dict(seen.waiting)
    history.act(cycle(seen, history.policy))
    assert len(history.running) == 4
    mine = {one.id: one for one in (asks("leaf", 10), asks("leaf", 11), asks("leaf", 12))}
    plan = cycle(Snapshot(10.0, history.sites, mine, dict(history.running), rules=rules), history.policy)
    assert sorted(one.job for one in plan.handovers) == ["leaf10", "leaf11"], "and no more than what is its own"


def replace_cpus(site: Site) -> Site:
    cell = site.cell._replace(kinds=("a",), whole=(4,), parts=(), cpus=8 * WHOLE)
    return site._replace(cell=cell, devices=(0,) * 4, open=True, why="")
