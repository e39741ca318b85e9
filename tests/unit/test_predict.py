"""Run times predicted from ended and running jobs, and their use in the orders."""

from math import inf
from random import Random

import pytest
from effort import examples, nightly
from hypothesis import Phase, given, settings
from test_scheduling_laws import History, seeds

from trainmaster.scheduling.model.jobs import Kind, Owner, Past, Run, Task, kind_of
from trainmaster.scheduling.model.request import Shape, ask_of
from trainmaster.scheduling.model.snapshot import Snapshot
from trainmaster.scheduling.model.space import Grant
from trainmaster.scheduling.policies.known import POLICIES
from trainmaster.scheduling.prediction import predictor as predict
from trainmaster.scheduling.prediction.predictor import TRUST, UNLIKE, Foresight, Predictor, foresee
from trainmaster.simulator.replay import Replay, Settings
from trainmaster.simulator.trace import Arrival, Trace, processors

HOUR_S, DAY_S = 3600.0, 86_400.0
SLOW = "least-attained"  # the policy whose replay takes longest
ONE, TWO = ask_of(1, Shape()), ask_of(2, Shape())


def kind(ask: object = ONE, member: str = "ann", limit_s: float | None = None, command: str = "") -> Kind:
    return kind_of(ask, Owner(member=member), limit_s, command)  # type: ignore[arg-type]


def task(seq: int, of: Kind, ran_s: float = 0.0, running: bool = False) -> Task:
    return Task(seq, f"j{seq}", of, 0.0, attained_s=ran_s, running=running)


def foresight(*ended: Past, running: tuple[Run, ...] = (), now_s: float = 0.0) -> Foresight:
    return foresee(Snapshot(now_s, (), {}, {run.task.id: run for run in running}, ended=ended), {})


def over(seq: int, of: Kind, ran_s: float) -> Past:
    return Past(seq, of, ran_s)


def test_before_anything_is_known_it_is_an_hour_or_a_part_of_the_limit() -> None:
    view = foresight()
    assert view.left_s(task(1, kind())) == HOUR_S
    assert view.left_s(task(2, kind(limit_s=1000.0))) == pytest.approx(300.0)


def test_one_neighbour_counts_more_than_what_is_known_of_all() -> None:
    view = foresight(over(1, kind(), 1000.0))
    long, short = HOUR_S**0.5, 1000.0**0.5
    of_all = (long + short) / 2
    of_its_owner = ((of_all + short) / 2 + short) / 2
    heavy = (HOUR_S + 1000.0) / 2 / of_all**2
    root = (short + TRUST * of_its_owner) / (1.0 + TRUST)
    assert view.left_s(task(2, kind())) == pytest.approx(root**2 * heavy)


def test_a_long_neighbour_does_not_outweigh_short_ones_but_what_all_have_of_such_is_added() -> None:
    """The same neighbours, once where the jobs of all others took equally long and once where these had long ones too."""
    own = [over(seq, kind(), 100_000.0 if seq == 1004 else 100.0) for seq in range(1000, 1009)]
    even = [over(seq, kind(member=f"m{seq % 20}"), 5000.0) for seq in range(400)]
    apart = [over(seq, kind(member=f"m{seq % 20}"), 100_000.0 if seq % 20 == 0 else 0.0) for seq in range(400)]
    in_even, in_apart = (foresight(*others, *own).left_s(task(1009, kind())) for others in (even, apart))
    assert in_even < sum(one.ran_s for one in own) / len(own) / 3
    assert in_apart > 5 * in_even


def test_where_nobody_knows_whose_they_are_those_that_came_together_are_of_one() -> None:
    """The same neighbours, at the same places, but for how many others were submitted in between."""
    far, near = ((over(1, kind(member=one), 100.0), over(60, kind(member=one), 10_000.0)) for one in ("", "ann"))
    early, late = (foresight(*far).left_s(task(seq, kind(member=""))) for seq in (2, 59))
    assert early < 0.5 * late
    assert foresight(*near).left_s(task(2, kind())) == foresight(*near).left_s(task(59, kind()))


def test_the_same_request_counts_more_than_another_and_the_same_command_most() -> None:
    like, unlike = over(1, kind(), 100.0), over(2, kind(TWO), 10_000.0)
    of_one, of_two = (foresight(like, unlike).left_s(task(3, kind(ask))) for ask in (ONE, TWO))
    assert of_one < 0.4 * of_two
    train, test = (over(seq, kind(command=name), ran_s) for seq, name, ran_s in ((1, "train.py", 9000.0), (2, "test.py", 30.0)))
    assert foresight(train, test).left_s(task(3, kind(command="train.py"))) > 6000.0
    assert foresight(train, test).left_s(task(3, kind(command="test.py"))) < 3000.0
    assert UNLIKE < 1.0


def test_a_limit_is_never_passed_and_a_prediction_that_was_is_doubled() -> None:
    ended = [over(seq, kind(limit_s=1000.0), 900.0) for seq in range(9)]
    assert foresight(*ended).left_s(task(10, kind(limit_s=500.0))) <= 500.0
    hour = foresight(*[over(seq, kind(), HOUR_S) for seq in range(9)])
    assert hour.left_s(task(10, kind())) == pytest.approx(HOUR_S)
    assert hour.left_s(task(10, kind(), ran_s=5000.0)) == pytest.approx(2 * HOUR_S - 5000.0)
    limited = foresight(*[over(seq, kind(limit_s=1000.0), 100.0) for seq in range(9)])
    assert limited.left_s(task(10, kind(limit_s=1000.0), ran_s=999.0)) == pytest.approx(1.0)
    assert limited.left_s(task(10, kind(limit_s=1000.0), ran_s=1001.0)) == 0.0


def test_one_is_counted_on_to_hold_its_nodes_for_twice_the_prediction_before_and_after_its_start() -> None:
    view = foresight(*[over(seq, kind(), HOUR_S) for seq in range(9)])
    assert view.held_s(task(10, kind())) == pytest.approx(2 * HOUR_S)
    assert view.held_s(task(10, kind(), ran_s=600.0, running=True)) == pytest.approx(2 * HOUR_S - 600.0)


def test_a_neighbour_that_runs_on_and_on_says_that_it_takes_long() -> None:
    ended = [over(seq, kind(), 600.0) for seq in range(3)]
    runs = tuple(Run(task(seq, kind()), Grant(ONE, (0,)), 0.0) for seq in range(3, 6))
    young, old = (foresight(*ended, running=runs, now_s=now_s).left_s(task(9, kind())) for now_s in (60.0, 10 * HOUR_S))
    nobody = foresight(*ended).left_s(task(9, kind()))
    assert young == pytest.approx(nobody, rel=0.05)
    assert old > 5 * nobody


@pytest.mark.parametrize("batch", [predict._BATCH, 3])  # how much longer the past is than what is not looked at yet
@settings(max_examples=examples(20, 400), deadline=None, phases=[Phase.generate])
@given(seed=seeds)
def test_who_followed_knows_the_same_as_who_has_just_come(batch: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "_BATCH", batch)
        follows(seed)


def follows(seed: int) -> None:
    rng = Random(seed)
    history, followed = History(rng, POLICIES["easy"], rng.choice([1.0, 1000.0])), Predictor()
    for _ in range(30):
        snapshot = history.step()
        followed.follow(snapshot)
        fresh = Predictor()
        fresh.follow(snapshot)
        tasks = [*snapshot.waiting.values(), *(run.at(snapshot.now_s) for run in snapshot.running.values())]
        assert [followed.total_s(one) for one in tasks] == [fresh.total_s(one) for one in tasks]
        for one in tasks:
            assert 0.0 < fresh.total_s(one) <= (one.kind.limit_s or inf)
        for id, one in list(history.waiting.items())[: rng.randint(0, 2)]:
            history.start(id, Grant(one.kind.ask, ()))


def flood(work: str) -> Trace:
    """Slightly more than four processors can do, of short jobs, for four weeks; and at the beginning a long one."""
    long = Arrival("long", 0.0, 2 * DAY_S, ONE, member="ann", limit_s=3 * DAY_S, work=work)
    jobs = [
        Arrival(str(at), at * 5200.0, 6 * HOUR_S, ONE, member="bob", limit_s=8 * HOUR_S) for at in range(int(28 * DAY_S / 5200))
    ]
    return Trace("flood", (*jobs[:12], long._replace(submit_s=jobs[11].submit_s), *jobs[12:]), processors(4))


@pytest.mark.parametrize("work", ["training", pytest.param("trial", marks=nightly)])
@pytest.mark.parametrize("name", [*sorted({*POLICIES} - {SLOW}), pytest.param(SLOW, marks=nightly)])
def test_nobody_waits_for_ever_while_jobs_end_that_are_like_it(name: str, work: str) -> None:
    replay = Replay(flood(work), POLICIES[name], Settings(exact=POLICIES[name].exact))
    lives = replay.run()
    still = max(lives.values(), key=lambda life: life.stood_s)
    assert still.stood_s <= 24 * DAY_S, "after 23 days it is first, and within a day a job ends"
    assert all(life.ended_s >= 0 for life in lives.values())
