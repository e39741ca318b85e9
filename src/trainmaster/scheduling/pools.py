"""Pools with different policies are planned one after the other, each with its own nodes and the jobs that could run there.

A job that fits into several pools is tried in each, in the order of the configuration, until it starts.
"""

from collections.abc import Iterator, Mapping, Sequence

from trainmaster.scheduling.admission.feasible import grouped, never
from trainmaster.scheduling.model.jobs import Kind, Run, Task
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import GONE, Site
from trainmaster.scheduling.policies.policy import Policy


class Parts:
    """The snapshot as each policy sees it, one after the other. `took` records the plan of each."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._waiting = dict(snapshot.waiting)
        self._running = dict(snapshot.running)
        self._plans: list[Plan] = []
        self._seen: Sequence[Task] = ()
        self._rests: list[tuple[set[Kind], Plan]] = []  # each plan with the kinds that it saw

    def __iter__(self) -> Iterator[tuple[Snapshot, Policy]]:
        snapshot, hopeless, named = (
            self._snapshot,
            set[str](),
            frozenset[str]().union(*(pools for pools, _ in self._policy.parts)),
        )
        unnamed = {site.pool for site in snapshot.sites} - named  # these belong to the first part
        for at, (own_pools, policy) in enumerate(self._policy.parts):
            pools = own_pools if at else own_pools | unnamed
            sites = tuple(site if site.pool in pools else _elsewhere(site) for site in snapshot.sites)
            groups, known = grouped(sites), dict[Kind, bool]()
            waiting = {}
            for id, task in self._waiting.items():
                if task.kind not in known:
                    known[task.kind] = never(task.kind.asks, groups) is None
                own = {snapshot.sites[node].pool for node in snapshot.promised[id].nodes} if id in snapshot.promised else None
                if known[task.kind] if own is None else not own.isdisjoint(pools):
                    waiting[id] = task
            hopeless = (hopeless if at else set(self._waiting)) - waiting.keys()
            if at == len(self._policy.parts) - 1:
                waiting |= {id: self._waiting[id] for id in hopeless if id in self._waiting}  # it says that they never can
            promised = {id: grant for id, grant in snapshot.promised.items() if id in waiting}
            self._seen = tuple(waiting.values())
            running = {**self._running, **self._promised_elsewhere(waiting)}
            yield snapshot._replace(sites=sites, waiting=waiting, running=running, promised=promised), policy

    def _promised_elsewhere(self, waiting: Mapping[str, Task]) -> Mapping[str, Run]:
        """Jobs to which nodes of other pools are promised: they count as held, and nobody takes them back."""
        snapshot = self._snapshot
        broken = {id for plan in self._plans for id in plan.broken}
        coming = {id: grant for id, grant in snapshot.promised.items() if id in snapshot.waiting}
        others = (id for id in coming if id not in waiting and id not in self._running and id not in broken)
        return {id: Run(snapshot.waiting[id], coming[id], snapshot.now_s, stopping=True) for id in others}

    def took(self, plan: Plan) -> None:
        """Record the plan of one policy. Its starts are not tried in other pools, and their nodes count as held."""
        self._rests.append(({task.kind for task in self._seen}, plan))
        self._plans.append(plan)
        started = [(one.job, one.grant) for one in plan.placements] + [(one.job, one.grant) for one in plan.handovers]
        for id, grant in started:
            self._running[id] = Run(self._waiting.pop(id), grant, self._snapshot.now_s)
        for one in plan.handovers:
            for id in one.victims:
                self._running[id] = self._running[id]._replace(stopping=True, shrinking=id in one.shrunk)
        for id in plan.promised:
            del self._waiting[id]

    def whole(self) -> Plan:
        """All plans as one."""
        plans = self._plans
        refused: dict[Kind, Refusal] = {}
        promised: dict[str, Refusal] = {}
        patient: dict[str, Refusal] = {}
        terms: dict[str, Mapping[str, float]] = {}
        for plan in plans:
            terms |= plan.terms
            found = plan.refused.items()
            refused |= {kind: one for kind, one in found if kind not in refused or one.cause is not Reason.IMPOSSIBLE}
            promised |= plan.promised
            patient |= {id: one for id, one in plan.patient.items() if id not in patient or not one.cause.of_pool}
        for id in [id for id, one in patient.items() if one.cause.of_pool]:  # in another pool it may wait for something else
            kind = self._snapshot.waiting[id].kind
            other = refused.get(kind) or self.reason(kind)
            if other.cause is not Reason.IMPOSSIBLE:
                del patient[id]
        return Plan(
            tuple(one for plan in plans for one in plan.placements),
            tuple(one for plan in plans for one in plan.handovers),
            tuple(one for plan in plans for one in plan.reservations),
            refused,
            max(plan.depth for plan in plans),
            self._policy.name,
            promised,
            tuple(one for plan in plans for one in plan.broken),
            self,
            patient,
            terms,
        )

    def reason(self, kind: Kind) -> Refusal:
        """Why a job waits of which no plan says anything: asks the last plan that saw such a job."""
        rest = next(plan.rest for kinds, plan in reversed(self._rests) if kind in kinds)
        assert rest is not None
        return rest.reason(kind)


def _elsewhere(site: Site) -> Site:
    return site._replace(open=False, why=GONE, elsewhere=site.open)
