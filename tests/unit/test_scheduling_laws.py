"""Laws of the cycle over random clusters and histories of arrivals, ends, cancellations and plans that were not executed."""

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from trainmaster.scheduling.cycle import cycle, kept
from trainmaster.scheduling.model.cells import FOREVER, Cell
from trainmaster.scheduling.model.jobs import Owner, Past, Run, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant, Site, Space
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.predictor import foresee
from trainmaster.scheduling.reservation.timeline import End, Walk, earliest
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.scheduling.state.figures import figures_of
from trainmaster.scheduling.state.order import Sharing

seeds = st.integers(0, 2**32 - 1)


def cluster(rng: Random) -> tuple[Site, ...]:
    """Up to six nodes: with GPUs of one kind, of two, or without."""
    sites = []
    for i in range(rng.randint(1, 6)):
        devices = rng.choice([(), (), (0, 0), (0,) * 4, (0, 0, 1, 1)])
        kinds = ("a", "b")[: len(set(devices))]
        whole = tuple(devices.count(kind) for kind in range(len(kinds)))
        licenses = (("license", WHOLE),) if rng.random() < 0.3 else ()
        cell = Cell(kinds, whole, (), rng.choice([1, 4]) * WHOLE, rng.choice([4, 8]), licenses)
        sites.append(Site(f"n{i}", cell, devices, rng.random() < 0.9))
    return tuple(sites)


def arrival(rng: Random, seq: int, now_s: float) -> Task:
    gpus, share = rng.choice([(0, 0), (0, 0), (1, 0), (2, 0), (0, 250), (0, 500)])
    kinds = rng.choice([(), ("a",), ("b",), ("a", "b")]) if gpus or share else ()
    licenses = (("license", 500),) if rng.random() < 0.1 else ()
    each = Shape(gpus, share, kinds, rng.choice([100, WHOLE, 2 * WHOLE]), rng.choice([0, 1, 3]), licenses)
    lead = each._replace(cpus=each.cpus + 100) if rng.random() < 0.15 else None
    ask = ask_of(rng.randint(1, 3), each, lead)
    back_off_s = now_s + rng.random() * 5 if rng.random() < 0.1 else 0.0
    estimate_s = rng.choice([None, 1.0, 5.0, 10.0, 20.0])
    owner = Owner(member=rng.choice("ab"), priority=rng.choice([0, 0, 1]))
    return Task(seq, f"j{seq}", kind_of(ask, owner, rng.choice([None, None, 20.0, 50.0])), now_s, back_off_s, estimate_s)


class History:
    """A queue that lives: what the control loop would make of the plans, most of the time."""

    def __init__(self, rng: Random, policy: Policy, pace: float = 1.0) -> None:
        self.rng, self.policy, self.sites = rng, policy, cluster(rng)
        self.waiting: dict[str, Task] = {}
        self.running: dict[str, Run] = {}
        self.now_s, self.seq = 0.0, 0
        self.state: ClusterState | None = None
        self.ended: list[Past] = []
        self.pace = pace
        self.known = False  # everybody says how long

    def step(self) -> Snapshot:
        rng = self.rng
        self.now_s += rng.random() * 5 * self.pace
        for _ in range(rng.randint(0, 3)):
            task = arrival(rng, self.seq, self.now_s)
            task = task._replace(estimate_s=task.estimate_s or 7.0) if self.known else task
            self.seq += 1
            self.queue(task)
        if rng.random() < 0.5:  # else nothing but arrivals
            for id in [id for id in self.running if rng.random() < 0.2]:
                run = self.end(id)
                task = run.at(self.now_s)
                if rng.random() < 0.9:  # else it was cancelled before it had run
                    self.ended.append(Past(task.seq, task.kind, task.attained_s, on=run.grant.ask))
            for id in [id for id in self.waiting if rng.random() < 0.05]:
                del self.waiting[id]
                if self.state is not None:
                    self.state.leave(id)
        return self.here()

    def here(self) -> Snapshot:
        return Snapshot(self.now_s, self.sites, dict(self.waiting), dict(self.running), 0, self.ended)

    def kept(self, snapshot: Snapshot) -> ClusterState | None:
        """What the loop keeps from one decision to the next."""
        self.state = kept(self.state, snapshot, self.policy)
        return self.state

    def queue(self, task: Task) -> None:
        self.waiting[task.id] = task
        if self.state is not None:
            self.state.arrive(task)

    def queue_anew(self, task: Task) -> None:
        """What a job in the queue asks for is another now."""
        self.waiting[task.id] = task
        if self.state is not None:
            self.state.leave(task.id)
            self.state.arrive(task)

    def end(self, id: str) -> Run:
        if self.state is not None:
            self.state.end(id)
        return self.running.pop(id)

    def start(self, id: str, grant: Grant) -> None:
        self.runs(Run(self.waiting.pop(id), grant, self.now_s))

    def runs(self, run: Run) -> None:
        self.running[run.task.id] = run
        if self.state is not None:
            self.state.start(run)

    def act(self, plan: Plan) -> None:
        for handover in plan.handovers:
            for id in handover.victims:
                if id in self.running:
                    run = self.end(id)
                    self.queue(run.at(self.now_s)._replace(since_s=self.now_s, running=False))
                    if id in handover.shrunk:  # it goes on with what is left to it
                        self.start(id, run.least)
            self.start(handover.job, handover.grant)
        for placement in plan.placements:
            self.start(placement.job, placement.grant)


def occupied(sites: tuple[Site, ...], running: dict[str, Run]) -> Space:
    space = Space(sites)
    for run in running.values():
        space.hold(run.grant)
    return space


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=examples(5, 100), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_the_state_is_that_of_the_moment_and_capacity_is_never_exceeded(name: str, seed: int) -> None:
    rng = Random(seed)
    pace = rng.choice([1.0, 1.0, 300_000.0])  # slow ones have waited for weeks
    history = History(rng, POLICIES[name], pace)
    for _ in range(40):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy, history.kept(snapshot))
        assert_same(plan, cycle(snapshot, history.policy), snapshot)
        told = [task for task in snapshot.waiting.values() if task.id not in started(plan)]
        assert all(plan.reason(task, snapshot.now_s).text for task in told)
        if rng.random() < 0.1:
            continue  # it was not executed: the disk was full
        history.act(plan)
        space = occupied(history.sites, history.running)
        for node, number in enumerate(space.of):
            cell = space.cells.values[number]
            assert cell.cpus >= 0
            assert cell.memory >= 0
            assert all(amount >= 0 for _, amount in cell.counted)
            assert all(0 <= free <= WHOLE for free in space.free[node]), "a device was given twice"
        for run in history.running.values():
            nodes = run.grant.nodes
            assert len(set(nodes)) == len(nodes) == run.task.kind.ask.nodes, "a gang starts whole, one member a node"
        for run in history.running.values():
            space.give(run.grant)
        assert [space.cells.values[number] for number in space.of] == [site.cell for site in history.sites]


def assert_same(plan: Plan, fresh: Plan, snapshot: Snapshot) -> None:
    """The state that is kept gives the plan of one that is made anew."""
    assert plan._replace(rest=None) == fresh._replace(rest=None)
    left = [task for task in snapshot.waiting.values() if task.id not in started(plan)]
    assert [plan.reason(task, snapshot.now_s) for task in left] == [fresh.reason(task, snapshot.now_s) for task in left]


def started(plan: Plan) -> set[str]:
    return {one.job for one in plan.placements} | {one.job for one in plan.handovers}


@settings(max_examples=examples(14, 300), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_has_a_reservation_is_not_delayed_and_who_delays_nobody_starts(seed: int) -> None:
    rng = Random(seed)
    history = History(rng, POLICIES["easy"])
    for _ in range(20):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        ahead = {one.job: one.at_s for one in plan.reservations}
        history.act(plan)
        ends = thought(snapshot, history.running)
        for id, at_s in ahead.items():
            task = history.waiting[id]
            found = earliest(Walk(occupied(history.sites, history.running), ends), task.kind.ask, history.now_s)
            assert found is not None
            assert found.at_s <= at_s, "backfilled jobs delay the one ahead"
        ((head, at_s),) = ahead.items() or ((None, 0.0),)
        for task in list(history.waiting.values()):
            if head is not None and task.id != head and task.kind.ask.lead is None and task.not_before_s <= history.now_s:
                may = could_start(snapshot, history, (task, history.waiting[head]), at_s)
                assert not may, "it could start, and would delay no job"


def thought(snapshot: Snapshot, running: dict[str, Run]) -> list[End]:
    """The ends of those that run, as they are thought of in this snapshot: as they say, or by what is known by then."""
    foresight, now_s = foresee(snapshot, {}), snapshot.now_s

    def end_s(id: str, run: Run) -> float:
        if run.end_s < FOREVER:
            return run.end_s
        return now_s + foresight.held_s(run.at(now_s) if id in snapshot.running else run.task)

    return sorted((end_s(id, run), run.task.seq, run) for id, run in running.items())


def assert_nobody_is_delayed(history: History, depth: int) -> None:
    """Looked at again in the same moment, with those that start in their places, everybody's time is the same or earlier."""
    history.policy = replace(POLICIES["conservative"], depth=lambda snapshot: depth)
    history.known = True  # what is foreseen of one changes with its start: see `thought`
    for _ in range(15):
        history.step()
        plan = cycle(history.here(), history.policy)
        history.act(plan)
        again = cycle(history.here(), history.policy)
        assert all(mixed(history, one.grant) for one in again.placements), "every job that can start has started"
        times = {one.job: one.at_s for one in again.reservations} | dict.fromkeys(started(again), history.now_s)
        for one in plan.reservations:
            kind = history.waiting[one.job].kind
            headed = one.job not in times and any(task.kind is kind and task.id != one.job for task in history.waiting.values())
            assert headed or times[one.job] <= one.at_s, "a job behind it delays it"


def mixed(history: History, grant: Grant) -> bool:
    """Whether a node had GPUs of two kinds for it: which it is given there is fixed, and may be those that are kept for one ahead.

    Once a job behind it has started on one of them, it gets the others.
    """
    return any(len(set(history.sites[node].devices)) > 1 for node in grant.nodes) and len(grant.ask.each.kinds) != 1


@pytest.mark.parametrize("depth", [2, 3, 100])
@settings(max_examples=examples(10, 200), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_no_reservation_is_delayed_by_who_starts_however_many_there_are(depth: int, seed: int) -> None:
    assert_nobody_is_delayed(History(Random(seed), POLICIES["conservative"]), depth)


def test_a_reservation_behind_another_waits_for_its_nodes_though_those_that_run_use_them_up() -> None:
    sites = tuple(Site(f"n{i}", Cell(cpus=WHOLE)) for i in range(2))
    one, two = ask_of(1, Shape()), ask_of(2, Shape())
    running = {}
    for node, estimate_s in enumerate((10.0, 20.0)):
        running[f"r{node}"] = Run(Task(node, f"r{node}", kind_of(one), 0.0, 0.0, estimate_s), Grant(one, (node,)), 0.0)
    waiting = {"a": Task(2, "a", kind_of(two), 0.0, 0.0, 10.0), "b": Task(3, "b", kind_of(one), 1.0, 0.0, 100.0)}
    plan = cycle(Snapshot(5.0, sites, waiting, running), replace(POLICIES["conservative"], depth=lambda snapshot: 2))
    assert [(one.job, one.at_s) for one in plan.reservations] == [("a", 20.0), ("b", 30.0)]


def could_start(snapshot: Snapshot, history: History, both: tuple[Task, Task], at_s: float) -> bool:
    """Whether some choice of nodes lets the one start without moving the other's start; every choice is tried."""
    task, head = both
    ask = task.kind.ask
    space = occupied(history.sites, history.running)
    able = [node for _, nodes in space.fitting(ask.each) for node in nodes]
    for nodes in combinations(sorted(able), ask.nodes):
        space = occupied(history.sites, history.running)
        run = Run(task, space.take(ask, nodes), history.now_s)
        ends = thought(snapshot, {**history.running, task.id: run})
        found = earliest(Walk(space, ends), head.kind.ask, history.now_s)
        if found is not None and found.at_s <= at_s:
            return True
    return False


@settings(max_examples=examples(14, 300), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_nobody_makes_way_who_was_not_needed_or_is_ahead(seed: int) -> None:
    rng = Random(seed)
    policy = POLICIES["srtf"]
    history = History(rng, policy)
    for _ in range(20):
        snapshot = history.step()
        plan = cycle(snapshot, policy)
        for handover in plan.handovers[:1]:  # alone: later ones also count on what the first frees
            task = snapshot.waiting[handover.job]
            key = place(snapshot, policy, task)
            for id in handover.victims:
                run = snapshot.running[id]
                assert place(snapshot, policy, run.at(snapshot.now_s)) > key, "it was ahead"
            earlier = {one.job: Run(snapshot.waiting[one.job], one.grant, snapshot.now_s) for one in plan.placements}
            for spared in handover.victims:
                gone = set(handover.victims) - {spared}
                left = {id: run for id, run in snapshot.running.items() if id not in gone}
                space = occupied(history.sites, left)
                assert space.count(task.kind.ask.each) < task.kind.ask.nodes or earlier or task.kind.ask.lead, (
                    "it was not needed"
                )
        history.act(plan)


def place(snapshot: Snapshot, policy: Policy, task: Task) -> tuple[float, ...]:
    """Of a job in the order, beside others."""
    assert not isinstance(policy.order, Sharing)
    keys = policy.order(snapshot, figures_of([task])._replace(running=task.running))
    return *(float(key[0]) for key in keys), task.seq
