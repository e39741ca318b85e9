"""Laws of sharing a cluster: quotas, classes, preemption victims and reservations. Random rules and histories."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_scheduling_laws import History, assert_same, occupied, seeds, started

from trainmaster.model.cluster import Cluster, Pool, Project, Quota
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.standing import ordered
from trainmaster.scheduling.model.jobs import Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.policies.known import POLICIES, chosen
from trainmaster.scheduling.policies.policy import Policy


class Shared(History):
    """The same with projects, classes and quotas; victims take time to exit, and their nodes are reserved meanwhile."""

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.promised: dict[str, Grant] = {}
        self.rules = rules(rng)
        self.victims: dict[str, str] = {}

    def here(self) -> Snapshot:
        return Snapshot(
            self.now_s, self.sites, dict(self.waiting), dict(self.running), 0,
            rules=self.rules, promised=dict(self.promised),
        )  # fmt: skip

    def step(self) -> Snapshot:
        super().step()
        for id in [id for id, run in self.running.items() if run.stopping and self.rng.random() < 0.5]:
            run = self.end(id)
            task = run.at(self.now_s)._replace(since_s=self.now_s, running=False, keeps=run.shrinking)
            if run.shrinking:
                self.promised[id] = run.least
                self.queue(task._replace(shrinks=task.shrinks + 1))
            else:
                self.queue(task._replace(evictions=task.evictions + 1))
        for id in [id for id in self.promised if id not in self.waiting]:
            del self.promised[id]
        return self.here()

    def queue(self, task: Task) -> None:
        if task.kind.project == "default":
            rng = self.rng
            work = rng.choice(["training", "training", "interactive", "production", "trial"])
            project, member = rng.choice(["a", "b", "c", "aa"]), rng.choice("xy")
            owner = Owner(project, member, work, task.kind.priority, self.rules.work(work).priority)
            task = task._replace(kind=kind_of(task.kind.ask, owner))
        super().queue(task)

    def act(self, plan: Plan) -> None:
        for id in plan.broken:
            del self.promised[id]
        for handover in plan.handovers:
            self.promised[handover.job] = handover.grant
            for id in handover.victims:
                if not self.running[id].stopping:
                    run = self.end(id)
                    self.runs(run._replace(stopping=True, shrinking=id in handover.shrunk))
                    self.victims[id] = handover.job
        for placement in plan.placements:
            self.promised.pop(placement.job, None)
            self.start(placement.job, placement.grant)


def rules(rng: Random) -> Cluster:
    def quota() -> tuple[tuple[str, Quota], ...]:
        found = []
        for resource in ("a", "gpus", "cpus"):
            if rng.random() < 0.5:
                guarantee, nominal, limit = sorted(rng.choice([0, 1, 2, 4, 8]) for _ in range(3))
                found.append((resource, Quota(guarantee, nominal, limit)))
        return tuple(found)

    def project(name: str, parent: str | None = None) -> Project:
        most, each = rng.choice([None, None, 2, 4]), rng.choice([None, None, 1, 3])
        return Project(name, rng.choice([1.0, 2.0]), parent, (("x", 2.0),), quota(), most, each)

    return Cluster(projects=(project("a"), project("b"), project("aa", "a")), min_run_s=rng.choice([0.0, 3.0]))


def holds(rules: Cluster, name: str, running: Iterable[Run]) -> list[Run]:
    return [run for run in running if any(one.name == name for one in rules.line(run.task.kind.project))]


def amount(sites: tuple[Site, ...], run: Run, resource: str) -> int:
    """Told from the grant itself, not by the tally's own sums."""
    grant, total = run.grant, 0
    for index, node in enumerate(grant.nodes):
        shape = grant.shape(index)
        if resource == "cpus":
            total += shape.cpus
        elif resource == "gpus":
            total += shape.gpu_milli
        else:
            devices = grant.held(index)
            kinds = [sites[node].cell.kinds[sites[node].devices[device]] for device in devices]
            total += shape.share if shape.share and kinds == [resource] else WHOLE * kinds.count(resource)
    return total


@pytest.mark.parametrize("name", ["fair-share", "multifactor", "srtf", "least-attained", "easy"])
@settings(max_examples=examples(6, 100), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_quotas_hold_and_what_is_promised_comes(name: str, seed: int) -> None:
    rng = Random(seed)
    history = Shared(rng, POLICIES[name])
    for _ in range(40):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy, history.kept(snapshot))
        assert_same(plan, cycle(snapshot, history.policy), snapshot)
        told = [task for task in snapshot.waiting.values() if task.id not in started(plan)]
        assert all(plan.reason(task, snapshot.now_s).text for task in told)
        for handover in plan.handovers:
            assert handover.victims, "a handover has victims"
        history.act(plan)
        live = list(history.running.values())
        space = occupied(history.sites, history.running)
        assert all(space.cells.values[number].cpus >= 0 for number in space.of)
        assert all(0 <= free <= WHOLE for node in space.free for free in node), "a device was given twice"
        for project in history.rules.projects:
            mine = holds(history.rules, project.name, live)
            for resource, quota in project.quotas:
                assert sum(amount(history.sites, run, resource) for run in mine) <= quota.limit * WHOLE
            assert project.running_max is None or len(mine) <= project.running_max
            for member in "xy":
                own = [run for run in mine if (run.task.kind.project, run.task.kind.member) == (project.name, member)]
                assert project.running_per_member_max is None or len(own) <= project.running_per_member_max


@settings(max_examples=examples(20, 400), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_nobody_is_stopped_without_right_and_no_two_stop_each_other_in_turn(seed: int) -> None:
    rng = Random(seed)
    history = Shared(rng, POLICIES["fair-share"])
    made_way: dict[tuple[str, str], frozenset[str]] = {}  # who for whom, and who else ran
    for _ in range(40):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        stopped = {id for id, run in snapshot.running.items() if run.stopping}
        for handover in plan.handovers:
            kind = snapshot.waiting[handover.job].kind
            for id in handover.victims:
                run = snapshot.running[id]
                if id in stopped:
                    continue  # for another; this one gets what that one leaves
                stopped.add(id)
                assert history.rules.work(run.task.kind.work).preemptible
                assert history.now_s - run.placed_s >= history.rules.min_run_s
                assert run.task.kind.tier <= kind.tier or run.task.kind.project != kind.project, "it takes back its own, then"
                beside = frozenset(snapshot.running) - {id, handover.job}
                made_way[id, handover.job] = beside
                sliced = run.task.kind.work == kind.work == "interactive"
                higher = run.task.kind.tier < kind.tier
                assert sliced or higher or run.task.kind.project != kind.project
                if higher:  # a borrower gives back to any class: what its project holds by then may be its own again
                    assert made_way.get((handover.job, id)) != beside, "it had made way for it before, and nothing has changed"
        history.act(plan)


@settings(max_examples=examples(10, 200), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_pools_of_different_policies_are_planned_beside_each_other(seed: int) -> None:
    """The laws of capacity and quota hold for all jobs; every waiting job has a reason, also one that can never start."""
    rng = Random(seed)
    pools = (Pool("x", policy="easy"), Pool("y", policy="fair-share"), Pool("z", policy="least-attained"))
    history = Shared(rng, chosen(Cluster(pools)))
    assert history.policy.parts
    history.rules = replace(history.rules, pools=pools)
    history.sites = tuple(site._replace(pool=rng.choice(["x", "y", "z", "unnamed"])) for site in history.sites)
    for _ in range(30):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        told = [task for task in snapshot.waiting.values() if task.id not in started(plan)]
        assert all(plan.reason(task, snapshot.now_s).text for task in told)
        assert {task.id for task in ordered(snapshot, history.policy)} == set(snapshot.waiting)
        history.act(plan)
        space = occupied(history.sites, history.running)
        assert all(space.cells.values[number].cpus >= 0 for number in space.of)
        assert all(0 <= free <= WHOLE for node in space.free for free in node), "a device was given twice"
        for project in history.rules.projects:
            mine = holds(history.rules, project.name, history.running.values())
            assert project.running_max is None or len(mine) <= project.running_max
        for run in history.running.values():
            served = {history.sites[node].pool for node in run.grant.nodes}
            assert len(served - {"x", "unnamed"}) == 0 or len(served) == 1, "no gang spans pools of two policies"


class Alike(Shared):
    """Many jobs with few different requests; some are backing off, or have no time limit."""

    def queue(self, task: Task) -> None:
        if task.kind.project == "default":
            nodes, cpus = self.rng.choice([(1, 500), (1, 1000), (2, 500), (3, 1000)])
            estimate_s = None if self.rng.random() < 0.02 else self.rng.uniform(50.0, 70.0)
            task = task._replace(kind=kind_of(ask_of(nodes, Shape(cpus=cpus))), estimate_s=estimate_s)
        super().queue(task)


@settings(max_examples=examples(6, 100), deadline=None, phases=[Phase.generate])
@given(seed=seeds, depth=st.integers(1, 4))
def test_who_is_not_looked_at_waits_for_a_reason_too(seed: int, depth: int) -> None:
    rng = Random(seed)
    history = Alike(rng, replace(POLICIES["fair-share"], depth=lambda snapshot: depth))
    for _ in range(25):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy, history.kept(snapshot))
        assert_same(plan, cycle(snapshot, history.policy), snapshot)
        told = [task for task in snapshot.waiting.values() if task.id not in started(plan)]
        assert all(plan.reason(task, snapshot.now_s).text for task in told)
        history.act(plan)
