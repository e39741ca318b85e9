"""What the rules never let start, whichever jobs end: known before a job joins the queue."""

from collections.abc import Iterator, Sequence

from trainmaster.model.cluster import Cluster
from trainmaster.scheduling.admission.feasible import grouped, impossible, joined
from trainmaster.scheduling.admission.quota import Tally
from trainmaster.scheduling.admission.windows import Staying, need_of
from trainmaster.scheduling.model.jobs import Kind, alone
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask
from trainmaster.scheduling.model.space import GONE, Site

_QUOTA = "waiting for quota: "


class Forbidden:
    """What the rules never let start on these nodes. Nodes that may come back count."""

    def __init__(self, rules: Cluster, sites: Sequence[Site]) -> None:
        self._rules, self._groups = rules, grouped(sites)
        self._idle, self._staying = Tally(rules, ()).idle, Staying(rules, self._groups)
        self._tally = Tally(rules, () if self._idle else [site._replace(open=site.why != GONE) for site in sites])

    def why(self, kind: Kind) -> str | None:
        """Why the rules never let a job of this kind start; None: they may let it, or the nodes could never hold it anyway."""
        able = [ask for ask in kind.asks if impossible(ask, self._groups) is None]
        found = list(self._barriers(kind, able))
        if not found or len(found) < len(able):
            return None
        one = joined(found)
        return f"it {one.text}" if one.cause is Reason.IMPOSSIBLE else one.text.removeprefix(_QUOTA)

    def _barriers(self, kind: Kind, able: Sequence[Ask]) -> Iterator[tuple[Ask, Refusal]]:
        need = need_of(kind, kind.limit_s, self._rules)
        for ask in able:
            never = self._staying.never(ask, need)
            barrier = self._tally.barrier(alone(kind, ask)) if never is None else Refusal(Reason.IMPOSSIBLE, never)
            if barrier is not None:
                yield ask, barrier
