"""Laws of forecasts: playing the queue forward, drawing run times, and calibrating by the actual waits."""

from dataclasses import replace
from math import inf
from random import Random

import pytest
from counted_nodes import Counted
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.lifecycle.machine import apply
from trainmaster.model import events as ev
from trainmaster.model.cluster import WAIT_MAX_S, Cluster
from trainmaster.model.job import State
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation import forward
from trainmaster.scheduling.explanation.forecast import Calibration, Waits, forecasts
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Owner, Past, Run, Task, kind_of, owner_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.prediction.lifetimes import Lifetimes
from trainmaster.server.jobs.forecasting import History, calibrated, waits_view
from trainmaster.testing.builders import job as some_job

seeds = st.integers(0, 2**32 - 1)


def whole_nodes(rng: Random, gpus: int, estimates: tuple[float | None, ...] = (2.0, 5.0, 8.0, 13.0)) -> Snapshot:
    """A queue for whole nodes in a cluster where some run already."""
    cell = Cell(("a",), (gpus,), (), WHOLE) if gpus else Cell(cpus=WHOLE)
    sites = tuple(Site(f"n{i}", cell, (0,) * gpus) for i in range(rng.randint(1, 8)))
    asks = [ask_of(nodes, Shape(gpus=gpus)) for nodes in range(1, len(sites) + 2)]
    free, running, waiting = list(range(len(sites))), dict[str, Run](), dict[str, Task]()
    for seq in range(rng.randint(0, 14)):
        ask = rng.choice(asks)
        wait_max_s = rng.choice([WAIT_MAX_S, 12.0])  # some wait for too long while the queue is played
        owner = Owner(member=rng.choice("xy"), priority=rng.choice([0, 0, 0, 1]), wait_max_s=wait_max_s)
        kind = kind_of(ask, owner, rng.choice([None, 20.0]))
        task = Task(seq, f"j{seq}", kind, rng.random() * 10, 0.0, rng.choice(estimates))
        if ask.nodes <= len(free) and rng.random() < 0.5:
            nodes, free = tuple(free[: ask.nodes]), free[ask.nodes :]
            devices = (tuple(range(gpus)),) * ask.nodes if gpus else ()
            running[task.id] = Run(task, Grant(ask, nodes, devices), rng.random() * 10)
        else:
            waiting[task.id] = task
    return Snapshot(10.0, sites, waiting, running)


@pytest.mark.parametrize("policy", ["fifo", "easy"])
@settings(max_examples=examples(150, 1000), deadline=None)
@given(seed=seeds, gpus=st.sampled_from([0, 2]))
def test_counting_nodes_gives_the_starts_of_the_cycle(policy: str, seed: int, gpus: int) -> None:
    rng = Random(seed)
    snapshot = whole_nodes(rng, gpus, (2.0, 5.0, 8.0, 13.0) if policy == "easy" else (None, 2.0, 5.0))
    lives = {id: rng.choice([1.0, 2.0, 3.5, rng.random() * 9]) for id in (*snapshot.waiting, *snapshot.running)}
    told = Counted(snapshot, POLICIES[policy]).starts(lives, snapshot.waiting)
    assert told == forward.starts(snapshot, POLICIES[policy], lives, snapshot.waiting)
    now = {placed.job for placed in cycle(snapshot, POLICIES[policy]).placements}
    assert {id for id, at_s in told.items() if at_s == snapshot.now_s} >= now


def past(seq: int, ran_s: float, limit_s: float | None = 100.0, **owner: str) -> Past:
    return Past(seq, kind_of(ask_of(1, Shape()), Owner(**owner), limit_s, owner.get("command", "")), ran_s)


@given(seed=seeds, age_s=st.floats(0, 200), limit_s=st.sampled_from([None, 100.0]))
def test_what_is_drawn_is_longer_than_it_ran_and_within_its_limit(seed: int, age_s: float, limit_s: float | None) -> None:
    rng = Random(seed)
    lifetimes = Lifetimes(past(seq, rng.random() * 100, limit_s, member=rng.choice("ab")) for seq in range(rng.randint(0, 9)))
    drawn = lifetimes.draw(kind_of(ask_of(1, Shape()), Owner(member="a"), limit_s), age_s, rng, 20)
    assert all(left_s > 0 for left_s in drawn)
    if limit_s is not None:
        assert all(age_s + left_s <= max(limit_s, age_s + 1.0) + 1e-9 for left_s in drawn)


def test_the_like_of_a_job_count_before_others() -> None:
    mine = [past(seq, 10.0, member="a") for seq in range(30)]
    others = [past(seq, 90.0, member="b") for seq in range(30, 60)]
    drawn = Lifetimes([*mine, *others]).draw(mine[0].kind, 0.0, Random(0), 200)
    assert drawn.count(10.0) > 180
    older = Lifetimes([*mine, *others]).draw(mine[0].kind, 50.0, Random(0), 20)
    assert older == [40.0] * 20, "it has outlived its like: it will be as with the others"


def test_one_that_outlives_all_by_a_moment_is_not_thought_to_run_for_ages() -> None:
    over = [past(seq, 1.5, None) for seq in range(19)]
    lifetimes = Lifetimes(over)
    assert lifetimes.draw(over[0].kind, 1.4, Random(0), 50) == [1.0] * 50, "no less than a second"
    drawn = sorted(lifetimes.draw(over[0].kind, 1.6, Random(0), 200))
    assert drawn[100] <= 2.5, "as long again"
    unknown = sorted(Lifetimes().draw(past(0, 1.0, None).kind, 1.6, Random(0), 200))
    assert unknown[100] > 60.0, "of which nothing is known"


@given(seed=seeds, truth=st.sampled_from([0.3, 1.0, 4.0]))
@settings(max_examples=examples(20, 200), deadline=None)
def test_bounds_come_to_hold_as_often_as_they_say(seed: int, truth: float) -> None:
    """Whatever the draws are off by."""
    rng, calibration, held, half = Random(seed), Calibration(), 0, 0
    for outcome in range(4000):
        middle_s = rng.choice([1_000.0, 20_000.0])
        drawn = Waits(*(middle_s * factor for factor in (0.8, 0.9, 1.0, 1.1, 1.2)))
        waited_s = truth * middle_s * rng.lognormvariate(0.0, 0.7)
        said = calibration.corrected(drawn)
        assert list(said) == sorted(said)
        if outcome >= 2000:
            held += said.low90_s <= waited_s <= said.high90_s
            half += said.low50_s <= waited_s <= said.high50_s
        calibration = calibration.after(drawn, waited_s)
    assert 0.86 <= held / 2000 <= 0.94
    assert 0.43 <= half / 2000 <= 0.57


def test_the_same_snapshot_and_seed_give_the_same_forecast() -> None:
    snapshot = whole_nodes(Random(3), 2)
    told = [forecasts(snapshot, POLICIES["easy"], Lifetimes(), snapshot.waiting, Random("j1")) for _ in range(2)]
    assert told[0] == told[1]
    larger = {id for id, task in snapshot.waiting.items() if task.kind.ask.nodes > len(snapshot.sites)}
    assert set(snapshot.waiting) - set(told[0]) == larger, "a job that never starts has no forecast"


def test_a_queue_in_line_for_one_node_is_told_in_its_order() -> None:
    """Each runs 100 s to its limit, the first for 40 s now."""
    kind = kind_of(ask_of(1, Shape()), limit_s=100.0)
    waiting = {f"j{seq}": Task(seq, f"j{seq}", kind, float(seq), 0.0, 100.0) for seq in (1, 2, 3)}
    first = Run(Task(0, "j0", kind, 0.0, 0.0, 100.0), Grant(kind.ask, (0,)), 0.0)
    snapshot = Snapshot(40.0, (Site("n", Cell(cpus=WHOLE)),), waiting, {"j0": first})
    told = forecasts(snapshot, POLICIES["fifo"], Lifetimes(), waiting, Random(0))
    assert told == {"j1": Waits(*[60.0] * 5), "j2": Waits(*[160.0] * 5), "j3": Waits(*[260.0] * 5)}


def test_what_is_on_record_of_jobs_corrects_what_is_said_of_others() -> None:
    """All waited four times as long as was drawn of them."""
    event, told = ev.Foreseen(100.0, (10_000.0,) * 5), []
    for seq in range(200):
        job, _ = apply(some_job(seq=seq), "train-1", event, 101.0)
        told.append(replace(job, state=State.SUCCEEDED, started_s=40_100.0 + seq))
    silent = [replace(job, forecast=None) for job in told]
    unstarted = [replace(job, started_s=None) for job in told]
    assert calibrated([*silent, *unstarted]) == Calibration()
    calibration = calibrated([*told, *silent])
    assert calibration.outcomes == 200
    said = calibration.corrected(Waits(*(10_000.0,) * 5))
    assert 15_000.0 < said.p50_s < said.high90_s


@pytest.mark.parametrize(("ended", "few"), [(0, True), (9, True), (10, False)])
def test_an_estimate_says_whether_it_is_from_few_jobs(ended: int, few: bool) -> None:
    known = History(Lifetimes(past(seq, 60.0) for seq in range(ended)), Calibration())
    assert waits_view(Waits(0.0, 1.0, 2.0, 3.0, inf), known) == {
        "low90": 0.0, "low50": 1.0, "p50": 2.0, "high50": 3.0, "high90": None, "jobs": ended, "few": few,
    }  # fmt: skip
    assert waits_view(None, known) is None


def test_a_victim_of_a_forecast_is_protected_for_longer_and_stopped_when_it_no_longer_is() -> None:
    """The second short job was said to start when the long one ends: in a day, in place of ten minutes."""
    rules = Cluster()
    site = Site("n0", Cell(("a",), (1,), (), WHOLE), (0,))
    asked = ask_of(1, Shape(gpus=1))
    long = Task(0, "long", kind_of(asked, owner_of(rules, ("p", "x", "training"), 0)), 0.0)
    short = kind_of(asked, owner_of(rules, ("p", "x", "interactive"), 0))
    waiting = {id: Task(seq, id, short, 9_000.0, not_before_s) for seq, id, not_before_s in ((1, "s1", 0.0), (2, "s2", 10_100.0))}
    snapshot = Snapshot(10_000.0, (site,), waiting, {"long": Run(long, Grant(asked, (0,), ((0,),)), 0.0)}, rules=rules)
    told = forward.starts(snapshot, POLICIES["fair-share"], {"long": 90_000.0, "s1": 10.0, "s2": 10.0}, ["s1", "s2"])
    assert told == {"s1": 10_000.0, "s2": 10_010.0 + 2 * rules.min_run_s}
