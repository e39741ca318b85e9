"""Who makes way: the fewest who are behind in order, found by trying the whole gain before anyone is touched."""

from collections.abc import Sequence

from trainmaster.scheduling.ahead import Later, come_back
from trainmaster.scheduling.ask import Ask
from trainmaster.scheduling.space import Space
from trainmaster.scheduling.task import Run


def victims(space: Space, ask: Ask, candidates: Sequence[Run]) -> list[Run] | None:
    """Those of `candidates`, the first to go first, whose nodes together with what is free hold the gang; None: not even all.

    Nobody is among them whom it could do without.
    """
    chosen = _enough(space, ask, candidates)
    if chosen is None:
        return None
    at = len(chosen) - 1
    while at >= 0 and len(chosen) > 1:  # the last to be taken in is the dearest: try without it first
        fewer = chosen[:at] + chosen[at + 1 :]
        if _enough(space, ask, fewer) is not None:
            chosen = fewer
        at -= 1
    return chosen


def _enough(space: Space, ask: Ask, candidates: Sequence[Run]) -> list[Run] | None:
    """The shortest beginning of `candidates` that is enough."""
    later, taken = Later(space), list[Run]()
    able, led = space.count(ask.each), space.count(ask.first)
    for run in candidates:
        if able >= ask.nodes and led:
            break
        taken.append(run)
        more = come_back(space, later, run, ask)
        able, led = able + more[0], led + more[1]
    return taken if able >= ask.nodes and led else None
