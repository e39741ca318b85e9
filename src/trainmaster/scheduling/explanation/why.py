"""The answer of `tm why`: what a waiting job waits for, what is free now, and where it stands."""

from collections.abc import Iterator, Mapping

from trainmaster.scheduling.admission.feasible import grouped, impossible, refusal
from trainmaster.scheduling.admission.windows import need_of
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.domains import BOTH
from trainmaster.scheduling.model.jobs import Run, Task, alone
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask, Shape
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Space
from trainmaster.scheduling.placement.choices import sought

_HOLDERS_MAX = 5  # jobs named


def why(task: Task, snapshot: Snapshot, position: int, refused: Refusal, reason: str = "") -> str:
    """One sentence: what a job waits for, as a plan `refused` it, what is free now, and where it stands (`position`, from 1).

    `reason` is what is on record of one that waits for its back-off to end.
    """
    if task.not_before_s > snapshot.now_s:
        return f"{task.id} restarts in {task.not_before_s - snapshot.now_s:.0f} s (back-off after: {reason})"
    if refused.cause is Reason.IMPOSSIBLE:
        return f"{task.id} can never start here: it {refused.text}"
    told = f"{task.id} is number {position} in the queue, {refused.text}"
    if not refused.cause.for_nodes:
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
    """How much of it is free."""
    if ask.within is not None:
        return _most_in_one(space, ask, ask.within)
    if ask.nodes > 1:
        return f"{space.count(ask.each)} of {ask.nodes} nodes have it free now"
    return f"free now: {_most_free(space)}"


def _most_in_one(space: Space, ask: Ask, level: str) -> str:
    """The domain with the most nodes that can hold a member of the gang."""
    of, domains = space.domains(level)
    counts = [0] * len(domains)
    for _, nodes in space.fitting(ask.each):
        for node in nodes:
            if of[node] >= 0:
                counts[of[node]] += 1
    most = max(range(len(domains)), key=lambda i: (counts[i], -i))
    return f"most free now: {counts[most]} of {ask.nodes} in {level.rpartition(BOTH)[2]} {domains[most][-1]}"


def occupied(snapshot: Snapshot) -> Space:
    """The space without what running jobs hold."""
    return Space(snapshot.sites, None, (run.grant for run in snapshot.running.values()))


def _in_use(shape: Shape, space: Space, running: Mapping[str, Run]) -> Iterator[str]:
    """Custom resources (licenses and the like) that are too short: how much is in use, and by which jobs."""
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
