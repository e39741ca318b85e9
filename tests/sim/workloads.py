"""Small random workloads: a cluster of stand-in GPUs, its rules, and jobs with known run times. The same seed, the same workload.

All times are multiples of ten seconds.
"""

from dataclasses import dataclass, replace
from random import Random

from trainmaster.engines.local.settings import LocalSettings
from trainmaster.model.cluster import CLASSES, UNBOUNDED, Cluster, Pool, Project, Quota, Work
from trainmaster.model.spec import GpuChoice, JobSpec, PlacementSpec, Resources, Strategy

TICK_S = 10.0
NAME = "w"  # jobs are w-1, w-2 …, in the order of their submission
_POLICIES = (*("fair-share",) * 5, *("multifactor",) * 2, "fifo", "easy", "conservative", "predicted", "least-attained")
_RACKS = (("node[01]", (("rack", "r0"),)), ("node[23]", (("rack", "r1"),)))
_PROJECTS = ("red", "blue", "green")
_WORKS = ("training", "training", "training", "trial", "evaluation", "interactive", "production")


@dataclass(frozen=True)
class Planned:
    """One job: `run_s` is its run time, undisturbed."""

    spec: JobSpec
    member: str
    submit_s: float
    run_s: float


@dataclass(frozen=True)
class Workload:
    """What both sides are given. `cost_s` of work is lost with each preemption."""

    nodes: LocalSettings
    rules: Cluster
    jobs: tuple[Planned, ...]
    cost_s: float


def workload(seed: int) -> Workload:
    """The workload of this number."""
    rng = Random(seed)
    kinds = rng.choice(("a100", "a100", "a100,h100"))
    nodes = LocalSettings(nodes=rng.choice((1, 2, 2, 3, 4)), gpus_per_node=rng.choice((1, 2, 2, 4)), gpu_kind=kinds, cpus_per_node=64)
    assert nodes.nodes is not None
    assert nodes.gpus_per_node is not None
    gpus = nodes.nodes * nodes.gpus_per_node
    rules = _rules(rng, gpus)
    jobs, submit_s = [], 0.0
    for _ in range(rng.randint(5, 12)):
        spec = _spec(rng, nodes.nodes, nodes.gpus_per_node, kinds.split(","))
        run_s = TICK_S * rng.choice((1, 3, 6, 12, 30, 60, 90))
        if rng.random() < 0.5:
            spec = replace(spec, time_limit_s=run_s * rng.choice((1.5, 2.0, 4.0)) + TICK_S * 60)  # it repeats what it loses
        jobs.append(Planned(spec, rng.choice(("ann", "bob")), submit_s, run_s))
        submit_s += TICK_S * rng.choice((0, 0, 1, 3, 6, 12, 30))
    return Workload(nodes, rules, tuple(jobs), rng.choice((0.0, TICK_S * 3)))


def team(seed: int, count: int) -> Workload:
    """Days of six people on 16 GPUs, by fair share. Each has a few commands of usual run times; every second one gives limits."""
    rng, jobs, submit_s = Random(seed), list[Planned](), 0.0
    for _ in range(count):
        member, command = rng.randrange(6), rng.randrange(4)
        usual_s = 600.0 * 4.0 ** Random(f"{seed} {member} {command}").uniform(0.0, 3.0)
        run_s = TICK_S * max(1, round(usual_s * rng.lognormvariate(0.0, 0.6) / TICK_S))
        limit_s = max(run_s, usual_s) * rng.choice((1.2, 2.0, 4.0)) if member % 2 else None
        each = Resources(nodes=rng.choice((1, 1, 1, 2)), gpus=rng.choice((1, 1, 2, 4)), cpus=1.0)
        spec = JobSpec(f"c{command}.py", name=NAME, experiment=NAME, project=_PROJECTS[member % 3], resources=each, time_limit_s=limit_s)
        jobs.append(Planned(spec, f"m{member}", submit_s, run_s))
        submit_s += TICK_S * round(rng.expovariate(TICK_S / 2_000.0))
    nodes = LocalSettings(nodes=4, gpus_per_node=4, gpu_kind="a100", cpus_per_node=64)
    return Workload(nodes, Cluster(projects=tuple(map(Project, _PROJECTS))), tuple(jobs), 0.0)


def _rules(rng: Random, gpus: int) -> Cluster:
    projects = tuple(_project(rng, name, gpus) for name in _PROJECTS)
    if rng.random() < 0.3:
        projects = _nested(*projects)
    works: tuple[Work, ...] = CLASSES
    if rng.random() < 0.5:
        works = tuple(replace(one, slice_s=TICK_S * 6) if one.name in ("training", "interactive") else one for one in CLASSES)
    if rng.random() < 0.3:
        works = (*works, Work("night", -2000))
    min_run_s = TICK_S * rng.choice((1, 3, 6, 30))
    pools = [Pool("default", (), policy=rng.choice(_POLICIES), node_labels=_RACKS)]
    if rng.random() < 0.15:
        pools.insert(0, Pool("first", ("node0",), policy=rng.choice(_POLICIES)))
    return Cluster(tuple(pools), projects, works, min_run_s=min_run_s, half_life_s=3600.0)


def _nested(first: Project, above: Project, below: Project) -> tuple[Project, ...]:
    """One is part of another, whose limit leaves room for what is its own."""
    needed = max((quota.nominal for _, quota in below.quotas), default=0.0)
    wide = tuple((what, replace(quota, limit=max(quota.limit, needed))) for what, quota in above.quotas)
    return first, replace(above, quotas=wide), replace(below, parent=above.name)


def _project(rng: Random, name: str, gpus: int) -> Project:
    quotas: tuple[tuple[str, Quota], ...] = ()
    if rng.random() < 0.5:
        guarantee = rng.choice((0, 0, gpus // 3))
        nominal = max(guarantee, rng.choice((gpus // 3, gpus // 2, gpus)))
        limit = rng.choice((UNBOUNDED, UNBOUNDED, nominal + rng.randint(0, gpus)))
        quotas = (("gpus", Quota(guarantee, nominal, limit)),)
    return Project(
        name, rng.choice((1.0, 1.0, 2.0)), quotas=quotas,
        running_max=rng.choice((None, None, None, 2)), running_per_member_max=rng.choice((None, None, None, 1, 2)),
    )  # fmt: skip


def _spec(rng: Random, nodes: int, gpus: int, kinds: list[str]) -> JobSpec:
    gang = rng.randint(1, nodes) if rng.random() < 0.4 else 1
    each = Resources(nodes=gang, gpus=rng.choice((1, 1, gpus)), cpus=1.0)
    place = PlacementSpec()
    if rng.random() < 0.2:
        each = replace(each, nodes=1, nodes_max=rng.randint(2, 4))
    elif len(kinds) > 1 and rng.random() < 0.5:
        choices = tuple(GpuChoice(kind, rng.choice((1, gpus))) for kind in rng.sample(kinds, 2))
        each = replace(each, nodes=1, gpus=choices[0].gpus, gpu_kind=choices[0].gpu_kind, choices=choices)
    elif rng.random() < 0.3:
        each = replace(each, gpu_kind=rng.choice(kinds))
    if rng.random() < 0.2:
        place = PlacementSpec(prefer="rack", prefer_s=TICK_S * rng.choice((1, 6, 12)))
    elif rng.random() < 0.2:
        place = PlacementSpec(near=rng.choice((None, "checkpoint")), group=f"{NAME}-1", strategy=rng.choice((None, *Strategy)))
    return JobSpec(
        "true", name=NAME, experiment=NAME, project=rng.choice(_PROJECTS), priority=rng.choice((0, 0, 0, 5, -5)),
        resources=each, placement=place, work=rng.choice(_WORKS),
    )  # fmt: skip
