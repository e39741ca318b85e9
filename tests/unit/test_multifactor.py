"""The multifactor order: each factor's value, what is recorded of it, and the immediate effect of a start."""

from dataclasses import replace
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from test_scheduling_laws import arrival, seeds
from test_sharing_laws import rules

from trainmaster.model.cluster import DAY_S, URGENT, Cluster, Project, Weights
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.standing import ordered, terms
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Owner, Task, kind_of
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Site
from trainmaster.scheduling.model.usage import Account
from trainmaster.scheduling.model.words import summed
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.simulator.trace import gpu_nodes
from trainmaster.spec.cluster.summary import explain

NOW_S = 30 * DAY_S
POLICY = POLICIES["multifactor"]
RULES = Cluster()


def task(seq: int, member: str = "ann", work: str = "training", own: int = 0, waited_s: float = 100.0, gpus: int = 1) -> Task:
    tier = RULES.work(work).priority
    kind = kind_of(ask_of(1, Shape(gpus)), Owner("vision", member, work, tier + own, tier))
    return Task(seq, f"j{seq}", kind, NOW_S - waited_s)


def seen(*waiting: Task, weights: Weights = RULES.weights, sites: tuple[Site, ...] = gpu_nodes(2, 8)) -> Snapshot:
    return Snapshot(NOW_S, sites, {one.id: one for one in waiting}, {}, rules=replace(RULES, weights=weights))


def line(*waiting: Task, **weights: float) -> list[str]:
    """Those waiting, in the order that these weights alone give."""
    nothing = dict.fromkeys(("workload_class", "priority", "age", "fair_share", "size"), 0.0)
    return [one.id for one in ordered(seen(*waiting, weights=Weights(**{**nothing, **weights})), POLICY)]


def test_each_factor_orders_by_what_it_is_named_after() -> None:
    low, high = task(0, work="trial"), task(1, work="interactive")
    assert line(low, high, workload_class=1) == ["j1", "j0"]
    assert line(task(0, own=-5), task(1, own=5), priority=1) == ["j1", "j0"]
    assert line(task(0, waited_s=10), task(1, waited_s=900), age=1) == ["j1", "j0"]
    small, large = task(0, gpus=1), task(1, gpus=8)
    assert line(small, large, size=1) == ["j1", "j0"]
    assert line(large, small, size=-1) == ["j0", "j1"]
    aged = [task(0, waited_s=8 * DAY_S), task(1, waited_s=9 * DAY_S)]
    assert line(*aged, age=1, age_max_s=7 * DAY_S) == ["j1", "j0"], "both count fully: the earlier one is first"


def test_what_was_used_counts_against_a_member_and_half_at_one_share() -> None:
    capacity_s = 16 * RULES.half_life_s / 0.6931471805599453
    used = {("vision", "bob"): Account(capacity_s, NOW_S), ("vision", "eve"): Account(capacity_s / 10, NOW_S)}
    snapshot = seen(task(0, "bob"), task(1, "eve"), task(2, "ann"))._replace(usage=used)
    assert [one.id for one in ordered(snapshot, POLICY)] == ["j2", "j1", "j0"]
    shares = [terms(snapshot, POLICY, f"j{i}")["fair_share"] for i in range(3)]  # type: ignore[index]
    both = 1.1  # what the project has used, of its share; a member's own comes on top
    assert shares == pytest.approx([1000 * 2 ** -(both + 1), 1000 * 2 ** -(both + 0.1), 1000 * 2**-both])


def test_a_start_counts_at_once_so_that_no_burst_slips_in() -> None:
    burst = [task(i, "ann") for i in range(6)]
    plan = cycle(seen(*burst, task(6, "bob"), task(7, "bob"), sites=gpu_nodes(1, 4)), POLICY)
    assert sorted(one.job for one in plan.placements) == ["j0", "j1", "j6", "j7"]


def test_an_urgent_job_goes_first_even_of_the_lowest_class() -> None:
    tier = RULES.work("trial").priority + URGENT
    urgent = Task(9, "j9", kind_of(ask_of(1, Shape(1)), Owner("vision", "bob", "trial", tier, tier)), NOW_S)
    assert urgent.kind.urgent
    assert line(task(0, work="production", waited_s=6 * DAY_S), urgent, workload_class=1000) == ["j9", "j0"]


@settings(max_examples=examples(40, 400), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
@pytest.mark.parametrize("name", ["multifactor", "fair-share"])
def test_each_start_is_of_who_is_first_by_all_that_started_before(name: str, seed: int) -> None:
    """Where everything fits: the same as looking at every waiting job anew after each start."""
    rng, policy = Random(seed), POLICIES[name]
    cell = Cell(("a", "b"), (90, 90), (), 900_000, 900, (("license", 90_000),))
    sites = tuple(Site(f"n{i}", cell, (0,) * 90 + (1,) * 90, True) for i in range(4))
    laid = Cluster(tuple(rules(rng).pools), tuple(replace(one, quotas=()) for one in rules(rng).projects))
    laid = replace(laid, projects=tuple(replace(one, running_max=None, running_per_member_max=None) for one in laid.projects))
    waiting = {}
    for seq in range(rng.randint(1, 25)):
        one = arrival(rng, seq, NOW_S - rng.choice([0, 0, DAY_S, 24 * DAY_S]) * rng.random() * 1.2)
        owner = Owner(rng.choice(["a", "aa", "b", "c"]), rng.choice("xy"), "training", one.kind.priority, rng.choice([0, 0, 50]))
        waiting[one.id] = one._replace(kind=kind_of(one.kind.ask, owner), not_before_s=0.0)
    snapshot = Snapshot(NOW_S, sites, waiting, {}, rules=laid)
    plan = cycle(snapshot, policy)
    view, left, expected = policy.study(snapshot, {}), dict(waiting), []
    assert policy.sharing is not None
    while left:
        first = min(left.values(), key=lambda one: (policy.sharing.key(view, one), one.seq))
        expected.append(first.id)
        policy.sharing.charge(view, left.pop(first.id))
    assert [one.job for one in plan.placements] == expected


def test_the_terms_are_kept_with_the_plan_and_said() -> None:
    snapshot = seen(task(0, own=50, waited_s=DAY_S), task(1, gpus=9))
    plan = cycle(snapshot, POLICY)
    assert [one.job for one in plan.placements] == ["j0"]
    kept = plan.terms["j0"]
    assert kept == terms(snapshot, POLICY, "j0")
    assert summed(kept) == "1,468: class 250 + own priority 75 + age 143 + fair share 1,000"
    assert summed({"age": 0.0}) == "0"
    assert terms(snapshot, POLICIES["fair-share"], "j0") is None


def test_the_policy_says_what_each_factor_counts() -> None:
    pools = tuple(replace(pool, policy="multifactor") for pool in RULES.pools)
    order = next(one for one in explain(replace(RULES, pools=pools, weights=Weights(size=-200)), 0.0) if one.about == "order")
    assert order.sentences[0].startswith("multifactor: the sum of weighted factors")
    assert order.sentences[1] == (
        "a job's place is the sum of its class up to 1,000, its own priority up to 100, its wait up to 1,000 after 7 d, "
        "unused fair share of its project and member up to 1,000, its size up to -200"
    )


def test_use_is_of_a_project_of_the_tree() -> None:
    laid = replace(RULES, projects=(Project("lab"), Project("vision", 1.0, "lab"), Project("speech", 3.0, "lab")))
    used = {("speech", "bob"): Account(1e7, NOW_S)}
    mine = seen(task(0))._replace(rules=laid, usage=used)
    own = mine._replace(usage={("vision", "bob"): Account(1e7, NOW_S)})
    theirs, ours = (terms(one, POLICY, "j0")["fair_share"] for one in (mine, own))  # type: ignore[index]
    assert 1000 > theirs > ours
