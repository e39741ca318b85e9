"""What a replay comes to: waits, completions, slowdowns, use, preemptions."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from trainmaster.simulator.replay import Replay

TAU_S = 10.0  # jobs shorter than this count as this long in a bounded slowdown (Feitelson)


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
    lost_hours: float  # GPU-hours (CPU-hours where there are no GPUs) that were done again
    makespan_s: float
    seconds: float  # of this machine, for the replay
    jobs_per_s: float


def measure(replay: Replay) -> Measures:
    """The measures of a replay that is over."""
    lives = list(replay.histories.values())
    completions = sorted(life.ended_s - life.submit_s for life in lives)
    waits = [life.ended_s - life.submit_s - life.ran_s for life in lives]
    first_s, last_s = min(life.submit_s for life in lives), max(life.ended_s for life in lives)
    served = sum(life.ran_s * life.width for life in lives)
    return Measures(
        replay.policy.name,
        len(lives),
        fmean(completions),
        _quantile(completions, 0.5),
        _quantile(completions, 0.99),
        fmean(waits),
        max(waits),
        max(life.stood_s for life in lives),
        fmean(max(1.0, (life.ended_s - life.submit_s) / max(life.run_s, TAU_S)) for life in lives),
        served / (_capacity(replay) * (last_s - first_s)) if last_s > first_s else 0.0,
        sum(life.preemptions for life in lives),
        sum((life.ran_s - life.run_s) * life.width for life in lives) / 3600,
        last_s - first_s,
        replay.seconds,
        len(lives) / replay.seconds if replay.seconds else 0.0,
    )


def _capacity(replay: Replay) -> float:
    """GPUs of all sites, or CPUs where there are none."""
    gpus = sum(len(site.devices) for site in replay.sites)
    return float(gpus) if gpus else sum(site.cell.cpus for site in replay.sites) / 1000


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
