"""In order of arrival: without reservations (`fifo`), with one (`easy`), or with one for each job (`conservative`).

`fragmentation` is `fifo`, but places each request where the fewest fragments remain.
"""

from trainmaster.scheduling.model.jobs import Task
from trainmaster.scheduling.placement.fragmentation import typical
from trainmaster.scheduling.placement.strategies import pack, to_taste
from trainmaster.scheduling.policies.policy import Policy, no_reservations, one_for_everybody, one_reservation
from trainmaster.scheduling.state.order import Key, Sharing, nobody, rank, uncharged, unclaimed


def in_line(task: Task) -> Key:
    """Higher priority first, then earlier submission."""
    return (*rank(task.kind), task.since_s)


FIRST_COME = Sharing("Higher priority first, then earlier submission.", nobody, unclaimed, in_line, uncharged)
FIFO = Policy("fifo", FIRST_COME, pack, no_reservations)
EASY = Policy("easy", FIRST_COME, pack, one_reservation)
CONSERVATIVE = Policy("conservative", FIRST_COME, pack, one_for_everybody)
FRAGMENTATION = Policy("fragmentation", FIRST_COME, to_taste, no_reservations, taste=typical)
