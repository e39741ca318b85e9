"""Whether the nodes could ever hold a request, and the reason if not. `explanation.why` gives the whole answer."""

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.cells import Cell, steps
from trainmaster.scheduling.model.domains import Domain, domain_of
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape
from trainmaster.scheduling.model.space import GONE, Site


class Group(NamedTuple):
    """Nodes that are equal when they are empty, wherever they are."""

    cell: Cell
    open: bool
    why: str
    sites: tuple[Site, ...]


def grouped(sites: Sequence[Site]) -> tuple[Group, ...]:
    """The inventory in a few groups, so a question about all nodes is answered once per group."""
    found: dict[tuple[Cell, bool, str], list[Site]] = {}
    for site in sites:
        found.setdefault((site.cell, site.open, site.why), []).append(site)
    return tuple(Group(*key, tuple(alike)) for key, alike in found.items())


def refusal(ask: Ask, groups: Sequence[Group]) -> Refusal:
    """Why a request that did not fit waits: it can never fit, or other jobs hold the nodes."""
    lacking = impossible(ask, groups)
    if lacking is not None:
        return Refusal(Reason.IMPOSSIBLE, lacking)
    able = [group for group in groups if steps(group.cell, ask.each) and group.why != GONE]
    up = [group for group in able if group.open]
    if not fits(ask, up):
        return Refusal(Reason.BUSY, f"waiting for {words.describe(ask)}: {away(able)}")
    return Refusal(Reason.BUSY, f"waiting for {words.describe(ask)}: other jobs hold what it needs")


def away(groups: Sequence[Group]) -> str:
    """Which of these nodes take no new work, and why."""
    gone = sorted((site.name, group.why) for group in groups if not group.open for site in group.sites)
    return ", ".join(f"{name} is {why}" for name, why in gone)


def joined(found: Sequence[tuple[Ask, Refusal]]) -> Refusal:
    """Why a job waits that accepts any of several requests, from the reason for each request."""
    told = [one for one in found if one[1].cause is not Reason.IMPOSSIBLE] or found
    texts = dict.fromkeys(one.text for _, one in told)
    if len(texts) == 1:
        return told[0][1]
    whys: dict[str, list[str]] = {}
    for ask, one in told:
        asks = words.describe(ask)
        whys.setdefault(one.text.removeprefix("waiting for ").removeprefix(f"{asks}: "), []).append(asks)
    causes = {one.cause for _, one in told}
    cause = causes.pop() if len(causes) == 1 else Reason.CHOICE
    clauses = "; or for ".join(f"{' or '.join(asks)}: {why}" for why, asks in whys.items())
    return Refusal(cause, "; and ".join(texts) if cause is Reason.IMPOSSIBLE else f"waiting for {clauses}")


def impossible(ask: Ask, groups: Sequence[Group]) -> str | None:
    """Why these nodes could never hold the request, even when empty; None: they could. Nodes that are gone do not count."""
    there = [group for group in groups if group.why != GONE]
    lacking = _impossible(ask.each, ask.nodes, there)
    if lacking is None and ask.lead is not None:
        lacking = _impossible(ask.lead, 1, there)
        lacking = None if lacking is None else f"{lacking} (what its roles need included)"
    if lacking is None and ask.within is not None and not fits(ask, there):
        largest = max((able for able, _ in _domains(ask, there).values()), default=None)
        most = f"no node has the label {ask.within!r}" if largest is None else f"no {ask.within} has more than {largest} such"
        lacking = f"asks for {words.describe(ask)}; {most if largest != ask.nodes else 'none has room for its roles as well'}"
    return lacking


def never(asks: Sequence[Ask], groups: Sequence[Group]) -> str | None:
    """Why these nodes could never hold any of these requests; None: they could hold one."""
    lacking = [impossible(ask, groups) for ask in asks]
    return None if None in lacking else "; and ".join(dict.fromkeys(filter(None, lacking)))


def fits(ask: Ask, groups: Sequence[Group]) -> bool:
    """Whether these nodes could hold the request when they are empty."""
    if ask.within is not None:
        return any(able >= ask.nodes and led for able, led in _domains(ask, groups).values())
    able = sum(len(group.sites) for group in groups if steps(group.cell, ask.each))
    return able >= ask.nodes and any(steps(group.cell, ask.first) for group in groups)


def _domains(ask: Ask, groups: Sequence[Group]) -> dict[Domain, tuple[int, int]]:
    """By domain: how many nodes could hold a member, and how many the first member."""
    found: dict[Domain, tuple[int, int]] = {}
    for group in groups:
        gives, leads = bool(steps(group.cell, ask.each)), bool(steps(group.cell, ask.first))
        for site in group.sites:
            domain = domain_of(ask.within or "", site.name, site.labels, site.host)
            if domain is not None:
                able, led = found.get(domain, (0, 0))
                found[domain] = able + gives, led + leads
    return found


def _impossible(shape: Shape, count: int, groups: Sequence[Group]) -> str | None:
    groups = [group for group in groups if shape.pool in (None, group.cell.pool)]
    able = sum(len(group.sites) for group in groups if steps(group.cell, shape))
    cells = [group.cell for group in groups]
    if able >= count:
        return None
    if able:
        there = "is 1 such node" if able == 1 else f"are {able} such nodes"
        return f"asks for {count} nodes with {words.per_node(shape)}; there {there}"
    if not cells:
        return f"asks for {words.per_node(shape)}; there are no nodes"
    if shape.kinds and not any(kind in cell.kinds for cell in cells for kind in shape.kinds):
        kinds = sorted({kind for cell in cells for kind in cell.kinds})
        here = f"those here are of kind {', '.join(kinds)}" if kinds else "there are none"
        return f"asks for GPUs of kind {words.kinds(shape)}; {here}"
    for name, amount in shape.counted:
        if all(dict(cell.counted).get(name, 0) <= 0 for cell in cells):
            declared = f"{_declared(name)} of server.toml says what there is"
            return f"asks for {words.counted(name, amount)}; no node has any ({declared})"
    return f"asks for {words.per_node(shape)} on one node; {_too_much(shape, cells)}"


def _declared(name: str) -> str:
    """The setting that declares a counted resource."""
    return "[nodes] " + name.partition(".")[0].removesuffix("_bytes").removesuffix("_bps")


def _too_much(shape: Shape, cells: Sequence[Cell]) -> str:
    """The resources of which no node has enough."""
    gpus = max(WHOLE * sum(n for kind, n in zip(c.kinds, c.whole, strict=True) if shape.takes(kind)) for c in cells)
    cpus, memory = max(cell.cpus for cell in cells), max(cell.memory for cell in cells)
    most = [words.gpus(gpus, words.kinds(shape))] if gpus < shape.gpu_milli else []
    most += [words.cpus(cpus)] if cpus < shape.cpus else []
    most += [words.memory(memory)] if memory < shape.memory else []
    for name, amount in shape.counted:
        there = max(dict(cell.counted).get(name, 0) for cell in cells)
        most += [words.counted(name, there)] if there < amount else []
    return f"no node has more than {', '.join(most)}" if most else "no node has all of it"


