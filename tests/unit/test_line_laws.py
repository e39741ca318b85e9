"""A line gives the plans of the cycle that it stands for, whatever happens, and is left as soon as it would not."""

from random import Random
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.model.spec import Strategy
from trainmaster.scheduling import carry as carries
from trainmaster.scheduling.ask import WHOLE, Ask, Shape, ask_of
from trainmaster.scheduling.cells import Cell
from trainmaster.scheduling.cycle import Carry, cycle
from trainmaster.scheduling.line import Line, line_of
from trainmaster.scheduling.order import STILL_S
from trainmaster.scheduling.policy import POLICIES
from trainmaster.scheduling.snapshot import ARRIVED, ENDED, LEFT, STARTED, Changes, Plan, Snapshot
from trainmaster.scheduling.space import Site
from trainmaster.scheduling.task import Owner, Run, Task, kind_of
from trainmaster.scheduling.wish import Wish

seeds = st.integers(0, 2**32 - 1)


class World:
    """A cluster of nodes that are alike, and what happens in it. `odd`: how often something comes that cannot be counted."""

    def __init__(self, rng: Random, odd: float = 0.0) -> None:
        self.rng, self.odd, self.gpus, self.now_s, self.seq = rng, odd, rng.choice([0, 2]), 100.0, 0
        cell = Cell(("a", "b"), (1, 1), (), WHOLE) if self.gpus else Cell(cpus=WHOLE)
        devices = [(0, 1), (1, 0)] if self.gpus else [()]
        self.sites = tuple(Site(f"n{i}", cell, devices[i % len(devices)]) for i in range(rng.randint(1, 9)))
        self.waiting, self.running, self.changes = dict[str, Task](), dict[str, Run](), Changes()
        for _ in range(rng.randint(0, 12)):
            self.arrive()

    def ask(self) -> Ask:
        gpus = self.rng.randint(0, self.gpus)
        return ask_of(self.rng.randint(1, len(self.sites) + 1), Shape(gpus, kinds=("a",) if gpus == 1 else ()))

    def arrive(self) -> None:
        rng, ask, wish, later_s = self.rng, self.ask(), Wish(), 0.0
        if rng.random() < self.odd:
            ask, wish, later_s = rng.choice([
                (ask_of(1, Shape(cpus=WHOLE // 2)), wish, 0.0),
                (ask, Wish(strategy=Strategy.SPREAD), 0.0),
                (ask, wish, self.now_s + rng.choice([1.0, 20.0])),
            ])  # fmt: skip
        kind = kind_of(ask, Owner(member=rng.choice("xy"), priority=rng.choice([0, 0, 1])), rng.choice([None, 9.0]), "", wish)
        since_s = self.now_s - rng.choice([0.0, 0.0, 0.0, 5.0, STILL_S if rng.random() < self.odd else 0.0])
        task = Task(self.seq, f"j{self.seq}", kind, since_s, later_s, rng.choice([2.0, 5.0, 8.0, 13.0]))
        self.seq += 1
        self.waiting[task.id] = task
        self.changes = self.changes.note(ARRIVED, task.id)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.now_s, self.sites, self.waiting, self.running, changes=self.changes)

    def act(self, plan: Plan) -> None:
        for placed in plan.placements:
            if self.rng.random() < 0.05:
                continue  # it was not carried out
            self.running[placed.job] = Run(self.waiting.pop(placed.job), placed.grant, self.now_s)
            self.changes = self.changes.note(STARTED, placed.job)

    def happen(self) -> None:
        rng = self.rng
        self.now_s += rng.choice([0.0, 0.5, 1.0, 4.0])
        for _ in range(rng.randint(0, 3)):
            what = rng.random()
            if what < 0.5:
                self.arrive()
            elif what < 0.85 and self.running:
                id = rng.choice([*self.running])
                run = self.running.pop(id)
                self.changes = self.changes.note(ENDED, id)
                if rng.random() < 0.2:  # it goes back into the queue
                    self.waiting[id] = run.at(self.now_s)._replace(since_s=self.now_s, running=False)
                    self.changes = self.changes.note(ARRIVED, id)
            elif what < 0.95 and self.waiting:
                id = rng.choice([*self.waiting])
                del self.waiting[id]
                self.changes = self.changes.note(LEFT, id)
            elif rng.random() < 0.2:
                node = rng.randrange(len(self.sites))
                busy = {node for run in self.running.values() for node in run.grant.nodes}
                if node not in busy:
                    site = self.sites[node]
                    self.sites = (*self.sites[:node], replaced(site), *self.sites[node + 1 :])


def replaced(site: Site) -> Site:
    return site._replace(open=not site.open, why="" if not site.open else "drained")


def nowhere(snapshot: Snapshot, policy: object) -> None:
    """Counting is never enough."""


@pytest.mark.parametrize("policy", ["fifo", "easy"])
@settings(max_examples=examples(40, 800), deadline=None)
@given(seed=seeds, odd=st.sampled_from([0.0, 0.1]))
def test_counting_nodes_gives_the_plans_of_the_cycle(policy: str, seed: int, odd: float) -> None:
    world, carry = World(Random(seed), odd), Carry()
    for _ in range(25):
        snapshot = world.snapshot()
        plan, carry = cycle(snapshot, POLICIES[policy], carry)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(carries, "line_of", nowhere)
            whole, _ = cycle(snapshot, POLICIES[policy], Carry())
        assert plan == whole
        world.act(plan)
        world.happen()


def test_a_line_is_followed_and_left_for_one_who_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(carries, "line_of", lambda *given: made.append(line_of(*given)) or made[-1])
    world, carry = World(Random(1)), Carry()
    for _ in range(30):
        plan, carry = cycle(world.snapshot(), POLICIES["easy"], carry)
        for placed in plan.placements:
            world.running[placed.job] = Run(world.waiting.pop(placed.job), placed.grant, world.now_s)
            world.changes = world.changes.note(STARTED, placed.job)
        world.now_s += 1.0
        world.arrive()
        if world.running:
            id = min(world.running)
            del world.running[id]
            world.changes = world.changes.note(ENDED, id)
    assert len(made) == 1
    assert isinstance(made[0], Line)
    world.odd = 1.0
    world.arrive()
    _, carry = cycle(world.snapshot(), POLICIES["easy"], carry)
    _, carry = cycle(world.snapshot()._replace(now_s=world.now_s + 1.0), POLICIES["easy"], carry)
    assert made[1:] == [None], "it is asked once, and the cycle goes on by itself"
