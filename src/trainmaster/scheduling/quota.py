"""What projects may hold: guarantee ≤ nominal ≤ limit of each resource, and how many jobs may run at a time.

Up to its nominal quota a project has what is its own; beyond it borrows what others leave idle, and gives it back when they
come (`preempt.by_right`). What is guaranteed is never lent. A parent's quota holds for all that is below it. Sources: Kueue's
cohorts, Volcano's capacity plugin.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from trainmaster.model.cluster import Cluster, Project, Quota
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
        self.idle = not any(one.quotas or one.running_max or one.running_per_member_max for one in rules.projects)
        self.held: dict[str, Held] = {}
        self.jobs: dict[str | tuple[str, str], int] = {}  # that run, by project and by member

    def enter(self, kind: Kind, grant: Grant, sign: int = 1) -> None:
        """A job of this kind holds this (or no longer does: `sign` -1)."""
        if self.idle:
            return
        amounts = self.amounts(grant)
        for project in self.rules.line(kind.project):
            held = self.held.setdefault(project.name, {})
            for resource, milli in amounts.items():
                held[resource] = held.get(resource, 0) + sign * milli
            self.jobs[project.name] = self.jobs.get(project.name, 0) + sign
        member = (kind.project, kind.member)
        self.jobs[member] = self.jobs.get(member, 0) + sign

    def amounts(self, grant: Grant) -> Held:
        """What a grant takes, by the kinds of the very devices."""
        found = dict(asked(grant.ask))
        for index, node in enumerate(grant.nodes):
            devices = grant.held(index)
            if node < 0 or not devices:
                continue
            site, shape = self.sites[node], grant.shape(index)
            for place, device in enumerate(devices):
                milli = shape.share if shape.share and place == len(devices) - 1 else WHOLE
                kind = site.cell.kinds[site.devices[device]]
                if len(shape.kinds) != 1:
                    found[kind] = found.get(kind, 0) + milli
        return found

    def barrier(self, kind: Kind, grant: Grant | None = None) -> Refusal | None:
        """Why a job of this kind may not start now whatever is free (on just this, if `grant` is given); None: it may."""
        if self.idle:
            return None
        for project in self.rules.line(kind.project):
            if project.running_max is not None and self.jobs.get(project.name, 0) >= project.running_max:
                return Refusal("quota", f"waiting for quota: {_whose(project)} may run {_jobs(project.running_max)} at a time")
        own, jobs = self.rules.project(kind.project), self.jobs.get((kind.project, kind.member), 0)
        if own.running_per_member_max is not None and jobs >= own.running_per_member_max:
            most = _jobs(own.running_per_member_max)
            return Refusal("quota", f"waiting for quota: a member of {_whose(own)} may run {most} at a time")
        needed = asked(kind.ask) if grant is None else self.amounts(grant)
        for resource, milli in needed.items():
            refused = self._beyond(kind, resource, milli)
            if refused is not None:
                return refused
        return None

    def shut(self, kind: Kind) -> frozenset[str]:
        """Kinds of GPU that a job of this kind, to which any kind is welcome, may not take now."""
        ask = kind.ask
        if self.idle or len(ask.each.kinds) == 1 or not ask.gpu_milli:
            return frozenset()
        kinds = (gpu for gpu in self.capacity if gpu not in (GPUS, CPUS))
        return frozenset(gpu for gpu in kinds if self._beyond(kind, gpu, ask.gpu_milli) is not None)

    def _beyond(self, kind: Kind, resource: str, milli: int) -> Refusal | None:
        line = self.rules.line(kind.project)
        for project in line:
            limit = quota_of(project, resource).limit * WHOLE
            if self._held(project.name, resource) + milli > limit:
                most = _amount(resource, limit)
                if milli > limit:
                    return Refusal("impossible", f"asks for {_amount(resource, milli)}; {_whose(project)} may hold {most}")
                return Refusal("quota", f"waiting for quota: {_whose(project)} may hold {most} at a time")
        if self._held(line[0].name, resource) + milli <= quota_of(line[0], resource).guarantee * WHOLE:
            return None
        owed = self._owed(resource, {one.name for one in line})
        if owed and self._total(resource) + milli + owed > self.capacity.get(resource, 0):
            return Refusal("quota", f"waiting for quota: what is left of {_noun(resource)} is guaranteed to other projects")
        return None

    def within(self, kind: Kind) -> bool:
        """Whether it would hold no more than is its own with one more job of this kind, of everything asked for."""
        return not self.idle and all(
            self._held(project.name, resource) + milli <= quota_of(project, resource).nominal * WHOLE
            for project in self.rules.line(kind.project)
            for resource, milli in asked(kind.ask).items()
        )

    def borrowed(self, project: str, resources: Iterable[str]) -> Mapping[str, float]:
        """Of each resource of which it holds more than is its own: how much more, in thousandths."""
        line = self.rules.line(project)
        found: dict[str, float] = {}
        for resource in resources:
            more = max(self._held(one.name, resource) - quota_of(one, resource).nominal * WHOLE for one in line)
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

    def _held(self, project: str, resource: str) -> int:
        return self.held.get(project, {}).get(resource, 0)

    def _total(self, resource: str) -> int:
        tops = {self.rules.line(name)[-1].name for name in self.held}
        return sum(self._held(name, resource) for name in tops)

    def _owed(self, resource: str, but: set[str]) -> float:
        """What is guaranteed to others and not in their hands."""
        others = (one for one in self.rules.projects if one.name not in but)
        return sum(max(0.0, quota_of(one, resource).guarantee * WHOLE - self._held(one.name, resource)) for one in others)


def tallied(rules: Cluster, sites: Sequence[Site], running: Iterable[Run]) -> Tally:
    """What those that run hold."""
    tally = Tally(rules, sites)
    for run in running:
        tally.enter(run.task.kind, run.grant)
    return tally


def asked(ask: Ask) -> Held:
    """What a gang counts as against quotas, in thousandths; a kind of GPU only where it names one."""
    lead = ask.first
    found = {CPUS: ask.each.cpus * (ask.nodes - 1) + lead.cpus}
    if ask.gpu_milli:
        found[GPUS] = ask.gpu_milli
        if len(ask.each.kinds) == 1:
            found[ask.each.kinds[0]] = ask.gpu_milli
    return found


def quota_of(project: Project, resource: str) -> Quota:
    """What holds for a resource; without one, nothing is guaranteed and nothing limited."""
    return next((quota for name, quota in project.quotas if name == resource), _FREE)


_FREE = Quota()


def _whose(project: Project) -> str:
    return f"project {project.name}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _amount(resource: str, milli: float) -> str:
    if resource == CPUS:
        return words.cpus(int(milli))
    return words.gpus(int(milli), "" if resource == GPUS else resource)


def _noun(resource: str) -> str:
    return {CPUS: "the CPUs", GPUS: "the GPUs"}.get(resource, f"the {resource} GPUs")
