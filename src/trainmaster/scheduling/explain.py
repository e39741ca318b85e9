"""Why a job waits, in plain words: the reason kept with it, and the fuller answer of `tm why`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trainmaster.scheduling import words
from trainmaster.scheduling.ask import WHOLE, Ask, Shape
from trainmaster.scheduling.cells import Cell, steps
from trainmaster.scheduling.domains import BOTH, Domain, domain_of
from trainmaster.scheduling.need import need_of
from trainmaster.scheduling.snapshot import Refusal, Snapshot
from trainmaster.scheduling.space import GONE, Site, Space
from trainmaster.scheduling.task import Kind, Run, Task, alone
from trainmaster.scheduling.wish import Wish

_HOLDERS_MAX = 5  # jobs named


class Group(NamedTuple):
    """Nodes that are alike when nothing runs on them, wherever they are."""

    cell: Cell
    open: bool
    why: str
    sites: tuple[Site, ...]


def grouped(sites: Sequence[Site]) -> tuple[Group, ...]:
    """The inventory as few groups, so that a question about all nodes is asked once for each."""
    found: dict[tuple[Cell, bool, str], list[Site]] = {}
    for site in sites:
        found.setdefault((site.cell, site.open, site.why), []).append(site)
    return tuple(Group(*key, tuple(alike)) for key, alike in found.items())


def refusal(ask: Ask, groups: Sequence[Group]) -> Refusal:
    """Why a request that did not fit waits: because it never can, or because others hold what it needs."""
    lacking = impossible(ask, groups)
    if lacking is not None:
        return Refusal("impossible", lacking)
    able = [group for group in groups if steps(group.cell, ask.each) and group.why != GONE]
    up = [group for group in able if group.open]
    if not fits(ask, up):
        return Refusal("busy", f"waiting for {words.describe(ask)}: {away(able)}")
    return Refusal("busy", f"waiting for {words.describe(ask)}: other jobs hold what it needs")


def away(groups: Sequence[Group]) -> str:
    """Which of these take no new work, and why."""
    gone = sorted((site.name, group.why) for group in groups if not group.open for site in group.sites)
    return ", ".join(f"{name} is {why}" for name, why in gone)


def patience(found: Refusal, kind: Kind) -> Refusal:
    """Why one waits that would take less than it wants, but not yet."""
    within = f" in one {kind.ask.within}" if kind.ask.within is not None else ""
    return Refusal("place", f"{found.text}; after {words.duration(kind.wish.prefer_s)} in the queue it takes any place{within}")


def joined(found: Sequence[tuple[Ask, Refusal]]) -> Refusal:
    """Why one waits to which any of several requests would do, each with the reason why that is not met."""
    told = [one for one in found if one[1].kind != "impossible"] or found
    texts = dict.fromkeys(one.text for _, one in told)
    if len(texts) == 1:
        return told[0][1]
    whys: dict[str, list[str]] = {}
    for ask, one in told:
        asks = words.describe(ask)
        whys.setdefault(one.text.removeprefix("waiting for ").removeprefix(f"{asks}: "), []).append(asks)
    kinds = {one.kind for _, one in told}
    kind = kinds.pop() if len(kinds) == 1 else "choice"
    clauses = "; or for ".join(f"{' or '.join(asks)}: {why}" for why, asks in whys.items())
    return Refusal(kind, "; and ".join(texts) if kind == "impossible" else f"waiting for {clauses}")


def cheapest(found: Refusal, wish: Wish) -> Refusal:
    """Why one waits for the cheapest of its choices, but not for ever."""
    return Refusal("choice", f"{found.text}; after {words.duration(wish.prefer_s)} in the queue it takes any of its choices")


def sooner(ask: Ask, free: Ask) -> Refusal:
    """Why one waits for one of its choices while another is `free`."""
    there = words.describe(free)
    return Refusal("choice", f"waiting for {words.describe(ask)}: it is expected to end sooner there than with {there}")


def sought(task: Task, now_s: float, told: Callable[[Ask], Refusal]) -> Ask:
    """What a job may start with: while it waits for a better place, that place; where there can be none it does not wait.

    `told` says why a request does not fit.
    """
    ask, wish = task.kind.ask, task.kind.wish
    best = wish.best(ask) if wish.patient(task.since_s, now_s) else ask
    return ask if best is not ask and told(best).kind == "impossible" else best


def kept_back(ask: Ask) -> Refusal:
    """Why one waits that would fit."""
    return Refusal("reserved", f"waiting for {words.describe(ask)}: what is free is kept for a job ahead of it")


def impossible(ask: Ask, groups: Sequence[Group]) -> str | None:
    """Why no state of these nodes could ever hold the request; None when one could. Those that are gone do not count."""
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
    """Why no state of these nodes could ever hold any of these requests; None when one of them could be held."""
    lacking = [impossible(ask, groups) for ask in asks]
    return None if None in lacking else "; and ".join(dict.fromkeys(filter(None, lacking)))


def fits(ask: Ask, groups: Sequence[Group]) -> bool:
    """Whether these nodes hold it when nothing else runs on them."""
    if ask.within is not None:
        return any(able >= ask.nodes and led for able, led in _domains(ask, groups).values())
    able = sum(len(group.sites) for group in groups if steps(group.cell, ask.each))
    return able >= ask.nodes and any(steps(group.cell, ask.first) for group in groups)


def _domains(ask: Ask, groups: Sequence[Group]) -> dict[Domain, tuple[int, int]]:
    """How many nodes of each domain could give a member's part, and how many the first's."""
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
    """The setting that declares something counted."""
    return "[nodes] " + name.partition(".")[0].removesuffix("_bytes").removesuffix("_bps")


def _too_much(shape: Shape, cells: Sequence[Cell]) -> str:
    """Of what no node has enough."""
    gpus = max(WHOLE * sum(n for kind, n in zip(c.kinds, c.whole, strict=True) if shape.takes(kind)) for c in cells)
    cpus, memory = max(cell.cpus for cell in cells), max(cell.memory for cell in cells)
    most = [words.gpus(gpus, words.kinds(shape))] if gpus < shape.gpu_milli else []
    most += [words.cpus(cpus)] if cpus < shape.cpus else []
    most += [words.memory(memory)] if memory < shape.memory else []
    for name, amount in shape.counted:
        there = max(dict(cell.counted).get(name, 0) for cell in cells)
        most += [words.counted(name, there)] if there < amount else []
    return f"no node has more than {', '.join(most)}" if most else "no node has all of it"


def why(task: Task, snapshot: Snapshot, position: int, refused: Refusal, reason: str = "") -> str:
    """One sentence: what a job waits for, as a plan `refused` it, what is free now, and where it stands (`position`, from 1).

    `reason` is what is on record of one that waits for its back-off to end.
    """
    if task.not_before_s > snapshot.now_s:
        return f"{task.id} restarts in {task.not_before_s - snapshot.now_s:.0f} s (back-off after: {reason})"
    if refused.kind == "impossible":
        return f"{task.id} can never start here: it {refused.text}"
    told = f"{task.id} is number {position} in the queue, {refused.text}"
    if refused.kind not in ("busy", "place"):
        return told  # what is free is not what it waits for
    groups = grouped(snapshot.sites)
    any_of = [task._replace(kind=alone(task.kind, ask)) for ask in task.kind.asks]
    asks = [sought(one, snapshot.now_s, lambda one: refusal(one, groups)) for one in any_of]
    space = occupied(snapshot)
    space.until_s = snapshot.now_s + need_of(task.kind, task.estimate_s, snapshot.rules).least_s
    asks = [ask for ask in asks if impossible(ask, groups) is None]
    now = "; ".join(dict.fromkeys(_now(space, ask) for ask in asks))
    scarce = "".join(dict.fromkeys(f"; {text}" for ask in asks for text in _in_use(ask.first, space, snapshot.running)))
    return f"{told} ({now}{scarce})"


def _now(space: Space, ask: Ask) -> str:
    """What there is of it."""
    if ask.within is not None:
        return _most_in_one(space, ask, ask.within)
    if ask.nodes > 1:
        return f"{space.count(ask.each)} of {ask.nodes} nodes have it free now"
    return f"free now: {_most_free(space)}"


def _most_in_one(space: Space, ask: Ask, level: str) -> str:
    """Which domain has most nodes that can give a member's part."""
    of, domains = space.domains(level)
    counts = [0] * len(domains)
    for _, nodes in space.fitting(ask.each):
        for node in nodes:
            if of[node] >= 0:
                counts[of[node]] += 1
    most = max(range(len(domains)), key=lambda i: (counts[i], -i))
    return f"most free now: {counts[most]} of {ask.nodes} in {level.rpartition(BOTH)[2]} {domains[most][-1]}"


def occupied(snapshot: Snapshot) -> Space:
    """The space with everything that runs taken out."""
    return Space(snapshot.sites, None, (run.grant for run in snapshot.running.values()))


def _in_use(shape: Shape, space: Space, running: Mapping[str, Run]) -> Iterator[str]:
    """Of what is counted and has run short: how much of it is in use, and by whom."""
    free = {node: dict(space.cells.values[space.of[node]].counted) for node, site in enumerate(space.sites) if site.open}
    for name, amount in shape.counted:
        total = sum(dict(space.sites[node].cell.counted).get(name, 0) for node in free)
        left = sum(counted.get(name, 0) for counted in free.values())
        if any(counted.get(name, 0) >= amount for counted in free.values()):
            continue
        grants = ((id, run.grant) for id, run in running.items())
        holds = {
            id for id, g in grants for i, node in enumerate(g.nodes) if node in free and dict(g.shape(i).counted).get(name)
        }
        holders = sorted(holds)
        more = f" and {len(holders) - _HOLDERS_MAX} more" if len(holders) > _HOLDERS_MAX else ""
        how = f"all {words.counted(name, total)}" if left <= 0 else f"all but {words.counted(name, left)}"
        if holders:
            yield f"{how} in use by {', '.join(holders[:_HOLDERS_MAX])}{more}"


def _most_free(space: Space) -> str:
    up = [(space.cells.values[space.of[node]], site) for node, site in enumerate(space.sites) if site.open]
    if not up:
        return "no node is up"
    cells = [one for one in up if one[0].closes_s >= space.until_s]
    if not cells:
        return "nothing that stays for long enough"
    cell, site = max(cells, key=lambda one: (sum(one[0].whole), one[0].gpu_milli, one[0].cpus, one[1].name))
    gpus = f"{words.gpus(cell.gpu_milli)} and " if site.devices else ""
    return f"{gpus}{words.cpus(cell.cpus)} on {site.name}"
