"""Between the model's nouns and the scheduler's: nodes are sites, jobs are tasks and runs, an allocation is a grant."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from trainmaster.model.job import Job
from trainmaster.model.nodes import Allocation, Node, NodeShare, NodeState
from trainmaster.scheduling.ask import Shape, amounts, asked, milli
from trainmaster.scheduling.cells import Cell
from trainmaster.scheduling.snapshot import Snapshot
from trainmaster.scheduling.space import Grant, Site
from trainmaster.scheduling.task import Kind, Owner, Run, Task, kind_of

NOWHERE = -1  # the place of a node that the inventory has not


def sites_of(nodes: Iterable[Node]) -> tuple[Site, ...]:
    """The inventory, by the nodes' names."""
    return tuple(_site(node) for node in sorted(nodes, key=lambda node: node.name))


@lru_cache(maxsize=1 << 15)
def _site(node: Node) -> Site:
    kinds = tuple(sorted({device.kind for device in node.devices}))
    devices = tuple(kinds.index(device.kind) for device in node.devices)
    whole = tuple(devices.count(i) for i in range(len(kinds)))
    cell = Cell(kinds, whole, (), milli(node.cpus), node.memory_bytes, amounts(dict(node.counted)))
    return Site(node.name, cell, devices, node.state is NodeState.UP, "" if node.state is NodeState.UP else str(node.state))


def places_of(nodes: Iterable[Node]) -> dict[str, int]:
    """The place of each node in `sites_of`."""
    return {name: place for place, name in enumerate(sorted(node.name for node in nodes))}


def kind(job: Job) -> Kind:
    """What the scheduler knows of a job that others may have in common with it."""
    spec = job.spec
    return kind_of(asked(spec), Owner(spec.project, job.origin.user, priority=spec.priority), spec.time_limit_s)


def task(job: Job) -> Task:
    """A queued job."""
    limit_s = job.spec.time_limit_s
    left_s = None if limit_s is None else max(0.0, limit_s - job.ran_s)
    return Task(job.seq, job.id, kind(job), job.queued_s, job.not_before_s, left_s, job.ran_s, evictions=job.evictions)


def run(job: Job, nodes: Mapping[str, Node], places: Mapping[str, int]) -> Run:
    """A job with a live attempt."""
    assert job.attempt is not None
    attempt = job.attempt
    granted = grant(job, attempt.allocation, nodes, places)
    saved_s = max((one.committed_s for one in job.checkpoints if one.attempt == attempt.number), default=None)
    return Run(task(job), granted, attempt.started_s or attempt.placed_s, attempt.stopping_s is not None, saved_s)


def grant(job: Job, allocation: Allocation, nodes: Mapping[str, Node], places: Mapping[str, int]) -> Grant:
    """What an allocation takes of the inventory. A share of a node that is not in it takes nothing."""
    ask = asked(job.spec)
    devices = []
    for share in allocation.shares:
        node = nodes.get(share.node)
        where = {device.index: place for place, device in enumerate(node.devices)} if node is not None else {}
        devices.append(tuple(where[index] for index in share.devices if index in where))
    at = tuple(places.get(share.node, NOWHERE) for share in allocation.shares)
    return Grant(ask, at, tuple(devices) if any(devices) else ())


def allocation(given: Grant, nodes: tuple[Node, ...]) -> Allocation:
    """A grant in the model's words; `nodes` are those of `sites_of`, in its order."""
    return Allocation(tuple(_share(nodes[place], given.shape(i), given.held(i)) for i, place in enumerate(given.nodes)))


def _share(node: Node, shape: Shape, held: tuple[int, ...]) -> NodeShare:
    counted = tuple((name, amount / 1000) for name, amount in shape.counted)
    return NodeShare(
        node.name, node.address, shape.cpus / 1000, shape.memory, tuple(node.devices[place].index for place in held), counted
    )


def snapshot(now_s: float, nodes: Iterable[Node], waiting: Iterable[Job], live: Iterable[Job]) -> Snapshot:
    """The world as a whole, for one decision."""
    known = {node.name: node for node in nodes}
    places = places_of(known.values())
    running = {job.id: run(job, known, places) for job in live if job.attempt is not None}
    return Snapshot(now_s, sites_of(known.values()), {job.id: task(job) for job in waiting}, running)
