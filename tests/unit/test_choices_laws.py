"""Laws of choices: the taken one fits and is allowed, better ones first; waiting for one must pay off. Random choices."""

from dataclasses import replace
from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from test_scheduling_laws import History, assert_nobody_is_delayed, assert_same, occupied, seeds, started
from test_sharing_laws import Shared, amount, holds

from trainmaster.model.cluster import Cluster, Pool
from trainmaster.scheduling.admission.feasible import grouped
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.jobs import Choices, Kind, Owner, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape, Wish, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant, Site, Space
from trainmaster.scheduling.placement.choices import Market, Way
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction import speeds
from trainmaster.scheduling.prediction.predictor import foresee

POOLS = (Pool("x", price=2.0, speed=2.0), Pool("y", price=1.5, speed=1.0), Pool("default", price=0.5, speed=0.4))


def leaving(rng: Random, kind: Kind, plain: bool = False) -> Kind:
    """The same with one to three choices, of different kinds and numbers of GPUs."""
    first, asks = kind.ask, list[Ask]()
    for _ in range(rng.randint(1, 3)):
        gpus, share = rng.choice([(1, 0), (2, 0), (4, 0), (0, 500)])
        each = Shape(gpus, share, (rng.choice("ab"),), first.each.cpus, first.each.memory, first.each.counted)
        lead = None if plain or first.lead is None else each._replace(cpus=each.cpus + 100)
        asks.append(ask_of(first.nodes, each, lead, None))
    speeds = (("a", rng.choice([0.5, 3.0])),) if rng.random() < 0.3 else ()
    most = rng.choice([0, 0, first.nodes + 1, first.nodes + 3])
    choices = Choices(tuple(dict.fromkeys(asks)), rng.random() < 0.4, speeds, most)
    wish = Wish(
        prefer=rng.choice([None, None, "host"]) if not plain else None, prefer_s=rng.choice([0.0, 0.0, 5.0, 30.0])
    )
    owner = Owner(kind.project, kind.member, kind.work, kind.priority, kind.tier)
    return kind_of(choices, owner, kind.limit_s, "" if plain else "train.py", wish)


def pooled(rng: Random, sites: tuple[Site, ...]) -> tuple[Site, ...]:
    found = []
    for site in sites:
        pool = rng.choice(["x", "y", "default"])
        found.append(site._replace(pool=pool, cell=site.cell._replace(pool=pool), host=rng.choice("hi")))
    return tuple(found)


class Leaving(History):
    """A cluster of pools of different speeds and prices, and jobs of which most leave a choice."""

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.sites, self.rules = pooled(rng, self.sites), Cluster(POOLS)

    def here(self) -> Snapshot:
        return super().here()._replace(rules=self.rules)

    def queue(self, task: Task) -> None:
        if task.attained_s == 0 and self.rng.random() < 0.8:
            alike = [one.kind for one in self.waiting.values()] if self.rng.random() < 0.4 else []
            kind = self.rng.choice(alike) if alike else leaving(self.rng, task.kind, plain=True)
            task = task._replace(kind=kind)
        super().queue(task)


class SharedLeaving(Shared):
    """The same with projects, quotas, classes, levels that are preferred, and jobs that make way."""

    def __init__(self, rng: Random, policy: Policy) -> None:
        super().__init__(rng, policy)
        self.sites = pooled(rng, self.sites)
        self.rules = replace(self.rules, pools=POOLS)

    def queue(self, task: Task) -> None:
        fresh = task.kind.project == "default"
        super().queue(task)
        if fresh and self.rng.random() < 0.8:
            queued = self.waiting[task.id]
            self.queue_anew(queued._replace(kind=leaving(self.rng, queued.kind)))


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=examples(3, 60), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_whatever_is_chosen_fits_and_is_allowed_whatever_is_remembered(name: str, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speeds, "LEAST", 1)
        patch.setattr(speeds, "SPREAD", 9.0)  # whatever has run says how fast it is
        lives(name, seed)


def lives(name: str, seed: int) -> None:
    rng = Random(seed)
    history = rng.choice([Leaving, SharedLeaving])(rng, POLICIES[name])
    for _ in range(30):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy, history.kept(snapshot))
        assert_same(plan, cycle(snapshot, history.policy), snapshot)
        told = [task for task in snapshot.waiting.values() if task.id not in started(plan)]
        assert all(plan.reason(task, snapshot.now_s).text for task in told)
        for one in (*plan.placements, *plan.handovers):
            kind = snapshot.waiting[one.job].kind
            ask = kind.asks[kind.choice_of(one.grant.ask)]
            most = kind.choices.most if kind.choices is not None else 0
            assert shape(one.grant.ask) == shape(ask), "it is one of its choices"
            assert one.grant.ask.nodes == len(one.grant.nodes)
            assert ask.nodes <= len(set(one.grant.nodes)) == len(one.grant.nodes) <= max(most, ask.nodes), "a gang starts whole"
            if len(one.grant.nodes) > ask.nodes:
                claims = {plan.reason(one, snapshot.now_s).cause for one in told}
                assert claims <= {"quota", "impossible"}, "a job that could have had it waits"
        if rng.random() < 0.1:
            continue  # it was not executed: the disk was full
        history.act(plan)
        space, live = occupied(history.sites, history.running), list(history.running.values())
        assert all(space.cells.values[number].cpus >= 0 for number in space.of)
        assert all(0 <= free <= WHOLE for node in space.free for free in node), "a device was given twice"
        for project in history.rules.projects:
            mine = holds(history.rules, project.name, live)
            for resource, quota in project.quotas:
                assert sum(amount(history.sites, run, resource) for run in mine) <= quota.limit * WHOLE
            assert project.running_max is None or len(mine) <= project.running_max


def shape(ask: Ask) -> tuple[object, ...]:
    """All of it but the number of nodes."""
    return ask.each, ask.lead, ask.within


def fits(space: Space, ask: Ask) -> bool:
    return space.count(ask.each) >= ask.nodes and space.count(ask.first) > 0


def ways_of(history: Leaving, task: Task) -> tuple[Way, ...]:
    return Market(history.rules, grouped(history.sites)).ways(task.kind)


@pytest.mark.parametrize("name", ["fifo", "sjf", "fragmentation"])
@settings(max_examples=examples(14, 300), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_of_those_that_fit_now_the_better_choice_is_taken_and_who_can_start_does(name: str, seed: int) -> None:
    """Worth is told here from the pools themselves: time, or price times time. With patience nothing but the best is taken."""
    rng = Random(seed)
    history = Leaving(rng, POLICIES[name])
    for _ in range(15):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        space = occupied(history.sites, history.running)
        for one in plan.placements:
            task = snapshot.waiting[one.job]
            if task.kind.choices is not None:
                picky = task.kind.choices.by_cost and snapshot.now_s < task.since_s + task.kind.wish.prefer_s
                assert not picky or before(task, one.grant.ask) is ways_of(history, task)[0].kind.ask, "it has patience"
                mine = worth(history, task, before(task, one.grant.ask))
                for other in task.kind.asks:
                    assert not fits(space, other) or worth(history, task, other) >= mine, "a better one fits now"
            space.hold(base(task, one.grant))  # jobs grow after all others have been tried
        history.act(plan)
        space = occupied(history.sites, history.running)
        for task in history.waiting.values():
            choices = task.kind.choices
            if choices is not None and task.not_before_s <= history.now_s:
                patient = choices.by_cost and history.now_s < task.since_s + task.kind.wish.prefer_s
                asks = [way.kind.ask for way in ways_of(history, task)][: 1 if patient else None]
                assert not any(fits(space, ask) for ask in asks), "it could start"


def base(task: Task, grant: Grant) -> Grant:
    """What it held before it grew."""
    ask = before(task, grant.ask)
    return Grant(ask, grant.nodes[: ask.nodes], grant.devices[: ask.nodes])


def before(task: Task, ask: Ask) -> Ask:
    """What it asked for before it grew."""
    return task.kind.asks[task.kind.choice_of(ask)]


@settings(max_examples=examples(16, 300), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_starts_with_nobody_waiting_takes_all_that_it_would(seed: int) -> None:
    """But for what quotas forbid: there are none here. The last to start has only what those before it left."""
    rng = Random(seed)
    history = Leaving(rng, POLICIES[rng.choice(["fifo", "easy", "fair-share"])])
    for _ in range(15):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        history.act(plan)
        space = occupied(history.sites, history.running)
        for one in plan.placements if not history.waiting else ():
            choices, ask = snapshot.waiting[one.job].kind.choices, one.grant.ask
            if choices is not None and len(one.grant.nodes) < choices.most:
                free = {node for _, nodes in space.fitting(ask.each) for node in nodes}
                assert free <= set(one.grant.nodes), "it could have had more"


def worth(history: Leaving, task: Task, ask: Ask) -> float:
    """Less is better."""
    choices = task.kind.choices
    assert choices is not None
    gpus = ask.gpu_milli / WHOLE
    nodes = [site for site in history.sites if fits(Space((site._replace(open=True),)), ask_of(1, ask.each))]
    pools = [history.rules.pool(site.pool) for site in nodes]
    if not pools:
        return float("inf")
    speed = dict(choices.speeds).get(ask.each.kinds[0], min(pool.speed for pool in pools)) * gpus
    return max(pool.price for pool in pools) * gpus / speed if choices.by_cost else 1 / speed


@settings(max_examples=examples(20, 400), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_waits_for_a_better_choice_has_room_kept_there_and_would_end_sooner(seed: int) -> None:
    rng = Random(seed)
    history = Leaving(rng, replace(POLICIES["conservative"], depth=lambda snapshot: rng_depth))
    rng_depth = rng.choice([0, 1, 3, 100])
    for _ in range(15):
        snapshot = history.step()
        plan = cycle(snapshot, history.policy)
        kept = {one.job: one.at_s for one in plan.reservations}
        history.act(plan)
        for id, why in plan.patient.items():
            task = snapshot.waiting[id]
            if "end sooner" not in why.text:
                continue
            assert id in kept, "room is kept for it"
            ways = ways_of(history, task)
            holds_s = task.estimate_s if task.estimate_s is not None else foresee(snapshot, {}).held_s(task)
            space = occupied(history.sites, history.running)
            now = [way for way in ways if fits(space, way.kind.ask)]
            assert kept[id] > history.now_s
            if now:  # else a job behind it has taken what it left; of the fitting nodes some may be reserved
                ends_s = max(history.now_s + one.share * holds_s for one in now)
                assert any(kept[id] + way.share * holds_s < ends_s for way in ways)


@pytest.mark.parametrize("depth", [1, 3, 100])
@settings(max_examples=examples(8, 150), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_no_reservation_is_delayed_by_who_starts(depth: int, seed: int) -> None:
    assert_nobody_is_delayed(Leaving(Random(seed), POLICIES["conservative"]), depth)
