"""Ledger entries of events: pools and prices, ends, repeated work, and decayed service."""

from dataclasses import replace
from math import log

import pytest

from trainmaster.control import charging
from trainmaster.lifecycle.machine import apply
from trainmaster.model import events as ev
from trainmaster.model.checkpoints import Checkpoint, Part
from trainmaster.model.cluster import Cluster, Pool
from trainmaster.model.job import Action, Job, Outcome, State, Verdict
from trainmaster.model.ledger import Balance, Charge, Closed, Entry, Payer, Rate, Repeated
from trainmaster.model.lineage import Lineage, Relation
from trainmaster.model.nodes import Allocation, Device, Node, NodeShare
from trainmaster.model.spec import CodeCopy
from trainmaster.scheduling.model.usage import Account, Member
from trainmaster.testing import builders

HALF_LIFE_S = 100.0
RULES = Cluster(
    (Pool("a100", ("g*",), price=2.5), Pool("cpu", ("c*",), price=0.04)), currency="EUR", half_life_s=HALF_LIFE_S
)
GPUS = tuple(Device(index, "a100") for index in range(8))
NODES = {
    name: Node(name, "local", name, "127.0.0.1", 32.0, 2**30, devices, pool)
    for name, devices, pool in (("g0", GPUS, "any"), ("g1", GPUS, "any"), ("c0", (), "any"), ("x0", (), "old"))
}
RATES = (Rate("a100", 2000, 0, 2.5, "EUR"),)
PAYER = Payer("default", "ann", "training", "train")
RESTART = Verdict(Action.RESTART, State.QUEUED, "restarting")
DONE = Verdict(Action.FINISH, State.SUCCEEDED, "every rank exited 0")


def share(node: str, gpus: int = 0, cpus: float = 1.0) -> NodeShare:
    return NodeShare(node, "127.0.0.1", cpus, devices=tuple(range(gpus)))


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((share("g0", 2),), RATES),
        ((share("g0", 8), share("g1", 8)), (Rate("a100", 16_000, 0, 2.5, "EUR"),)),
        ((share("c0", cpus=1.5),), (Rate("cpu", 0, 1500, 0.04, "EUR"),)),
        ((share("g0", cpus=4),), (Rate("a100", 0, 4000, 0.0, "EUR"),)),  # the price is of its GPUs
        ((share("x0", cpus=2),), (Rate("old", 0, 2000, 0.0, "EUR"),)),  # a pool that is not configured
        ((share("g1", 1), share("c0", cpus=3)), (Rate("a100", 1000, 0, 2.5, "EUR"), Rate("cpu", 0, 3000, 0.04, "EUR"))),
    ],
)
def test_each_pool_has_its_price(shares: tuple[NodeShare, ...], expected: tuple[Rate, ...]) -> None:
    assert charging.rates(Allocation(shares), NODES, RULES) == expected


class History:
    """One job's events, each with its entries."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.usage: dict[Member, Account] = {}

    def at(self, now_s: float, *happened: ev.JobEvent) -> list[Entry]:
        found: list[Entry] = []
        for event in happened:
            self.job, _ = apply(self.job, self.job.id, event, now_s)
            found += charging.entries(self.usage, RULES, self.job, event, now_s)
        return found


def placed(number: int, *resume: str) -> ev.Placed:
    return ev.Placed(number, Allocation((share("g0", 2),)), resume, RATES)


def staged(id: str, attempt: int) -> ev.CheckpointStaged:
    return ev.CheckpointStaged(attempt, id, 10, Part(0, "d", 1, 1))


def crash(number: int) -> tuple[ev.JobEvent, ...]:
    return ev.NodeEnded(number, 0, Outcome()), ev.AttemptEnded(number, RESTART)


def test_from_placement_until_the_end() -> None:
    history = History(builders.job())
    assert history.at(10.0004, placed(1)) == [Charge("train-1", 1, PAYER, RATES[0], 10_000)]
    assert history.at(11.0, ev.NodeStarted(1, 0), staged("c1", 1), ev.NodeEnded(1, 0, Outcome())) == []
    closed, balance = history.at(110.0, ev.AttemptEnded(1, DONE))
    assert closed == Closed("train-1", 1, 110_000)
    assert isinstance(balance, Balance)
    assert balance[:2] == ("default", "ann")
    assert balance.service == pytest.approx(2 * (1 - 0.5) * HALF_LIFE_S / log(2))  # GPU-seconds, faded over one half-life
    assert history.usage == {("default", "ann"): Account(balance.service, balance.at_s)}


def test_an_attempt_from_before_there_was_a_ledger_is_not_in_it() -> None:
    history = History(builders.job())
    assert history.at(10.0, replace(placed(1), rates=()), *crash(1)) == []
    assert history.at(20.0, placed(2)) == [Charge("train-1", 2, PAYER, RATES[0], 20_000), Repeated("train-1", 2, 0, 0)]


def test_what_came_after_the_checkpoint_is_done_again() -> None:
    history = History(builders.job())
    history.at(10.0, placed(1), ev.NodeStarted(1, 0))
    history.at(20.0, staged("c1", 1))
    history.at(30.0, staged("c2", 1))
    history.at(40.0, *crash(1))
    assert history.at(50.0, placed(2, "c2", "c1"))[1:] == [Repeated("train-1", 2, 1, 30_000)]
    assert history.at(51.0, ev.NodeStarted(2, 0, "c2", 10)) == []
    history.at(60.0, *crash(2))
    assert history.at(70.0, placed(3, "c2", "c1"))[1:] == [Repeated("train-1", 3, 1, 30_000)]
    assert history.at(71.0, ev.NodeStarted(3, 0, "c1", 10, ("c2",))) == [Repeated("train-1", 3, 1, 20_000)]  # c2 was damaged
    history.at(80.0, *crash(3))
    assert history.at(90.0, placed(4, "c1"))[1:] == [Repeated("train-1", 4, 1, 20_000)]
    assert history.at(91.0, ev.NodeStarted(4, 0, None, None, ("c1",))) == [Repeated("train-1", 4, 0, 0)]


def test_with_nothing_to_go_on_from_all_is_done_again() -> None:
    for code, expected in ((CodeCopy(), [Repeated("train-1", 2, 0, 0)]), (CodeCopy(in_place=True), [])):
        history = History(builders.job(code=code))
        history.at(10.0, placed(1), ev.NodeStarted(1, 0), *crash(1))
        assert history.at(20.0, placed(2))[1:] == expected


def test_a_fork_that_begins_again_does_all_of_its_own_again() -> None:
    lineage = Lineage(Relation.FORK, "other-1", Checkpoint("c9", 9, 1, (), committed_s=5.0), "other-1")
    history = History(builders.job(lineage=lineage))
    assert history.at(10.0, placed(1, "other-1:c9"))[1:] == []
    history.at(11.0, ev.NodeStarted(1, 0, "other-1:c9", 9), *crash(1))
    assert history.at(20.0, placed(2, "other-1:c9"))[1:] == [Repeated("train-1", 2, 0, 0)]


def test_fair_share_counts_gpus_and_where_there_are_none_cpus() -> None:
    both = (Rate("a100", 1500), Rate("cpu", 0, 3000))
    rates = (both, both[1:], ())
    assert [charging.service_rate(one, 0.25) for one in rates] == [1.5, 0.75, 0.0]


def test_another_half_life_fades_from_now_on() -> None:
    before, after = Cluster(half_life_s=100.0), Cluster(half_life_s=50.0)
    usage: dict[Member, Account] = {("vision", "ann"): Account(8.0, 0.0), ("text", "bob"): Account(4.0, 100.0)}
    assert charging.reconfigured(usage, before, Cluster(half_life_s=100.0, currency="EUR"), 200.0) == ()
    found = charging.reconfigured(usage, before, after, 200.0)
    assert found == (Balance("text", "bob", 2.0, 200.0), Balance("vision", "ann", 2.0, 200.0))
    assert usage == {("vision", "ann"): Account(2.0, 200.0), ("text", "bob"): Account(2.0, 200.0)}
    assert usage["vision", "ann"].at(250.0, after.half_life_s) == 1.0
