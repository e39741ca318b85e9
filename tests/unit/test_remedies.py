"""The law of remedies: making the changes lets a job start, and no part of them does."""

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scheduling_laws import History

from trainmaster.model.cluster import Cluster, Project, Quota
from trainmaster.scheduling import remedies
from trainmaster.scheduling.cycle import Carry, cycle
from trainmaster.scheduling.explain import grouped, impossible
from trainmaster.scheduling.policy import POLICIES
from trainmaster.scheduling.snapshot import Snapshot

seeds = st.integers(0, 2**32 - 1)


def lived(seed: int, policy: str) -> Snapshot:
    """A queue after some life, as a decision leaves it, and then bounds on how much of it may run."""
    rng = Random(seed)
    history, carry = History(rng, POLICIES[policy]), Carry()
    for _ in range(rng.randint(3, 12)):
        plan, carry = cycle(history.step(), history.policy, carry)
        history.act(plan)
    project = Project(
        "default", running_max=rng.choice([None, None, 1, 3]), quotas=rng.choice([(), (("gpus", Quota(limit=2)),)])
    )
    bounded = Cluster(projects=(project,))
    return Snapshot(history.now_s, history.sites, dict(history.waiting), dict(history.running), rules=bounded)


def starts(snapshot: Snapshot, policy: str, id: str, changes: tuple[remedies.Change, ...]) -> bool:
    after = remedies.changed(snapshot, changes)
    waiting = {**after.waiting, id: after.waiting[id]._replace(not_before_s=0.0)}
    plan = cycle(replace(after, waiting=waiting), POLICIES[policy])[0]
    return id in {one.job for one in (*plan.placements, *plan.handovers)}


@pytest.mark.parametrize("ahead_max", [remedies.AHEAD_MAX, 1])
@pytest.mark.parametrize("policy", ["fifo", "easy", "fair-share"])
@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_the_changes_let_it_start_and_none_of_them_can_be_done_without(policy: str, ahead_max: int, seed: int) -> None:
    snapshot = lived(seed, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedies, "AHEAD_MAX", ahead_max)
        found = {id: remedies.remedy(snapshot, POLICIES[policy], id) for id in snapshot.waiting}
    for id, changes in found.items():
        never = impossible(snapshot.waiting[id].kind.ask, grouped(snapshot.sites)) is not None
        assert (changes is None) == never
        if changes is not None:
            assert starts(snapshot, policy, id, changes)
            parts = (part for size in range(len(changes)) for part in combinations(changes, size))
            assert not any(starts(snapshot, policy, id, part) for part in parts)
