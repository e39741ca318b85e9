"""Why a job waits, in plain words: the reason kept with it, and the fuller answer of `tm why`."""

from trainmaster.model.job import Job
from trainmaster.model.nodes import Node, NodeState
from trainmaster.model.spec import Resources
from trainmaster.scheduling.capacity import Free, free_nodes, whole
from trainmaster.scheduling.snapshot import Refusal, Snapshot


def refusal(ask: Resources, nodes: tuple[Node, ...]) -> Refusal:
    """Why a request that did not fit waits: because it never can, or because others hold what it needs."""
    lacking = impossible(ask, nodes)
    if lacking is not None:
        return Refusal("impossible", lacking)
    able = [n for n in nodes if whole(n).fits(ask) and n.state is not NodeState.GONE]
    up = [n for n in able if n.state is NodeState.UP]
    if len(up) < ask.nodes:
        away = ", ".join(f"{n.name} is {n.state}" for n in able if n.state is not NodeState.UP)
        return Refusal("busy", f"waiting for {describe(ask)}: {away}")
    return Refusal("busy", f"waiting for {describe(ask)}: other jobs hold what it needs")


def impossible(ask: Resources, nodes: tuple[Node, ...]) -> str | None:
    """Why no state of these nodes could ever hold the request; None when one could. Those that are gone do not count."""
    nodes = tuple(n for n in nodes if n.state is not NodeState.GONE)
    able = [n for n in nodes if whole(n).fits(ask)]
    if len(able) >= ask.nodes:
        return None
    if able:
        there = "is 1 such node" if len(able) == 1 else f"are {len(able)} such nodes"
        return f"asks for {ask.nodes} nodes with {per_node(ask)}; there {there}"
    if not nodes:
        return f"asks for {per_node(ask)}; there are no nodes"
    if ask.gpu_kind is not None and not any(d.kind == ask.gpu_kind for n in nodes for d in n.devices):
        kinds = sorted({d.kind for n in nodes for d in n.devices})
        here = f"those here are of kind {', '.join(kinds)}" if kinds else "there are none"
        return f"asks for GPUs of kind {ask.gpu_kind}; {here}"
    return f"asks for {per_node(ask)} on one node; {_too_much(ask, nodes)}"


def _too_much(ask: Resources, nodes: tuple[Node, ...]) -> str:
    """Of what no node has enough."""
    gpus = max(sum(ask.gpu_kind in (None, d.kind) for d in n.devices) for n in nodes)
    cpus, memory = max(n.cpus for n in nodes), max(n.memory_bytes for n in nodes)
    most = [_gpus(gpus, ask.gpu_kind)] if gpus < ask.gpus else []
    most += [_cpus(cpus)] if cpus < ask.cpus else []
    most += [_memory(memory)] if memory < (ask.memory_bytes or 0) else []
    return f"no node has more than {', '.join(most)}" if most else "no node has all of it"


def per_node(ask: Resources) -> str:
    """What one member of the gang asks for."""
    words = []
    if ask.gpus:
        words.append(_gpus(ask.gpus, ask.gpu_kind))
    words.append(_cpus(ask.cpus))
    if ask.memory_bytes:
        words.append(_memory(ask.memory_bytes))
    return ", ".join(words)


def _gpus(count: int, kind: str | None) -> str:
    return f"{count} {kind + ' ' if kind else ''}GPU{'s' * (count != 1)}"


def _cpus(count: float) -> str:
    return f"{count:g} CPU{'s' * (count != 1)}"


def _memory(count: int) -> str:
    return (f"{count / 2**40:.4g} TiB" if count >= 2**40 else f"{count / 2**30:.4g} GiB") + " of memory"


def describe(ask: Resources) -> str:
    """The whole request."""
    return per_node(ask) if ask.nodes == 1 else f"{ask.nodes} nodes with {per_node(ask)} each, all at once"


def why(job: Job, snapshot: Snapshot, position: int) -> str:
    """One sentence: what `job` waits for, what is free now, and where it stands (`position` counts from 1)."""
    if job.not_before_s > snapshot.now_s:
        return f"{job.id} restarts in {job.not_before_s - snapshot.now_s:.0f} s (back-off after: {job.reason})"
    ask = job.spec.resources
    free = free_nodes(snapshot.nodes, snapshot.held)
    found = refusal(ask, snapshot.nodes)
    if found.kind == "impossible":
        return f"{job.id} can never start here: it {found.text}"
    fitting = sum(1 for f in free if f.fits(ask))
    now = f"{fitting} of {ask.nodes} nodes have it free now" if ask.nodes > 1 else f"free now: {_most_free(free)}"
    return f"{job.id} is number {position} in the queue, {found.text} ({now})"


def _most_free(free: list[Free]) -> str:
    if not free:
        return "no node is up"
    best = max(free, key=lambda f: (len(f.devices), f.cpus, f.node.name))
    gpus = f"{len(best.devices)} GPU{'s' * (len(best.devices) != 1)} and " if best.node.devices else ""
    return f"{gpus}{best.cpus:g} CPU{'s' * (best.cpus != 1)} on {best.node.name}"
