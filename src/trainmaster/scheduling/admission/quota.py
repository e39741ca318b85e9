"""What projects may hold: guarantee ≤ nominal ≤ limit of each resource, and how many jobs may run at a time.

Up to its nominal quota a project has what is its own; beyond it borrows what others leave idle, and gives it back when they
come (`preempt.ByRight`). What is guaranteed is never lent. A parent's quota holds for all that is below it. Sources: Kueue's
cohorts, Volcano's capacity plugin.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from trainmaster.model.cluster import UNBOUNDED, Cluster, Project, Quota
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Kind, Run, by_kind
from trainmaster.scheduling.model.request import WHOLE, Ask, ask_of
from trainmaster.scheduling.model.snapshot import Refusal
from trainmaster.scheduling.model.space import GONE, Grant, Site

Held = dict[str, int]  # thousandths by resource
GPUS, CPUS = "gpus", "cpus"


class Tally:
    """What every project holds now, against what it may. Changed in place while plans are made."""

    def __init__(self, rules: Cluster, sites: Sequence[Site]) -> None:
        self.rules, self.sites = rules, sites
        self._express = {one.name: one for one in rules.classes if one.express_gpus}
        self._lane: Held = {}  # what jobs in an express lane hold, by class
        projects = any(one.bounded for one in rules.projects)
        self.idle = not projects and not self._express
        self.held: dict[str, Held] = {}
        self.jobs: dict[str | tuple[str, str], int] = {}  # that run, by project and by member
        self.borrowers: set[str] = set()  # projects that hold more than is theirs of anything
        self._bounds: dict[str, _Bounds] = {}
        self._totals: Held = {}  # of all projects together, on open nodes
        self._closed = {node for node, site in enumerate(sites) if not site.open}
        self._owed: dict[str, dict[str, int]] = {}  # by resource: what is guaranteed to whom and not in their hands
        for one in rules.projects:
            for resource, quota in one.quotas:
                if quota.guarantee:
                    self._owed.setdefault(resource, {})[one.name] = int(quota.guarantee * WHOLE)
        self._pledged = {resource: dict(owed) for resource, owed in self._owed.items()}  # the same while nobody holds anything
        self._owing = {resource: sum(owed.values()) for resource, owed in self._owed.items()}
        self._nested = any(self._inside(one.name, owed) for owed in self._owed.values() for one in rules.projects)

    def fill(self, alike: Mapping[Kind, Sequence[Run]], sign: int = 1) -> None:
        """All that these hold (or no longer do: `sign` -1). What jobs of one kind hold is the same, unless any kind of GPU is
        welcome to them.
        """
        if self.idle:
            return
        for kind, runs in alike.items():
            if not self._closed and kind.choices is None and (len(kind.ask.each.kinds) == 1 or not kind.ask.gpu_milli):
                self._enter(kind, kind.ask, asked(kind.ask), sign * len(runs))
            else:
                for run in runs:
                    self.enter(kind, run.grant, sign)

    def enter(self, kind: Kind, grant: Grant, sign: int = 1) -> None:
        """A job of this kind holds this (or no longer does: `sign` -1)."""
        if self.idle:
            return
        self._enter(kind, grant.ask, self.amounts(grant), sign)
        if not self._closed.isdisjoint(grant.nodes):
            for resource, milli in self._on_closed(grant).items():
                self._totals[resource] -= sign * milli

    def leave(self, runs: Collection[Run], sign: int = 1) -> None:
        """They give back what they do when they stop (or do not after all: `sign` -1)."""
        self.fill(by_kind(runs), -sign)
        for run in runs:
            if run.shrinking:
                self.enter(run.task.kind, run.least, sign)

    def _enter(self, kind: Kind, ask: Ask, amounts: Held, sign: int) -> None:
        for name, held, quotas in (self._bounds.get(kind.project) or self._bound(kind.project)).own:
            for resource, milli in amounts.items():
                held[resource] = held.get(resource, 0) + sign * milli
            self.jobs[name] = self.jobs.get(name, 0) + sign
            over = False
            for resource, nominal, guaranteed in quotas:
                has = held.get(resource, 0)
                over = over or has > nominal
                if guaranteed:
                    owed = guaranteed - has if has < guaranteed else 0
                    self._owing[resource] += owed - self._owed[resource][name]
                    self._owed[resource][name] = owed
            (self.borrowers.add if over else self.borrowers.discard)(name)
        for resource, milli in amounts.items():
            self._totals[resource] = self._totals.get(resource, 0) + sign * milli
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

    def _on_closed(self, grant: Grant) -> Held:
        """What it takes of nodes that are not open: of what these have nothing counts as there to be given either."""
        found: Held = {}
        for index, node in enumerate(grant.nodes):
            if node in self._closed:
                part = Grant(ask_of(1, grant.shape(index)), (node,), grant.devices[index : index + 1])
                for resource, milli in self.amounts(part).items():
                    found[resource] = found.get(resource, 0) + milli
        return found

    def barrier(self, kind: Kind, grant: Grant | None = None) -> Refusal | None:
        """Why a job of this kind may not start now whatever is free (on just this, if `grant` is given); None: it may."""
        if self.idle:
            return None
        bounds, jobs = self._bounds.get(kind.project) or self._bound(kind.project), self.jobs
        for name, most in bounds.running:
            if not most:
                return Refusal("impossible", f"asks to run in project {name}, which may run no jobs at all")
            if jobs.get(name, 0) >= most:
                return Refusal("quota", f"waiting for quota: project {name} may run {_jobs(most)} at a time")
        if bounds.member == 0:
            return Refusal("impossible", f"asks to run in project {kind.project}, whose members may run no jobs at all")
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
        return self._totals.get(GPUS, 0) + ask.gpu_milli + kept > self.capacity.get(GPUS, 0)

    def _bound(self, name: str) -> "_Bounds":
        line = self.rules.line(name)
        limits: dict[str, list[tuple[str, Held, float]]] = {}
        for one in line:
            for resource, quota in one.quotas:
                if quota.limit < UNBOUNDED:
                    limits.setdefault(resource, []).append((one.name, self._held(one.name), quota.limit * WHOLE))
        running = tuple((one.name, one.running_max) for one in line if one.running_max is not None)
        own = tuple(
            (
                one.name,
                self._held(one.name),
                tuple((resource, quota.nominal * WHOLE, int(quota.guarantee * WHOLE)) for resource, quota in one.quotas),
            )
            for one in line
        )
        found = self._bounds[name] = _Bounds(line, own, running, line[0].running_per_member_max, limits)
        return found

    def _beyond(self, bounds: "_Bounds", resource: str, milli: int) -> Refusal | None:
        owed = self._owed.get(resource)
        for name, held, limit in bounds.limits.get(resource, ()):
            if held.get(resource, 0) + milli > limit:
                most = _amount(resource, limit)
                if milli > limit:
                    return Refusal("impossible", f"asks for {_amount(resource, milli)}; project {name} may hold {most}")
                return Refusal("quota", f"waiting for quota: project {name} may hold {most} at a time")
            if owed and name != bounds.line[0].name and not self._guaranteed(bounds.line[0], resource, milli):
                below = {one: left for one, left in owed.items() if any(up.name == name for up in self.rules.line(one)[1:])}
                others = self._of_others(below, bounds.line)
                if others and held.get(resource, 0) + milli + others > limit:
                    text = f"what is left of {_noun(resource)} of project {name} is guaranteed to others in it"
                    return Refusal("quota", f"waiting for quota: {text}")
        if not owed or self._totals.get(resource, 0) + milli + self._owing[resource] <= self.capacity.get(resource, 0):
            return None
        if self._guaranteed(bounds.line[0], resource, milli):
            return None
        if self._nested:
            others = self._of_others(owed, bounds.line)
        else:
            others = self._owing[resource] - sum(owed.get(one.name, 0) for one in bounds.line)
        if others and self._totals.get(resource, 0) + milli + others > self.capacity.get(resource, 0):
            never = self._of_others(self._pledged[resource], bounds.line)
            if milli + never > self.whole.get(resource, 0):
                theirs = f"of {_amount(resource, self.whole.get(resource, 0))} here {_amount(resource, never)} are guaranteed"
                return Refusal("impossible", f"asks for {_amount(resource, milli)}; {theirs} to other projects")
            return Refusal("quota", f"waiting for quota: what is left of {_noun(resource)} is guaranteed to other projects")
        return None

    def _guaranteed(self, own: Project, resource: str, milli: int) -> bool:
        """Whether so much more is within what is guaranteed to a project."""
        return self._held(own.name).get(resource, 0) + milli <= quota_of(own, resource).guarantee * WHOLE

    def _of_others(self, guaranteed: Mapping[str, int], line: Sequence[Project]) -> int:
        """How much of this is other projects' than those in `line`. What is guaranteed within a project's own counts once."""
        own = {one.name for one in line}

        def kept(name: str) -> int:
            inner = sum(kept(one) for one in self._inside(name, guaranteed))
            return inner if name in own else max(guaranteed[name], inner)

        return sum(kept(name) for name in guaranteed if self._above(name, guaranteed) is None)

    def _inside(self, name: str, guaranteed: Mapping[str, int]) -> list[str]:
        """Those of `guaranteed` that are part of a project with none of them between."""
        return [one for one in guaranteed if self._above(one, guaranteed) == name]

    def _above(self, name: str, guaranteed: Mapping[str, int]) -> str | None:
        """The nearest of those that it is part of to which anything is guaranteed as well."""
        return next((one.name for one in self.rules.line(name)[1:] if one.name in guaranteed), None)

    def within(self, kind: Kind) -> bool:
        """Whether it would hold no more than is its own with one more job of this kind, of everything asked for.

        Something must be its own: to a project without a quota of what is asked for nothing is owed. Below its parent, what
        others would have to give back counts as given back.
        """
        if self.idle:
            return False
        needed, owned = asked(kind.ask), False
        bounds = self._bounds.get(kind.project) or self._bound(kind.project)
        for at, (name, held, quotas) in enumerate(bounds.own):
            for resource, nominal, _ in quotas:
                has = held.get(resource, 0) + needed.get(resource, 0)
                if has > nominal and (not at or has - self._lent(name, resource, bounds.line) > nominal):
                    return False
                owned = owned or (resource in needed and nominal < UNBOUNDED)
        return owned

    def _lent(self, name: str, resource: str, line: Sequence[Project]) -> float:
        """What those below a project that are not in `line` hold beyond what is their own."""
        own, found = {one.name for one in line}, 0.0
        for one in self.rules.projects:
            if one.parent == name:
                below = self._lent(one.name, resource, line)
                more = self._held(one.name).get(resource, 0) - quota_of(one, resource).nominal * WHOLE
                found += below if one.name in own else max(below, more, 0.0)
        return found

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
        return _amounts_of(site.cell for site in self.sites if site.open)

    @cached_property
    def whole(self) -> Held:
        """What all have, those included that may come back."""
        return _amounts_of(site.cell for site in self.sites if site.open or site.why != GONE)

    def _held(self, project: str) -> Held:
        return self.held.setdefault(project, {})


class _Bounds(NamedTuple):
    """What holds for one project and those that it is part of. `own`: of each its name, what it holds, and of each resource how
    much is nominal and guaranteed, in thousandths; `limits` by resource: whose, what they hold, the most.
    """

    line: tuple[Project, ...]
    own: tuple[tuple[str, Held, tuple[tuple[str, float, int], ...]], ...]
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


def _amounts_of(cells: Iterable[Cell]) -> Held:
    found: Held = {}
    for cell, nodes in Counter(cells).items():
        found[GPUS] = found.get(GPUS, 0) + WHOLE * sum(cell.whole) * nodes
        found[CPUS] = found.get(CPUS, 0) + cell.cpus * nodes
        for gpu, count in zip(cell.kinds, cell.whole, strict=True):
            found[gpu] = found.get(gpu, 0) + WHOLE * count * nodes
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
