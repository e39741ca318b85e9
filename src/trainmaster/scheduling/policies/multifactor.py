"""`multifactor`: the order by a sum of factors, weighted by the administrator. All terms can be shown.

Each factor is within 0 … 1 and does not depend on other waiting jobs. So a start lowers the terms of its own owners only.
Sources: Slurm's multifactor plugin and its fair-share factor 2 ** -(use / share), here at every level of the tree, relative to
what the whole cluster gives within a half-life.
"""

from collections.abc import Mapping
from math import log
from typing import Any, NamedTuple

from trainmaster.model.cluster import PRIORITY_MAX
from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.model.request import WHOLE, service_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.placement.strategies import pack
from trainmaster.scheduling.policies.fair import Shares, shares
from trainmaster.scheduling.policies.policy import Policy, one_reservation
from trainmaster.scheduling.preemption.victims import ByRight
from trainmaster.scheduling.state.order import Key, Sharing


class Terms(NamedTuple):
    """The terms of the sum: each factor times its weight. The names are those of cluster.yaml."""

    workload_class: float  # the lowest class 0, the highest 1
    priority: float  # of the job: -100 … 100 as 0 … 1
    age: float  # time in the queue, up to `age_max`
    fair_share: float  # halves with each use of one whole share
    size: float  # the part of the whole cluster


class Factors(NamedTuple):
    """The inputs of the terms, once per decision."""

    shares: Shares
    capacity: float  # service per second of all nodes: GPUs; without any, CPUs at their weight
    now_s: float
    classes: tuple[float, float]  # the lowest and the highest priority of a class
    due: dict[str, float]  # by project: the service of its share within a half-life, computed on demand


def weigh(snapshot: Snapshot, kept: dict[str, Any]) -> Factors:
    """The service of all owners, and the capacity."""
    sites, rules = snapshot.sites, snapshot.rules
    known = kept.get("multifactor")
    if known is None or known[0] is not sites or known[1] is not rules:
        gpus = sum(len(site.devices) for site in sites)
        capacity = float(gpus or rules.cpu_weight * sum(site.cell.cpus for site in sites) / WHOLE)
        ranks = [work.priority for work in rules.classes] or [0]
        known = kept["multifactor"] = (sites, rules, capacity, (float(min(ranks)), float(max(ranks))), dict[str, float]())
    return Factors(shares(snapshot, kept), known[2], snapshot.now_s, known[3], known[4])


def terms(factors: Factors, task: Task) -> Terms:
    """The terms of a job."""
    weights, kind = factors.shares.rules.weights, task.kind
    low, high = factors.classes
    base = min(max(kind.tier, low), high) - low if not kind.urgent else high - low
    own = (kind.priority - kind.tier + PRIORITY_MAX) / (2 * PRIORITY_MAX)
    age = min(1.0, max(0.0, factors.now_s - task.since_s) / weights.age_max_s)
    width = min(1.0, service_of(kind.ask, factors.shares.rules.cpu_weight) / factors.capacity) if factors.capacity else 0.0
    return Terms(
        weights.workload_class * (base / (high - low) if high > low else 0.0),
        weights.priority * min(max(own, 0.0), 1.0),
        weights.age * age,
        weights.fair_share * _unused(factors, kind),
        weights.size * width,
    )


def told(factors: Factors, task: Task) -> Mapping[str, float]:
    """The terms by name, as they are stored with each start."""
    return terms(factors, task)._asdict()


def claim(factors: Factors, task: Task) -> Key:
    """Urgent jobs, then the greatest sum, then the earlier job."""
    return not task.kind.urgent, -sum(terms(factors, task)), task.since_s


def rank(task: Task) -> Key:
    """Among jobs of one kind: the earlier one. Their terms differ only in age."""
    return (task.since_s,)


def owner(kind: Kind) -> Kind:
    """Each kind is its own owner."""
    return kind


def charge(factors: Factors, task: Task) -> None:
    """Charge the owners of a job that starts."""
    factors.shares.charge(task)


def _unused(factors: Factors, kind: Kind) -> float:
    """1 without any use, half after use of exactly the due share, and so on, at every level."""
    rules, service = factors.shares.rules, factors.shares.service
    line, due = rules.line(kind.project), factors.due
    if kind.project not in due:
        part = factors.capacity * rules.half_life_s / log(2)  # the use of the whole cluster in the long run
        for one in reversed(line):
            siblings = sum(other.weight for other in rules.projects if other.parent == one.parent)
            part *= one.weight / max(siblings, one.weight)
            due[one.name] = part
    used = sum(service.get(one.name, 0.0) / due[one.name] for one in line if due[one.name])
    named = dict(line[0].members)
    weight = named.get(kind.member, 1.0)
    mine = due[kind.project] * weight / max(sum(named.values()), weight)
    used += service.get((kind.project, kind.member), 0.0) / mine if mine else 0.0
    return float(2.0**-used)


FACTORS = Sharing(
    "The sum of weighted factors: class, own priority, age, fair share, size; urgent jobs first.", owner, claim, rank, charge
)
MULTIFACTOR = Policy("multifactor", FACTORS, pack, one_reservation, ByRight(), beat_s=600.0, study=weigh, terms=told)
