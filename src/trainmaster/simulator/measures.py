"""What a replay comes to: waits, completions, slowdowns, use, fragmentation, fairness, preemptions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from trainmaster.errors import UsageError
from trainmaster.simulator.forecast_scores import Eta
from trainmaster.simulator.replay import History, Replay
from trainmaster.simulator.sampling import fairness, mean
from trainmaster.simulator.trace import width_of_sites

TAU_S = 10.0  # jobs shorter than this count as this long in a bounded slowdown (Feitelson)


@dataclass(frozen=True, slots=True)
class Share:
    """One project's part."""

    jobs: int
    wait_mean_s: float
    completion_mean_s: float
    hours: float  # GPU-hours (CPU-hours where there are no GPUs)


@dataclass(frozen=True, slots=True)
class Measures:
    """Of one policy on one trace. `utilisation` is of the time from the first submission to the last end."""

    policy: str
    jobs: int
    completion_mean_s: float
    completion_p50_s: float
    completion_p99_s: float
    wait_mean_s: float
    wait_max_s: float
    still_max_s: float  # the longest that a job stood in the queue without a break
    bounded_slowdown_mean: float
    utilisation: float
    preemptions: int
    lost_hours: float  # GPU-hours (CPU-hours where there are no GPUs) that were done again after preemptions
    makespan_s: float
    seconds: float  # of this machine, start estimates included
    jobs_per_s: float
    restarts: int = 0  # after failures
    never: int = 0  # jobs that could not start to the end, whom the other figures leave out
    fragmentation: float | None = None  # share of the GPUs that are free and of no use to a typical job, mean over time
    fairness: float | None = None  # Jain of usage over weight of the projects that have work, mean; None: never two of them
    projects: dict[str, Share] = field(default_factory=dict)
    eta: Eta | None = None  # how good start estimates were; None: there were none
    eta_seconds: float = 0.0  # of `seconds`, what start estimates took


def measure(replay: Replay) -> Measures:
    """The measures of a replay that is over. Raises: UsageError where nothing could run."""
    lives = [life for life in replay.histories.values() if life.ended_s >= 0]
    if not lives:
        raise UsageError("not one job could start", "is a quota or a limit below what the jobs ask for?")
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
        served / (width_of_sites(replay.sites) * (last_s - first_s)) if last_s > first_s else 0.0,
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
    """Of the time from submission to end, what it did not run."""
    return life.ended_s - life.submit_s - life.ran_s


def slowdown(life: History) -> float:
    """Completion over run time, bounded: a job counts as `TAU_S` at least."""
    return max(1.0, (life.ended_s - life.submit_s) / max(life.run_s, TAU_S))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in ascending order, the one that `share` of them do not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _fragmentation(replay: Replay) -> float | None:
    sampler = replay.sampler
    if sampler is None or not any(site.devices for site in replay.sites):
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
