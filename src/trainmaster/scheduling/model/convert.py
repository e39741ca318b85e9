"""Converts the nouns of the model to those of the scheduler: node to site, job to task or run, allocation to grant."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise

from trainmaster.model.cluster import Cluster, Pool
from trainmaster.model.job import Job, State, StopFor
from trainmaster.model.ledger import Balance
from trainmaster.model.nodes import Allocation, Node, NodeShare, NodeState
from trainmaster.model.spec import Choose, JobSpec
from trainmaster.scheduling.model.cells import FOREVER, Cell
from trainmaster.scheduling.model.domains import CHECKPOINT
from trainmaster.scheduling.model.jobs import CARRIED, Choices, Kind, Past, Run, Task, kind_of, owner_of
from trainmaster.scheduling.model.request import Ask, Shape, Wish, amounts, asked, milli
from trainmaster.scheduling.model.snapshot import DEFAULT, Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.model.usage import Account, Member

ABSENT = -1  # the index of a node that is not in the inventory


def sites_of(nodes: Iterable[Node], rules: Cluster = DEFAULT, now_s: float = 0.0) -> tuple[Site, ...]:
    """The inventory, sorted by name. It is valid until `sites_hold_s`."""
    found = sorted(nodes, key=lambda node: node.name)
    return tuple(_site(node, pool, pool.closes_s(node.name, now_s)) for node, pool in _pooled(found, rules))


def sites_hold_s(nodes: Iterable[Node], rules: Cluster, now_s: float) -> float:
    """Until when `sites_of` gives the same result for the same nodes and rules."""
    return min(
        (pool.holds_s(now_s) for pool in {pool.name: pool for _, pool in _pooled(nodes, rules)}.values()), default=FOREVER
    )


def _pooled(nodes: Iterable[Node], rules: Cluster) -> Iterable[tuple[Node, Pool]]:
    return ((node, rules.pool_of(node.name, node.pool)) for node in nodes)


@lru_cache(maxsize=1 << 15)
def _site(node: Node, pool: Pool, closes_s: float) -> Site:
    kinds = tuple(sorted({device.kind for device in node.devices}))
    devices = tuple(kinds.index(device.kind) for device in node.devices)
    whole = tuple(devices.count(i) for i in range(len(kinds)))
    counted = amounts(dict(node.counted))
    cell = Cell(kinds, whole, (), milli(node.cpus), node.memory_bytes, counted, pool.name, closes_s)
    up = node.state is NodeState.UP
    return Site(node.name, cell, devices, up, "" if up else str(node.state), pool.name, pool.labels_of(node.name), node.host)


def places_of(nodes: Iterable[Node]) -> dict[str, int]:
    """The index of each node in `sites_of`."""
    return {name: place for place, name in enumerate(sorted(node.name for node in nodes))}


def kind(job: Job, rules: Cluster = DEFAULT) -> Kind:
    """The kind of a job: what other jobs may have in common with it."""
    spec = job.spec
    owner = owner_of(rules, (spec.project, job.owner, spec.work), spec.priority, job.urgent is not None)
    place = spec.placement
    wish = Wish(place.strategy, place.prefer, place.prefer_s, place.group, place.near)
    return kind_of(choices(spec) or asked(spec), owner, spec.time_limit_s, program(spec), wish)


def asks(spec: JobSpec) -> tuple[Ask, ...]:
    """All requests that a job accepts."""
    several = choices(spec)
    return (asked(spec),) if several is None else several.asks


def choices(spec: JobSpec) -> Choices | None:
    """The choices of a job, and how far it may grow; None: it has none and is not elastic."""
    count, most, place = len(spec.resources.choices), spec.resources.nodes_max, spec.placement
    if not count and not most:
        return None
    return Choices(tuple(asked(spec, at) for at in range(count or 1)), place.choose is Choose.COST, place.speed, most)


def program(spec: JobSpec) -> str:
    """The program without its arguments, so all trials of a sweep run the same. "": unknown."""
    return spec.python or _program(spec.command)


@lru_cache(maxsize=1 << 12)
def _program(command: str | tuple[str, ...]) -> str:
    words = command.split() if isinstance(command, str) else command
    module = next((word for flag, word in pairwise(words) if flag == "-m"), None)
    script = next((word for word in words if word.endswith((".py", ".sh"))), None)
    return script or module or (words[0] if words else "")


def task(job: Job, rules: Cluster = DEFAULT) -> Task:
    """A queued job."""
    limit_s = job.spec.time_limit_s
    left_s = None if limit_s is None else max(0.0, limit_s - job.ran_s)
    homes: tuple[str, ...] = ()
    if job.attempt is not None and job.spec.placement.near == CHECKPOINT:
        homes = tuple(share.node for share in job.attempt.allocation.shares)
    of = kind(job, rules)
    since_s = job.queued_s - min(job.waited_s, of.wait_max_s / CARRIED)
    found = Task(job.seq, job.id, of, since_s, job.not_before_s, left_s, job.ran_s)
    return found._replace(evictions=job.evictions, shrinks=job.shrinks, keeps=job.keeps, homes=homes)


def run(job: Job, nodes: Mapping[str, Node], places: Mapping[str, int], rules: Cluster = DEFAULT) -> Run:
    """A job with a live attempt."""
    assert job.attempt is not None
    attempt = job.attempt
    granted = grant(job, attempt.allocation, nodes, places)
    saved_s = max((one.committed_s for one in job.checkpoints if one.attempt == attempt.number), default=None)
    began_s, stopping = attempt.started_s or attempt.placed_s, attempt.stopping_s is not None
    return Run(task(job, rules), granted, began_s, stopping, saved_s, job.stopping_for is StopFor.SHRINK)


def past(job: Job) -> Past:
    """An ended job."""
    on = None
    if job.attempt is not None and job.attempt.number == 1:
        given = job.attempt.allocation
        on = asked(job.spec, given.choice, len(given.shares))
    return Past(job.seq, kind(job), job.ran_s, job.state is State.SUCCEEDED, on)


def grant(job: Job, allocation: Allocation, nodes: Mapping[str, Node], places: Mapping[str, int]) -> Grant:
    """What an allocation takes of the inventory. A share of a node that is not in the inventory takes nothing."""
    ask = asked(job.spec, allocation.choice, len(allocation.shares))
    devices = []
    for share in allocation.shares:
        node = nodes.get(share.node)
        where = {device.index: place for place, device in enumerate(node.devices)} if node is not None else {}
        devices.append(tuple(where[index] for index in share.devices if index in where))
    at = tuple(places.get(share.node, ABSENT) for share in allocation.shares)
    return Grant(ask, at, tuple(devices) if any(devices) else ())


def allocation(given: Grant, nodes: tuple[Node, ...], choice: int = 0) -> Allocation:
    """A grant as an allocation. `choice` is the number of the choice. `nodes` are those of `sites_of`, in its order."""
    shares = tuple(_share(nodes[place], given.shape(i), given.held(i)) for i, place in enumerate(given.nodes))
    return Allocation(shares, choice)


def _share(node: Node, shape: Shape, held: tuple[int, ...]) -> NodeShare:
    counted = tuple((name, amount / 1000) for name, amount in shape.counted)
    devices = tuple(node.devices[place].index for place in held)
    return NodeShare(node.name, node.address, shape.cpus / 1000, shape.memory, devices, counted, shape.share / 1000)


def accounts(balances: Iterable[Balance]) -> dict[Member, Account]:
    """What is left of the service of all members."""
    return {(one.project, one.member): Account(one.service, one.at_s) for one in balances}


def snapshot(
    now_s: float, nodes: Iterable[Node], waiting: Iterable[Job], live: Iterable[Job], rules: Cluster = DEFAULT
) -> Snapshot:
    """The snapshot for one decision."""
    known = {node.name: node for node in nodes}
    places = places_of(known.values())
    running = {job.id: run(job, known, places, rules) for job in live if job.attempt is not None}
    sites, queued = sites_of(known.values(), rules, now_s), list(waiting)
    promised = {job.id: grant(job, job.promised, known, places) for job in queued if job.promised is not None}
    return Snapshot(now_s, sites, {job.id: task(job, rules) for job in queued}, running, rules=rules, promised=promised)


def pasts(jobs: Iterable[Job]) -> list[Past]:
    """The ended jobs that ran, in the same order."""
    return [past(job) for job in jobs if job.ran_s > 0]
