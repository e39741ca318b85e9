"""Choices of GPUs, case by case: which is taken, what the job waits for and how long, and its waiting reason."""

from dataclasses import asdict, replace

import pytest

from trainmaster.cli.render.log_stream import rank_count
from trainmaster.errors import SpecError
from trainmaster.model.cluster import Cluster, Pool, Project, Quota
from trainmaster.model.nodes import Allocation, Device, Node, NodeShare
from trainmaster.model.spec import Choose, GpuChoice, PlacementSpec, Resources
from trainmaster.scheduling.admission.feasible import grouped
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.why import why
from trainmaster.scheduling.model import convert as nouns
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.jobs import Choices, Kind, Owner, Past, Run, Task, kind_of
from trainmaster.scheduling.model.request import WHOLE, Ask, Shape, Wish, ask_of
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant, Site
from trainmaster.scheduling.placement.choices import Market
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.spec.document import from_mapping, load_bytes, to_mapping
from trainmaster.testing import builders

NOW_S = 10_000.0
FAST, SLOW = ask_of(1, Shape(8, kinds=("h100",))), ask_of(1, Shape(8, kinds=("a100",)))
RULES = Cluster((Pool("fast", speed=2.0, price=6.0), Pool("slow", price=2.0)))
SITES = tuple(
    Site(name, Cell((kind,), (8,), (), 64 * WHOLE, pool=pool), (0,) * 8, pool=pool)
    for name, kind, pool in (("f", "h100", "fast"), ("s", "a100", "slow"))
)


def job(seq: int, estimate_s: float | None = 3600.0, by_cost: bool = False, prefer_s: float = 0.0, **more: object) -> Task:
    choices = Choices((FAST, SLOW), by_cost)
    kind = kind_of(choices, Owner("vision", "ann"), wish=Wish(prefer_s=prefer_s))
    return Task(seq, f"j{seq}", kind, NOW_S - 10, estimate_s=estimate_s)._replace(**more)


def busy(node: int, left_s: float | None = None) -> Run:
    ask = (FAST, SLOW)[node]
    task = Task(node, f"r{node}", kind_of(ask), 0.0, estimate_s=None if left_s is None else 1000.0 + left_s)
    return Run(task, Grant(ask, (node,), (tuple(range(8)),)), NOW_S - 1000.0)


def decide(waiting: list[Task], running: list[Run], rules: Cluster = RULES, policy: str = "easy") -> Plan:
    seen = Snapshot(NOW_S, SITES, {one.id: one for one in waiting}, {one.task.id: one for one in running}, rules=rules)
    return cycle(seen, POLICIES[policy])


def nodes_of(plan: Plan) -> dict[str, str]:
    return {one.job: SITES[one.grant.nodes[0]].name for one in plan.placements}


@pytest.mark.parametrize(("by_cost", "first"), [(False, "f"), (True, "s")])
def test_the_better_is_taken_and_then_the_other(by_cost: bool, first: str) -> None:
    """By end the one that is twice as fast; by cost the other, at a third of the price."""
    assert nodes_of(decide([job(1, by_cost=by_cost), job(2, by_cost=by_cost)], [])) == {"j1": first, "j2": "fs".replace(first, "")}


@pytest.mark.parametrize(("left_s", "goes"), [(1700.0, {}), (1900.0, {"j1": "s"}), (None, {"j1": "s"})])
def test_a_faster_one_is_waited_for_where_that_ends_sooner(left_s: float | None, goes: dict[str, str]) -> None:
    """An hour on the slow one, half an hour on the fast one: waiting pays for up to half an hour."""
    plan = decide([job(1)], [busy(0, left_s)])
    assert nodes_of(plan) == goes
    if not goes:
        assert [(one.job, one.at_s) for one in plan.reservations] == [("j1", NOW_S + 1700.0)]
        assert plan.reason(job(1), NOW_S).text == (
            "waiting for 8 h100 GPUs, 1 CPU: it is expected to end sooner there than with 8 a100 GPUs, 1 CPU"
        )


def test_who_has_no_room_kept_for_it_does_not_wait() -> None:
    """Under `fifo` there are no reservations: what fits is taken."""
    assert nodes_of(decide([job(1)], [busy(0, 10.0)], policy="fifo")) == {"j1": "s"}


def test_one_that_runs_on_though_it_should_be_over_is_not_waited_for() -> None:
    assert nodes_of(decide([job(1)], [busy(0, -100.0)])) == {"j1": "s"}


def test_no_room_is_kept_with_a_choice_that_quota_bars() -> None:
    """It will take any of its choices later, but never that one: another job waited for the nodes."""
    rules = replace(RULES, projects=(Project("vision", quotas=(("a100", Quota(limit=0)),)),))
    other = Task(2, "j2", kind_of(SLOW, Owner("other")), NOW_S - 5, estimate_s=7200.0)
    plan = decide([job(1, by_cost=True, prefer_s=600.0), other], [busy(0, 90_000.0)], rules)
    assert nodes_of(plan) == {"j2": "s"}
    assert [(one.job, one.at_s) for one in plan.reservations] == [("j1", NOW_S + 90_000.0)]


def test_the_cheapest_is_waited_for_as_long_as_the_spec_says() -> None:
    plan = decide([job(1, by_cost=True, prefer_s=60.0)], [busy(1)])
    assert not plan.placements
    assert plan.reason(job(1), NOW_S).text == (
        "waiting for 8 a100 GPUs, 1 CPU: other jobs hold what it needs; after 1 min in the queue it takes any of its choices"
    )
    assert nodes_of(decide([job(1, by_cost=True, prefer_s=5.0)], [busy(1)])) == {"j1": "f"}
    assert nodes_of(decide([job(1, by_cost=True)], [busy(1)])) == {"j1": "f"}


def test_room_is_kept_where_it_ends_first() -> None:
    """The fast one is free later, and yet ends it sooner."""
    assert decide([job(1)], [busy(0, 500.0), busy(1, 100.0)]).reservations[0].at_s == NOW_S + 500.0
    assert decide([job(1)], [busy(0, 5000.0), busy(1, 100.0)]).reservations[0].at_s == NOW_S + 100.0


def test_who_waits_names_all_choices() -> None:
    running = [busy(0), busy(1)]
    plan = decide([job(1)], running)
    asks = "waiting for 8 h100 GPUs, 1 CPU or 8 a100 GPUs, 1 CPU: other jobs hold what it needs"
    assert plan.reason(job(1), NOW_S).text == asks
    seen = Snapshot(NOW_S, SITES, {"j1": job(1)}, {one.task.id: one for one in running})
    assert why(job(1), seen, 1, plan.reason(job(1), NOW_S)) == f"j1 is number 1 in the queue, {asks} (free now: 0 GPUs and 63 CPUs on s)"


def test_quotas_are_held_against_each_choice() -> None:
    """What it may not have is not taken though it is free; what it may have later is told beside what others hold."""
    four = Cluster(RULES.pools, (Project("vision", quotas=(("h100", Quota(limit=4)),)),))
    assert nodes_of(decide([job(1)], [], four)) == {"j1": "s"}
    plan = decide([job(1)], [busy(1)], four)
    assert not plan.placements
    assert plan.reason(job(1), NOW_S).text == "waiting for 8 a100 GPUs, 1 CPU: other jobs hold what it needs"
    eight = Cluster(RULES.pools, (Project("vision", quotas=(("h100", Quota(limit=8)),)),))
    own = busy(0)
    own = own._replace(task=own.task._replace(kind=kind_of(FAST, Owner("vision", "ann"))))
    assert decide([job(1)], [own, busy(1)], eight).reason(job(1), NOW_S).text == (
        "waiting for 8 h100 GPUs, 1 CPU: quota: project vision may hold 8 h100 GPUs at a time"
        "; or for 8 a100 GPUs, 1 CPU: other jobs hold what it needs"
    )


def test_a_choice_that_there_is_not_is_left_out() -> None:
    task = job(1)
    choices = Choices((ask_of(1, Shape(8, kinds=("b200",))), SLOW))
    task = task._replace(kind=kind_of(choices))
    assert nodes_of(decide([task], [])) == {"j1": "s"}
    plan = decide([task], [busy(1)])
    assert plan.reason(task, NOW_S).text == "waiting for 8 a100 GPUs, 1 CPU: other jobs hold what it needs"


def test_the_jobs_own_speed_wins_over_that_of_the_pools() -> None:
    choices = Choices((FAST, SLOW), speeds=(("h100", 1.0), ("a100", 1.5)))
    assert nodes_of(decide([job(1)._replace(kind=kind_of(choices))], [])) == {"j1": "s"}


def test_fewer_of_a_faster_kind_are_as_fast_as_they_are_together() -> None:
    choices = Choices((SLOW, ask_of(1, Shape(2, kinds=("h100",)))))
    assert nodes_of(decide([job(1)._replace(kind=kind_of(choices))], [])) == {"j1": "s"}
    choices = Choices((SLOW, ask_of(1, Shape(6, kinds=("h100",)))))
    assert nodes_of(decide([job(1)._replace(kind=kind_of(choices))], [])) == {"j1": "f"}


def test_what_an_attempt_holds_is_what_it_was_given() -> None:
    """The choice is in the allocation: its ranks, and what the scheduler counts it as, follow from it."""
    several = (GpuChoice("h100", 4, ranks=4), GpuChoice("a100", 2, ranks=2))
    spec = builders.spec(resources=Resources(1, 4, "h100", ranks=4, choices=several), placement=PlacementSpec(choose=Choose.COST))
    given = Allocation((NodeShare("n", "", 1.0, devices=(0, 1)),), 1)
    machine = Node("n", "local", "h", "", 4.0, 2**30, (Device(0, "a100"), Device(1, "a100")))
    grant = nouns.grant(builders.job(spec=spec), given, {"n": machine}, {"n": 0})
    kind = nouns.kind(builders.job(spec=spec))
    assert grant.ask is kind.asks[1]
    assert nouns.allocation(grant, (machine,), kind.choice_of(grant.ask)).choice == 1
    assert (spec.resources.chosen(1).ranks, spec.resources.chosen(1).gpu_kind) == (2, "a100")


SPEC = {
    "command": "x",
    "resources": {"gpus": ["h100:4", "a100:8"]},
    "placement": {"choose": "cost", "prefer_for": "30m", "speed": {"h100": 2.1}},
}


def test_a_spec_with_choices_is_told_back() -> None:
    spec = from_mapping(SPEC)
    assert [(one.gpu_kind, one.gpus, one.ranks) for one in spec.resources.choices] == [("h100", 4, 4), ("a100", 8, 8)]
    assert from_mapping(to_mapping(spec)) == spec
    fixed = from_mapping({**SPEC, "resources": {"gpus": ["h100:4", "a100:8"], "ranks": 2}})
    assert {one.ranks for one in fixed.resources.choices} == {2}
    assert from_mapping(to_mapping(fixed)) == fixed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resources: {gpus: [h100:8, a100:0]}", "j.yaml:2:28: resources.gpus[1]: expected from 1 to 1024 GPUs of a kind per node, got 'a100:0'"),
        ("resources: {gpus: [h100:8, 4]}", "resources.gpus[1]: expected a kind and a number such as h100:8 for each of several choices, got the number 4"),
        ("resources: {gpus: [h100:8, '4']}", "resources.gpus[1]: expected a kind and a number such as h100:8 for each of several choices, got '4'"),
        ("resources: {gpus: []}", "resources.gpus: expected 1 to 16 choices such as h100:8, got none"),
        ("resources: {gpus: [h100:8, h100:8]}", "resources.gpus[1]: is a duplicate"),
        ("resources: {gpus: 2, gpu_kind: h100}", "resources.gpu_kind: unknown field; did you mean 'gpus'?"),
        ("placement: {choose: cost}", "placement.choose: there is nothing to choose from"),
        ("resources: {gpus: [h100:8, a100:8]}\nplacement: {speed: {h10: 2}}", "placement.speed.h10: none of several choices in 'resources.gpus' is of this kind; did you mean 'h100'?"),
        ("roles: {e: {command: x, resources: {gpus: [h100:1, a100:1]}}}", "roles.e.resources.gpus: a choice of GPUs (a list) is possible for ranks only"),
        ("resources: {gpus: [h100:8, a100:8]}\nroles: {e: {command: x, resources: {gpus: h100:1}}}", "of kind h100 beside those of kind h100 or a100"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_choice_is_told_where_it_is(text: str, said: str) -> None:
    with pytest.raises(SpecError) as told:
        load_bytes(f"command: x\n{text}\n".encode(), "j.yaml")
    assert said in told.value.message


def elastic(seq: int, low: int, most: int, cpus: int = 64, **more: object) -> Task:
    ask = ask_of(low, Shape(cpus=cpus * WHOLE), None, None)
    return Task(seq, f"e{seq}", kind_of(Choices((ask,), most=most), Owner("vision", "ann")), NOW_S - 10)._replace(**more)


ROW = tuple(Site(f"n{i}", Cell(cpus=64 * WHOLE), labels=(("rack", f"r{i // 3}"),)) for i in range(5))


def sizes(waiting: list[Task], rules: Cluster = RULES, policy: str = "fair-share") -> dict[str, int]:
    plan = cycle(Snapshot(NOW_S, ROW, {one.id: one for one in waiting}, {}, rules=rules), POLICIES[policy])
    assert {len(one.grant.nodes) == one.grant.ask.nodes for one in plan.placements} <= {True}
    return {one.job: len(one.grant.nodes) for one in plan.placements}


def test_an_elastic_job_takes_what_is_free_and_no_more_than_it_wants() -> None:
    assert sizes([elastic(1, 2, 4)]) == {"e1": 4}
    assert sizes([elastic(1, 2, 9)]) == {"e1": 5}
    assert sizes([elastic(1, 6, 9)]) == {}


def test_each_gets_its_least_before_anyone_gets_more() -> None:
    assert sizes([elastic(1, 1, 5), elastic(2, 2, 5)]) == {"e1": 3, "e2": 2}


def test_nobody_grows_while_one_waits_who_could_have_it() -> None:
    assert sizes([elastic(1, 2, 5), elastic(2, 4, 5)]) == {"e1": 2}
    assert sizes([elastic(1, 2, 5), elastic(2, 1, 1, not_before_s=NOW_S + 60)]) == {"e1": 2}, "its back-off is nearly over"
    assert sizes([elastic(1, 2, 5), elastic(2, 9, 9)]) == {"e1": 5}, "that one can never start"


def test_it_grows_within_its_quota_and_its_rack() -> None:
    rules = Cluster(projects=(Project("vision", quotas=(("cpus", Quota(limit=3 * 64)),)),))
    assert sizes([elastic(1, 1, 5)], rules) == {"e1": 3}
    there = elastic(1, 1, 5)
    ask = ask_of(1, there.kind.ask.each, None, "rack")
    assert sizes([there._replace(kind=kind_of(Choices((ask,), most=5)))]) == {"e1": 2}, "the fullest rack that can"


def test_all_ranks_are_shown_whichever_choice_and_however_many_nodes_an_attempt_had() -> None:
    wide = {"spec": {"resources": asdict(from_mapping({"command": "x", "elastic": {"nodes_min": 2, "nodes_max": 8}}).resources)}}
    assert rank_count({**wide, "attempts": []}) == 8
    assert rank_count({**wide, "attempts": [{"nodes": ["n0", "n1", "n2", "n3"]}, {"nodes": ["n0", "n1"]}]}) == 4
    either = {"spec": {"resources": asdict(from_mapping(SPEC).resources)}, "attempts": [{"nodes": ["n0"]}]}
    assert rank_count(either) == 8


def test_an_elastic_spec_is_told_back() -> None:
    spec = from_mapping({"command": "x", "elastic": {"nodes_min": 2, "nodes_max": 8}})
    assert (spec.resources.nodes, spec.resources.nodes_max) == (2, 8)
    assert spec == from_mapping({"command": "x", "resources": {"nodes": 2}, "elastic": {"nodes_max": 8}})
    assert from_mapping(to_mapping(spec)) == spec
    fixed = from_mapping({"command": "x", "elastic": {"nodes_min": 3, "nodes_max": 3}})
    assert (fixed.resources.nodes, fixed.resources.nodes_max) == (3, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("elastic: {nodes_min: 4, nodes_max: 2}", "j.yaml:2:36: elastic.nodes_max: is less than the smallest number of nodes, 4"),
        ("elastic: {nodes_min: 4}", "j.yaml:2:22: elastic.nodes_min: has no effect without 'nodes_max'"),
        ("resources: {nodes: 3}\nelastic: {nodes_min: 2, nodes_max: 8}", "elastic.nodes_min: differs from 'resources.nodes' (3)"),
        ("resources: {nodes: 3}\nelastic: {nodes_max: 0}", "elastic.nodes_max: expected a whole number from 1 to 10,000, got the number 0"),
        ("elastic: {max: 2}", "elastic.max: unknown field"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_sizes_is_told_where_it_is(text: str, said: str) -> None:
    with pytest.raises(SpecError) as told:
        load_bytes(f"command: x\n{text}\n".encode(), "j.yaml")
    assert said in told.value.message


def wide(nodes: int, least: int, ran_s: float = 1000.0, **more: object) -> Run:
    """An elastic job on the first nodes of the row."""
    task = elastic(9, least, 5, **more)
    return Run(task, Grant(ask_of(nodes, task.kind.ask.each), tuple(range(nodes))), NOW_S - ran_s)


def taken(waiting: list[Task], running: Run, policy: str = "fifo") -> list[tuple[str, tuple[int, ...], tuple[str, ...]]]:
    """Which job starts on the freed nodes, on which of them, and which jobs continue on fewer."""
    seen = Snapshot(NOW_S, ROW, {one.id: one for one in waiting}, {running.task.id: running}, rules=RULES)
    plan = cycle(seen, POLICIES[policy])
    assert {one.victims for one in plan.handovers} == {one.shrunk for one in plan.handovers}
    return [(one.job, one.grant.nodes, one.shrunk) for one in plan.handovers]


def test_what_is_beyond_the_least_is_given_back_for_the_least_of_others() -> None:
    assert taken([elastic(1, 3, 5)], wide(5, 2)) == [("e1", (2, 3, 4), ("e9",))]
    assert taken([elastic(1, 4, 5)], wide(5, 2)) == [], "that would not be enough"
    assert taken([elastic(1, 1, 5)], wide(4, 2)) == [], "it starts on the node that is free, and wants no more"
    both = [("e1", (1, 2), ("e9",)), ("e2", (3, 4), ("e9",))]
    assert taken([elastic(1, 2, 0), elastic(2, 2, 0)], wide(5, 1)) == both, "what one leaves the next one has"


def test_who_has_hardly_run_keeps_all_and_longer_after_each_time() -> None:
    assert taken([elastic(1, 3, 0)], wide(5, 2, ran_s=299.0)) == []
    assert taken([elastic(1, 3, 0)], wide(5, 2, ran_s=599.0, shrinks=1)) == []
    assert taken([elastic(1, 3, 0)], wide(5, 2, ran_s=601.0, shrinks=1))


def test_a_lower_class_takes_nothing_back() -> None:
    waits = elastic(1, 3, 0)
    lower = waits._replace(kind=kind_of(Choices(waits.kind.asks), Owner("vision", "ann", tier=-1)))
    assert taken([lower], wide(5, 2)) == []


def test_who_gives_back_goes_on_where_it_was_whatever_its_quota_says() -> None:
    """It has held that all the while: what others are guaranteed meanwhile is theirs when it ends."""
    run = wide(5, 2)
    task = run.task._replace(keeps=True)
    rules = Cluster(projects=(Project("vision"), Project("speech", quotas=(("cpus", Quota(guarantee=4 * 64, nominal=4 * 64)),))))
    seen = Snapshot(NOW_S, ROW, {"e9": task}, {}, rules=rules, promised={"e9": run.least})
    plan = cycle(seen, POLICIES["fair-share"])
    assert [(one.job, one.grant.nodes[:2]) for one in plan.placements] == [("e9", (0, 1))]


def past(seq: int, gpu: int, hours: float, kind: Kind, on: Ask | None = None, **more: object) -> Past:
    return Past(seq, kind, 3600.0 * hours, on=on or (FAST, SLOW)[gpu])._replace(**more)


TRAIN = kind_of(Choices((FAST, SLOW)), Owner("vision", "ann"), 9000.0, "train.py")
FOUR = ask_of(1, Shape(4, kinds=("a100",)))


@pytest.mark.parametrize(
    ("ended", "first"),
    [
        ([], "f"),  # declared: twice as fast
        ([past(n, n % 2, [3.0, 1.0][n % 2], TRAIN) for n in range(6)], "s"),  # measured: a third
        ([past(n, n % 2, [3.0, 1.0][n % 2], TRAIN) for n in range(5)], "f"),  # two runs on one of them say nothing
        ([*(past(n, n % 2, [3.0, 1.0][n % 2], TRAIN) for n in range(6)), past(6, 1, 99.0, TRAIN)], "s"),  # one odd run
        ([past(n, n % 2, [3.0, 9.0**n][n % 2], TRAIN) for n in range(10)], "f"),  # all over the place
        ([past(n, n % 2, [3.0, 1.0][n % 2], kind_of(SLOW, Owner("vision", "ann"), 9000.0, "train.py")) for n in range(6)], "s"),
        ([past(n, n % 2, [3.0, 1.0][n % 2], kind_of(SLOW, Owner("vision", "bob"), 9000.0, "train.py")) for n in range(6)], "f"),
        ([past(n, n % 2, [3.0, 1.0][n % 2], kind_of(SLOW, Owner("vision", "ann"), 99.0, "train.py")) for n in range(6)], "f"),
        ([past(n, n % 2, [3.0, 1.0][n % 2], kind_of(SLOW, Owner("vision", "ann"), 9000.0, "eval.py")) for n in range(6)], "f"),
        ([past(n, n % 2, [3.0, 1.0][n % 2], TRAIN, well=False) for n in range(6)], "f"),
        ([past(n, n % 2, [3.0, 1.0][n % 2], TRAIN)._replace(on=None) for n in range(6)], "f"),  # of several attempts
        ([past(n, n % 2, [3.0, 3.5][n % 2], TRAIN, FOUR if n % 2 else None) for n in range(6)], "s"),  # on half as many
    ],
)
def test_what_was_measured_says_more_than_the_pools(ended: list[Past], first: str) -> None:
    """Of the same owner, program and time limit, from three runs on each kind, by all of their GPUs together."""
    one = job(1)._replace(kind=TRAIN)
    seen = Snapshot(NOW_S, SITES, {one.id: one}, {}, rules=RULES, ended=ended)
    assert nodes_of(cycle(seen, POLICIES["easy"])) == {"j1": first}


def test_the_jobs_own_word_says_more_than_what_was_measured() -> None:
    said = kind_of(Choices((FAST, SLOW), speeds=(("h100", 3.0), ("a100", 1.0))), Owner("vision", "ann"), 9000.0, "train.py")
    one, ended = job(1)._replace(kind=said), [past(n, n % 2, [3.0, 1.0][n % 2], TRAIN) for n in range(6)]
    seen = Snapshot(NOW_S, SITES, {one.id: one}, {}, rules=RULES, ended=ended)
    assert nodes_of(cycle(seen, POLICIES["easy"])) == {"j1": "f"}


def test_what_was_measured_is_known_at_once_and_beside_what_was_not() -> None:
    """A market that has been asked before finds the better one after the third run; a third kind stands as its pool says."""
    third = ask_of(1, Shape(8, kinds=("v100",)))
    kind = kind_of(Choices((FAST, SLOW, third)), Owner("vision", "ann"), 9000.0, "train.py")
    pools = (*RULES.pools, Pool("old", speed=1.5))
    sites = (*SITES, Site("o", Cell(("v100",), (8,), (), 64 * WHOLE, pool="old"), (0,) * 8, pool="old"))
    ended = [past(n, n % 2, [3.0, 1.0][n % 2], kind) for n in range(5)]
    market = Market(Cluster(pools), grouped(sites), ended)
    assert [(way.kind.ask, way.share) for way in market.ways(kind)] == [(FAST, 0.5), (third, 1 / 1.5), (SLOW, 1.0)]
    ended.append(past(5, 1, 1.0, kind))
    ways = [(way.kind.ask, round(way.share, 3)) for way in market.ways(kind)]
    assert ways == [(third, 0.222), (SLOW, 0.333), (FAST, 1.0)]  # the a100 as its pool says, the h100 a third of that


def test_a_job_that_is_over_tells_what_it_held() -> None:
    several = (GpuChoice("h100", 4, ranks=4), GpuChoice("a100", 2, ranks=2))
    spec = builders.spec(resources=Resources(1, 4, "h100", ranks=4, choices=several))
    given = Allocation((NodeShare("n", "", 1.0, devices=(0, 1)),), 1)
    over = replace(builders.job(spec=spec), attempt=replace(builders.attempt(1), allocation=given), ran_s=9.0)
    assert nouns.past(over).on is nouns.asks(spec)[1]
    assert nouns.past(replace(over, attempt=replace(over.attempt, number=2))).on is None


def test_who_waits_while_its_like_is_measured_goes_where_it_is_faster() -> None:
    """What was thought of its choices before is not remembered once more is known."""
    one, ended = job(1)._replace(kind=TRAIN), [past(n, n % 2, [3.0, 1.0][n % 2], TRAIN) for n in range(5)]
    running = {"r0": busy(0), "r1": busy(1)}
    seen = Snapshot(NOW_S, SITES, {"j1": one}, running, 0, ended, RULES)
    state = ClusterState(seen, POLICIES["easy"].sharing)
    plan = cycle(seen, POLICIES["easy"], state)
    assert not plan.placements
    ended.append(past(5, 1, 1.0, TRAIN))
    for id in running:
        state.end(id)
    seen = Snapshot(NOW_S + 1.0, SITES, {"j1": one}, {}, 0, ended, RULES)
    plan = cycle(seen, POLICIES["easy"], state)
    assert nodes_of(plan) == {"j1": "s"} == nodes_of(cycle(seen, POLICIES["easy"]))
