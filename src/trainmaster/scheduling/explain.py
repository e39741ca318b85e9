"""Why a job waits, in plain words: the reason kept with it, and the fuller answer of `tm why`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainmaster.model.job import Job
from trainmaster.model.nodes import Allocation, Node, NodeState
from trainmaster.model.spec import Resources
from trainmaster.scheduling import words
from trainmaster.scheduling.capacity import Free, free_nodes, whole
from trainmaster.scheduling.request import Request, requested
from trainmaster.scheduling.snapshot import Refusal, Snapshot

_HOLDERS_MAX = 5  # jobs named


def refusal(ask: Request, nodes: tuple[Node, ...]) -> Refusal:
    """Why a request that did not fit waits: because it never can, or because others hold what it needs."""
    lacking = impossible(ask, nodes)
    if lacking is not None:
        return Refusal("impossible", lacking)
    able = [n for n in nodes if whole(n).fits(ask.each) and n.state is not NodeState.GONE]
    up = [n for n in able if n.state is NodeState.UP]
    if len(up) < ask.each.nodes or not any(whole(n).fits(ask.first) for n in up):
        away = ", ".join(f"{n.name} is {n.state}" for n in able if n.state is not NodeState.UP)
        return Refusal("busy", f"waiting for {words.describe(ask)}: {away}")
    return Refusal("busy", f"waiting for {words.describe(ask)}: other jobs hold what it needs")


def impossible(ask: Request, nodes: tuple[Node, ...]) -> str | None:
    """Why no state of these nodes could ever hold the request; None when one could. Those that are gone do not count."""
    nodes = tuple(n for n in nodes if n.state is not NodeState.GONE)
    lacking = _impossible(ask.each, nodes)
    if lacking is None and ask.lead is not None:
        lacking = _impossible(replace(ask.lead, nodes=1), nodes)
        return None if lacking is None else f"{lacking} (what its roles need included)"
    return lacking


def _impossible(ask: Resources, nodes: tuple[Node, ...]) -> str | None:
    able = [n for n in nodes if whole(n).fits(ask)]
    if len(able) >= ask.nodes:
        return None
    if able:
        there = "is 1 such node" if len(able) == 1 else f"are {len(able)} such nodes"
        return f"asks for {ask.nodes} nodes with {words.per_node(ask)}; there {there}"
    if not nodes:
        return f"asks for {words.per_node(ask)}; there are no nodes"
    if ask.gpu_kind is not None and not any(d.kind == ask.gpu_kind for n in nodes for d in n.devices):
        kinds = sorted({d.kind for n in nodes for d in n.devices})
        here = f"those here are of kind {', '.join(kinds)}" if kinds else "there are none"
        return f"asks for GPUs of kind {ask.gpu_kind}; {here}"
    for name, amount in ask.counted:
        if all(dict(n.counted).get(name, 0.0) <= 0 for n in nodes):
            declared = f"{_declared(name)} of server.toml says what there is"
            return f"asks for {words.counted(name, amount)}; no node has any ({declared})"
    return f"asks for {words.per_node(ask)} on one node; {_too_much(ask, nodes)}"


def _declared(name: str) -> str:
    """The setting that declares something counted."""
    return "[nodes] " + name.partition(".")[0].removesuffix("_bytes").removesuffix("_bps")


def _too_much(ask: Resources, nodes: tuple[Node, ...]) -> str:
    """Of what no node has enough."""
    gpus = max(sum(ask.gpu_kind in (None, d.kind) for d in n.devices) for n in nodes)
    cpus, memory = max(n.cpus for n in nodes), max(n.memory_bytes for n in nodes)
    most = [words.gpus(gpus, ask.gpu_kind)] if gpus < ask.gpus else []
    most += [words.cpus(cpus)] if cpus < ask.cpus else []
    most += [words.memory(memory)] if memory < (ask.memory_bytes or 0) else []
    for name, amount in ask.counted:
        there = max(dict(n.counted).get(name, 0.0) for n in nodes)
        most += [words.counted(name, there)] if there < amount else []
    return f"no node has more than {', '.join(most)}" if most else "no node has all of it"


def why(job: Job, snapshot: Snapshot, position: int) -> str:
    """One sentence: what `job` waits for, what is free now, and where it stands (`position` counts from 1)."""
    if job.not_before_s > snapshot.now_s:
        return f"{job.id} restarts in {job.not_before_s - snapshot.now_s:.0f} s (back-off after: {job.reason})"
    ask = requested(job.spec)
    free = free_nodes(snapshot.nodes, snapshot.held)
    found = refusal(ask, snapshot.nodes)
    if found.kind == "impossible":
        return f"{job.id} can never start here: it {found.text}"
    gang, fitting = ask.each.nodes, sum(1 for f in free if f.fits(ask.each))
    now = f"{fitting} of {gang} nodes have it free now" if gang > 1 else f"free now: {_most_free(free)}"
    scarce = "".join(f"; {text}" for text in _in_use(ask.first, free, snapshot.held))
    return f"{job.id} is number {position} in the queue, {found.text} ({now}{scarce})"


def _in_use(ask: Resources, free: list[Free], held: Mapping[str, Allocation]) -> Iterator[str]:
    """Of what is counted and has run short: how much of it is in use, and by whom."""
    names = {f.node.name for f in free}
    for name, amount in ask.counted:
        total = sum(dict(f.node.counted).get(name, 0.0) for f in free)
        left = sum(f.counted.get(name, 0.0) for f in free)
        if any(f.counted.get(name, 0.0) >= amount for f in free):
            continue
        shares = [(job, share) for job, allocation in held.items() for share in allocation.shares if share.node in names]
        holders = sorted({job for job, share in shares if dict(share.counted).get(name)})
        more = f" and {len(holders) - _HOLDERS_MAX} more" if len(holders) > _HOLDERS_MAX else ""
        how = f"all {words.counted(name, total)}" if left <= 0 else f"all but {words.counted(name, left)}"
        if holders:
            yield f"{how} in use by {', '.join(holders[:_HOLDERS_MAX])}{more}"


def _most_free(free: list[Free]) -> str:
    if not free:
        return "no node is up"
    best = max(free, key=lambda f: (len(f.devices), f.cpus, f.node.name))
    gpus = f"{len(best.devices)} GPU{'s' * (len(best.devices) != 1)} and " if best.node.devices else ""
    return f"{gpus}{best.cpus:g} CPU{'s' * (best.cpus != 1)} on {best.node.name}"
