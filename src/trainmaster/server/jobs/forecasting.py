"""Forecasts for waiting jobs: start estimates, what would let a job start, costs, and delays of other jobs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from random import Random

from trainmaster.model.job import Job, State
from trainmaster.ports.store import JobQuery
from trainmaster.scheduling.admission.feasible import grouped
from trainmaster.scheduling.explanation import remedies
from trainmaster.scheduling.explanation.forecast import TELLING, Calibration, Waits, forecasts
from trainmaster.scheduling.explanation.remedies import Change
from trainmaster.scheduling.model.jobs import Kind, Task
from trainmaster.scheduling.model.request import WHOLE
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Space
from trainmaster.scheduling.placement.choices import Market, gpu_of
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.lifetimes import Lifetimes
from trainmaster.scheduling.prediction.speeds import Speed, Speeds, work_of
from trainmaster.server.runtime.ended_jobs import Start
from trainmaster.server.runtime.runtime import Runtime
from trainmaster.server.views.resources import View

_LIVE_MAX = 1000
_SEED = "the queue"  # fixed: the same snapshot gives the same answer
_LIVE = tuple(state for state in State if state.live)
_NAMED_MAX = 5
_DELAY_MIN_S = 60.0  # smaller delays are ignored
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class History:
    """What past jobs say about run times, and about the errors of forecasts."""

    lifetimes: Lifetimes
    calibration: Calibration


def history(api: Runtime) -> History:
    """From the newest jobs. The cost is linear in running jobs, and in jobs that ended since the last call."""
    ended = api.recorded.ended()
    live = api.services.events.jobs(JobQuery(states=_LIVE, limit=_LIVE_MAX))
    return History(ended.lifetimes, calibrated((*ended.starts, *live)))


def calibrated(jobs: Iterable[Job | Start]) -> Calibration:
    """The correction learned from the forecasts of these jobs and their actual starts, in the order of the starts.

    Of several at the same time, the job that was forecast first counts first.
    """
    calibration = Calibration()
    told = ((job.started_s, job.forecast) for job in jobs if job.forecast is not None and job.started_s is not None)
    for started_s, said_s, waits_s in sorted((started_s, said.at_s, said.waits_s) for started_s, said in told):
        if started_s >= said_s:
            calibration = calibration.after(Waits(*waits_s), started_s - said_s)
    return calibration


def estimates(seen: Snapshot, policy: Policy, known: History, wanted: Collection[str]) -> dict[str, Waits]:
    """How long each job in `wanted` will still wait, as far as it can be estimated."""
    drawn = forecasts(seen, policy, known.lifetimes, wanted, Random(_SEED))
    return {id: known.calibration.corrected(waits) for id, waits in drawn.items()}


def waits_view(waits: Waits | None, known: History) -> View | None:
    """Seconds from now (null for an open bound), the number of finished jobs behind the estimate, and whether it is few."""
    if waits is None:
        return None
    jobs = known.lifetimes.learned
    bounds = {name.removesuffix("_s"): s if s < inf else None for name, s in waits._asdict().items()}
    return {**bounds, "jobs": jobs, "few": jobs < TELLING}


def needs(seen: Snapshot, policy: Policy, id: str) -> tuple[list[View], str]:
    """What would let a job start, as values and as a sentence; empty if nothing would, or if it starts without changes."""
    changes = remedies.remedy(seen, policy, id) or ()
    return [change._asdict() for change in changes], sentence(changes, seen)


def sentence(changes: Sequence[Change], seen: Snapshot) -> str:
    """`It starts once a-1 has ended and b-2, ahead of it, has had its turn.`"""
    of = {what: [change.name for change in changes if change.what == what] for what in (*_CLAUSES, remedies.TURN)}
    clauses = [one.format(names=_listed(of[what]), **_verbs(of[what])) for what, one in _CLAUSES.items() if of[what]]
    if of[remedies.TURN]:
        clauses.append(f"the {len(seen.waiting) - 1:,} others in the queue have had their turns")
    return f"It starts once {_together(clauses)}." if clauses else ""


_CLAUSES = {
    remedies.ENDS: "{names} {verb} ended",
    remedies.OPENS: "{names} {takes} work again",
    remedies.WINDOW: "the maintenance of pool {names} is out of its way",
    remedies.QUOTA: "more is allowed to {names}",
    remedies.LEAVES: "{names}, ahead of it, {verb} had a turn",
}


def _verbs(names: Sequence[str]) -> dict[str, str]:
    return {"verb": "has", "takes": "takes"} if len(names) == 1 else {"verb": "have", "takes": "take"}


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_NAMED_MAX])
    return _together([*shown, f"{len(names) - _NAMED_MAX:,} more"] if len(names) > _NAMED_MAX else shown)


def _together(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def delays(seen: Snapshot, policy: Policy, lifetimes: Lifetimes, it: Task) -> list[View]:
    """Which jobs would start how much later because of `it`, the most delayed first. Simulates the queue with and without."""
    others = [id for id in seen.waiting if id != it.id]
    without = seen._replace(waiting={id: seen.waiting[id] for id in others})
    after = forecasts(seen, policy, lifetimes, others, Random(_SEED))
    before = forecasts(without, policy, lifetimes, others, Random(_SEED))
    later = [(after[id].p50_s - before[id].p50_s, id) for id in others if id in after and id in before]
    told = sorted((-by_s, id) for by_s, id in later if by_s >= _DELAY_MIN_S)
    return [{"job": id, "by_s": -by_s} for by_s, id in told]


def measured(seen: Snapshot, kind: Kind) -> Mapping[str, Speed]:
    """Measured speeds of the job's choices of GPUs, from similar jobs; empty if the job itself sets speeds."""
    if kind.choices is None:
        return {}
    speeds, own = Speeds(), dict(kind.choices.speeds)
    speeds.follow(seen.ended)
    asked = {gpu_of(ask) for ask in kind.asks} - own.keys()
    found = {gpu: one for gpu, one in speeds.of(work_of(kind)).items() if gpu in asked}
    return found if len(found) > 1 else {}


def cost(seen: Snapshot, policy: Policy, lifetimes: Lifetimes, it: Task) -> View | None:
    """The cost of a job, at the price of the nodes that it would get if all were free; None if no node has a price.

    `expected` assumes the run time of similar jobs, a guess if `few` have finished; `at_most` the whole time limit, if any.
    """
    way = Market(seen.rules, grouped(seen.sites), seen.ended).ways(it.kind)[0]
    space, ask = Space(seen.sites), way.kind.ask
    nodes = [node for _, nodes in policy.place(space, ask) for node in nodes][: ask.nodes]
    rate, with_gpus = 0.0, {site.pool for site in seen.sites if site.devices}  # as `control.charging` does it
    for index, node in enumerate(nodes):
        shape = ask.first if index == 0 else ask.each
        site = seen.sites[node]
        units = shape.gpu_milli if site.pool in with_gpus else shape.cpus
        rate += seen.rules.pool(site.pool).price * units / WHOLE
    if not rate:
        return None
    times = lifetimes.draw(it.kind, 0.0, Random(_SEED), 100)
    expected_s, limit_s = way.share * sum(times) / len(times), it.kind.limit_s
    return {
        "currency": seen.rules.currency,
        "per_hour": rate,
        "run_s": expected_s,
        "few": lifetimes.learned < TELLING,
        "expected": rate * expected_s / _HOUR_S,
        "at_most": None if limit_s is None or not isfinite(limit_s) else rate * limit_s / _HOUR_S,
    }
