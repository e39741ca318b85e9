"""All policies by name, and the one that a cluster configuration chooses."""

from dataclasses import replace
from functools import lru_cache

from trainmaster.model.cluster import DEFAULT_POLICY, Cluster
from trainmaster.scheduling.policies.attained import LEAST_ATTAINED
from trainmaster.scheduling.policies.fair import FAIR_SHARE
from trainmaster.scheduling.policies.fifo import CONSERVATIVE, EASY, FIFO, FRAGMENTATION
from trainmaster.scheduling.policies.learned import LEARNED
from trainmaster.scheduling.policies.multifactor import MULTIFACTOR
from trainmaster.scheduling.policies.policy import Policy
from trainmaster.scheduling.policies.predicted import PREDICTED
from trainmaster.scheduling.policies.shortest import SHORTEST, SJF, SRSF, SRTF

_ALL = (
    FIFO, FRAGMENTATION, EASY, CONSERVATIVE, SJF, SRTF, SRSF, LEARNED, SHORTEST, PREDICTED, LEAST_ATTAINED, FAIR_SHARE,
    MULTIFACTOR,
)  # fmt: skip
POLICIES = {policy.name: policy for policy in _ALL}
LIVE = tuple(policy.name for policy in _ALL if not policy.exact)  # that a cluster may choose


def chosen(rules: Cluster) -> Policy:
    """The policy of all pools together. A name that only a newer version knows means the default."""
    by_policy: dict[str, list[str]] = {}
    for pool in rules.pools:
        by_policy.setdefault(pool.policy if pool.policy in LIVE else DEFAULT_POLICY, []).append(pool.name)
    if len(by_policy) == 1:
        return POLICIES[next(iter(by_policy))]
    first = POLICIES[next(iter(by_policy))]
    return replace(first, name="by pool", parts=_parts(tuple((name, tuple(pools)) for name, pools in by_policy.items())))


@lru_cache(maxsize=64)
def _parts(names: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[tuple[frozenset[str], Policy], ...]:
    return tuple((frozenset(pools), POLICIES[name]) for name, pools in names)
