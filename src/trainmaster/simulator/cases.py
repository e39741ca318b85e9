"""Cases to compare: a trace under a policy with settings, and its result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.errors import UsageError
from trainmaster.model.cluster import Cluster, Quota
from trainmaster.scheduling.admission.stock import CPUS, GPUS
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.simulator.charts import Result, data
from trainmaster.simulator.forecast_scores import ForecastScorer
from trainmaster.simulator.measures import measure
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.sampling import Sampler, Tell
from trainmaster.simulator.trace import Trace, impossible, without


@dataclass(frozen=True, slots=True)
class Case:
    """One replay to run, with up to `estimates` start estimates that are compared with the actual starts."""

    label: str
    trace: Trace
    policy: Policy
    settings: Settings
    estimates: int = 0


def run(case: Case, tell: Tell | None = None, estimating: Callable[[int], None] | None = None) -> Result:
    """Run the replay with samples. `tell` gets the number of ended jobs and the time, `estimating` the number of each estimate.

    Raises: UsageError if no job could start.
    """
    settings = replace(case.settings, exact=case.settings.exact or case.policy.exact)
    sampler = Sampler(case.trace.arrivals, case.trace.sites, tell)
    wanted = case.estimates and not settings.exact  # with known run times, estimates are meaningless
    scorer = ForecastScorer(case.policy, len(case.trace.arrivals), case.estimates, estimating) if wanted else None
    replay = Replay(case.trace, case.policy, settings, sampler=sampler, scorer=scorer)
    replay.run()
    return Result(case.label, measure(replay), data(replay))


def alike(cases: Sequence[Case]) -> tuple[list[Case], list[dict[str, str]]]:
    """The cases without jobs that can never start in one of them, so that all have the same jobs; the reasons per case."""
    places = {(case.trace.sites, case.settings.rules): case for case in cases}
    found = {place: impossible(case.trace, case.settings.rules) for place, case in places.items()}
    left = [found[case.trace.sites, case.settings.rules] for case in cases]
    out = frozenset().union(*left)
    return [replace(case, trace=without(case.trace, out)) for case in cases] if out else list(cases), left


def with_quotas(rules: Cluster, quotas: Mapping[tuple[str, str], float]) -> Cluster:
    """The rules with fixed limits by (project, resource), without lending or borrowing."""
    for (name, resource), limit in quotas.items():
        project = rules.project(name)
        kept = tuple((what, quota) for what, quota in project.quotas if what != resource)
        changed = replace(project, quotas=(*kept, (resource, Quota(0.0, limit, limit))))
        others = tuple(one for one in rules.projects if one.name != name)
        rules = replace(rules, projects=(*others, changed))
    return rules


def quotas(texts: tuple[str, ...], trace: Trace) -> dict[tuple[str, str], float]:
    """Parses `vision=32` (GPUs, or CPUs if there are none) and `vision=a100:32` into limits by (project, resource).

    Raises: UsageError, also for a project without jobs and a resource that no node has.
    """
    projects = sorted({one.project for one in trace.arrivals})
    usual = GPUS if any(site.devices for site in trace.sites) else CPUS
    kinds = {usual, GPUS, CPUS, *(kind for site in trace.sites for kind in site.cell.kinds)}
    found: dict[tuple[str, str], float] = {}
    for text in texts:
        name, _, amount = text.partition("=")
        resource, _, count = amount.rpartition(":")
        try:
            limit = float(count)
        except ValueError:
            limit = -1.0
        if not name.strip() or not 0 <= limit < float("inf"):
            raise UsageError(f"--quota {text!r} is not understood", "write PROJECT=GPUS or PROJECT=KIND:GPUS, as in vision=32")
        if name.strip() not in projects:
            few = ", ".join(projects[:10]) + (" and others" if len(projects) > 10 else "")
            raise UsageError(f"--quota {text!r}: project {name.strip()!r} has no jobs", f"projects here: {few}")
        kind = resource.strip().lower() or usual
        if kind not in kinds:
            raise UsageError(f"--quota {text!r}: no node has any {kind}", f"here are {', '.join(sorted(kinds))}")
        found[name.strip(), kind] = limit
    return found
