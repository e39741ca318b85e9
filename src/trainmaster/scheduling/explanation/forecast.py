"""When waiting jobs will start, with bounds: the queue played forward over drawn run times, corrected by earlier waits.

The draws alone are too narrow: a user's jobs are alike, and other jobs arrive. So each quantile of the draws is moved until as
many actual waits are below it as should be (`Calibration`). A 90 % bound leaves out 3 % of the waits below it and 6.5 % above:
waits have a long tail, so the interval is shorter than with 5 % on each side. After few outcomes, the latest start is later
still: without that, the 90 % bound held for 86 % of the jobs of a small team, whose workload ends after some sixty outcomes.
Source: conformal correction of quantiles, Romano, Patterson and Candès, NeurIPS 2019; followed over time as in Gibbs and
Candès, NeurIPS 2021.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

from trainmaster.scheduling.explanation import forward
from trainmaster.scheduling.explanation.standing import ordered
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.prediction.lifetimes import Lifetimes

if TYPE_CHECKING:
    from random import Random

AHEAD_MAX = 400  # the first jobs of the queue, which are played forward; jobs further back have no forecast
SAMPLES, SAMPLES_MIN = 50, 10
TELLING = 10  # with fewer finished jobs, or fewer estimates, a figure is a guess
_DECISIONS_MAX = 3_000  # in one forecast: of a long queue there are fewer samples
_DRAWN = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles of the draws
_TRUE = (0.03, 0.25, 0.5, 0.75, 0.935)  # which quantiles of the truth they are to become
_OFFSET_S = 600.0  # errors are factors of long waits and seconds of short ones
_STEP, _FIRST, _SOON = 0.015, 20.0, 1.0  # the step of the n-th outcome: 1 / (n + 20), and never less than 0.015
_BEFORE = (-0.7, -0.2, 0.0, 0.2, 0.5)  # logarithms by which the quantiles are moved before the first outcome
_UNSURE = 0.8  # the latest start is moved by so much more before the first outcome, by half of it after 20


class Waits(NamedTuple):
    """Seconds until a start: the bounds within which it is with 90 and with 50 %, and the middle. Infinite: maybe never."""

    low90_s: float
    low50_s: float
    p50_s: float
    high50_s: float
    high90_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """By how much (a logarithm) each quantile of the draws is moved, after so many outcomes."""

    moves: tuple[float, ...] = _BEFORE
    outcomes: int = 0

    def after(self, drawn: Waits, waited_s: float) -> "Calibration":
        """With one more outcome: a job of which `drawn` was drawn has started after `waited_s`."""
        step = max(_STEP, _SOON / (self.outcomes + _FIRST))
        moves = [
            move + step * ((_error(one, waited_s) > move) - (1.0 - share))
            for move, one, share in zip(self.moves, drawn, _TRUE, strict=True)
        ]
        return Calibration(tuple(moves), self.outcomes + 1)

    def corrected(self, drawn: Waits) -> Waits:
        """What to say where `drawn` was drawn."""
        unsure = _UNSURE * _FIRST / (self.outcomes + _FIRST)
        moves = (*self.moves[:-1], self.moves[-1] + unsure)
        moved = (max(0.0, (one + _OFFSET_S) * exp(move) - _OFFSET_S) for one, move in zip(drawn, moves, strict=True))
        return Waits(*sorted(moved))


def _error(said_s: float, waited_s: float) -> float:
    return -inf if said_s == inf else log((waited_s + _OFFSET_S) / (said_s + _OFFSET_S))


def forecasts(
    snapshot: Snapshot, policy: Policy, lifetimes: Lifetimes, wanted: Collection[str], rng: "Random"
) -> dict[str, Waits]:
    """The drawn waits of `wanted`, from now, not corrected yet. The same snapshot and seed give the same.

    Left out are jobs too far back in the queue, and jobs that do not start in half of the draws.
    """
    queue = ordered(snapshot, policy)
    if len(queue) > AHEAD_MAX:
        snapshot = snapshot._replace(waiting={task.id: task for task in queue[:AHEAD_MAX]})
    told = [task.id for task in queue[:AHEAD_MAX] if task.id in wanted]
    waits: dict[str, list[float]] = {id: [] for id in told}
    for starts in _played(snapshot, policy, _draws(snapshot, lifetimes, rng), told):
        for id in told:
            waits[id].append(max(0.0, starts.get(id, inf) - snapshot.now_s))
    found = {id: Waits(*(_quantile(sorted(times), share) for share in _DRAWN)) for id, times in waits.items()}
    return {id: one for id, one in found.items() if one.p50_s < inf}


def _draws(snapshot: Snapshot, lifetimes: Lifetimes, rng: "Random") -> dict[str, list[float]]:
    """For each job the samples of how long it still runs, in the order of submission: whatever order a store gives them in."""
    drawn = {}
    for run in sorted(snapshot.running.values(), key=lambda run: run.task.seq):
        ran_s = run.task.attained_s + max(0.0, snapshot.now_s - run.placed_s)
        drawn[run.task.id] = lifetimes.draw(run.task.kind, ran_s, rng, SAMPLES)
    for task in sorted(snapshot.waiting.values()):  # a later one changes nothing about the others'
        drawn[task.id] = lifetimes.draw(task.kind, task.attained_s, rng, SAMPLES)
    return drawn


def _played(snapshot: Snapshot, policy: Policy, drawn: dict[str, list[float]], told: Sequence[str]) -> list[dict[str, float]]:
    """The starts in each sample."""
    if not told:
        return []
    samples = max(SAMPLES_MIN, min(SAMPLES, _DECISIONS_MAX // len(drawn)))
    lives = ({id: times[k] for id, times in drawn.items()} for k in range(samples))
    return [forward.starts(snapshot, policy, one, told) for one in lives]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
