"""What a job costs its project, its share, its place in the queue and `tm usage` are one formula (D10)."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scheduling_laws import seeds

from trainmaster.control.charging import service_rate
from trainmaster.model.cluster import Cluster, Project
from trainmaster.model.ledger import Rate
from trainmaster.scheduling.explanation.forward import settled
from trainmaster.scheduling.explanation.standing import ordered
from trainmaster.scheduling.model.jobs import Owner, Run, Task, kind_of
from trainmaster.scheduling.model.request import Ask, Shape, ask_of, billed, service_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.model.usage import Account
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.server.cluster.accounting import Line
from trainmaster.server.cluster.usage import _used
from trainmaster.simulator.scheduler import Scheduler
from trainmaster.simulator.trace import gpu_nodes

HOUR_S = 3600.0
RULES = Cluster(projects=(Project("gpu"), Project("cpu")))


def asked(rng: Random) -> Ask:
    gpus, share = rng.choice([(0, 0), (1, 0), (8, 0), (0, 250)])
    return ask_of(rng.randint(1, 4), Shape(gpus, share, cpus=rng.choice([100, 1000, 64_000])))


@settings(deadline=None)
@given(seed=seeds, weight=st.sampled_from([1 / 16, 0.01, 1.0]))
def test_decision_simulation_ledger_and_usage_charge_the_same(seed: int, weight: float) -> None:
    rng = Random(seed)
    rules, ask = Cluster(cpu_weight=weight, half_life_s=1e10), asked(rng)
    run = Run(Task(0, "j", kind_of(ask, Owner("p", "m")), 0.0), Grant(ask, ()), 0.0)
    gpus, cpus = billed(ask)
    expected = service_of(ask, weight) * HOUR_S
    assert service_rate((Rate("pool", gpus, cpus),), weight) * HOUR_S == pytest.approx(expected)
    assert settled({}, run, HOUR_S, rules)[1].service == pytest.approx(expected, rel=1e-4)
    simulated = Scheduler()
    simulated.running["j"] = run
    simulated.stop("j", HOUR_S, rules)
    assert simulated.usage["p", "m"].service == pytest.approx(expected, rel=1e-4)
    state = ClusterState(Snapshot(0.0, (), {}, {"j": run._replace(grant=Grant(ask, ()))}, rules=rules), POLICIES["fair-share"].sharing)
    assert state.learned["holdings"].service(("p", "m"), HOUR_S, weight) == pytest.approx(expected)
    line, whole = Line(), Line()
    line.gpu_us, line.cpu_us = gpus * 3_600_000, cpus * 3_600_000
    whole.gpu_us, whole.cpu_us = line.gpu_us + 1000 * 3_600_000, line.cpu_us
    share = _used(line, whole, weight)["share"]
    assert share == pytest.approx(expected / (expected + HOUR_S)), "of one GPU beside it"


@pytest.mark.parametrize("policy", ["fair-share", "multifactor"])
def test_a_processor_hour_is_no_gpu_hour(policy: str) -> None:
    """Two processors for an hour ranked behind one GPU for an hour."""
    usage = {}
    for name, ask in (("cpu", ask_of(1, Shape(cpus=2000))), ("gpu", ask_of(1, Shape(1)))):
        run = Run(Task(0, name, kind_of(ask, Owner(name, "x")), 0.0), Grant(ask, ()), 0.0)
        owner, account = settled({}, run, HOUR_S, RULES)
        usage[owner] = Account(*account)
    tasks = {name: Task(at, name, kind_of(ask_of(1, Shape(1)), Owner(name, "x")), 0.0) for at, name in enumerate(("gpu", "cpu"))}
    seen = Snapshot(HOUR_S, gpu_nodes(1, 8), tasks, {}, rules=RULES, usage=usage)
    assert [task.id for task in ordered(seen, POLICIES[policy])] == ["cpu", "gpu"]
