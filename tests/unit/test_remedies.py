"""The law of remedies: making the changes lets a job start, and no smaller set does, of whatever changes."""

from collections.abc import Iterator
from itertools import combinations, takewhile
from math import comb
from random import Random

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scheduling_laws import History

from trainmaster.model.cluster import Cluster, Project, Quota
from trainmaster.scheduling.admission.feasible import grouped, impossible
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation import remedies
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Run, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.policies.known import POLICIES

seeds = st.integers(0, 2**32 - 1)
TRIES = 150  # every set of that many changes is tried, as long as there are so few


def lived(seed: int, policy: str) -> Snapshot:
    """A queue after some life, as a decision leaves it, and then bounds on how much of it may run."""
    rng = Random(seed)
    history = History(rng, POLICIES[policy])
    for _ in range(rng.randint(3, 12)):
        plan = cycle(history.step(), history.policy)
        history.act(plan)
    project = Project(
        "default", running_max=rng.choice([None, None, 1, 3]), quotas=rng.choice([(), (("gpus", Quota(limit=2)),)])
    )
    bounded = Cluster(projects=(project,))
    return Snapshot(history.now_s, history.sites, dict(history.waiting), dict(history.running), rules=bounded)


def starts(snapshot: Snapshot, policy: str, id: str, changes: tuple[remedies.Change, ...]) -> bool:
    after = remedies.changed(snapshot, changes)
    waiting = {**after.waiting, id: after.waiting[id]._replace(not_before_s=0.0)}
    plan = cycle(after._replace(waiting=waiting), POLICIES[policy])
    return id in {one.job for one in (*plan.placements, *plan.handovers)}


def all_changes(snapshot: Snapshot, id: str) -> list[remedies.Change]:
    """Every job that may end or leave, every closed node, the bounded project."""
    ends = [remedies.Change(remedies.ENDS, one) for one in snapshot.running]
    leaves = [remedies.Change(remedies.LEAVES, one) for one in snapshot.waiting if one != id]
    opens = [remedies.Change(remedies.OPENS, site.name) for site in snapshot.sites if not site.open]
    return [*ends, *leaves, *opens, remedies.Change(remedies.QUOTA, "default")]


def sizes(offered: int, below: int) -> Iterator[int]:
    """Those that there is time for."""
    return takewhile(lambda size: sum(comb(offered, k) for k in range(1, size + 1)) <= TRIES, range(below))


@pytest.mark.parametrize("ahead_max", [remedies.AHEAD_MAX, 1])
@pytest.mark.parametrize("policy", ["fifo", "easy", "fair-share"])
@settings(max_examples=examples(8, 150), deadline=None)
@given(seed=seeds)
def test_the_changes_let_it_start_and_no_smaller_set_does(policy: str, ahead_max: int, seed: int) -> None:
    snapshot = lived(seed, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedies, "AHEAD_MAX", ahead_max)
        patch.setattr(remedies, "TRIES_MAX", TRIES)
        found = {id: remedies.remedy(snapshot, POLICIES[policy], id) for id in snapshot.waiting}
    for id, changes in found.items():
        never = impossible(snapshot.waiting[id].kind.ask, grouped(snapshot.sites)) is not None
        assert (changes is None) == never
        if changes is not None:
            assert starts(snapshot, policy, id, changes)
            offered = changes if ahead_max == 1 else all_changes(snapshot, id)
            fewer = (some for size in sizes(len(offered), len(changes)) for some in combinations(offered, size))
            assert not any(starts(snapshot, policy, id, some) for some in fewer)


def test_one_that_holds_a_whole_rack_is_named_rather_than_two_in_another() -> None:
    """Though those two are thought to end sooner: fewer changes are what is asked for."""
    each = Shape(1, cpus=100)
    sites = tuple(Site(f"n{at}", Cell(("a100",), (1,), (), WHOLE), (0,), labels=(("rack", f"r{at // 2}"),)) for at in range(4))
    gang, one = ask_of(2, each, None, "rack"), ask_of(1, each)
    held = {"b-1": Grant(one, (0,), ((0,),)), "b-2": Grant(one, (1,), ((0,),)), "b-3": Grant(ask_of(2, each), (2, 3), ((0,), (0,)))}
    running = {
        id: Run(Task(seq, id, kind_of(grant.ask), 0.0, estimate_s=100.0 * seq), grant, 0.0)
        for seq, (id, grant) in enumerate(held.items(), 1)
    }
    seen = Snapshot(10.0, sites, {"g-1": Task(9, "g-1", kind_of(gang), 5.0)}, running)
    assert remedies.remedy(seen, POLICIES["easy"], "g-1") == (remedies.Change(remedies.ENDS, "b-3"),)
