"""An order by several factors at once, each weighted as the administrator says, and all of its terms to be shown.

Each factor is within 0 … 1 and does not depend on who else waits, so that a start lowers the terms of its owners and changes
nobody else's. Sources: Slurm's multifactor plugin; its fair-share factor 2 ** -(use / share), taken here at every level of the
tree and normalised by what the whole cluster gives within a half-life.
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
from trainmaster.scheduling.policies.policy import Policy, as_the_loop_can
from trainmaster.scheduling.preemption.victims import ByRight
from trainmaster.scheduling.state.order import Key, Sharing


class Terms(NamedTuple):
    """What each factor adds: its weight times itself. The names are those that cluster.yaml has."""

    workload_class: float  # of all classes the lowest 0, the highest 1
    priority: float  # the job's own: -100 … 100 as 0 … 1
    age: float  # time in the queue, up to `age_max`
    fair_share: float  # halves with each share's worth of use
    size: float  # of the whole cluster


class Factors(NamedTuple):
    """What the terms are made of, once for each decision."""

    shares: Shares
    capacity: float  # service per second of all nodes: GPUs, or CPUs at their weight where there are none
    now_s: float
    classes: tuple[float, float]  # the lowest and the highest priority of a class
    due: dict[str, float]  # service that is a project's share within a half-life, by project; those that are known so far


def weigh(snapshot: Snapshot, kept: dict[str, Any]) -> Factors:
    """What everybody has had, and how much there is."""
    sites, rules = snapshot.sites, snapshot.rules
    known = kept.get("multifactor")
    if known is None or known[0] is not sites or known[1] is not rules:
        gpus = sum(len(site.devices) for site in sites)
        capacity = float(gpus or rules.cpu_weight * sum(site.cell.cpus for site in sites) / WHOLE)
        ranks = [work.priority for work in rules.classes] or [0]
        known = kept["multifactor"] = (sites, rules, capacity, (float(min(ranks)), float(max(ranks))), dict[str, float]())
    return Factors(shares(snapshot, kept), known[2], snapshot.now_s, known[3], known[4])


def terms(factors: Factors, task: Task) -> Terms:
    """Why it stands where it stands."""
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
    """The terms by their names, as they are kept with each start."""
    return terms(factors, task)._asdict()


def claim(factors: Factors, task: Task) -> Key:
    """Who is urgent, then the greatest sum; of equal ones who came first."""
    return not task.kind.urgent, -sum(terms(factors, task)), task.since_s


def rank(task: Task) -> Key:
    """Among jobs of one kind, which have all terms but that of their age in common."""
    return (task.since_s,)


def owner(kind: Kind) -> Kind:
    """Each kind stands for itself."""
    return kind


def charge(factors: Factors, task: Task) -> None:
    """A job is started: its owners' use grows at once."""
    factors.shares.charge(task)


def _unused(factors: Factors, kind: Kind) -> float:
    """1 where nothing has been used, half at just the share that is due, and so on, at every level."""
    rules, service = factors.shares.rules, factors.shares.service
    line, due = rules.line(kind.project), factors.due
    if kind.project not in due:
        part = factors.capacity * rules.half_life_s / log(2)  # what the whole cluster's use comes to in the long run
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
MULTIFACTOR = Policy("multifactor", FACTORS, pack, as_the_loop_can, ByRight(), beat_s=600.0, study=weigh, terms=told)
