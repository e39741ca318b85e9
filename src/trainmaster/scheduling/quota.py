"""What projects may hold: guarantee ≤ nominal ≤ limit of each resource, and how many jobs may run at a time.

Up to its nominal quota a project has what is its own; beyond it borrows what others leave idle, and gives it back when they
come (`preempt.by_right`). What is guaranteed is never lent. A parent's quota holds for all that is below it. Sources: Kueue's
cohorts, Volcano's capacity plugin.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from trainmaster.model.cluster import UNBOUNDED, Cluster, Project, Quota
from trainmaster.scheduling import words
from trainmaster.scheduling.ask import WHOLE, Ask
from trainmaster.scheduling.snapshot import Refusal
from trainmaster.scheduling.space import Grant, Site
from trainmaster.scheduling.task import Kind, Run

Held = dict[str, int]  # thousandths by resource
GPUS, CPUS = "gpus", "cpus"


class Tally:
    """What every project holds now, against what it may. Changed in place while plans are made."""

    def __init__(self, rules: Cluster, sites: Sequence[Site]) -> None:
        self.rules, self.sites = rules, sites
        self._express = {one.name: one for one in rules.classes if one.express_gpus}
        self._lane: Held = {}  # what jobs in an express lane hold, by class
        projects = any(one.quotas or one.running_max or one.running_per_member_max for one in rules.projects)
        self.idle = not projects and not self._express
        self.held: dict[str, Held] = {}
        self.jobs: dict[str | tuple[str, str], int] = {}  # that run, by project and by member
        self.borrowers: set[str] = set()  # projects that hold more than is theirs of anything
        self._bounds: dict[str, _Bounds] = {}
        self._owed: dict[str, dict[str, int]] = {}  # by resource: what is guaranteed to whom and not in their hands
        for one in rules.projects:
            for resource, quota in one.quotas:
                if quota.guarantee:
                    self._owed.setdefault(resource, {})[one.name] = int(quota.guarantee * WHOLE)
        self._owing = {resource: sum(owed.values()) for resource, owed in self._owed.items()}

    def fill(self, runs: Iterable[Run]) -> None:
        """All that these hold. What jobs of one kind hold is the same, unless any kind of GPU is welcome to them."""
        if self.idle:
            return
        alike: dict[tuple[Kind, Ask], list[Grant]] = {}
        for run in runs:
            alike.setdefault((run.task.kind, run.grant.ask), []).append(run.grant)
        for (kind, ask), grants in alike.items():
            if len(ask.each.kinds) == 1 or not ask.gpu_milli:
                self._enter(kind, ask, asked(ask), len(grants))
            else:
                for grant in grants:
                    self.enter(kind, grant)

    def enter(self, kind: Kind, grant: Grant, sign: int = 1) -> None:
        """A job of this kind holds this (or no longer does: `sign` -1)."""
        if not self.idle:
            self._enter(kind, grant.ask, self.amounts(grant), sign)

    def _enter(self, kind: Kind, ask: Ask, amounts: Held, sign: int) -> None:
        for project in self.rules.line(kind.project):
            held = self._held(project.name)
            for resource, milli in amounts.items():
                held[resource] = held.get(resource, 0) + sign * milli
            self.jobs[project.name] = self.jobs.get(project.name, 0) + sign
            over = False
            for resource, quota in project.quotas:
                over = over or held.get(resource, 0) > quota.nominal * WHOLE
                if quota.guarantee:
                    owed = max(0, int(quota.guarantee * WHOLE) - held.get(resource, 0))
                    self._owing[resource] += owed - self._owed[resource][project.name]
                    self._owed[resource][project.name] = owed
            (self.borrowers.add if over else self.borrowers.discard)(project.name)
        if self._express and self._hurries(kind, ask):
            self._lane[kind.work] = self._lane.get(kind.work, 0) + sign * ask.gpu_milli
        member = (kind.project, kind.member)
        self.jobs[member] = self.jobs.get(member, 0) + sign

    def amounts(self, grant: Grant) -> Held:
        """What a grant takes, by the kinds of the very devices."""
        found = asked(grant.ask)
        if len(grant.ask.each.kinds) == 1 or not grant.ask.gpu_milli:
            return found
        found = dict(found)
        for index, node in enumerate(grant.nodes):
            devices = grant.held(index)
            if node < 0 or not devices:
                continue
            site, shape = self.sites[node], grant.shape(index)
            for place, device in enumerate(devices):
                milli = shape.share if shape.share and place == len(devices) - 1 else WHOLE
                kind = site.cell.kinds[site.devices[device]]
                found[kind] = found.get(kind, 0) + milli
        return found

    def barrier(self, kind: Kind, grant: Grant | None = None) -> Refusal | None:
        """Why a job of this kind may not start now whatever is free (on just this, if `grant` is given); None: it may."""
        if self.idle:
            return None
        bounds, jobs = self._bounds.get(kind.project) or self._bound(kind.project), self.jobs
        for name, most in bounds.running:
            if jobs.get(name, 0) >= most:
                return Refusal("quota", f"waiting for quota: project {name} may run {_jobs(most)} at a time")
        if bounds.member is not None and jobs.get((kind.project, kind.member), 0) >= bounds.member:
            text = f"a member of project {kind.project} may run {_jobs(bounds.member)} at a time"
            return Refusal("quota", f"waiting for quota: {text}")
        ask = kind.ask if grant is None else grant.ask
        if self._express and ask.gpu_milli and not self._hurries(kind, ask) and self._lanes_are_full(ask):
            return Refusal("quota", "waiting for quota: the GPUs that are left are kept for short jobs of the express lane")
        needed = asked(ask) if grant is None else self.amounts(grant)
        for resource, milli in needed.items():
            refused = self._beyond(bounds, resource, milli)
            if refused is not None:
                return refused
        return None

    def shut(self, kind: Kind) -> frozenset[str]:
        """Kinds of GPU that a job of this kind, to which any kind is welcome, may not take now."""
        ask = kind.ask
        if self.idle or len(ask.each.kinds) == 1 or not ask.gpu_milli:
            return frozenset()
        bounds = self._bounds.get(kind.project) or self._bound(kind.project)
        kinds = (gpu for gpu in self.capacity if gpu not in (GPUS, CPUS))
        return frozenset(gpu for gpu in kinds if self._beyond(bounds, gpu, ask.gpu_milli) is not None)

    def _hurries(self, kind: Kind, ask: Ask) -> bool:
        """Whether it, with this, may use the express lane of its class."""
        work = self._express.get(kind.work)
        short = work is not None and kind.limit_s is not None and kind.limit_s <= work.express_limit_s
        return work is not None and short and ask.gpu_milli <= work.express_gpus * WHOLE

    def _lanes_are_full(self, ask: Ask) -> bool:
        """Whether it would take what is kept for others' lanes."""
        kept = sum(max(0, int(one.express_gpus * WHOLE) - self._lane.get(name, 0)) for name, one in self._express.items())
        return self._total(GPUS) + ask.gpu_milli + kept > self.capacity.get(GPUS, 0)

    def _bound(self, name: str) -> "_Bounds":
        line = self.rules.line(name)
        limits: dict[str, list[tuple[str, Held, float]]] = {}
        for one in line:
            for resource, quota in one.quotas:
                if quota.limit < UNBOUNDED:
                    limits.setdefault(resource, []).append((one.name, self._held(one.name), quota.limit * WHOLE))
        running = tuple((one.name, one.running_max) for one in line if one.running_max is not None)
        found = self._bounds[name] = _Bounds(line, running, line[0].running_per_member_max, limits)
        return found

    def _beyond(self, bounds: "_Bounds", resource: str, milli: int) -> Refusal | None:
        for name, held, limit in bounds.limits.get(resource, ()):
            if held.get(resource, 0) + milli > limit:
                most = _amount(resource, limit)
                if milli > limit:
                    return Refusal("impossible", f"asks for {_amount(resource, milli)}; project {name} may hold {most}")
                return Refusal("quota", f"waiting for quota: project {name} may hold {most} at a time")
        owed = self._owed.get(resource)
        if not owed:
            return None
        own = bounds.line[0]
        if own.name in owed and self._held(own.name).get(resource, 0) + milli <= quota_of(own, resource).guarantee * WHOLE:
            return None
        others = self._owing[resource] - sum(owed.get(one.name, 0) for one in bounds.line)
        if others and self._total(resource) + milli + others > self.capacity.get(resource, 0):
            return Refusal("quota", f"waiting for quota: what is left of {_noun(resource)} is guaranteed to other projects")
        return None

    def within(self, kind: Kind) -> bool:
        """Whether it would hold no more than is its own with one more job of this kind, of everything asked for."""
        needed = asked(kind.ask)
        return not self.idle and all(
            self._held(project.name).get(resource, 0) + needed.get(resource, 0) <= quota.nominal * WHOLE
            for project in self.rules.line(kind.project)
            for resource, quota in project.quotas
        )

    def borrowed(self, project: str, resources: Iterable[str]) -> Mapping[str, float]:
        """Of each resource of which it holds more than is its own: how much more, in thousandths."""
        line = self.rules.line(project)
        found: dict[str, float] = {}
        if not self.borrowers.isdisjoint(one.name for one in line):
            for resource in resources:
                more = max(self._held(one.name).get(resource, 0) - quota_of(one, resource).nominal * WHOLE for one in line)
                if more > 0:
                    found[resource] = more
        return found

    @cached_property
    def capacity(self) -> Held:
        """What the nodes have that are open."""
        found: Held = {}
        for site in self.sites:
            if site.open:
                found[GPUS] = found.get(GPUS, 0) + WHOLE * len(site.devices)
                found[CPUS] = found.get(CPUS, 0) + site.cell.cpus
                for gpu, count in zip(site.cell.kinds, site.cell.whole, strict=True):
                    found[gpu] = found.get(gpu, 0) + WHOLE * count
        return found

    def _held(self, project: str) -> Held:
        return self.held.setdefault(project, {})

    def _total(self, resource: str) -> int:
        tops = {self.rules.line(name)[-1].name for name in self.held}
        return sum(self._held(name).get(resource, 0) for name in tops)


class _Bounds(NamedTuple):
    """What holds for one project and those that it is part of. `limits` by resource: whose, what they hold, the most."""

    line: tuple[Project, ...]
    running: tuple[tuple[str, int], ...]
    member: int | None
    limits: Mapping[str, Sequence[tuple[str, Held, float]]]


@lru_cache(maxsize=1 << 17)
def asked(ask: Ask) -> Held:
    """What a gang counts as against quotas, in thousandths; a kind of GPU only where it names one."""
    lead = ask.first
    found = {CPUS: ask.each.cpus * (ask.nodes - 1) + lead.cpus}
    if ask.gpu_milli:
        found[GPUS] = ask.gpu_milli
        if len(ask.each.kinds) == 1:
            found[ask.each.kinds[0]] = ask.gpu_milli
    return found


def closed(kind: Kind, shut: frozenset[str]) -> Refusal:
    """Why a job to which any kind of GPU is welcome waits while some are free."""
    kinds = ", ".join(sorted(shut))
    return Refusal("quota", f"waiting for quota: project {kind.project} may not hold so many more GPUs of kind {kinds}")


def quota_of(project: Project, resource: str) -> Quota:
    """What holds for a resource; without one, nothing is guaranteed and nothing limited."""
    return next((quota for name, quota in project.quotas if name == resource), _FREE)


_FREE = Quota()


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _amount(resource: str, milli: float) -> str:
    if resource == CPUS:
        return words.cpus(int(milli))
    return words.gpus(int(milli), "" if resource == GPUS else resource)


def _noun(resource: str) -> str:
    return {CPUS: "the CPUs", GPUS: "the GPUs"}.get(resource, f"the {resource} GPUs")
