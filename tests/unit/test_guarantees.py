"""A guarantee is capacity on which jobs can start, not a number: in random worlds the owner's jobs start (D7)."""

from random import Random

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from test_scheduling_laws import seeds

from trainmaster.model.cluster import UNBOUNDED, Cluster, Project, Quota
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Site
from trainmaster.scheduling.policies.known import POLICIES

GPUS = "gpus"


def others(rng: Random, seq: int, now_s: float) -> Task:
    """What eats a guarantee that is a mere count: parts of GPUs, jobs without GPUs, gangs, roles on the first node."""
    gpus, share = rng.choice([(0, 0), (1, 0), (2, 0), (0, 250), (0, 400), (0, 600)])
    each = Shape(gpus, share, (), rng.choice([100, 1000, 4000, 8000]))
    lead = each._replace(cpus=each.cpus + 500) if rng.random() < 0.2 else None
    kind = kind_of(ask_of(rng.choice([1, 1, 1, 2]), each, lead), Owner(rng.choice(["free", "other"]), "x"))
    return Task(seq, f"o{seq}", kind, now_s, 0.0, rng.choice([None, 5.0, 20.0]))


@pytest.mark.parametrize("name", ["fair-share", "multifactor", "easy", "fifo"])
@settings(max_examples=examples(8, 200), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_what_is_guaranteed_can_start_whatever_others_hold(name: str, seed: int) -> None:
    rng = Random(seed)
    nodes, gpus = rng.choice([(1, 4), (2, 4), (3, 2), (4, 8)])
    guarantee = rng.randint(1, nodes * gpus)
    projects = (Project("owner", quotas=((GPUS, Quota(guarantee, guarantee, UNBOUNDED)),)), Project("other"))
    rules = Cluster(projects=projects, min_run_s=0.0)
    cell = Cell(("a",), (gpus,), (), gpus * 4 * WHOLE)
    sites = tuple(Site(f"n{at}", cell, (0,) * gpus) for at in range(nodes))
    running, waiting = dict[str, Run](), dict[str, Task]()
    for step in range(40):
        for at in range(rng.randint(0, 4)):
            task = others(rng, 10 * step + at, float(step))
            waiting[task.id] = task
        for id in [id for id in running if rng.random() < 0.15]:
            del running[id]
        plan = cycle(Snapshot(float(step), sites, dict(waiting), dict(running), rules=rules), POLICIES[name])
        for one in plan.placements:
            running[one.job] = Run(waiting.pop(one.job), one.grant, float(step))
        mine = kind_of(ask_of(1, Shape(1, cpus=WHOLE)), Owner("owner", "y"))
        owed = {f"g{at}": Task(10**6 + at, f"g{at}", mine, float(step)) for at in range(guarantee)}
        plan = cycle(Snapshot(float(step), sites, owed, dict(running), rules=rules), POLICIES[name])
        assert len(plan.placements) == guarantee, "what is guaranteed is not lent"


def test_it_is_said_and_the_rest_is_used() -> None:
    """Two of four GPUs are guaranteed: parts of others share one device, a job of all CPUs waits."""
    rules = Cluster(projects=(Project("owner", quotas=((GPUS, Quota(2, 2)),)), Project("other")))
    sites = (Site("n0", Cell(("a",), (4,), (), 8 * WHOLE), (0,) * 4),)
    parts = {f"p{at}": Task(at, f"p{at}", kind_of(ask_of(1, Shape(0, 600, cpus=100)), Owner("other")), 0.0) for at in range(3)}
    plan = cycle(Snapshot(0.0, sites, parts, {}, rules=rules), POLICIES["fair-share"])
    assert [one.job for one in plan.placements] == ["p0", "p1"]
    said = "waiting for quota: what is left of the GPUs is guaranteed to other projects"
    assert plan.reason(parts["p2"], 0.0).text == said
    whole = {"cpu": Task(1, "cpu", kind_of(ask_of(1, Shape(cpus=7 * WHOLE)), Owner("other")), 0.0)}
    plan = cycle(Snapshot(0.0, sites, whole, {}, rules=rules), POLICIES["fair-share"])
    assert plan.placements == ()
    assert plan.reason(whole["cpu"], 0.0).text == said
    six = {"cpu": whole["cpu"]._replace(kind=kind_of(ask_of(1, Shape(cpus=6 * WHOLE)), Owner("other")))}
    assert len(cycle(Snapshot(0.0, sites, six, {}, rules=rules), POLICIES["fair-share"]).placements) == 1


def test_where_there_are_fewer_cpus_than_gpus_others_still_get_what_is_not_guaranteed() -> None:
    """Two of four GPUs beside two CPUs: half a CPU stays beside each."""
    rules = Cluster(projects=(Project("owner", quotas=((GPUS, Quota(2, 2)),)), Project("other")))
    sites = (Site("n0", Cell(("a",), (4,), (), 2 * WHOLE), (0,) * 4),)
    tasks = {f"o{at}": Task(at, f"o{at}", kind_of(ask_of(1, Shape(1, cpus=100)), Owner("other")), 0.0) for at in range(3)}
    plan = cycle(Snapshot(0.0, sites, tasks, {}, rules=rules), POLICIES["fair-share"])
    assert [one.job for one in plan.placements] == ["o0", "o1"]
