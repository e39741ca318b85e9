"""Placement, case by case: strategies, racks, waiting for a preferred domain, closeness; and the waiting reasons."""

import pytest

from trainmaster.cli.inspect.queue import row
from trainmaster.model.nodes import Allocation, Node, NodeShare
from trainmaster.model.spec import PlacementSpec, Resources, Strategy
from trainmaster.scheduling.admission.feasible import grouped, impossible
from trainmaster.scheduling.cycle import cycle
from trainmaster.scheduling.explanation.why import why
from trainmaster.scheduling.model import convert as nouns
from trainmaster.scheduling.model import words
from trainmaster.scheduling.model.cells import Cell
from trainmaster.scheduling.model.domains import unlabelled
from trainmaster.scheduling.model.jobs import Past, Run, Task, kind_of
from trainmaster.scheduling.model.reasons import Reason, Refusal
from trainmaster.scheduling.model.request import Ask, Shape, Wish, ask_of, confined
from trainmaster.scheduling.model.snapshot import Plan, Snapshot
from trainmaster.scheduling.model.space import Grant, Site, Space
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.state.cluster import ClusterState
from trainmaster.testing import builders

FIFO = POLICIES["fifo"]
ONE, PAIR = ask_of(1, Shape()), ask_of(2, Shape())


def site(name: str, cpus: int = 1, host: str = "", **labels: str) -> Site:
    return Site(name, Cell((), (), (), cpus * 1000, 8), labels=tuple(sorted(labels.items())), host=host)


RACKS = (site("n0", rack="r1"), site("n1", rack="r1"), site("n2", rack="r2"), site("n3", rack="r2"))


def task(ask: Ask, wish: Wish | None = None, seq: int = 9, since_s: float = 0.0) -> Task:
    return Task(seq, f"j-{seq}", kind_of(ask, wish=wish or Wish()), since_s)


def runs(sites: tuple[Site, ...], *held: int, wish: Wish | None = None) -> dict[str, Run]:
    """A job on each of these nodes."""
    space = Space(sites)
    found = [(task(ONE, wish, seq), node) for seq, node in enumerate(held)]
    return {one.id: Run(one, space.take(ONE, [node]), 0.0) for one, node in found}


def decided(sites: tuple[Site, ...], one: Task, running: dict[str, Run] | None = None, now_s: float = 0.0) -> Plan:
    return cycle(Snapshot(now_s, sites, {one.id: one}, running or {}), FIFO)


def nodes(plan: Plan) -> tuple[int, ...] | None:
    return plan.placements[0].grant.nodes if plan.placements else None


@pytest.mark.parametrize(
    ("strategy", "taken"),
    [(None, 1), ("pack", 1), ("spread", 0), ("balanced", 2), ("fragmentation", 3)],
)
def test_strategies(strategy: str | None, taken: int) -> None:
    """Node 0 is empty, 1 has least left, 2 is used evenly with this one, 3 keeps room for three GPUs, which are typical here."""
    bare = Cell(("a",), (8,), (), 32_000, 64)
    sites = tuple(Site(f"n{i}", bare, (0,) * 8) for i in range(4))
    space, running = Space(sites), dict[str, Run]()
    for node, shape in ((1, Shape(5, 0, (), 4000)), (2, Shape(2, 0, (), 8000, 16)), (3, Shape(4, 0, (), 4000))):
        held = task(ask_of(1, shape), seq=node)
        running[held.id] = Run(held, space.take(held.kind.ask, [node]), 0.0)
    past = Past(0, kind_of(ask_of(1, Shape(3, 0, (), 1000))), 1.0)
    one = task(ask_of(1, Shape(1, 0, (), 4000, 8)), Wish(strategy))
    plan = cycle(Snapshot(0.0, sites, {one.id: one}, running, ended=[past] * 200), FIFO)
    assert nodes(plan) == (taken,)


def test_a_gang_in_one_rack_takes_the_fullest_that_has_room() -> None:
    racks = (*RACKS, site("n4", rack="r1"))
    one = task(confined(PAIR, "rack"))
    assert nodes(decided(racks, one)) == (2, 3), "three nodes of the other stay together"
    assert nodes(decided(racks, one, runs(racks, 2))) == (0, 1)
    assert nodes(decided(racks, one, runs(racks, 0, 1, 2))) is None, "two are free, in two racks"
    assert nodes(decided(racks, task(PAIR), runs(racks, 0, 1, 2))) == (3, 4)


def test_racks_of_one_name_in_two_zones_are_two() -> None:
    sites = (site("n0", zone="a", rack="r"), site("n1", zone="b", rack="r"), site("n2", zone="b", rack="s"))
    assert nodes(decided(sites, task(confined(PAIR, "rack")))) is None
    assert nodes(decided(sites, task(confined(PAIR, "zone")))) == (1, 2)


def test_what_is_preferred_is_taken_where_there_is_room_and_else_the_next_wider() -> None:
    sites = (site("n0", zone="a", rack="1"), site("n1", zone="b", rack="2"), site("n2", zone="b", rack="3"),
             site("n3", zone="a", rack="4"), site("n4", zone="a", rack="4"))  # fmt: skip
    one = task(PAIR, Wish(prefer="rack"))
    assert nodes(decided(sites, one)) == (3, 4)
    assert nodes(decided(sites, one, runs(sites, 3))) == (0, 4), "both zones have two left: the first"
    assert nodes(decided(sites, one, runs(sites, 3, 4))) == (1, 2)
    assert nodes(decided(sites, one, runs(sites, 3, 4, 1))) == (0, 2), "two zones are better than to wait"


def test_a_better_place_is_waited_for_and_no_longer_than_was_said() -> None:
    one = task(PAIR, Wish(prefer="rack", prefer_s=60.0), since_s=100.0)
    running = runs(RACKS, 0, 2)
    seen = Snapshot(159.0, RACKS, {one.id: one}, running)
    state = ClusterState(seen, FIFO.sharing)
    plan = cycle(seen, FIFO, state)
    told = plan.reason(one, 159.0)
    assert (told.cause, told.text) == (
        "place",
        "waiting for 2 nodes with 1 CPU each, in one rack, all at once: other jobs hold what it needs; "
        "after 1 min in the queue it takes any place",
    )
    assert why(one, Snapshot(159.0, RACKS, {one.id: one}, running), 1, told).endswith("any place (most free now: 1 of 2 in rack r1)")
    plan = cycle(Snapshot(160.0, RACKS, {one.id: one}, running), FIFO, state)
    assert nodes(plan) == (1, 3)
    nowhere = task(ask_of(3, Shape()), one.kind.wish, since_s=100.0)
    assert nodes(decided(RACKS, nowhere, now_s=100.0)) == (0, 1, 2), "what can never be is not waited for"


@pytest.mark.parametrize(
    ("wish", "running", "taken"),
    [
        (Wish(group="r"), Wish(group="r"), 1),  # the same group: the other node of that rack
        (Wish(group="j"), Wish(), 1),  # by experiment
        (Wish(group="j-0"), Wish(), 1),  # by id
        (Wish(group="other"), Wish(group="r"), 2),
        (Wish(near="imagenet"), Wish(), 3),  # by the label
        (Wish(near="coco"), Wish(near="coco"), 1),  # by the jobs that read it
        (Wish(near="checkpoint"), Wish(), 3),  # where it ran before
    ],
)
def test_closeness(wish: Wish, running: Wish, taken: int) -> None:
    """A job runs on node 0; nodes 2 and 3 are in another rack, 2 has least; node 3 has data, and what an attempt left."""
    sites = (
        site("n0", 1, rack="r1"),
        site("n1", 4, rack="r1"),
        site("n2", 2, rack="r2"),
        site("n3", 4, rack="r2", data="a,imagenet"),
    )
    one = task(ONE, wish)._replace(homes=("n3",))
    assert nodes(decided(sites, one, runs(sites, 0, wish=running))) == (taken,)


def test_two_that_start_together_are_close_too() -> None:
    first, second = task(ONE, Wish("spread", group="g"), 1), task(ONE, Wish(group="g"), 2)
    sites = (site("n0", 1, rack="r2"), site("n1", 4, rack="r1"), site("n2", 8, rack="r2"), site("n3", 2, rack="r1"))
    plan = cycle(Snapshot(0.0, sites, {"j-1": first, "j-2": second}, {}), FIFO)
    assert [one.grant.nodes for one in plan.placements] == [(2,), (2,)], "on one node"


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (confined(ask_of(3, Shape()), "rack"), "asks for 3 nodes with 1 CPU each, in one rack, all at once; no rack has more than 2 such"),
        (confined(PAIR, "floor"), "asks for 2 nodes with 1 CPU each, in one floor, all at once; no node has the label 'floor'"),
        (confined(PAIR, "node"), "asks for 2 nodes with 1 CPU each, in one node, all at once; no node has more than 1 such"),
        (confined(PAIR, "host"), None),
        (
            confined(ask_of(2, Shape(), Shape(cpus=2000)), "rack"),
            "asks for 2 nodes with 1 CPU each and 2 CPUs on the first, for its roles, in one rack, all at once; "
            "none has room for its roles as well",
        ),
    ],
)  # fmt: skip
def test_what_can_never_be(ask: Ask, text: str | None) -> None:
    big = (site("big", 2, host="m"), site("small", 1, host="m"))
    assert impossible(ask, grouped((*RACKS, *big))) == text


def test_why_it_waits() -> None:
    one = task(confined(PAIR, "rack"))
    snapshot = Snapshot(0.0, RACKS, {one.id: one}, runs(RACKS, 0, 2, 3))
    expected = "waiting for 2 nodes with 1 CPU each, in one rack, all at once: other jobs hold what it needs"
    refused = decided(RACKS, one, runs(RACKS, 0, 2, 3)).reason(one, 0.0)
    assert refused.text == expected
    assert why(one, snapshot, 1, refused) == f"j-9 is number 1 in the queue, {expected} (most free now: 1 of 2 in rack r1)"
    away = tuple(one._replace(open=False, why="drained") if one.name == "n3" else one for one in RACKS[2:])
    assert decided(away, one).reason(one, 0.0).text == expected.replace("other jobs hold what it needs", "n3 is drained")


def test_a_spec_becomes_a_request_and_a_wish() -> None:
    placement = PlacementSpec("a100", Strategy.SPREAD, "zone", "rack", 60.0, "checkpoint", "g")
    job = builders.job(spec=builders.spec(resources=Resources(nodes=2), placement=placement))
    kind = nouns.kind(job)
    assert kind.ask is ask_of(2, Shape(pool="a100"), None, "zone")
    assert kind.wish == Wish("spread", "rack", 60.0, "g", "checkpoint")
    assert nouns.task(job).homes == ()
    share = NodeShare("n7", "", 1.0)
    assert nouns.task(builders.placed(job, allocation=Allocation((share, share)))).homes == ("n7", "n7")
    alone = builders.job(spec=builders.spec(placement=placement))
    assert nouns.kind(alone).ask.within is None, "one node is in one rack in any case"
    node = Node("n0", "local", "machine", "", 1.0, 0)
    assert nouns.sites_of([node])[0].host == "machine"
    assert isinstance(nouns.grant(job, Allocation((share, share)), {}, {}), Grant)


@pytest.mark.parametrize(("seconds", "text"), [(90.0, "90 s"), (0.5, "0.5 s"), (1800.0, "30 min"), (7200.0, "2 h")])
def test_durations_in_words(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_the_queue_and_why_say_the_same_of_what_is_preferred_within_what_must_be() -> None:
    """Of the narrower level, for as long as it waits for that; the queue leaves out only what its own column says."""
    sites = tuple(one._replace(labels=(*one.labels, ("zone", "eu"))) for one in RACKS)
    wide, running = confined(PAIR, "zone"), runs(sites, 0, 2)
    one = task(wide, Wish(prefer="rack", prefer_s=60.0))
    snapshot = Snapshot(0.0, sites, {one.id: one}, running)
    refused = decided(sites, one, running).reason(one, 0.0)
    assert refused.text == (
        "waiting for 2 nodes with 1 CPU each, in one rack, all at once: other jobs hold what it needs; "
        "after 1 min in the queue it takes any place in one zone"
    )
    assert refused.text in why(one, snapshot, 1, refused)
    listed = {"position": 1, "id": "j-9", "project": "p", "member": "", "class": "training", "queued_s": 0.0, "eta_s": None}
    for asks, said in ((words.describe(wide), refused.text), (words.describe(confined(PAIR, "rack")), refused.text.partition(": ")[2])):
        assert row({**listed, "asks": asks, "reason": refused.text}, 0.0)[-1] == said
    kept = Refusal(Reason.RESERVED, "waiting for 1 CPU: what is free is kept for a job ahead of it")
    assert why(one, snapshot, 1, kept) == f"j-9 is number 1 in the queue, {kept.text}"


@pytest.mark.parametrize(
    ("placement", "notes"),
    [
        (PlacementSpec(within="rack", prefer="host", near="corpus"), []),
        (PlacementSpec(within="node", near="checkpoint"), []),
        (PlacementSpec(prefer="rakc"), ["placement.prefer: no node has the label 'rakc'; known: rack, zone"]),
        (PlacementSpec(within="shelf"), ["placement.within: no node has the label 'shelf'; known: rack, zone"]),
        (PlacementSpec(near="corpse"), ["placement.near: no node has the data 'corpse'; known: corpus, images"]),
    ],
)
def test_wishes_that_mean_nothing_here_are_told(placement: PlacementSpec, notes: list[str]) -> None:
    labels = [(("data", "corpus,images"), ("rack", "r1")), (("zone", "z"),), ()]
    assert unlabelled(placement, labels) == notes
    assert all(line.endswith("there is none") for line in unlabelled(PlacementSpec(prefer="rack", near="x"), []))
