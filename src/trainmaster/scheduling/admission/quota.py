"""Quotas of projects: guarantee ≤ nominal ≤ limit of each resource, and how many jobs may run at a time.

Up to its nominal quota a project uses its own. Beyond it, it borrows what other projects leave idle, and they reclaim it
(`preemption.victims.ByRight`). What is guaranteed is never lent (`guarantees`). The quota of a parent holds for all projects
below it together. Sources: Kueue's cohorts, Volcano's capacity plugin.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from trainmaster.model.cluster import UNBOUNDED, Cluster, Project, Quota
from trainmaster.scheduling.admission.guarantees import Guarantees
from trainmaster.scheduling.admission.stock import CPUS, GPUS, Held, Stock, asked
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.jobs import Kind, Run, by_kind
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import WHOLE, Ask
from trainmaster.scheduling.model.space import Grant, Site, Space
from trainmaster.scheduling.reservation.backfill import Kept


class Tally:
    """What every project holds now and may hold. A decision changes it in place."""

    def __init__(self, rules: Cluster, sites: Sequence[Site]) -> None:
        self.rules, self.stock, self.guarantees, self._lanes = rules, Stock(sites), Guarantees(rules), _Lanes(rules)
        self.idle = not any(one.bounded for one in rules.projects) and not self._lanes.express
        self.held: dict[str, Held] = {}
        self.jobs: dict[str | tuple[str, str], int] = {}  # running jobs, by project and by member
        self.borrowers: set[str] = set()  # projects that hold more than the nominal quota of a resource
        self._bounds: dict[str, _Bounds] = {}

    def fill(self, alike: Mapping[Kind, Sequence[Run]], sign: int = 1) -> None:
        """Add what these jobs hold (`sign` -1: subtract). Jobs of one kind hold the same, unless they accept any GPU."""
        if self.idle:
            return
        for kind, runs in alike.items():
            if kind.choices is None and self.stock.alike(kind.ask):
                amounts, times = asked(kind.ask), sign * len(runs)
                self._enter(kind, kind.ask, amounts, times)
                self.stock.add(amounts, times)
            else:
                for run in runs:
                    self.enter(kind, run.grant, sign)

    def enter(self, kind: Kind, grant: Grant, sign: int = 1) -> None:
        """Add what a job of this kind holds (`sign` -1: subtract)."""
        if self.idle:
            return
        amounts = self.stock.amounts(grant)
        self._enter(kind, grant.ask, amounts, sign)
        self.stock.enter(grant, amounts, sign)

    def leave(self, runs: Collection[Run]) -> None:
        """Subtract what these jobs free when they stop."""
        self._move(runs, -1)

    def stay(self, runs: Collection[Run]) -> None:
        """Add it again: they do not stop."""
        self._move(runs, 1)

    def _move(self, runs: Collection[Run], sign: int) -> None:
        self.fill(by_kind(runs), sign)
        for run in runs:
            if run.shrinking:
                self.enter(run.task.kind, run.least, -sign)

    def _enter(self, kind: Kind, ask: Ask, amounts: Held, sign: int) -> None:
        for name, held, quotas in self._of(kind).own:
            for resource, milli in amounts.items():
                held[resource] = held.get(resource, 0) + sign * milli
            self.jobs[name] = self.jobs.get(name, 0) + sign
            over = False
            for resource, nominal, guaranteed in quotas:
                has = held.get(resource, 0)
                over = over or has > nominal
                if guaranteed:
                    self.guarantees.hold(name, resource, guaranteed, has)
            (self.borrowers.add if over else self.borrowers.discard)(name)
        self._lanes.enter(kind, ask, sign)
        member = (kind.project, kind.member)
        self.jobs[member] = self.jobs.get(member, 0) + sign

    def barrier(self, kind: Kind, grant: Grant | None = None) -> Refusal | None:
        """Why quotas bar a job of this kind now (with `grant`: on exactly these nodes); None: they do not."""
        if self.idle:
            return None
        bounds, jobs = self._of(kind), self.jobs
        for name, most in bounds.running:
            if not most:
                return Refusal(Reason.IMPOSSIBLE, f"asks to run in project {name}, which may run no jobs at all")
            if jobs.get(name, 0) >= most:
                return Refusal(Reason.QUOTA, f"waiting for quota: project {name} may run {_jobs(most)} at a time")
        if bounds.member == 0:
            return Refusal(Reason.IMPOSSIBLE, f"asks to run in project {kind.project}, whose members may run no jobs at all")
        if bounds.member is not None and jobs.get((kind.project, kind.member), 0) >= bounds.member:
            text = f"a member of project {kind.project} may run {_jobs(bounds.member)} at a time"
            return Refusal(Reason.QUOTA, f"waiting for quota: {text}")
        ask = kind.ask if grant is None else grant.ask
        if self._lanes.bar(kind, ask, self.stock):
            left = "the GPUs that are left are kept for short jobs of the express lane"
            return Refusal(Reason.QUOTA, f"waiting for quota: {left}")
        needed = asked(ask) if grant is None else self.stock.amounts(grant)
        for resource, milli in needed.items():
            refused = self._beyond(bounds, resource, milli)
            if refused is not None:
                return refused
        return None if self.rules.work(kind.work).preemptible else self._never_lent(kind, needed)

    def _never_lent(self, kind: Kind, needed: Held) -> Refusal | None:
        """Why a job of a class that is not preemptible may not start: it would borrow what could not be reclaimed."""
        over = self.borrows(kind, needed)
        if over is None:
            return None
        name, resource, nominal = over
        one = nominal == WHOLE
        own = f"of project {name} {_amount(resource, nominal)} {'is' if one else 'are'} its own, and jobs of class {kind.work}"
        why = f"{own} are never stopped, so they borrow nothing"
        if needed.get(resource, 0) > nominal:
            return Refusal(Reason.IMPOSSIBLE, f"asks for {_amount(resource, needed[resource])}; {why}")
        return Refusal(Reason.QUOTA, f"waiting for quota: {why}")

    def shut(self, kind: Kind) -> frozenset[str]:
        """The kinds of GPU that a job that accepts any kind may not take now."""
        ask = kind.ask
        if self.idle or len(ask.each.kinds) == 1 or not ask.gpu_milli:
            return frozenset()
        bounds = self._of(kind)
        kinds = (gpu for gpu in self.stock.capacity if gpu not in (GPUS, CPUS))
        return frozenset(gpu for gpu in kinds if self._beyond(bounds, gpu, ask.gpu_milli) is not None)

    def set_aside(self, space: Space, kind: Kind) -> Mapping[str, Kept]:
        """By resource: what is kept for projects other than that of such a job.

        If nodes are away and not all guarantees can be met, the first job within its own guarantee starts.
        """
        if self.idle:
            return {}
        line = self._of(kind).line
        kept = self.guarantees.set_aside(space, line, self.stock)
        return {resource: one for resource, one in kept.items() if not self._comes_first(line[0], resource, asked(kind.ask))}

    def _comes_first(self, own: Project, resource: str, needed: Held) -> bool:
        scarce = self.guarantees.pledged(resource, ()) > self.stock.capacity.get(resource, 0)
        return scarce and resource in needed and self._guaranteed(own, resource, needed[resource])

    def _of(self, kind: Kind) -> "_Bounds":
        return self._bounds.get(kind.project) or self._bound(kind.project)

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
        owing = self.guarantees.owing(resource)
        for name, held, limit in bounds.limits.get(resource, ()):
            if held.get(resource, 0) + milli > limit:
                most = _amount(resource, limit)
                if milli > limit:
                    return Refusal(Reason.IMPOSSIBLE, f"asks for {_amount(resource, milli)}; project {name} may hold {most}")
                return Refusal(Reason.QUOTA, f"waiting for quota: project {name} may hold {most} at a time")
            if owing and name != bounds.line[0].name and not self._guaranteed(bounds.line[0], resource, milli):
                others = self.guarantees.below(name, resource, bounds.line)
                if others and held.get(resource, 0) + milli + others > limit:
                    text = f"what is left of {_noun(resource)} of project {name} is guaranteed to others in it"
                    return Refusal(Reason.QUOTA, f"waiting for quota: {text}")
        free = self.stock.free(resource) - milli
        if not owing or owing <= free or self._guaranteed(bounds.line[0], resource, milli):
            return None
        others = self.guarantees.to_others(resource, bounds.line)
        if others and others > free:
            never, whole = self.guarantees.pledged(resource, bounds.line), self.stock.whole.get(resource, 0)
            if milli + never > whole:
                theirs = f"of {_amount(resource, whole)} here {_amount(resource, never)} are guaranteed"
                return Refusal(Reason.IMPOSSIBLE, f"asks for {_amount(resource, milli)}; {theirs} to other projects")
            return guaranteed_to_others(resource)
        return None

    def _guaranteed(self, own: Project, resource: str, milli: int) -> bool:
        """Whether a project stays within its guarantee with so much more."""
        return self._held(own.name).get(resource, 0) + milli <= quota_of(own, resource).guarantee * WHOLE

    def within(self, kind: Kind) -> bool:
        """Whether a job of this kind may reclaim: its project has a nominal quota of what it asks for, and would not borrow."""
        if self.idle:
            return False
        needed = asked(kind.ask)
        quotas = (quota for _, _, some in self._of(kind).own for quota in some)
        owned = any(nominal < UNBOUNDED and name in needed for name, nominal, _ in quotas)
        return owned and self.borrows(kind) is None

    def borrows(self, kind: Kind, amounts: Held | None = None) -> tuple[str, str, float] | None:
        """Which project would borrow with one more job of this kind, which resource, and how much of that is its own.

        `amounts`: what the job takes; None: what it asks for. What children of a project have borrowed counts as given back.
        """
        if self.idle:
            return None
        needed, bounds = asked(kind.ask) if amounts is None else amounts, self._of(kind)
        for name, held, quotas in bounds.own:
            for resource, nominal, _ in quotas:
                has = held.get(resource, 0) + needed.get(resource, 0)
                if has > nominal and has - self._lent(name, resource, bounds.line) > nominal:
                    return name, resource, nominal
        return None

    def keeps(self, project: str, resources: Collection[str]) -> bool:
        """Whether a project has a nominal quota of these resources and stays within it."""
        quotas = (quota for one in self.rules.line(project) for name, quota in one.quotas if name in resources)
        return any(quota.nominal < UNBOUNDED for quota in quotas) and not self.borrowed(project, resources)

    def _lent(self, name: str, resource: str, line: Sequence[Project]) -> float:
        """What projects below `name` and outside `line` hold beyond their own nominal quotas."""
        own, found = {one.name for one in line}, 0.0
        for one in self.rules.projects:
            if one.parent == name:
                below = self._lent(one.name, resource, line)
                more = self._held(one.name).get(resource, 0) - quota_of(one, resource).nominal * WHOLE
                found += below if one.name in own else max(below, more, 0.0)
        return found

    def borrowed(self, project: str, resources: Iterable[str]) -> Mapping[str, float]:
        """How much a project has borrowed of each of these resources, in thousandths, without what siblings have borrowed."""
        line = self.rules.line(project)
        found: dict[str, float] = {}
        if not self.borrowers.isdisjoint(one.name for one in line):
            for resource in resources:
                more = max(self._excess(one, resource, line) for one in line)
                if more > 0:
                    found[resource] = more
        return found

    def _excess(self, one: Project, resource: str, line: Sequence[Project]) -> float:
        """How much `one` of `line` holds beyond its nominal quota, without what projects outside `line` have borrowed."""
        more = self._held(one.name).get(resource, 0) - quota_of(one, resource).nominal * WHOLE
        return more if more <= 0 else more - self._lent(one.name, resource, line)

    def _held(self, project: str) -> Held:
        return self.held.setdefault(project, {})


class _Lanes:
    """Express lanes: GPUs that are reserved for short jobs of a class, and what such jobs hold of them."""

    def __init__(self, rules: Cluster) -> None:
        self.express = {one.name: one for one in rules.classes if one.express_gpus}
        self._held: Held = {}  # by class

    def enter(self, kind: Kind, ask: Ask, sign: int) -> None:
        """Add what a job holds (`sign` -1: subtract)."""
        if self.express and self._hurries(kind, ask):
            self._held[kind.work] = self._held.get(kind.work, 0) + sign * ask.gpu_milli

    def bar(self, kind: Kind, ask: Ask, stock: Stock) -> bool:
        """Whether a job would take GPUs that are reserved for express lanes."""
        if not self.express or not ask.gpu_milli or self._hurries(kind, ask):
            return False
        kept = sum(max(0, int(one.express_gpus * WHOLE) - self._held.get(name, 0)) for name, one in self.express.items())
        return ask.gpu_milli + kept > stock.free(GPUS)

    def _hurries(self, kind: Kind, ask: Ask) -> bool:
        """Whether a job with this request may use the express lane of its class."""
        work = self.express.get(kind.work)
        short = work is not None and kind.limit_s is not None and kind.limit_s <= work.express_limit_s
        return work is not None and short and ask.gpu_milli <= work.express_gpus * WHOLE


class _Bounds(NamedTuple):
    """The quotas of one project and its ancestors.

    `own`: of each its name, what it holds, and of each resource the nominal quota and the guarantee, in thousandths.
    `limits`, by resource: project, what it holds, limit.
    """

    line: tuple[Project, ...]
    own: tuple[tuple[str, Held, tuple[tuple[str, float, int], ...]], ...]
    running: tuple[tuple[str, int], ...]
    member: int | None
    limits: Mapping[str, Sequence[tuple[str, Held, float]]]


def closed(kind: Kind, shut: frozenset[str]) -> Refusal:
    """Why a job that accepts any kind of GPU waits although some are free."""
    kinds = ", ".join(sorted(shut))
    return Refusal(Reason.QUOTA, f"waiting for quota: project {kind.project} may not hold so many more GPUs of kind {kinds}")


def quota_of(project: Project, resource: str) -> Quota:
    """The quota of a project for a resource; by default nothing is guaranteed or limited."""
    return next((quota for name, quota in project.quotas if name == resource), _FREE)


_FREE = Quota()


def guaranteed_to_others(resource: str) -> Refusal:
    """Why a job waits although it fits: the rest is guaranteed to other projects."""
    return Refusal(Reason.QUOTA, f"waiting for quota: what is left of {_noun(resource)} is guaranteed to other projects")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _amount(resource: str, milli: float) -> str:
    if resource == CPUS:
        return words.cpus(int(milli))
    return words.gpus(int(milli), "" if resource == GPUS else resource)


def _noun(resource: str) -> str:
    return {CPUS: "the CPUs", GPUS: "the GPUs"}.get(resource, f"the {resource} GPUs")
