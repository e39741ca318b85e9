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
    able = [n for n in nodes if whole(n).fits(ask)]
    up = [n for n in able if n.state is NodeState.UP]
    if len(up) < ask.nodes:
        away = ", ".join(f"{n.name} is {n.state}" for n in able if n.state is not NodeState.UP)
        return Refusal("busy", f"waiting for {describe(ask)}: {away}")
    return Refusal("busy", f"waiting for {describe(ask)}: other jobs hold what it needs")


def impossible(ask: Resources, nodes: tuple[Node, ...]) -> str | None:
    """Why no state of these nodes could ever hold the request; None when one could."""
    able = [n for n in nodes if whole(n).fits(ask)]
    if len(able) >= ask.nodes:
        return None
    if able:
        return f"asks for {ask.nodes} nodes with {per_node(ask)}; there are {len(able)} such nodes"
    if not nodes:
        return f"asks for {per_node(ask)}; there are no nodes"
    if ask.gpu_kind is not None and not any(d.kind == ask.gpu_kind for n in nodes for d in n.devices):
        kinds = sorted({d.kind for n in nodes for d in n.devices})
        return f"asks for GPUs of kind {ask.gpu_kind}; there are " + (", ".join(kinds) if kinds else "no GPUs")
    return f"asks for {per_node(ask)} on one node; the largest has {largest(nodes)}"


def largest(nodes: tuple[Node, ...]) -> str:
    """The most that one node has of each."""
    gpus, cpus = max(len(n.devices) for n in nodes), max(n.cpus for n in nodes)
    return f"{gpus} GPU{'s' * (gpus != 1)}, {cpus:g} CPUs, {max(n.memory_bytes for n in nodes) / 2**30:.1f} GiB"


def per_node(ask: Resources) -> str:
    """What one member of the gang asks for."""
    words = []
    if ask.gpus:
        words.append(f"{ask.gpus} {ask.gpu_kind + ' ' if ask.gpu_kind else ''}GPU{'s' * (ask.gpus != 1)}")
    words.append(f"{ask.cpus:g} CPU{'s' * (ask.cpus != 1)}")
    if ask.memory_bytes:
        words.append(f"{ask.memory_bytes / 2**30:.1f} GiB of memory")
    return ", ".join(words)


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
