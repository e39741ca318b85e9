"""The cycle: laws over random worlds, and its messages."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.model.job import Attempt, Job, NodeRun, State
from trainmaster.model.nodes import Allocation, Device, Node, NodeShare, NodeState
from trainmaster.model.spec import CodeCopy, Counts, JobSpec, Origin, Resources, Role, counts
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.why import why
from trainmaster.scheduling.model import convert as nouns
from trainmaster.scheduling.model.reasons import Refusal
from trainmaster.scheduling.model.request import asked as request_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.state.cluster import ClusterState

FIFO = POLICIES["fifo"]


def node(name: str, cpus: float = 4.0, gpus: int = 0, state: NodeState = NodeState.UP, **counted: float) -> Node:
    devices = tuple(Device(i, "h100") for i in range(gpus))
    amounts = counts({name.replace("__", "."): amount for name, amount in counted.items()})
    return Node(name, "local", name, "127.0.0.1", cpus, 8 * 2**30, devices, state=state, counted=amounts)


def job(seq: int, priority: int = 0, not_before_s: float = 0.0, **resources: object) -> Job:
    roles = resources.pop("roles", {})
    spec = JobSpec("true", priority=priority, resources=Resources(**resources), roles=roles)  # type: ignore[arg-type]
    return Job(f"x-{seq}", seq, spec, Origin(), CodeCopy(), 0.0, State.QUEUED, "queued", 0.0, not_before_s)


def running(id: str, *shares: NodeShare) -> Job:
    """A job that holds exactly this."""
    first = shares[0]
    custom = tuple((name.removeprefix("custom."), amount) for name, amount in first.counted)
    asked = Resources(
        nodes=len(shares), gpus=len(first.devices), cpus=first.cpus, memory_bytes=first.memory_bytes or None, custom=custom
    )
    attempt = Attempt(1, Allocation(shares), 50.0, tuple(NodeRun() for _ in shares), started_s=50.0)
    return Job(id, 0, JobSpec("true", resources=asked), Origin(), CodeCopy(), 0.0, State.RUNNING, "", 0.0, attempt=attempt)


def world(machines: tuple[Node, ...], waiting: tuple[Job, ...], *live: Job) -> Snapshot:
    return nouns.snapshot(100.0, machines, waiting, live)


def decide(machines: tuple[Node, ...], waiting: tuple[Job, ...], *live: Job) -> Plan:
    return cycle(world(machines, waiting, *live), FIFO)


def shares_of(plan: Plan, machines: tuple[Node, ...]) -> dict[str, tuple[NodeShare, ...]]:
    by_name = tuple(sorted(machines, key=lambda machine: machine.name))
    return {p.job: nouns.allocation(p.grant, by_name).shares for p in plan.placements}


def licenses(low: int) -> st.SearchStrategy[Counts]:
    return st.integers(low, 3).map(lambda number: counts({"license": number * 0.5}))


roles = st.dictionaries(
    st.sampled_from("ab"),
    st.builds(
        lambda **asked: Role("true", Resources(**asked)),
        gpus=st.integers(0, 1), cpus=st.sampled_from([0.1, 0.2, 1.0]), custom=licenses(0), disk_bytes=st.integers(0, 2),
    ),
    max_size=2,
)  # fmt: skip
resources: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, nodes=st.integers(1, 3), gpus=st.integers(0, 3), cpus=st.sampled_from([0.1, 0.5, 1.0, 2.0, 5.0]),
    disk_bytes=st.integers(0, 3), network_bps=st.sampled_from([0.0, 0.0, 1e9]), custom=licenses(0),
    accelerators=st.sampled_from([(), (), (("tpu", 1),)]), roles=st.just({}) | roles,
)  # fmt: skip
jobs = st.lists(st.tuples(st.integers(-2, 2), resources), max_size=25).map(
    lambda asks: tuple(job(i, p, **r) for i, (p, r) in enumerate(asks))
)
amounts = st.fixed_dictionaries(
    {},
    optional={
        "disk_bytes": st.integers(1, 4), "network_bps": st.just(1.5e9), "custom__license": st.sampled_from([0.5, 1.0, 2.0]),
        "accelerators__tpu": st.integers(1, 2),
    },
)  # fmt: skip
machine = st.tuples(st.sampled_from([0.3, 1.0, 4.0]), st.integers(0, 4), st.sampled_from(NodeState), amounts)
nodes = st.lists(machine, min_size=1, max_size=5).map(
    lambda rows: tuple(node(f"n{i}", c, g, s, **more) for i, (c, g, s, more) in enumerate(rows))
)


@settings(max_examples=200, deadline=None)
@given(jobs, nodes, st.randoms())
def test_laws_of_every_plan(waiting: tuple[Job, ...], machines: tuple[Node, ...], rng: object) -> None:
    snapshot = world(machines, waiting)
    state = ClusterState(snapshot, FIFO.sharing)
    plan = cycle(snapshot, FIFO, state)
    by_id = {j.id: j for j in waiting}
    given = shares_of(plan, machines)
    up = {n.name: n for n in machines if n.state is NodeState.UP}
    devices = [(s.node, d) for members in given.values() for s in members for d in s.devices]
    assert len(devices) == len(set(devices)), "a device was given twice"
    for machine in up.values():
        shares = [s for members in given.values() for s in members if s.node == machine.name]
        assert sum(s.cpus for s in shares) <= machine.cpus + 1e-6
        for name in {name for s in shares for name, _ in s.counted}:
            given_away = sum(dict(s.counted).get(name, 0.0) for s in shares)
            assert given_away <= dict(machine.counted).get(name, 0.0) + 1e-6, f"more {name} than there is"
        assert {d for s in shares for d in s.devices} <= {d.index for d in machine.devices}
    for id, members in given.items():
        ask = request_of(by_id[id].spec)
        assert len(members) == len({s.node for s in members}) == ask.nodes, "a gang starts whole, one member a node"
        for index, s in enumerate(members):
            wanted = ask.each if index else ask.first
            assert s.node in up
            assert (len(s.devices), round(s.cpus * 1000), milli_of(s.counted)) == (wanted.gpus, wanted.cpus, wanted.counted)
    told = {task.id: plan.reason(task, 100.0) for task in snapshot.waiting.values() if task.id not in given}
    assert set(given) | set(told) == set(by_id), "everybody is placed or told why not"
    assert all(r.text for r in told.values())
    again = cycle(snapshot, FIFO, state)
    assert again._replace(rest=None) == plan._replace(rest=None), "a plan that is not carried out leaves nothing behind"
    shuffled = list(waiting)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert decide(machines, tuple(shuffled)).placements == plan.placements


def milli_of(counted: Counts) -> tuple[tuple[str, int], ...]:
    return tuple((name, round(amount * 1000)) for name, amount in counted)


def placed(*waiting: Job, live: tuple[Job, ...] = (), machines: tuple[Node, ...] = (node("a"),)) -> list[str]:
    return [p.job for p in decide(machines, waiting, *live).placements]


def test_priority_comes_before_who_was_first() -> None:
    assert placed(job(1), job(2, priority=5), job(3), machines=(node("a", cpus=2.0),)) == ["x-2", "x-1"]


def test_a_head_that_cannot_start_does_not_block_those_behind_it() -> None:
    assert placed(job(1, cpus=9.0), job(2)) == ["x-2"]


def test_what_live_attempts_hold_is_not_given_again() -> None:
    held = running("y-1", NodeShare("a", "127.0.0.1", 1.0, 0, (0,)))
    machines = (node("a", gpus=2),)
    given = shares_of(decide(machines, (job(1, gpus=1), job(2, gpus=1)), held), machines)
    assert [members[0].devices for members in given.values()] == [(1,)]


def words(asked: Job, *machines: Node, held: Job | None = None) -> str:
    return reason(asked, *machines, held=held).text


def reason(asked: Job, *machines: Node, held: Job | None = None) -> Refusal:
    return decide(machines, (asked,), *([held] if held else [])).reason(nouns.task(asked), 100.0)


def test_every_refusal_says_what_is_asked_and_what_stands_against_it() -> None:
    held = running("y-1", NodeShare("a", "127.0.0.1", 4.0))
    assert words(job(1, gpus=8), node("a", gpus=2)) == "asks for 8 GPUs, 1 CPU on one node; no node has more than 2 GPUs"
    assert words(job(1, cpus=9, memory_bytes=2**42), node("a"), node("b")) == (
        "asks for 9 CPUs, 4 TiB of memory on one node; no node has more than 4 CPUs, 8 GiB of memory"
    )
    assert words(job(1, gpus=1, cpus=6), node("a", gpus=1), node("b", 8.0)) == (
        "asks for 1 GPU, 6 CPUs on one node; no node has all of it"
    )
    assert (
        words(job(1, gpus=1, gpu_kind="a100"), node("a", gpus=2)) == "asks for GPUs of kind a100; those here are of kind h100"
    )
    assert words(job(1, gpus=1, gpu_kind="a100"), node("a")) == "asks for GPUs of kind a100; there are none"
    assert words(job(1, nodes=3), node("a"), node("b")) == "asks for 3 nodes with 1 CPU; there are 2 such nodes"
    assert words(job(1), node("a"), held=held) == "waiting for 1 CPU: other jobs hold what it needs"
    assert words(job(1), node("a", state=NodeState.DRAINED)) == "waiting for 1 CPU: a is drained"
    assert words(job(1, nodes=2), node("a"), node("b", state=NodeState.GONE)) == (
        "asks for 2 nodes with 1 CPU; there is 1 such node"
    )
    assert words(job(1, not_before_s=130.0), node("a")) == "waiting before the next restart (back-off)"


def test_why_adds_position_and_what_is_free() -> None:
    held = running("y-1", NodeShare("a", "127.0.0.1", 3.0))
    asked = job(1, cpus=2.0)
    text = why(nouns.task(asked), world((node("a"),), (asked,), held), 1, reason(asked, node("a"), held=held))
    assert text == "x-1 is number 1 in the queue, waiting for 2 CPUs: other jobs hold what it needs (free now: 1 CPU on a)"


def test_what_is_counted_is_asked_for_held_and_told_like_any_other_resource() -> None:
    two = node("a", custom__license=2, disk_bytes=10 * 2**30)
    waiting = tuple(job(n, cpus=0.1, custom=(("license", 1.0),)) for n in (1, 2, 3))
    plan = decide((two,), waiting)
    assert [p.job for p in plan.placements] == ["x-1", "x-2"]
    third = nouns.task(waiting[2])
    assert plan.reason(third, 100.0).text == "waiting for 0.1 CPUs, 1 license: other jobs hold what it needs"
    held = [running(id, *shares) for id, shares in shares_of(plan, (two,)).items()]
    refused = plan.reason(third, 100.0)
    assert why(third, world((two,), waiting[2:], *held), 1, refused) == (
        "x-3 is number 1 in the queue, waiting for 0.1 CPUs, 1 license: other jobs hold what it needs "
        "(free now: 3.8 CPUs on a; all 2 license in use by x-1, x-2)"
    )
    assert words(job(1, custom=(("licence", 1.0),)), two) == (
        "asks for 1 licence; no node has any ([nodes] custom of server.toml says what there is)"
    )
    assert words(job(1, disk_bytes=2**40, network_bps=1e11), node("a", network_bps=1e10, disk_bytes=2**35)) == (
        "asks for 1 CPU, 1 TiB of disk, 100 Gbps of network on one node; "
        "no node has more than 32 GiB of disk, 10 Gbps of network"
    )
    assert words(job(1, accelerators=(("tpu", 4),)), node("a", accelerators__tpu=2)) == (
        "asks for 1 CPU, 4 tpu accelerators on one node; no node has more than 2 tpu accelerators"
    )


def test_roles_count_on_the_first_node_which_is_the_one_with_room_for_them() -> None:
    beside = {"evaluator": Role("x", Resources(cpus=3.0, gpus=1, memory_bytes=2**30))}
    asked = job(1, nodes=2, cpus=2.0, gpus=1, memory_bytes=2**31, roles=beside)
    machines = (node("a", 2.0, 1), node("b", 6.0, 2))
    assert shares_of(decide(machines, (asked,)), machines)[asked.id] == (
        NodeShare("b", "127.0.0.1", 5.0, 3 * 2**30, (0, 1)),
        NodeShare("a", "127.0.0.1", 2.0, 2**31, (0,)),
    )
    small = (node("a", 2.0, 1), node("b", 2.0, 2))
    assert words(asked, *small) == (
        "asks for 2 GPUs, 5 CPUs, 3 GiB of memory on one node; no node has more than 2 CPUs (what its roles need included)"
    )
    held = running("y-1", NodeShare("b", "127.0.0.1", 2.0))
    assert words(asked, *machines, held=held) == (
        "waiting for 2 nodes with 1 GPU, 2 CPUs, 2 GiB of memory each and 2 GPUs, 5 CPUs, 3 GiB of memory on the first, "
        "for its roles, all at once: other jobs hold what it needs"
    )


def test_what_is_promised_is_seen_by_whoever_asks() -> None:
    share = NodeShare("a", "a", 4.0)
    first, second = replace(job(1, cpus=4), promised=Allocation((share,))), job(2, cpus=4, priority=5)
    holder = running("r-9", share)
    stopping = replace(holder, attempt=replace(holder.attempt, stopping_s=60.0))  # type: ignore[type-var]
    plan = decide((node("a"),), (first, second), stopping)
    seen = world((node("a"),), (first, second), stopping)
    assert plan.reason(seen.waiting["x-1"], 100.0).cause == "handover"
    assert not plan.placements
    free = decide((node("a"),), (first, second))
    assert [one.job for one in free.placements] == ["x-1"], "though another is ahead of it in order"
