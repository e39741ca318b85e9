"""Laws of shrinking: only needed nodes are given back, and a shrunk job continues at once. Random elastic jobs."""

from dataclasses import replace
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, example, given, settings
from test_choices_laws import POOLS, Leaving, fits
from test_scheduling_laws import History, assert_same, occupied, seeds
from test_sharing_laws import Shared

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Choices, Kind, Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Plan
from trainmaster.scheduling.model.space import Grant, Site, Space
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.policies.policy import Policy


def row(rng: Random) -> tuple[Site, ...]:
    """Nodes of which nothing is closed, some with GPUs."""
    gpus = [rng.choice([0, 2]) for _ in range(rng.randint(3, 8))]
    return tuple(Site(f"n{i}", Cell(("a",) * bool(n), (n,) * bool(n), (), 4 * WHOLE), (0,) * n) for i, n in enumerate(gpus))


def elastic(rng: Random, kind: Kind) -> Kind:
    """The same for one or two nodes, or parts of them; of most as many as eight if they are to be had, of others no more."""
    each = Shape(rng.choice([0, 0, 1, 2]), cpus=rng.choice([1, 2, 4]) * WHOLE)
    lead = each._replace(cpus=4 * WHOLE) if rng.random() < 0.2 else None
    ask = ask_of(rng.randint(1, 2), each, lead)
    owner = Owner(kind.project, kind.member, kind.work, kind.priority, kind.tier)
    return kind_of(rng.choice([ask, Choices((ask,), most=4), Choices((ask,), most=8)]), owner, kind.limit_s)


class Wide(Leaving):
    """A quiet cluster of elastic jobs: few jobs wait, so they grow; a handover takes effect at once."""

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.sites, self.rules = row(rng), Cluster(POOLS, min_run_s=rng.choice([0.0, 3.0]))

    def queue(self, task: Task) -> None:
        if task.attained_s == 0 and self.rng.random() < 0.3:
            return  # few arrive
        History.queue(self, task._replace(kind=elastic(self.rng, task.kind)) if task.attained_s == 0 else task)


class SharedWide(Shared):
    """The same with projects and classes; giving back takes time."""

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.sites = row(rng)
        self.turns: set[tuple[str, str]] = set()  # (victim, preemptor) of handovers since which the victim was not disturbed

    def queue(self, task: Task) -> None:
        fresh = task.kind.project == "default"
        if fresh and self.rng.random() < 0.3:
            return
        super().queue(task)
        if fresh:
            queued = self.waiting[task.id]
            self.queue_anew(queued._replace(kind=elastic(self.rng, queued.kind)))

    def act(self, plan: Plan) -> None:
        for handover in plan.handovers:
            for id in handover.victims:
                if id in handover.shrunk:
                    self.turns.add((id, handover.job))
                else:
                    self.turns = {pair for pair in self.turns if id not in pair}
        super().act(plan)


def room(history: Wide, plan: Plan, gone: dict[str, Run]) -> Space:
    """What is free besides all that starts at once, when those have given back what they do."""
    space = occupied(history.sites, history.running)
    for one in plan.placements:
        space.hold(one.grant)
    for run in gone.values():
        space.give(run.freed)
    return space


@pytest.mark.parametrize("name", ["fifo", "easy", "fair-share", "srtf", "least-attained"])
@settings(max_examples=examples(8, 150), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_nobody_gives_back_in_vain_and_nobody_is_preempted_where_that_was_enough(name: str, seed: int) -> None:
    rng = Random(seed)
    policy = replace(POLICIES[name], depth=lambda snapshot: 0)
    history = Wide(rng, policy)
    for _ in range(25):
        snapshot = history.step()
        plan = cycle(snapshot, policy, history.kept(snapshot))
        assert_same(plan, cycle(snapshot, policy), snapshot)
        for one in plan.handovers[:1]:  # alone: later ones also count on what the first frees
            ask = snapshot.waiting[one.job].kind.ask
            assert len(one.grant.nodes) == ask.nodes, "no job gives back nodes for another's growth"
            gone = {id: history.running[id]._replace(shrinking=id in one.shrunk) for id in one.victims}
            assert fits(room(history, plan, gone), ask)
            for id in one.shrunk:
                assert history.running[id].surplus > 0
                others = {other: run for other, run in gone.items() if other != id}
                assert not fits(room(history, plan, others), ask), "it could have done without"
            if set(one.victims) != set(one.shrunk):
                wide = {id: run._replace(shrinking=True) for id, run in history.running.items() if may_shrink(history, run)}
                assert not fits(room(history, plan, wide), ask), "no preemption was needed"
        history.act(plan)
        space = occupied(history.sites, history.running)
        assert all(space.cells.values[number].cpus >= 0 for number in space.of)
        assert all(0 <= free <= WHOLE for node in space.free for free in node), "a device was given twice"


def may_shrink(history: Wide, run: Run) -> bool:
    ran_s = history.now_s - run.placed_s
    return run.surplus > 0 and not run.stopping and 0 < ran_s >= history.rules.min_run_s * 2**run.task.shrinks


@pytest.mark.parametrize("name", ["fifo", "fair-share", "multifactor", "least-attained"])
@settings(max_examples=examples(8, 150), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_could_start_were_more_than_the_least_given_back_does(name: str, seed: int) -> None:
    """Also under a policy without preemption; for the first waiting job, without any reservation."""
    rng = Random(seed)
    policy = replace(POLICIES[name], depth=lambda snapshot: 0)
    history = Wide(rng, policy)
    for _ in range(25):
        snapshot = history.step()
        plan = cycle(snapshot, policy)
        history.act(plan)
        for task in history.waiting.values():
            if task.not_before_s <= history.now_s:
                wide = {id: run._replace(shrinking=True) for id, run in history.running.items() if may_shrink(history, run)}
                assert not fits(room(history, Plan(), wide), task.kind.ask), "it has a right to that"


@pytest.mark.parametrize("name", ["fifo", "easy", "conservative", "fair-share", "srtf"])
@settings(max_examples=examples(10, 200), deadline=None, phases=[Phase.explicit, Phase.generate])
@example(seed=1075428)  # one that was promised another's nodes found free what a third had kept for itself
@given(seed=seeds)
def test_who_gives_back_goes_on_at_once_and_two_never_do_so_in_turn(name: str, seed: int) -> None:
    history = SharedWide(Random(seed), POLICIES[name])
    for _ in range(30):
        before = {id: run for id, run in history.running.items() if run.shrinking}
        snapshot = history.step()
        back = {id: run for id, run in before.items() if id in snapshot.waiting}
        plan = cycle(snapshot, history.policy, history.kept(snapshot))
        assert_same(plan, cycle(snapshot, history.policy), snapshot)
        starts: dict[str, Grant] = {one.job: one.grant for one in plan.placements}
        for id, run in back.items():
            assert starts[id].nodes[: len(run.least.nodes)] == run.least.nodes, "it goes on where it was"
            assert starts[id].devices[: len(run.least.devices)] == run.least.devices
        told = {id for id, run in snapshot.running.items() if run.stopping}
        for one in plan.handovers:
            for id in set(one.shrunk) - told:  # else this is of what the first could not use
                told.add(id)
                other, own = snapshot.running[id], snapshot.waiting[one.job]
                assert other.task.kind.tier <= own.kind.tier, "a lower class takes nothing from a higher one"
                assert (one.job, id) not in history.turns, "they take from each other in turn"
                undisturbed_s = history.rules.min_run_s * 2 ** min(other.task.shrinks, 6)
                assert snapshot.now_s - other.placed_s >= undisturbed_s, "it has hardly run"
        history.act(plan)
        space = occupied(history.sites, history.running)
        assert all(space.cells.values[number].cpus >= 0 for number in space.of)
        assert all(0 <= free <= WHOLE for node in space.free for free in node), "a device was given twice"
