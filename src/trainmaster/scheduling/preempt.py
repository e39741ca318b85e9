"""Who makes way: the fewest who are behind in order, found by trying the whole gain before anyone is touched."""

from collections.abc import Sequence

from trainmaster.scheduling.ahead import Later
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
    """A beginning of `candidates` that is enough, less those who give nothing to a node that can hold a member then."""
    later, steps = Later(space), space.cells.steps
    have = space.count(ask.each)
    led = ask.lead is None or space.count(ask.lead) > 0
    taken: list[Run] = []
    for run in candidates:
        if have >= ask.nodes and led:
            break
        taken.append(run)
        for index, node in enumerate(run.grant.nodes):
            if node < 0 or not space.sites[node].open:
                continue
            before = bool(steps(later.cell(node), ask.each))
            later.give(node, run.grant.part(index))
            have += bool(steps(later.cell(node), ask.each)) - before
            led = led or bool(steps(later.cell(node), ask.first))
    return taken if have >= ask.nodes and led else None
