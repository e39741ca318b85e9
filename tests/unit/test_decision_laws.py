"""Laws of every plan over random histories with projects, classes and quotas, under every policy: who may be a victim, and why."""

from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from test_scheduling_laws import seeds
from test_sharing_laws import Shared
from test_staying_laws import Kept

from trainmaster.model.cluster import UNBOUNDED, Cluster
from trainmaster.scheduling.admission.stock import asked
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.jobs import Kind, Run
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.known import LIVE, POLICIES


@pytest.mark.parametrize("name", sorted(LIVE))
@settings(max_examples=examples(6, 200), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_no_plan_names_a_victim_that_is_protected_or_that_nobody_may_claim(name: str, seed: int) -> None:
    history = Shared(Random(seed), POLICIES[name])
    for _ in range(25):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy, history.kept(snapshot))
        named = set[str]()  # of those who make way for one, others behind it may take what is left over
        for handover in plan.handovers:
            victims = [snapshot.running[id] for id in handover.victims if id not in {*handover.shrunk, *named}]
            named |= set(handover.victims)
            for run in (one for one in victims if not one.stopping):
                assert_unprotected(run, snapshot)
                if history.policy.shares:
                    assert_claimed(run, snapshot.waiting[handover.job].kind, snapshot)
        history.act(plan)


def assert_unprotected(run: Run, snapshot: Snapshot) -> None:
    rules, task = snapshot.rules, run.task
    assert rules.work(task.kind.work).preemptible
    assert snapshot.now_s - run.placed_s >= rules.min_run_s * 2.0 ** min(task.evictions, 16 if run.saved_s is None else 6)


def assert_claimed(run: Run, kind: Kind, snapshot: Snapshot) -> None:
    """By a higher class, by a job of its own whose turn it is, or by a project that takes back what is its own."""
    other, slice_s = run.task.kind, snapshot.rules.work(kind.work).slice_s
    if other.tier < kind.tier:
        return
    if slice_s is not None and other.work == kind.work and snapshot.now_s - run.placed_s >= slice_s:
        return
    assert not other.urgent
    assert owned(kind, snapshot.rules), "nothing is owed to its project"
    assert other.project not in {one.name for one in snapshot.rules.line(kind.project)}


def owned(kind: Kind, rules: Cluster) -> bool:
    quotas = (quota for project in rules.line(kind.project) for quota in project.quotas)
    return any(resource in asked(kind.ask) and quota.nominal < UNBOUNDED for resource, quota in quotas)


@settings(max_examples=examples(20, 400), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_every_reservation_is_a_start_that_is_feasible_to_its_end(seed: int) -> None:
    """Played on with those that run as long as they say, on nodes that then stay for as long as the job does."""
    rng = Random(seed)
    history = Kept(rng, POLICIES[rng.choice(["easy", "conservative", "fair-share"])])
    history.known = True
    for _ in range(15):
        seen = history.step()
        plan = cycle(seen, history.policy, history.kept(seen))
        for one in plan.reservations:
            task = seen.waiting[one.job]
            least_s = task.estimate_s or 0.0
            able = [node for node, at in enumerate(seen.sites) if at.open and at.cell.closes_s >= one.at_s + least_s]
            assert len(able) >= min(ask.nodes for ask in task.kind.asks), "maintenance would not let it start then"
        history.act(plan)
