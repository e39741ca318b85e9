"""The shortest job first, with exact run times: only in simulations.

`sjf` preempts no job. `srtf` and `srsf` preempt by remaining time and by remaining GPU time. `shortest` is `predicted` with the
true run times.
"""

from trainmaster.model.cluster import DAY_S
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.placement.strategies import pack
from trainmaster.scheduling.policies.policy import Policy, no_reservations, one_reservation
from trainmaster.scheduling.preemption.victims import Overtaking, at_once
from trainmaster.scheduling.state.figures import Figures
from trainmaster.scheduling.state.order import Keys, aged, first


def shortest_first(snapshot: Snapshot, jobs: Figures) -> Keys:
    """The shortest remaining run time."""
    return *first(snapshot.now_s, jobs), aged(jobs.left_s, snapshot.now_s - jobs.since_s)


def smallest_first(snapshot: Snapshot, jobs: Figures) -> Keys:
    """The least remaining GPU time."""
    return *first(snapshot.now_s, jobs), aged(jobs.left_s, snapshot.now_s - jobs.since_s) * jobs.width


def shortest(snapshot: Snapshot, jobs: Figures) -> Keys:
    """As `predicted`, but with the true run times."""
    return *first(snapshot.now_s, jobs), aged(jobs.left_s, snapshot.now_s - jobs.since_s, DAY_S)


SJF = Policy("sjf", shortest_first, pack, no_reservations, exact=True)
SRTF = Policy("srtf", shortest_first, pack, no_reservations, Overtaking(at_once, shortest_first), exact=True)
SRSF = Policy("srsf", smallest_first, pack, no_reservations, Overtaking(at_once, smallest_first), exact=True)
SHORTEST = Policy("shortest", shortest, pack, one_reservation, beat_s=600.0, exact=True)
