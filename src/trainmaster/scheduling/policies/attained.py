"""`least-attained`: the job that has had the least GPU time first. Source: Tiresias, NSDI'19."""

import numpy as np

from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.placement.strategies import pack
from trainmaster.scheduling.policies.policy import Policy, no_reservations
from trainmaster.scheduling.preemption.victims import MIN_RUN_S, Overtaking, after_a_while
from trainmaster.scheduling.state.figures import Figures, Floats
from trainmaster.scheduling.state.order import Keys, first

QUEUES = tuple(14_400.0 * 6**i for i in range(4))  # GPU-seconds after which a job moves to the next of five queues


def attained(jobs: Figures) -> Floats:
    """The queue of each job, by its GPU time so far."""
    found: Floats = np.searchsorted(QUEUES, jobs.attained_s * jobs.width, side="right").astype(np.float64)
    return found


def least_attained(snapshot: Snapshot, jobs: Figures) -> Keys:
    """The least GPU time so far, in five queues, and in each of them earlier submission (Tiresias, NSDI'19)."""
    return *first(snapshot.now_s, jobs), attained(jobs)


LEAST_ATTAINED = Policy(
    "least-attained", least_attained, pack, no_reservations, Overtaking(after_a_while, least_attained), beat_s=MIN_RUN_S
)
