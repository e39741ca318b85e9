"""Computes the measures of a replay: waits, completion times, slowdowns, utilization, fragmentation, fairness, preemptions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from trainmaster.errors import UsageError
from trainmaster.simulator.forecast_scores import Eta
from trainmaster.simulator.replay import History, Replay
from trainmaster.simulator.sampling import fairness, mean
from trainmaster.simulator.trace import width_of_sites

TAU_S = 10.0  # in a bounded slowdown, shorter jobs count as this long (Feitelson)


@dataclass(frozen=True, slots=True)
class Share:
    """The measures of one project."""

    jobs: int
    wait_mean_s: float
    completion_mean_s: float
    hours: float  # GPU-hours (CPU-hours if there are no GPUs)


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one policy on one trace. `utilisation` is from the first submission to the last end."""

    policy: str
    jobs: int
    completion_mean_s: float
    completion_p50_s: float
    completion_p99_s: float
    wait_mean_s: float
    wait_max_s: float
    still_max_s: float  # the longest uninterrupted time of a job in the queue
    bounded_slowdown_mean: float
    utilisation: float
    preemptions: int
    lost_hours: float  # GPU-hours (CPU-hours if there are no GPUs) of work repeated after preemptions
    makespan_s: float
    seconds: float  # of real time, start estimates included
    jobs_per_s: float
    restarts: int = 0  # after failures
    never: int = 0  # jobs that never started; they are not in the other figures
    fragmentation: float | None = None  # share of free GPUs that a typical job cannot use, averaged over time
    fairness: float | None = None  # mean Jain index of usage over weight of projects with work; None: never two of them
    projects: dict[str, Share] = field(default_factory=dict)
    eta: Eta | None = None  # quality of start estimates, if any were made
    eta_seconds: float = 0.0  # part of `seconds` that start estimates took


def measure(replay: Replay) -> Measures:
    """The measures of a finished replay. Raises: UsageError if no job could start."""
    lives = [life for life in replay.histories.values() if life.ended_s >= 0]
    if not lives:
        raise UsageError("no job could start", "is a quota or a limit below what the jobs request?")
    completions = sorted(life.ended_s - life.submit_s for life in lives)
    waits = [waited_s(life) for life in lives]
    first_s, last_s = min(life.submit_s for life in lives), max(life.ended_s for life in lives)
    served = sum(life.ran_s * life.width for life in lives)
    return Measures(
        replay.policy.name,
        len(lives),
        fmean(completions),
        quantile(completions, 0.5),
        quantile(completions, 0.99),
        fmean(waits),
        max(waits),
        max(life.stood_s for life in lives),
        fmean(map(slowdown, lives)),
        served / (width_of_sites(replay.trace.sites) * (last_s - first_s)) if last_s > first_s else 0.0,
        sum(life.preemptions for life in lives),
        sum(life.lost_s * life.width for life in lives) / 3600,
        last_s - first_s,
        replay.seconds,
        len(lives) / replay.seconds if replay.seconds else 0.0,
        sum(life.restarts for life in lives),
        len(replay.histories) - len(lives),
        _fragmentation(replay),
        _fairness(replay),
        _projects(lives),
        replay.scorer.eta if replay.scorer is not None else None,
        replay.scorer.seconds if replay.scorer is not None else 0.0,
    )


def waited_s(life: History) -> float:
    """Time from submission to end without run time."""
    return life.ended_s - life.submit_s - life.ran_s


def slowdown(life: History) -> float:
    """Completion time over run time, bounded: a job counts as at least `TAU_S` long."""
    return max(1.0, (life.ended_s - life.submit_s) / max(life.run_s, TAU_S))


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _fragmentation(replay: Replay) -> float | None:
    sampler = replay.sampler
    if sampler is None or not any(site.devices for site in replay.trace.sites):
        return None
    return mean([(sample.at_s, sample.fragments / sampler.width) for sample in sampler.samples])


def _fairness(replay: Replay) -> float | None:
    found = fairness(replay.sampler.samples, replay.settings.rules) if replay.sampler is not None else []
    return fmean(value for _, value in found) if found else None


def _projects(lives: Sequence[History]) -> dict[str, Share]:
    of: dict[str, list[History]] = {}
    for life in lives:
        of.setdefault(life.project, []).append(life)
    return {
        name: Share(
            len(mine),
            fmean(map(waited_s, mine)),
            fmean(life.ended_s - life.submit_s for life in mine),
            sum(life.ran_s * life.width for life in mine) / 3600,
        )
        for name, mine in sorted(of.items())
    }
