"""Faults of decisions that random workloads showed, live and simulated: quotas and promises beside each other."""

from dataclasses import replace

import pytest
from test_choices_cases import NOW_S as CHOICES_NOW_S
from test_choices_cases import RULES, busy, decide, job, nodes_of

from trainmaster.model.cluster import Cluster, Pool, Project, Quota
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.jobs import Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.policies.known import POLICIES, chosen
from trainmaster.simulator.trace import gpu_nodes

NOW_S = 1000.0


@pytest.mark.parametrize("policy", ["fair-share", "multifactor"])
def test_nobody_is_stopped_for_one_whom_quota_bars_once_they_are_gone(policy: str) -> None:
    """The victim's project holds what is guaranteed to it. Once it is gone, that is owed again, and bars the preemptor: the
    promise is broken, the victim starts again, and is stopped again after its minimum run time, for ever.
    """
    rules = Cluster(projects=(Project("kept", quotas=(("gpus", Quota(guarantee=1, nominal=1)),)), Project("other")), min_run_s=10.0)
    low = kind_of(ask_of(1, Shape(1)), Owner("kept", "x", "training", 0, 0))
    high = kind_of(ask_of(1, Shape(1)), Owner("other", "y", "production", 3000, 3000))
    running = {"low": Run(Task(0, "low", low, 0.0), Grant(low.ask, (0,), ((0,),)), 0.0)}
    waiting = {"high": Task(1, "high", high, 0.0)}
    plan = cycle(Snapshot(NOW_S, gpu_nodes(1, 1), waiting, running, rules=rules), POLICIES[policy])
    assert plan.handovers == ()


def test_who_may_never_start_is_told_so_though_another_like_it_does_not_fit_now() -> None:
    """What was tried in vain was asked before the quota: a job of a project that may hold nothing was told that others held
    what it needs, and got a reservation.
    """
    rules = Cluster(projects=(Project("none", quotas=(("gpus", Quota(0, 0, 0)),)), Project("other")))
    ask = ask_of(1, Shape(1))
    busy = kind_of(ask, Owner("other", "x", "production", 3000, 3000))
    running = {"busy": Run(Task(0, "busy", busy, 0.0), Grant(ask, (0,), ((0,),)), 0.0)}
    first = Task(1, "first", kind_of(ask, Owner("other", "y", "training", 0, 0)), 0.0)
    barred = Task(2, "barred", kind_of(ask, Owner("none", "z", "trial", -1000, -1000)), 1.0)
    snapshot = Snapshot(NOW_S, gpu_nodes(1, 1), {"first": first, "barred": barred}, running, rules=rules)
    plan = cycle(snapshot, POLICIES["fair-share"])
    assert plan.reason(barred, NOW_S).text == "asks for 1 GPU; project none may hold 0 GPUs"
    assert [one.job for one in plan.reservations] == ["first"]


def test_a_guarantee_counts_once_where_pools_have_policies_of_their_own() -> None:
    """Each policy sees its own nodes alone, and takes the whole guarantee out of them: of four GPUs one is guaranteed, and a job
    of two that fits only in the first pool is told that `of 2 GPUs here 1 GPU are guaranteed`. With one policy it starts.
    """
    pools = (Pool("first", ("n0",), policy="easy"), Pool("rest", ("*",), policy="fair-share"))
    rules = Cluster(pools, (Project("kept", quotas=(("gpus", Quota(guarantee=1, nominal=1)),)), Project("other")))
    sites = tuple(site._replace(pool=pool, cell=site.cell._replace(pool=pool)) for site, pool in zip(gpu_nodes(2, 2), ("first", "rest"), strict=True))
    waits = Task(0, "waits", kind_of(ask_of(1, Shape(2, pool="first")), Owner("other", "x")), 0.0)
    plan = cycle(Snapshot(NOW_S, sites, {"waits": waits}, {}, rules=rules), chosen(rules))
    assert [one.job for one in plan.placements] == ["waits"]


@pytest.mark.parametrize("policies", [("fair-share", "fair-share"), ("fair-share", "conservative")])
def test_what_is_promised_counts_in_every_pool(policies: tuple[str, str]) -> None:
    """Two make way for one whose project may run one job. The first that is gone starts again in the other pool, which does not
    see the promise: that is broken then, and both made way in vain. With one policy for both pools it waits.
    """
    pools = (Pool("first", ("n0",), policy=policies[0]), Pool("rest", ("*",), policy=policies[1]))
    rules = Cluster(pools, (Project("p", running_max=1),), min_run_s=0.0)
    sites = tuple(site._replace(pool=pool, cell=site.cell._replace(pool=pool)) for site, pool in zip(gpu_nodes(2, 1), ("first", "rest"), strict=True))
    ask = ask_of(1, Shape(1))
    other = kind_of(ask, Owner("q", "x", "training", 0, 0))
    low, high = kind_of(ask, Owner("p", "x", "training", 0, 0)), kind_of(ask, Owner("p", "x", "production", 3000, 3000))
    leaves = Run(Task(0, "leaves", other, 0.0), Grant(ask, (0,), ((0,),)), 0.0, stopping=True)
    waiting = {"gone": Task(1, "gone", low, NOW_S), "high": Task(2, "high", high, 0.0)}
    promised = {"high": Grant(ask, (0,), ((0,),))}
    snapshot = Snapshot(NOW_S, sites, waiting, {"leaves": leaves}, rules=rules, promised=promised)
    assert cycle(snapshot, chosen(rules)).placements == ()


def test_a_cheapest_choice_that_a_quota_rules_out_is_not_waited_for() -> None:
    """It waited, and the reason was `number 1 in the queue, asks for 8 GPUs`."""
    rules = replace(RULES, projects=(Project("vision", quotas=(("a100", Quota(limit=0)),)),))
    assert nodes_of(decide([job(1, by_cost=True, prefer_s=600.0)], [], rules)) == {"j1": "f"}
    plan = decide([job(1, by_cost=True, prefer_s=600.0)], [busy(0)], rules)
    assert plan.reason(job(1), CHOICES_NOW_S).text == (
        "waiting for 8 h100 GPUs, 1 CPU: other jobs hold what it needs; after 10 min in the queue it takes any of its choices"
    )
