"""When a decision may differ though nothing has happened: a running job's protection or its time slice is over.

The live loop decides every second. A replay and a forecast decide at these moments, at the policy's beat, and when a job
arrives, ends or has waited for its back-off.
"""

from collections.abc import Iterator

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.model.jobs import DOUBLINGS_MAX, Run
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.preemption.victims import MIN_RUN_S, MIN_TURN_S, Overtaking

BEAT_S = 1.0  # the live loop decides this often


def beat_s(policy: Policy) -> float | None:
    """How often to decide while jobs wait. Pools with policies of their own: the shortest of these."""
    beats = [one.beat_s for one in policies(policy) if one.beat_s is not None]
    return min(beats, default=None)


def policies(policy: Policy) -> list[Policy]:
    """The policies of its pools, or itself."""
    return [one for _, one in policy.parts] or [policy]


def moments_of(run: Run, policy: Policy, rules: Cluster) -> Iterator[float]:
    """The moments of a run that has just begun."""
    work = rules.work(run.task.kind.work)
    if run.surplus:
        yield run.placed_s + undisturbed_s(rules, min(run.task.shrinks, DOUBLINGS_MAX))
    if work.preemptible and any(one.preempt is not None and not one.exact for one in policies(policy)):
        protected_s = undisturbed_s(rules, run.doublings)
        yield run.placed_s + protected_s
        if any(isinstance(one.preempt, Overtaking) for one in policies(policy)):
            stood = run.placed_s - run.task.since_s >= run.task.kind.wait_max_s
            yield run.placed_s + max(protected_s, MIN_TURN_S if stood else MIN_RUN_S)
        if work.slice_s is not None:
            yield run.placed_s + work.slice_s


def undisturbed_s(rules: Cluster, doublings: int) -> float:
    """For how long a job runs undisturbed whose protection was doubled so often: at least until the loop decides again."""
    return max(BEAT_S, rules.min_run_s * 2.0**doublings)
